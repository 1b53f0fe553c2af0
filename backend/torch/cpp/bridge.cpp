// Device "tpu" for PyTorch: what its C++ API demands and nothing else. Every decision about ops is taken in Rust.
//
// One translation unit, for torch's headers take half a minute: device.h, runtime.h, call.h, kernels.h, tensors.h, and
// here autocast and the registration of it all.

#include <unordered_set>

#include <ATen/autocast_mode.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include "kernels.h"
#include "tensors.h"

namespace tpulab {
namespace {

// ---- autocast: CUDA's lists

Tensor banned_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Use torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss instead, "
              "which take the values before the sigmoid and are safe to autocast.");
}

void register_autocast(torch::Library& m) {
  using at::Scalar;
  using at::ScalarType;
#define TPULAB_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TPULAB_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TPULAB_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TPULAB_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TPULAB_LOWER)
  AT_FORALL_FP32(TPULAB_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TPULAB_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TPULAB_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(banned_binary_cross_entropy));
}

// ---- registration

// Libraries are never torn down: ops may run until the process ends.
torch::Library& library(const char* ns, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, ns, key, __FILE__, __LINE__);
}

void register_metadata(torch::Library& m, Names& registered) {
  const auto add = [&](const char* name, auto&& kernel) {
    m.impl(name, std::forward<decltype(kernel)>(kernel));
    registered.insert(name);
  };
  add("empty.memory_format", TORCH_FN(empty));
  add("empty_strided", TORCH_FN(empty_strided));
  add("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  add("view", TORCH_FN(at::native::view));
  add("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  add("unfold", TORCH_FN(at::native::unfold));
  add("view_as_real", TORCH_FN(at::native::view_as_real));
  add("view_as_complex", TORCH_FN(at::native::view_as_complex));
  add("is_set_to", TORCH_FN(at::native::is_set_to));
  add("resize_", TORCH_FN(resize_));
  add("set_", TORCH_FN(set_empty_));
  add("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(&at::native::set_));
  add("set_.source_Storage_storage_offset", TORCH_FN(set_storage_));
  add("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  add("copy_", TORCH_FN(copy_));
  add("_copy_from", TORCH_FN(copy_from));
  add("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  add("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  add("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  add("equal", TORCH_FN(equal));
  add("record_stream", TORCH_FN(record_stream));
  add("_lazy_clone", TORCH_FN(eager_clone));
  add("_efficientzerotensor", TORCH_FN(zeros));
}

// Ops that Rust wants by name, although torch has a composite of them. A composite without an autograd formula of its
// own must stay: its gradient is that of its parts.
void register_named(torch::Library& m, Names& registered) {
  uint32_t n = 0;
  const char* const* names = tpulab_direct_ops(&n);
  for (uint32_t i = 0; i < n; ++i) {
    const std::string label = names[i];
    if (registered.count(label)) continue;
    const auto dot = label.find('.');
    auto op = c10::Dispatcher::singleton().findSchema(
        {"aten::" + label.substr(0, dot), dot == std::string::npos ? "" : label.substr(dot + 1)});
    if (!op) continue;  // another torch version
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::Autograd)) {
      continue;
    }
    m.impl(label.c_str(),
           torch::CppFunction::makeFromBoxedFunctor(std::make_unique<NamedKernel>(record_of(op->schema()))));
    registered.insert(label);
  }
}

void check_torch() {
  const uint64_t running = aoti_torch_abi_version();
  const int major = static_cast<int>(running >> 56 & 0xff), minor = static_cast<int>(running >> 48 & 0xff);
  TORCH_CHECK(major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR,
              "this library of tpulab was built for torch ", tpulab_bridge_torch_version(), ", but torch ", major, ".",
              minor, " is running");
  TORCH_CHECK(!c10::is_privateuse1_backend_registered() && !at::isPrivateUse1HooksRegistered(),
              "PyTorch has one place for a device of another package (PrivateUse1), and in this process it is taken "
              "already, under the name \"",
              c10::get_privateuse1_backend(),
              "\". Either uninstall that package, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only tpulab");
}

void register_everything() {
  check_torch();
  c10::register_privateuse1_backend(kName);
  c10::SetAllocator(kTpu, &device_memory());
  at::setHostAllocator(kTpu, &PinnedMemory::instance());
  static c10::impl::DeviceGuardImplRegistrar guard(kTpu, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);

  library("_", c10::DispatchKey::PrivateUse1).fallback(torch::CppFunction::makeFromBoxedFunction<&call_any>());
  auto& aten = library("aten", c10::DispatchKey::PrivateUse1);
  Names registered;
  register_metadata(aten, registered);
#define TPULAB_REGISTER_HOT(op) register_hot<at::_ops::op>(aten, registered);
  TPULAB_HOT_OPS(TPULAB_REGISTER_HOT)
  register_named(aten, registered);

  const auto& dispatcher = c10::Dispatcher::singleton();
  // Ops without a formula say so at backward; newer torch versions bring this fallback along.
  if (!dispatcher.hasBackendFallbackForDispatchKey(c10::DispatchKey::AutogradPrivateUse1)) {
    library("_", c10::DispatchKey::AutogradPrivateUse1)
        .fallback(torch::autograd::basicAutogradNotImplementedFallback());
  }
  if (!dispatcher.hasBackendFallbackForDispatchKey(c10::DispatchKey::AutocastPrivateUse1)) {
    library("_", c10::DispatchKey::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  }
  register_autocast(library("aten", c10::DispatchKey::AutocastPrivateUse1));
  at::autocast::set_autocast_dtype(kTpu, at::kBFloat16);

  // Python reaches a device's default generator through this op: torch has no other door to it for a device of a
  // package.
  auto& own = *new torch::Library(torch::Library::DEF, "tpulab", std::nullopt, __FILE__, __LINE__);
  own.def("default_generator(int device) -> Generator?", [](int64_t device) -> std::optional<at::Generator> {
    return default_generator(static_cast<DeviceIndex>(device));
  });
}

}  // namespace

extern "C" void tpulab_generator_next(void* generator, int32_t device, uint64_t* seed, uint64_t* offset) {
  auto* impl = static_cast<c10::GeneratorImpl*>(generator);
  if (!impl) impl = default_generator(static_cast<DeviceIndex>(device)).unsafeGetGeneratorImpl();
  std::lock_guard<std::mutex> lock(impl->mutex_);
  std::tie(*seed, *offset) = static_cast<Generator*>(impl)->next();
}

extern "C" const char* tpulab_bridge_torch_version() {
  return C10_STRINGIZE(TORCH_VERSION_MAJOR) "." C10_STRINGIZE(TORCH_VERSION_MINOR);
}

extern "C" const char* tpulab_bridge_register() {
  static std::mutex mutex;
  static bool done = false;
  static std::string error;
  std::lock_guard<std::mutex> lock(mutex);
  if (done) return nullptr;
  try {
    register_everything();
    done = true;
    return nullptr;
  } catch (const c10::Error& failure) {
    error = failure.what_without_backtrace();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  return error.c_str();
}

}  // namespace tpulab

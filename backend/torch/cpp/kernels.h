// The kernels that lead to Rust: boxed for any op, unboxed for hot ones, and the CPU's for what Rust lacks.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/CPUFallback.h>

#include "call.h"

namespace tpulab {

// ---- the call

inline int run(const OpRecord& record, const TlValue* values, size_t n, TlResult* result) {
  const auto& context = at::globalContext();
  uint32_t flags = static_cast<uint32_t>(at::get_default_dtype_as_scalartype());
  if (record.flags & TL_OP_MATMUL_PRECISION) flags |= static_cast<uint32_t>(context.float32MatmulPrecision()) << 8;
  if (context.deterministicAlgorithms()) flags |= 1u << 10;
  const TlCall call{record.id, flags, values, static_cast<uint32_t>(n), current_device};
  return tpulab_call(&call, result);
}

inline std::string describe_arguments(c10::ArrayRef<IValue> args) {
  std::ostringstream text;
  const auto tensor = [&](const Tensor& t) {
    if (t.defined())
      text << c10::getDtypeNames(t.scalar_type()).first << t.sizes();
    else
      text << "None";
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (i) text << ", ";
    if (args[i].isTensor()) {
      tensor(args[i].toTensor());
    } else if (args[i].isTensorList()) {
      text << args[i].toListRef().size() << " tensors";
    } else {
      text << args[i];
    }
  }
  return text.str();
}

// torch's CPU kernels know only CPU generators: each gets one seeded by a draw from ours, so torch.tpu.manual_seed
// still rules.
inline void replace_generators(const OperatorHandle& op, Stack* stack, DeviceIndex device) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!(argument_flags(arguments[i]) & TL_ARG_GENERATOR)) continue;
    IValue& slot = torch::jit::peek(*stack, i, arguments.size());
    if (slot.isGenerator() && slot.toGenerator().device().type() != kTpu) continue;
    uint64_t seed = 0, offset = 0;
    tpulab_generator_next(slot.isGenerator() ? slot.toGenerator().unsafeGetGeneratorImpl() : nullptr, device, &seed,
                          &offset);
    slot = at::make_generator<at::CPUGeneratorImpl>(seed ^ (offset * 0x9e3779b97f4a7c15ull));
  }
}

inline void not_lowered(const OpRecord& record, const OperatorHandle& op, Stack* stack) {
  const std::string reason = tpulab_error();
  const auto& schema = op.schema();
  const auto args = torch::jit::last(*stack, schema.arguments().size());
  // A view cannot leave the device, for its storage would be another one; nor can an op that the CPU lacks too.
  const bool view = std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& ret) {
    return ret.alias_info() && !ret.alias_info()->isWrite();
  });
  const bool possible = !view && op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  if (!possible || !tpulab_fallback_enabled()) {
    const bool named = reason.rfind(record.label, 0) == 0;
    raise(TL_NOT_LOWERED,
          c10::str(named ? "" : record.label + " on tpu: ", reason, ". Arguments: (", describe_arguments(args), ").",
                   possible ? " tpulab.cpu_fallback(True) runs it on the CPU" : ""));
  }
  DeviceIndex device = current_device;
  for (const IValue& arg : args) {
    if (arg.isTensor() && arg.toTensor().defined() && arg.toTensor().device().type() == kTpu) {
      device = arg.toTensor().device().index();
      break;
    }
  }
  tpulab_fallback_used(record.id);
  replace_generators(op, stack, device);
  at::native::cpu_fallback(op, stack);
}

inline void call_boxed(const OpRecord& record, const OperatorHandle& op, Stack* stack) {
  const size_t n = op.schema().arguments().size();
  const auto args = torch::jit::last(*stack, n);
  Frame frame;
  auto* values = frame.take<TlValue>(n);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t bit = i < 64 ? 1ull << i : 0;
    if ((record.written & bit) && args[i].isTensor() && args[i].toTensor().defined()) {
      at::assert_no_internal_overlap(args[i].toTensor());
    }
    values[i] = frame.put(args[i]);
  }
  TlResult result{};
  const int rc = run(record, values, n, &result);
  if (C10_UNLIKELY(rc == TL_NOT_LOWERED)) return not_lowered(record, op, stack);
  if (C10_UNLIKELY(rc != TL_OK)) check(rc, record.label.c_str());

  c10::SmallVector<IValue, 4> returns;
  const TlOut *out = result.outs, *end = result.outs + result.n;
  for (size_t ret = 0; ret < record.list_returns.size(); ++ret) {
    if (record.list_returns[ret]) {
      c10::List<Tensor> list;
      for (; out != end && out->ret == static_cast<int32_t>(ret); ++out) list.push_back(realise(*out, args));
      returns.emplace_back(std::move(list));
    } else {
      TORCH_INTERNAL_ASSERT(out != end, record.label, ": the engine gave too few outputs");
      returns.emplace_back(realise(*out++, args));
    }
  }
  torch::jit::drop(*stack, n);
  for (auto& value : returns) stack->push_back(std::move(value));
}

// Every op that no kernel is registered for.
inline void call_any(const OperatorHandle& op, Stack* stack) { call_boxed(cached_record_of(op), op, stack); }

inline void call_not_lowered(const OperatorHandle& op, Stack* stack) { not_lowered(cached_record_of(op), op, stack); }

// An op registered by name carries its record.
struct NamedKernel final : c10::OperatorKernel {
  explicit NamedKernel(const OpRecord& record) : record_(record) {}
  void operator()(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) { call_boxed(record_, op, stack); }

 private:
  const OpRecord& record_;
};

// ---- hot ops: unboxed kernels made from torch's own signatures

template <class Op, class Signature>
struct HotKernel;

template <class Op, class Return, class... Args>
struct HotKernel<Op, Return(Args...)> {
  static inline const OpRecord* record = nullptr;

  static Return call(Args... args) {
    constexpr bool in_place = std::is_same_v<Return, Tensor&>;
    if constexpr (in_place) at::assert_no_internal_overlap(self(args...));
    Frame frame;
    const TlValue values[] = {frame.put(args)...};
    TlResult result{};
    const int rc = run(*record, values, sizeof...(Args), &result);
    if (C10_UNLIKELY(rc == TL_NOT_LOWERED)) return at::native::call_fallback_fn<&call_not_lowered, Op>::call(args...);
    if (C10_UNLIKELY(rc != TL_OK)) check(rc, record->label.c_str());
    if constexpr (in_place) {
      return self(args...);
    } else {
      TORCH_INTERNAL_ASSERT(result.n == 1 && result.outs->kind == TL_OUT_NEW);
      return new_tensor(*result.outs);
    }
  }

 private:
  template <class... Rest>
  static Tensor& self(Tensor& first, Rest&...) {
    return first;
  }
};

#define TPULAB_HOT_OPS(_)                                                                                              \
  _(add_Tensor)                                                                                                        \
  _(sub_Tensor) _(mul_Tensor) _(div_Tensor) _(add__Tensor) _(sub__Tensor) _(mul__Tensor) _(div__Tensor) _(mm) _(addmm) \
      _(bmm) _(relu) _(neg) _(exp) _(rsqrt) _(tanh) _(sigmoid) _(silu) _(threshold_backward) _(sum_dim_IntList)        \
          _(mean_dim) _(_softmax) _(_log_softmax) _(pow_Tensor_Scalar)

using Names = std::unordered_set<std::string>;

template <class Op>
inline void register_hot(torch::Library& library, Names& registered) {
  auto op = c10::Dispatcher::singleton().findSchema({Op::name, Op::overload_name});
  if (!op) return;
  using Kernel = HotKernel<Op, typename Op::schema>;
  const auto& record = record_of(op->schema());
  if (!(record.flags & TL_OP_NATIVE)) return;
  Kernel::record = &record;
  library.impl(record.label.c_str(), torch::CppFunction::makeFromUnboxedFunction(&Kernel::call));
  registered.insert(record.label);
}

}  // namespace tpulab

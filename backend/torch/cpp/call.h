// A call on its way to Rust and back: what is known of an op, its arguments, its results.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "device.h"

namespace tpulab {

using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

// ---- op records

struct OpRecord {
  std::string label;  // "add.Tensor"; "ns::name.overload" outside aten
  uint32_t id = 0;
  uint32_t flags = 0;    // TL_OP_*
  uint64_t written = 0;  // bit i: argument i is written
  std::vector<bool> list_returns;
};

inline std::string label_of(const c10::OperatorName& name) {
  constexpr std::string_view aten = "aten::";
  auto label = name.name.substr(name.name.rfind(aten, 0) == 0 ? aten.size() : 0);
  return name.overload_name.empty() ? label : label + "." + name.overload_name;
}

inline uint32_t argument_flags(const c10::Argument& argument) {
  uint32_t flags = argument.alias_info() && argument.alias_info()->isWrite() ? TL_ARG_WRITTEN : 0;
  if (argument.is_out()) flags |= TL_ARG_OUT;
  auto type = argument.type();
  bool list = false;
  for (;;) {
    if (auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    } else if (auto elements = type->cast<c10::ListType>()) {
      type = elements->getElementType();
      list = true;
    } else {
      break;
    }
  }
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return flags | (list ? TL_ARG_TENSORS : TL_ARG_TENSOR);
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType: return flags | TL_ARG_NUMBER;
    case c10::TypeKind::GeneratorType: return flags | TL_ARG_GENERATOR;
    default: return flags;
  }
}

inline std::unique_ptr<OpRecord> make_record(const c10::FunctionSchema& schema) {
  auto record = std::make_unique<OpRecord>();
  record->label = label_of(schema.operator_name());
  const auto& arguments = schema.arguments();
  std::vector<TlArgSchema> args;
  for (size_t i = 0; i < arguments.size(); ++i) {
    args.push_back({arguments[i].name().c_str(), argument_flags(arguments[i])});
    const uint64_t bit = i < 64 ? 1ull << i : 0;
    if (args[i].flags & TL_ARG_WRITTEN) record->written |= bit;
  }
  std::vector<TlReturnSchema> rets;
  for (const auto& ret : schema.returns()) {
    int32_t alias = -1;
    for (size_t i = 0; ret.alias_info() && i < arguments.size(); ++i) {
      if (arguments[i].alias_info() && *arguments[i].alias_info() == *ret.alias_info()) alias = static_cast<int32_t>(i);
    }
    const bool list = ret.type()->kind() == c10::TypeKind::ListType;
    rets.push_back({alias, list});
    record->list_returns.push_back(list);
  }
  const auto& full = schema.name();
  const char* name = full.rfind("aten::", 0) == 0 ? full.c_str() + 6 : full.c_str();
  const auto info =
      tpulab_op_register(name, schema.overload_name().c_str(), args.data(), static_cast<uint32_t>(args.size()),
                         rets.data(), static_cast<uint32_t>(rets.size()));
  record->id = info.id;
  record->flags = info.flags;
  return record;
}

// The record of a schema, made once a process; records live for ever.
inline const OpRecord& record_of(const c10::FunctionSchema& schema) {
  static std::mutex mutex;
  static auto* records = new std::unordered_map<std::string, std::unique_ptr<OpRecord>>;
  auto key = c10::str(schema);
  std::lock_guard<std::mutex> lock(mutex);
  auto& record = (*records)[std::move(key)];
  if (!record) record = make_record(schema);
  return *record;
}

// The same from a table a thread. A schema's address may serve another op after a library was unloaded: names are
// compared.
inline const OpRecord& cached_record_of(const OperatorHandle& op) {
  struct Entry {
    const OpRecord* record = nullptr;
    c10::OperatorName name{"", ""};
  };
  thread_local std::unordered_map<const void*, Entry> seen;
  const auto& schema = op.schema();
  auto& entry = seen[&schema];
  if (C10_UNLIKELY(!entry.record || entry.name != schema.operator_name())) {
    entry.record = &record_of(schema);
    entry.name = schema.operator_name();
  }
  return *entry.record;
}

// ---- arguments

inline TlTensor describe(const c10::TensorImpl* impl) {
  const bool on_tpu = impl->device_type() == kTpu;
  return {
      on_tpu ? cell_of(impl->unsafe_storage()) : nullptr,
      on_tpu ? nullptr : impl->data(),
      impl->sizes().data(),
      impl->strides().data(),
      impl->storage_offset(),
      static_cast<int32_t>(c10::typeMetaToScalarType(impl->dtype())),
      static_cast<int16_t>(impl->dim()),
      static_cast<uint16_t>((on_tpu ? TL_DEVICE : 0) | (impl->is_wrapped_number() ? TL_WRAPPED : 0)),
  };
}

// Arguments in the form of the C ABI. What they point to lives here: inline for ordinary ops, on the heap beyond that.
class Frame {
 public:
  Frame() = default;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  template <class T>
  T* take(size_t n) {
    const size_t bytes = (n * sizeof(T) + 15) & ~size_t{15};
    if (C10_LIKELY(used_ + bytes <= sizeof(inline_))) {
      auto* place = inline_ + used_;
      used_ += bytes;
      return reinterpret_cast<T*>(place);
    }
    spilled_.push_back(std::make_unique<char[]>(bytes));
    return reinterpret_cast<T*>(spilled_.back().get());
  }

  TlValue put(const Tensor& tensor) {
    if (!tensor.defined()) return {TL_NONE, 0, {}};
    const auto* impl = tensor.unsafeGetTensorImpl();
    if (C10_UNLIKELY(impl->device_type() != kTpu)) impl = on_host(tensor);
    auto* place = take<TlTensor>(1);
    *place = describe(impl);
    return pointer(TL_TENSOR, 1, place);
  }
  TlValue put(const c10::Scalar& number) {
    if (number.isFloatingPoint()) return put(number.toDouble());
    if (number.isBoolean()) return put(number.toBool());
    if (number.isComplex()) return put(number.toComplexDouble());
    return put(number.toLong());
  }
  TlValue put(c10::complex<double> number) {
    auto* place = take<double>(2);
    place[0] = number.real();
    place[1] = number.imag();
    return pointer(TL_COMPLEX, 2, place);
  }
  TlValue put(int64_t number) {
    TlValue value{TL_INT, 0, {}};
    value.i = number;
    return value;
  }
  TlValue put(double number) {
    TlValue value{TL_DOUBLE, 0, {}};
    value.d = number;
    return value;
  }
  TlValue put(bool flag) {
    TlValue value{TL_BOOL, 0, {}};
    value.i = flag;
    return value;
  }
  TlValue put(at::ScalarType dtype) { return put(static_cast<int64_t>(dtype)); }
  TlValue put(IntArrayRef list) { return pointer(TL_INTS, list.size(), list.data()); }
  TlValue put(const at::OptionalIntArrayRef& list) { return list.has_value() ? put(*list) : TlValue{TL_NONE, 0, {}}; }
  template <class T>
  TlValue put(const std::optional<T>& value) {
    return value.has_value() ? put(*value) : TlValue{TL_NONE, 0, {}};
  }

  TlValue put(const IValue& value) {
    if (value.isTensor()) return put(value.toTensor());
    if (value.isNone()) return {TL_NONE, 0, {}};
    if (value.isInt()) return put(value.toInt());
    if (value.isDouble()) return put(value.toDouble());
    if (value.isBool()) return put(value.toBool());
    if (value.isList()) return put_list(value);
    if (value.isString()) return pointer(TL_STRING, value.toStringRef().size(), value.toStringRef().data());
    if (value.isComplexDouble()) return put(value.toComplexDouble());
    if (value.isScalar()) return put(value.toScalar());
    if (value.isDevice()) {
      const auto device = value.toDevice();
      TlValue index{TL_DEVICE_INDEX, 0, {}};
      index.i = device.type() == kTpu ? resolve(device.index()) : -1;
      return index;
    }
    if (value.isGenerator()) {
      const auto generator = value.toGenerator();
      TORCH_CHECK(generator.device().type() == kTpu, "Expected a 'tpu' device type for generator but found '",
                  generator.device().type(), "'");
      return pointer(TL_GENERATOR, 1, generator.unsafeGetGeneratorImpl());
    }
    return {TL_OTHER, 0, {}};
  }

 private:
  static TlValue pointer(uint32_t tag, size_t n, const void* p) {
    TlValue value{tag, static_cast<uint32_t>(n), {}};
    value.p = p;
    return value;
  }

  TlValue put_list(const IValue& value) {
    const auto items = value.toListRef();
    if (value.isIntList()) {
      auto* ints = take<int64_t>(items.size());
      for (size_t i = 0; i < items.size(); ++i) ints[i] = items[i].toInt();
      return pointer(TL_INTS, items.size(), ints);
    }
    if (value.isDoubleList()) {
      auto* doubles = take<double>(items.size());
      for (size_t i = 0; i < items.size(); ++i) doubles[i] = items[i].toDouble();
      return pointer(TL_DOUBLES, items.size(), doubles);
    }
    if (value.isBoolList()) {
      auto* bools = take<uint8_t>(items.size());
      for (size_t i = 0; i < items.size(); ++i) bools[i] = items[i].toBool();
      return pointer(TL_BOOLS, items.size(), bools);
    }
    auto* values = take<TlValue>(items.size());
    for (size_t i = 0; i < items.size(); ++i) values[i] = put(items[i]);
    return pointer(TL_LIST, items.size(), values);
  }

  // A CPU tensor with its elements in row-major order, as Rust reads them.
  const c10::TensorImpl* on_host(const Tensor& tensor) {
    TORCH_CHECK(tensor.device().is_cpu(),
                "Expected all tensors to be on the same device, but found at least two devices, tpu and ",
                tensor.device(), "!");
    if (tensor.is_contiguous()) return tensor.unsafeGetTensorImpl();
    kept_.push_back(tensor.contiguous());
    return kept_.back().unsafeGetTensorImpl();
  }

  alignas(16) char inline_[2048];
  size_t used_ = 0;
  std::vector<std::unique_ptr<char[]>> spilled_;
  std::vector<Tensor> kept_;
};

// ---- results

inline Tensor wrap_cell(void* cell, void* address, int64_t nbytes, DeviceIndex device, at::ScalarType dtype,
                        IntArrayRef sizes, IntArrayRef strides) {
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(nbytes),
                                            own_cell(cell, address, device), &device_memory(), /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                         c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

inline Tensor new_tensor(const TlOut& out) {
  const size_t ndim = static_cast<size_t>(out.ndim);
  return wrap_cell(out.cell, out.address, out.nbytes, static_cast<DeviceIndex>(out.device),
                   static_cast<at::ScalarType>(out.dtype), IntArrayRef(out.sizes, ndim),
                   IntArrayRef(out.strides, ndim));
}

// An out= tensor of another size takes over a result's storage.
inline void take_over(const Tensor& target, const TlOut& out) {
  const Tensor fresh = new_tensor(out);
  at::native::resize_output_check(target, fresh.sizes());
  auto* impl = target.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(fresh.storage());
  impl->set_storage_offset(0);
  impl->set_sizes_and_strides(fresh.sizes(), fresh.strides());
}

inline Tensor realise(const TlOut& out, c10::ArrayRef<IValue> args) {
  if (out.kind == TL_OUT_NEW) return new_tensor(out);
  if (out.kind == TL_OUT_UNDEFINED) return {};
  const IValue& arg = args[out.arg];
  Tensor target = out.item < 0 ? arg.toTensor() : arg.toListRef()[out.item].toTensor();
  if (out.kind == TL_OUT_TAKE) take_over(target, out);
  return target;
}

}  // namespace tpulab

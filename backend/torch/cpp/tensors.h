// Kernels that need no program: creation, views, resizing, copies.
#pragma once
#include <numeric>

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>

#include "call.h"
#include "runtime.h"

namespace tpulab {

// ---- metadata kernels

inline Tensor new_strided(IntArrayRef sizes, IntArrayRef strides, at::ScalarType dtype,
                          std::optional<c10::Device> device) {
  const DeviceIndex index = resolve(device.has_value() ? device->index() : -1);
  const auto nbytes = static_cast<int64_t>(at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype)));
  void *cell = nullptr, *address = nullptr;
  check(tpulab_cell_new(nbytes, index, static_cast<int32_t>(dtype), sizes.data(), strides.data(),
                        static_cast<int32_t>(sizes.size()), &cell, &address),
        "empty");
  return wrap_cell(cell, address, nbytes, index, dtype, sizes, strides);
}

inline void check_factory(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "device tpu has strided tensors only, not ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

inline Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<at::ScalarType> dtype,
                            std::optional<at::Layout> layout, std::optional<c10::Device> device,
                            std::optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  return new_strided(sizes, strides, at::dtype_or_default(dtype), device);
}

inline Tensor empty(IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                    std::optional<c10::Device> device, std::optional<bool> pin_memory,
                    std::optional<at::MemoryFormat> format) {
  check_factory(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  c10::SmallVector<int64_t, 6> strides(sizes.size());
  const auto wanted = format.value_or(at::MemoryFormat::Contiguous);
  if (wanted == at::MemoryFormat::ChannelsLast || wanted == at::MemoryFormat::ChannelsLast3d) {
    const size_t rank = wanted == at::MemoryFormat::ChannelsLast ? 4 : 5;
    TORCH_CHECK(sizes.size() == rank, "required rank ", rank, " tensor to use ", wanted, " format");
    const auto channels_last =
        rank == 4 ? c10::get_channels_last_strides_2d(sizes) : c10::get_channels_last_strides_3d(sizes);
    strides.assign(channels_last.begin(), channels_last.end());
  } else {
    TORCH_CHECK(wanted == at::MemoryFormat::Contiguous, "unsupported memory format ", wanted);
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0; stride *= std::max<int64_t>(sizes[i], 1)) strides[i] = stride;
  }
  return new_strided(sizes, strides, at::dtype_or_default(dtype), device);
}

inline void resize_to(c10::TensorImpl* impl, IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  const auto itemsize = impl->dtype().itemsize();
  const auto offset = static_cast<size_t>(impl->storage_offset());
  const auto nbytes = strides.has_value() ? at::detail::computeStorageNbytes(sizes, *strides, itemsize, offset)
                                          : at::detail::computeStorageNbytesContiguous(sizes, itemsize, offset);
  const auto& storage = impl->unsafe_storage();
  if (nbytes > storage.nbytes() && c10::multiply_integers(sizes) > 0)
    resize_storage(storage.unsafeGetStorageImpl(), nbytes);
  if (strides.has_value())
    impl->set_sizes_and_strides(sizes, *strides);
  else
    impl->set_sizes_contiguous(sizes);
}

inline const Tensor& resize_(const Tensor& self, IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != sizes) resize_to(impl, sizes, {});
  if (format.has_value()) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

inline Tensor& set_storage_(Tensor& self, c10::Storage source, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  const bool given = strides.data() != nullptr && strides.size() == sizes.size();
  resize_to(self.unsafeGetTensorImpl(), sizes, given ? at::OptionalIntArrayRef(strides) : at::OptionalIntArrayRef());
  return self;
}

inline Tensor& set_empty_(Tensor& self) {
  c10::DeviceGuard guard(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, &device_memory(), /*resizable=*/true);
  return set_storage_(self, std::move(storage), 0, {0}, {});
}

// Other values that are not tensors (a bool) cannot cross the C ABI, so this op is put together here.
inline bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "!");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ", self.scalar_type(),
              " but got data type ", other.scalar_type(), " for argument 'other'");
  return self.sizes() == other.sizes() && (self.numel() == 0 || at::all(at::eq(self, other)).item<bool>());
}

inline Tensor zeros(IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                    std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return empty(sizes, dtype, layout, device, pin_memory, {}).zero_();
}

// Whether x.data may become y. torch's own answer leaves devices of packages out, so that model.to("tpu") would replace
// the parameters an optimizer holds; between two plain dense tensors the swap is as sound as between CPU and CUDA.
inline bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto plain = [](const Tensor& t) {
    return t.layout() == at::kStrided && (t.device().is_cpu() || t.device().type() == kTpu) &&
           t.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense));
  };
  return (plain(self) && plain(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

inline Tensor eager_clone(const Tensor& self) { return self.clone(); }

// One stream a device: memory is in use on no other.
inline void record_stream(Tensor&, c10::Stream) {}

// ---- copies

// A device tensor with its dimensions in order of falling stride. In that order most host copies are plain memory
// copies.
struct Reordered {
  c10::SmallVector<int64_t, 6> order, sizes, strides;
  TlTensor tensor;

  explicit Reordered(const Tensor& t)
      : order(t.dim()), sizes(t.dim()), strides(t.dim()), tensor(describe(t.unsafeGetTensorImpl())) {
    std::iota(order.begin(), order.end(), 0);
    if (!t.is_contiguous()) {
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return t.stride(a) > t.stride(b); });
    }
    for (size_t i = 0; i < order.size(); ++i) {
      sizes[i] = t.size(order[i]);
      strides[i] = t.stride(order[i]);
    }
    tensor.sizes = sizes.data();
    tensor.strides = strides.data();
  }
  Reordered(const Reordered&) = delete;

  Tensor apply(const Tensor& t) const { return t.permute(order); }
  Tensor undo(const Tensor& t) const {
    c10::SmallVector<int64_t, 6> inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
    return t.permute(inverse);
  }
};

inline void copy_device(const Tensor& self, const Tensor& source) {
  const Tensor expanded = source.sizes() == self.sizes() ? source : source.expand(self.sizes());
  const TlTensor to = describe(self.unsafeGetTensorImpl()), from = describe(expanded.unsafeGetTensorImpl());
  check(tpulab_copy_device(&to, &from), "copy_");
}

// Converts on the host; what is broadcast is broadcast on the device.
inline void upload(const Tensor& self, const Tensor& source) {
  const Tensor host = source.resolve_conj().resolve_neg().to(self.scalar_type());
  if (host.numel() < self.numel()) {
    const Tensor small = empty(host.sizes(), host.scalar_type(), {}, self.device(), {}, {});
    upload(small, host);
    return copy_device(self, small);
  }
  const Reordered to(self);
  const Tensor data = to.apply(host.expand(self.sizes())).contiguous();
  check(tpulab_copy_from_host(&to.tensor, data.const_data_ptr()), "copy_");
}

// Converts on the host; of a broadcast dimension one element crosses.
inline void download(const Tensor& self, const Tensor& source) {
  Reordered from(source);
  const bool plain = self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() &&
                     !source.is_conj() && !source.is_neg() && !self.is_conj() && !self.is_neg();
  if (plain && from.apply(self).is_contiguous()) {
    return check(tpulab_copy_to_host(&from.tensor, self.data_ptr()), "copy_");
  }
  const c10::SmallVector<int64_t, 6> full = from.sizes;
  for (size_t i = 0; i < full.size(); ++i) {
    if (from.strides[i] == 0) from.sizes[i] = 1;
  }
  Tensor host = at::empty(from.sizes, at::TensorOptions().dtype(source.scalar_type()).device(at::kCPU));
  check(tpulab_copy_to_host(&from.tensor, host.data_ptr()), "copy_");
  host = from.undo(host.expand(full));
  host._set_conj(source.is_conj());
  host._set_neg(source.is_neg());
  self.copy_(host);
}

// The values of a tensor whose conjugate and negative bits are clear.
inline Tensor without_bits(Tensor t) {
  if (t.is_conj()) t = t.conj();
  return t.is_neg() ? t._neg_view() : t;
}

inline Tensor& copy_(Tensor& self, const Tensor& source,
                     bool /*non_blocking: every copy has left the host's memory on return*/) {
  TORCH_CHECK(self.defined() && source.defined(), "copy_ needs two defined tensors");
  if (self.is_same(source) || self.numel() == 0) {
    if (self.numel() == 0) source.expand(self.sizes());  // raises when the sizes do not fit
    return self;
  }
  TORCH_CHECK(source.layout() == at::kStrided && self.layout() == at::kStrided, "copy_ between device tpu and layout ",
              source.layout() == at::kStrided ? self.layout() : source.layout(), " is not supported");
  if (source._is_zerotensor()) return self.zero_();
  if (source.is_complex() && !self.is_complex()) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
  const bool to_tpu = self.device().type() == kTpu, from_tpu = source.device().type() == kTpu;
  if (to_tpu) at::assert_no_internal_overlap(self);
  if (from_tpu && self.device().is_cpu()) {
    download(self, source);
  } else if (from_tpu && to_tpu) {
    const Tensor to = without_bits(self);
    Tensor from = without_bits(source);
    if (self.is_conj() != source.is_conj()) from = at::conj_physical(from);
    if (self.is_neg() != source.is_neg()) from = at::neg(from);
    copy_device(to, from);
  } else if (to_tpu && source.device().is_cpu()) {
    Tensor from = source;
    if (self.is_conj()) from = from.conj();
    if (self.is_neg()) from = from.neg();
    upload(without_bits(self), from);
  } else {
    self.copy_(source.to(at::kCPU));  // another accelerator: by way of the host
  }
  return self;
}

inline Tensor copy_from(const Tensor& source, const Tensor& self, bool non_blocking) {
  return copy_(const_cast<Tensor&>(self), source, non_blocking);
}

inline Tensor copy_from_and_resize(const Tensor& source, const Tensor& self) {
  at::native::resize_output(self, source.sizes());
  return copy_(const_cast<Tensor&>(self), source, false);
}

inline c10::Scalar local_scalar_dense(const Tensor& self) {
  const Tensor host = at::empty({}, at::TensorOptions().dtype(self.scalar_type()).device(at::kCPU));
  const TlTensor from = describe(self.unsafeGetTensorImpl());
  check(tpulab_copy_to_host(&from, host.data_ptr()), "item");
  return host.item();
}

}  // namespace tpulab

// What torch asks of a backend beside its devices: generators, pinned memory, hooks.
#pragma once
#include <map>
#include <mutex>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/alloc_cpu.h>

#include "device.h"

namespace tpulab {

// ---- generators: a seed and the number of draws so far

struct Generator final : c10::GeneratorImpl {
  explicit Generator(DeviceIndex index)
      : GeneratorImpl(tpu(index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK_TYPE(state.device_type() == c10::DeviceType::CPU &&
                         state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_contiguous(),
                     "a generator's state is a contiguous uint8 tensor on the CPU");
    TORCH_CHECK_VALUE(state.numel() == 16, "the state of a tpu generator has 16 bytes, not ", state.numel());
    const auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    auto* bytes = state.data_ptr<uint8_t>();
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    const auto* other = dynamic_cast<const Generator*>(state.get());
    TORCH_CHECK_TYPE(other, "expected the state of a tpu generator");
    seed_ = other->seed_;
    offset_ = other->offset_;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override { return clone(); }

  // The caller holds mutex_.
  std::pair<uint64_t, uint64_t> next() { return {seed_, offset_++}; }

 private:
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

inline const at::Generator& default_generator(DeviceIndex index) {
  static std::mutex mutex;
  static auto* generators = new std::array<at::Generator, kMaxDevices>;
  index = resolve(index);
  std::lock_guard<std::mutex> lock(mutex);
  auto& generator = generators->at(index);
  if (!generator.defined()) {
    generator = at::make_generator<Generator>(index);
    generator.seed();
  }
  return generator;
}

// ---- pinned memory: ordinary host memory whose ranges are known, so that is_pinned() tells the truth

struct PinnedMemory final : at::HostAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, c10::DeviceType::CPU};
    auto* data = static_cast<char*>(c10::alloc_cpu(nbytes));
    std::lock_guard<std::mutex> lock(mutex_);
    ranges_.emplace(data, nbytes);
    return {data, data, &release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { default_copy_data(to, from, nbytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool holds(const void* pointer) {
    const auto* data = static_cast<const char*>(pointer);
    std::lock_guard<std::mutex> lock(mutex_);
    auto range = ranges_.upper_bound(data);
    if (range == ranges_.begin()) return false;
    --range;
    return data < range->first + range->second;
  }

  static PinnedMemory& instance() {
    static auto* memory = new PinnedMemory;
    return *memory;
  }

 private:
  static void release(void* data) {
    auto& self = instance();
    {
      std::lock_guard<std::mutex> lock(self.mutex_);
      self.ranges_.erase(static_cast<const char*>(data));
    }
    c10::free_cpu(data);
  }

  std::mutex mutex_;
  std::map<const char*, size_t> ranges_;
};

// ---- hooks

inline void resize_storage(c10::StorageImpl* storage, size_t nbytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  void* cell = storage->data_ptr().cast_context<void>(&free_cell);
  TORCH_CHECK(cell, "this storage was not made by device tpu and cannot be resized");
  void* address = nullptr;
  check(tpulab_cell_resize(cell, static_cast<int64_t>(nbytes), &address), "resize_");
  // The cell stays, only its address changes: the old owner must not free it.
  auto old = storage->set_data_ptr(own_cell(cell, address, storage->device().index()));
  old.release_context();
  storage->set_nbytes(nbytes);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  // The first tensor starts the device, nothing before it: init() has nothing to do.
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return tpulab_device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return tpulab_started(); }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(tpulab_device_count()); }
  void setCurrentDevice(DeviceIndex device) const override { current_device = resolve(device); }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const auto previous = current_device;
    current_device = resolve(device);
    return previous;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<Generator>(resolve(device));
  }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::instance().holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::instance(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    const int device = tpulab_address_device(data);
    TORCH_CHECK_VALUE(device >= 0, "this pointer does not belong to a tpu");
    return tpu(static_cast<DeviceIndex>(device));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), nbytes);
  }
};

}  // namespace tpulab

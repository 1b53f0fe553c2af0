// Devices as torch sees them: errors, the current device, memory, streams and events.
#pragma once
#include <array>
#include <chrono>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "abi.h"

namespace tpulab {

using at::IntArrayRef;
using at::Tensor;
using c10::DeviceIndex;

inline constexpr auto kTpu = c10::DeviceType::PrivateUse1;
inline constexpr const char* kName = "tpu";
// DeviceIndex has eight bits.
inline constexpr size_t kMaxDevices = 128;

// ---- errors and devices

[[noreturn]] inline void raise(int rc, const std::string& message) {
  switch (rc) {
    case TL_INDEX_ERROR: C10_THROW_ERROR(IndexError, message);
    case TL_VALUE_ERROR: C10_THROW_ERROR(ValueError, message);
    case TL_TYPE_ERROR: C10_THROW_ERROR(TypeError, message);
    case TL_OUT_OF_MEMORY: C10_THROW_ERROR(OutOfMemoryError, message);
    case TL_NOT_LOWERED:
    case TL_NOT_IMPLEMENTED: C10_THROW_ERROR(NotImplementedError, message);
    default: C10_THROW_ERROR(Error, message);
  }
}

inline void check(int rc, const char* what) {
  if (C10_UNLIKELY(rc != TL_OK)) raise(rc, c10::str(what, " on tpu: ", tpulab_error()));
}

inline constinit thread_local DeviceIndex current_device = 0;

// A negative index means the current device.
inline DeviceIndex resolve(DeviceIndex index) {
  if (index < 0) return current_device;
  const int count = tpulab_device_count();
  TORCH_CHECK(index < count, "tpu:", static_cast<int>(index), " does not exist: this process has ",
              count == 1 ? std::string("1 device (tpu:0)") : c10::str(count, " devices (tpu:0 to tpu:", count - 1, ")"),
              "; tpulab.configure(devices=N) or TPULAB_DEVICES=N, before the first tensor, gives more");
  return index;
}

inline c10::Device tpu(DeviceIndex index) { return {kTpu, index}; }

// ---- allocator

inline void free_cell(void* cell) { tpulab_cell_free(cell); }

inline c10::DataPtr own_cell(void* cell, void* address, DeviceIndex device) {
  return {address, cell, &free_cell, tpu(device)};
}

inline void* cell_of(const c10::Storage& storage) {
  void* cell = storage.data_ptr().cast_context<void>(&free_cell);
  TORCH_CHECK(cell,
              "this storage was not made by device tpu: memory of another library cannot be read as a tpu tensor");
  return cell;
}

struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void *cell = nullptr, *address = nullptr;
    check(tpulab_cell_new(static_cast<int64_t>(nbytes), current_device, -1, nullptr, nullptr, 0, &cell, &address),
          "allocate");
    return own_cell(cell, address, current_device);
  }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "storages of device tpu are copied through tensors, not as bytes");
  }
  bool initialized() override { return tpulab_started(); }
  // Freed memory is free at once; there is no cache.
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    int64_t figures[8] = {};
    device = resolve(device);
    tpulab_memory_stats(device, figures);
    const auto [allocated, peak, reserved, reserved_peak, allocations, frees, capacity, unused] = figures;
    const auto since = baseline_[device];
    const auto bytes = [](int64_t current, int64_t highest) {
      c10::CachingAllocator::Stat stat;
      stat.current = current;
      stat.peak = highest;
      return stat;
    };
    c10::CachingAllocator::Stat count;
    count.current = count.peak = allocations - frees;
    count.allocated = allocations - since.first;
    count.freed = frees - since.second;
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation[0] = stats.active[0] = count;
    stats.allocated_bytes[0] = stats.active_bytes[0] = stats.requested_bytes[0] = bytes(allocated, peak);
    stats.reserved_bytes[0] = bytes(reserved, reserved_peak);
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    int64_t figures[8] = {};
    device = resolve(device);
    tpulab_memory_stats(device, figures);
    baseline_[device] = {figures[4], figures[5]};
  }
  void resetPeakStats(DeviceIndex device) override { tpulab_memory_reset_peak(resolve(device)); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    int64_t figures[8] = {};
    tpulab_memory_stats(resolve(device), figures);
    return {static_cast<size_t>(std::max<int64_t>(figures[6] - figures[2], 0)), static_cast<size_t>(figures[6])};
  }

 private:
  std::array<std::pair<int64_t, int64_t>, kMaxDevices> baseline_{};
};

inline DeviceMemory& device_memory() {
  static auto* memory = new DeviceMemory;
  return *memory;
}

// ---- guard, streams and events

// Work runs in program order on one stream a device. An event made with timing waits for the device when it is recorded
// and takes the time then; one without timing waits when somebody asks. Both therefore tell the truth, at the price of
// a wait.
struct Event {
  DeviceIndex device;
  bool done;
  std::chrono::steady_clock::time_point time;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kTpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto previous = current_device;
    current_device = resolve(device.index());
    return tpu(previous);
  }
  c10::Device getDevice() const override { return tpu(current_device); }
  void setDevice(c10::Device device) const override { current_device = resolve(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(tpulab_device_count()); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (auto index :
         {c10::kIndex_Byte, c10::kIndex_Char, c10::kIndex_Short, c10::kIndex_Int, c10::kIndex_Long, c10::kIndex_Half,
          c10::kIndex_Float, c10::kIndex_Double, c10::kIndex_ComplexFloat, c10::kIndex_ComplexDouble, c10::kIndex_Bool,
          c10::kIndex_BFloat16, c10::kIndex_UInt16, c10::kIndex_UInt32, c10::kIndex_UInt64}) {
      capability.capability_data.capability_bits |= 1ull << index;
    }
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override { return getDefaultStream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, tpu(resolve(device.index())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getDefaultStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getDefaultStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getDefaultStream(stream.device()); }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  bool queryStream(const c10::Stream& stream) const override {
    synchronizeStream(stream);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override { synchronizeDevice(stream.device_index()); }
  void synchronizeDevice(const DeviceIndex device) const override {
    check(tpulab_synchronize(resolve(device)), "synchronize");
  }

  void record(void** event, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag flag) const override {
    const bool timed = flag == c10::EventFlag::BACKEND_DEFAULT;
    if (timed) synchronizeStream(stream);
    if (!*event) *event = new Event;
    *static_cast<Event*>(*event) = {stream.device_index(), timed, std::chrono::steady_clock::now()};
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    synchronizeEvent(event);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    auto* recorded = static_cast<Event*>(event);
    if (!recorded || recorded->done) return;
    synchronizeDevice(recorded->device);
    recorded->done = true;
  }
  double elapsedTime(void* first, void* second, const DeviceIndex) const override {
    TORCH_CHECK(first && second, "elapsed_time needs two recorded events");
    const auto elapsed = static_cast<Event*>(second)->time - static_cast<Event*>(first)->time;
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
};

}  // namespace tpulab

// What crosses between bridge.cpp and Rust (src/abi.rs mirrors it): plain C data, borrowed for the length of a call.
#pragma once
#include <stdint.h>

extern "C" {

// A tensor as an argument. `cell` is our storage (device tensors), `data` host memory (CPU tensors).
struct TlTensor {
  void* cell;
  const void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;  // in elements
  int32_t dtype;   // c10::ScalarType
  int16_t ndim;
  uint16_t flags;  // TL_DEVICE | TL_WRAPPED
};
enum { TL_DEVICE = 1, TL_WRAPPED = 2 };

enum TlTag : uint32_t {
  TL_NONE = 0,
  TL_TENSOR = 1,
  TL_INT = 2,
  TL_DOUBLE = 3,
  TL_BOOL = 4,
  TL_STRING = 5,
  TL_INTS = 6,
  TL_DOUBLES = 7,
  TL_BOOLS = 8,          // p = uint8_t[n]
  TL_LIST = 9,           // p = TlValue[n]
  TL_DEVICE_INDEX = 10,  // i = index of a tpu, -1 for any other kind of device
  TL_GENERATOR = 11,     // p = c10::GeneratorImpl*
  TL_OTHER = 12,
  TL_COMPLEX = 13,  // p = double[2]
};
struct TlValue {
  uint32_t tag;
  uint32_t n;
  union {
    int64_t i;
    double d;
    const void* p;
  };
};

enum TlOutKind : uint32_t {
  TL_OUT_NEW = 0,  // a new tensor on a new cell
  TL_OUT_ARG = 1,  // argument `arg` (list element `item`, or -1) itself
  TL_OUT_UNDEFINED = 2,
  TL_OUT_TAKE = 3,  // out= argument `arg` of another size takes this new storage
};
// One output, filled by Rust.
struct TlOut {
  uint32_t kind;
  int32_t arg, item;
  int32_t ret;    // the return it belongs to; consecutive outs of one list return share it
  void* cell;     // owned by the receiver, freed by tpulab_cell_free
  void* address;  // what data_ptr() shows
  int64_t nbytes;
  int32_t dtype, ndim, device, reserved;
  const int64_t* sizes;
  const int64_t* strides;
};
// `outs` lives until the next call on this thread.
struct TlResult {
  const TlOut* outs;
  uint32_t n;
  uint32_t reserved;
};

enum {
  TL_ARG_WRITTEN = 1,
  TL_ARG_TENSOR = 2,
  TL_ARG_TENSORS = 4,
  TL_ARG_NUMBER = 8,  // Scalar or float, or a list of them: may become a run-time value
  TL_ARG_GENERATOR = 16,
  TL_ARG_OUT = 32,  // keyword-only out=
};
struct TlArgSchema {
  const char* name;
  uint32_t flags;
};
struct TlReturnSchema {
  int32_t alias;  // index of the argument it is, or -1
  uint32_t is_list;
};
enum { TL_OP_NATIVE = 1, TL_OP_MATMUL_PRECISION = 2 };
struct TlOpInfo {
  uint32_t id;
  uint32_t flags;
};

enum {
  TL_OK = 0,
  TL_RUNTIME_ERROR = 1,
  TL_NOT_LOWERED = 2,  // NotImplementedError, or the CPU when that switch is on
  TL_INDEX_ERROR = 3,
  TL_VALUE_ERROR = 4,
  TL_TYPE_ERROR = 5,
  TL_OUT_OF_MEMORY = 6,
  TL_NOT_IMPLEMENTED = 7,
};

struct TlCall {
  uint32_t op;
  uint32_t
      flags;  // bits 0-7 default dtype, 8-9 float32 matmul precision (0 highest, 1 high, 2 medium), 10 deterministic
  const TlValue* args;
  uint32_t n;
  int32_t device;  // current device, for ops without a device tensor
};

// ---- Rust provides

// `name` without "aten::"; other namespaces as "ns::name".
TlOpInfo tpulab_op_register(const char* name, const char* overload, const TlArgSchema* args, uint32_t n_args,
                            const TlReturnSchema* rets, uint32_t n_rets);
int tpulab_call(const TlCall* call, TlResult* result);
const char* tpulab_error();  // message of the last failed call on this thread
const char* const* tpulab_direct_ops(
    uint32_t* n);                        // "add.Tensor" forms to register by name: they override torch's composites
void tpulab_fallback_used(uint32_t op);  // counts a CPU fallback
int tpulab_fallback_enabled();
int tpulab_started();       // never starts anything
int tpulab_device_count();  // never starts anything

int tpulab_cell_new(int64_t nbytes, int32_t device, int32_t dtype /* -1 unknown */, const int64_t* sizes,
                    const int64_t* strides, int32_t ndim, void** cell, void** address);
void tpulab_cell_free(void* cell);
int tpulab_cell_resize(void* cell, int64_t nbytes, void** address);  // contents kept up to the smaller size
int tpulab_address_device(const void* address);                      // -1 if not ours

// Host memory is row-major in the sizes of the device tensor, of its dtype, and never aliased after return.
int tpulab_copy_from_host(const TlTensor* dst, const void* data);
int tpulab_copy_to_host(const TlTensor* src, void* data);          // blocks; raises the sticky error first
int tpulab_copy_device(const TlTensor* dst, const TlTensor* src);  // any two devices, dtype conversion on the source's
int tpulab_synchronize(int32_t device);                            // -1 = all

// [allocated, peak, reserved, reserved_peak, allocations, frees, capacity, unused]
void tpulab_memory_stats(int32_t device, int64_t out[8]);
void tpulab_memory_reset_peak(int32_t device);

// ---- C++ provides

// Seed and offset of a draw from `generator` (a c10::GeneratorImpl*, or null for the device's default); the offset
// moves on by one.
void tpulab_generator_next(void* generator, int32_t device, uint64_t* seed, uint64_t* offset);
// Renames the backend to "tpu" and registers everything, once. Null when done, else why not (nothing registered then).
const char* tpulab_bridge_register();
// "2.15": the torch this file was compiled for.
const char* tpulab_bridge_torch_version();
}

// src/abi.rs asserts the same: a change on one side only must not compile.
static_assert(sizeof(TlTensor) == 48 && sizeof(TlValue) == 16 && sizeof(TlOut) == 72 && sizeof(TlResult) == 16 &&
              sizeof(TlCall) == 24);

// The tensor cores of compute capability 10.0: products into tensor memory, one thin function each.
//
// Tensor memory has 128 lanes and 512 columns of 32 bits. An accumulator of 128 rows and N columns
// takes a lane a row and N columns; a left operand in bfloat16 a lane a row and a column for two.
// Warp w of four reaches lanes 32w to 32w + 31, so that a thread holds a row.
#pragma once

#include "../sm90/ptx.cuh"

enum class Major : int { K = 0, Other = 1 };

constexpr uint32_t BLOCK_BYTES = 64 * 128;  // 64 rows of 64 bfloat16 columns, swizzled

// ---- tensor memory, by one warp

__device__ __forceinline__ void tensor_allocate(uint32_t address_to, uint32_t columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address_to),
               "r"(columns)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void tensor_free(uint32_t address, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns)
               : "memory");
}

// ---- between tensor memory and registers: the thread's row, 16 columns

__device__ __forceinline__ void load_columns(uint32_t (&x)[16], uint32_t address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
      : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]), "=r"(x[6]),
        "=r"(x[7]), "=r"(x[8]), "=r"(x[9]), "=r"(x[10]), "=r"(x[11]), "=r"(x[12]), "=r"(x[13]),
        "=r"(x[14]), "=r"(x[15])
      : "r"(address)
      : "memory");
}

// The loads so far have arrived; `x` are what the last of them wrote.
__device__ __forceinline__ void loads_wait(uint32_t (&x)[16]) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < 16; i++) asm volatile("" : "+r"(x[i])::"memory");
}

__device__ __forceinline__ void store_columns(uint32_t address, const uint32_t (&x)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], "
      "{%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16};" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]),
      "r"(x[8]), "r"(x[9]), "r"(x[10]), "r"(x[11]), "r"(x[12]), "r"(x[13]), "r"(x[14]), "r"(x[15])
      : "memory");
}

__device__ __forceinline__ void store_columns(uint32_t address, const uint32_t (&x)[8]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7])
      : "memory");
}

__device__ __forceinline__ void stores_to_tensor_wait() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

// ---- products

// Around a barrier between threads that reach tensor memory and the one that starts products.
__device__ __forceinline__ void tensor_before_barrier() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tensor_after_barrier() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// The barrier hears once when every product that this thread has started is done.
__device__ __forceinline__ void products_signal(uint32_t barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
      : "memory");
}

// The right operand, N by K: a tile as the copy engine swizzles it.
__device__ __forceinline__ uint64_t descriptor(uint32_t tile) {
  constexpr uint64_t swizzle_128 = uint64_t(2) << 61, version = uint64_t(1) << 46;
  constexpr uint64_t eight_rows = uint64_t(1024 >> 4) << 32;
  constexpr uint64_t next_block = uint64_t(BLOCK_BYTES >> 4) << 16;  // where N is contiguous
  return swizzle_128 | version | eight_rows | next_block | ((tile & 0x3ffff) >> 4);
}

// What is multiplied: bfloat16 into float32, 128 rows, N columns, the right operand's layout.
template <int N, Major B>
__device__ constexpr uint32_t instruction() {
  return 1u << 4 | 1u << 7 | 1u << 10 | uint32_t(B) << 16 | uint32_t(N / 8) << 17 | (128u / 16) << 24;
}

// D (+)= A B over 16 * Steps, D and A in tensor memory, by one thread.
template <int Steps, int N, Major B>
__device__ __forceinline__ void multiply(uint32_t d, uint32_t a, uint32_t b, bool keep) {
#pragma unroll
  for (int k = 0; k < Steps; k++) {
    const uint32_t offset = B == Major::K ? (k / 4) * BLOCK_BYTES + (k % 4) * 32 : k * 2048;
    asm volatile(
        "{\n"
        ".reg .pred keep;\n"
        "setp.ne.b32 keep, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, keep;\n"
        "}\n" ::"r"(d),
        "r"(a + 8 * k), "l"(descriptor(b + offset)), "r"(instruction<N, B>()),
        "r"(int(keep || k > 0))
        : "memory");
  }
}

// Tiles in shared memory, and the fragments of a warpgroup.
//
// A tile is one or more blocks of 64 bfloat16 columns, each block `rows` rows of 128 bytes, the
// sixteen bytes at column 8c of row r standing at place c ^ (r % 8): the copy engine's 128-byte
// swizzle.
//
// An accumulator of 64 rows and N columns: thread t of the warpgroup (warp w, lane l) holds at
// index 4b + 2h + p the element of row 16w + l/4 + 8h and column 8b + 2(l%4) + p. Packed in pairs,
// the four words of two neighbouring blocks b are the fragment of operand A for those 16 columns.
#pragma once

#include "ptx.cuh"
#include "wgmma.cuh"

constexpr int CHUNK = 64;
constexpr int HEAD = 128;
constexpr uint32_t BLOCK_BYTES = 64 * 128;  // 64 rows of one block of columns

struct Lane {
  int warp;  // in its warpgroup
  int row;   // of the accumulator's first half
  int pair;  // the first of its two columns in a block of 8
  __device__ Lane() {
    const int lane = threadIdx.x % 32;
    warp = threadIdx.x / 32 % 4;
    row = 16 * warp + lane / 4;
    pair = 2 * (lane % 4);
  }
};

// The same in every lane, and known to be: products may not stand on a path that could diverge.
__device__ __forceinline__ int warp_index() {
  return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
}

__device__ __forceinline__ uint32_t place(int row, int eighth) {
  return row * 128 + ((eighth ^ (row % 8)) * 16);
}

// Where lane l's row of the four 8x8 matrices of accumulator blocks b and b + 1 stands.
__device__ __forceinline__ uint32_t fragment(uint32_t block, int b) {
  const int lane = threadIdx.x % 32, matrix = lane / 8;
  const int row = 16 * (threadIdx.x / 32 % 4) + 8 * (matrix % 2) + lane % 8;
  return block + place(row, b + matrix / 2);
}

// The same for a tile that holds the accumulator's transpose.
__device__ __forceinline__ uint32_t fragment_transposed(uint32_t block, int b) {
  const int lane = threadIdx.x % 32, matrix = lane / 8;
  const int row = 8 * (b + matrix / 2) + lane % 8;
  return block + place(row, 2 * (threadIdx.x / 32 % 4) + matrix % 2);
}

// The shared-memory operand of a product: the low word of its descriptor, to which a step along K
// adds a constant. The uniform pipe that makes descriptors is slow: one addition a product, and it
// keeps up.
struct Operand {
  uint32_t low;
  // `leading` is the distance between blocks of 64 columns where the columns are N or M.
  __device__ __forceinline__ explicit Operand(uint32_t tile, uint32_t leading = BLOCK_BYTES)
      : low((leading >> 4 << 16) | ((tile & 0x3ffff) >> 4)) {}
  __device__ __forceinline__ uint64_t at(uint32_t offset) const {
    constexpr uint64_t swizzle_128 = uint64_t(1) << 62, eight_rows = uint64_t(1024 >> 4) << 32;
    return swizzle_128 | eight_rows | (low + (offset >> 4));
  }
  // Step k of 16 along K: along the columns of a tile of 64 rows, or down its rows.
  template <Major M>
  __device__ __forceinline__ uint64_t step(int k) const {
    return at(M == Major::K ? (k / 4) * BLOCK_BYTES + (k % 4) * 32 : k * 2048);
  }
};

// d (+)= A B over 16 * Steps, A in registers.
template <int Steps, Major B, int N>
__device__ __forceinline__ void multiply(float (&d)[N], const uint32_t* a, uint32_t b, bool keep) {
  const Operand right(b);
#pragma unroll
  for (int k = 0; k < Steps; k++) {
    from_registers<B>(d, a + 4 * k, right.step<B>(k), keep || k > 0);
  }
}

// d (+)= A B over 16 * Steps, A in shared memory.
template <int Steps, Major A, Major B, int N>
__device__ __forceinline__ void multiply(float (&d)[N], uint32_t a, uint32_t b, bool keep) {
  const Operand left(a), right(b);
#pragma unroll
  for (int k = 0; k < Steps; k++) {
    from_shared<A, B>(d, left.step<A>(k), right.step<B>(k), keep || k > 0);
  }
}

// exp(G_row - G_column) where `kept`, else zero. No branch: a path of its own for every element of
// a fragment would put their loads and exponentials one after the other.
__device__ __forceinline__ float decay_between(float row, float column, bool kept) {
  return exponential(kept ? row - column : -INFINITY);
}

// Zeroes rows `from` and after of `blocks` blocks: `threads` threads, of which this is `thread`.
__device__ __forceinline__ void clear_rows(char* tile, int blocks, int from, int thread,
                                           int threads) {
  for (int b = 0; b < blocks; b++) {
    for (int i = from * 8 + thread; i < 64 * 8; i += threads) {
      reinterpret_cast<uint4*>(tile + b * BLOCK_BYTES)[i] = make_uint4(0, 0, 0, 0);
    }
  }
}

// What the kernels of the members with a gate a channel share.
//
// A chunk is four strips of 16 tokens. Every decay is a product of e^g, never a power of a
// difference: none is above one, none is undefined, and a closed gate needs no limit. Within a
// strip
//   x_i = e^(g_first + ... + g_i)    y_i = e^(g_(i+1) + ... + g_last)    t = x_last
// and between tokens i of strip s and j of an earlier strip r the decay is x_i t_(s-1) ... t_(r+1)
// y_j. Pairs of one strip have no such factors that are at most one: they are summed in float32, a
// channel at a time, with the decay of each pair from that of the one before.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

constexpr int STRIP = 16;
constexpr int STRIPS = CHUNK / STRIP;

// Where the element of a row and column of a block stands.
__device__ __forceinline__ uint32_t element(int row, int column) {
  return place(row, column / 8) + column % 8 * 2;
}

__device__ __forceinline__ float read_half(const char* block, int row, int column) {
  return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(block + element(row, column)));
}

__device__ __forceinline__ void write_half(char* block, int row, int column, float x) {
  *reinterpret_cast<__nv_bfloat16*>(block + element(row, column)) = __float2bfloat16_rn(x);
}

// Where lane l's row of the four 8x8 matrices of 16 rows and 16 columns stands: rows 0 to 7 and 8
// to 15 of the first eight columns, then of the others.
__device__ __forceinline__ uint32_t square(uint32_t block, int row, int eighth) {
  const int lane = threadIdx.x % 32, matrix = lane / 8;
  return block + place(row + 8 * (matrix % 2) + lane % 8, eighth + matrix / 2);
}

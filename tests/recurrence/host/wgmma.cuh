// What `sm90/wgmma.cuh` has, on the machine of `machine.h`. A product is done where it is begun.
#pragma once

#include "ptx.cuh"

enum class Major : int { K = 0, Other = 1 };

inline void products_begin() {}
inline void products_commit() {}
template <int Pending>
void products_wait() {}
template <int N>
void settled(float (&)[N]) {}

// The element of an operand's row along M or N, and of column k, in a tile with the 128-byte
// swizzle.
inline float operand(uint64_t descriptor, Major major, int row, int k) {
  const uint32_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
  uint32_t address = major == Major::K
                         ? start + row / 8 * 1024 + row % 8 * 128 + 2 * k
                         : start + row / 64 * leading + k / 8 * 1024 + k % 8 * 128 + row % 64 * 2;
  address ^= (address >> 7 & 7) << 4;
  __nv_bfloat16 half;
  memcpy(&half, machine::at(address), 2);
  return __bfloat162float(half);
}

// Element (row + 8 half, k) of a fragment of A that the four lanes of a row hold, the first `lane`.
inline float fragment_element(const char (*words)[32], int lane, int half, int k) {
  const uint32_t both = machine::of<uint32_t>(words, lane + k % 8 / 2, half + 2 * (k / 8));
  return k % 2 ? high_half(both) : low_half(both);
}

// The thread's elements of d (+)= A B, whose rows of A are `left`.
template <Major B, int N>
void accumulate(float (&d)[N], const float (&left)[2][16], uint64_t b, bool keep) {
  for (int block = 0; block < N / 4; block++) {
    for (int p = 0; p < 2; p++) {
      float right[16];
      for (int k = 0; k < 16; k++) right[k] = operand(b, B, 8 * block + threadIdx.x % 4 * 2 + p, k);
      for (int half = 0; half < 2; half++) {
        float sum = 0.f;
        for (int k = 0; k < 16; k++) sum += left[half][k] * right[k];
        float& to = d[4 * block + 2 * half + p];
        to = keep ? to + sum : sum;
      }
    }
  }
}

template <Major B, int N>
void from_registers(float (&d)[N], const uint32_t* a, uint64_t b, bool keep) {
  const char (*words)[32] = machine::meet_group(a, 16);
  float left[2][16];
  for (int half = 0; half < 2; half++) {
    for (int k = 0; k < 16; k++) {
      left[half][k] = fragment_element(words, threadIdx.x % 128 / 4 * 4, half, k);
    }
  }
  accumulate<B>(d, left, b, keep);
  machine::leave_group();
}

template <Major A, Major B, int N>
void from_shared(float (&d)[N], uint64_t a, uint64_t b, bool keep) {
  machine::leave_group();
  const int thread = threadIdx.x % 128, row = 16 * (thread / 32) + thread % 32 / 4;
  float left[2][16];
  for (int half = 0; half < 2; half++) {
    for (int k = 0; k < 16; k++) left[half][k] = operand(a, A, row + 8 * half, k);
  }
  accumulate<B>(d, left, b, keep);
  machine::leave_group();
}

inline void warp_product(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                         uint32_t b1) {
  const uint32_t mine[6] = {a0, a1, a2, a3, b0, b1};
  const char (*words)[32] = machine::meet_warp(mine, sizeof mine);
  const int lane = threadIdx.x % 32;
  for (int half = 0; half < 2; half++) {
    for (int p = 0; p < 2; p++) {
      const int column = 2 * (lane % 4) + p;
      float sum = 0.f;
      for (int k = 0; k < 16; k++) {
        const uint32_t both = machine::of<uint32_t>(words, 4 * column + k % 8 / 2, 4 + k / 8);
        sum += fragment_element(words, lane / 4 * 4, half, k) *
               (k % 2 ? high_half(both) : low_half(both));
      }
      d[2 * half + p] += sum;
    }
  }
  machine::leave_warp();
}

inline uint32_t to_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (bits + 0x1000u) & ~0x1fffu;
}

inline void warp_product_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const char (*words)[32] = machine::meet_warp(mine, sizeof mine);
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; i++) {
    const int column = 2 * (lane % 4) + i % 2;
    float sum = 0.f;
    for (int k = 0; k < 8; k++) {
      const uint32_t left = machine::of<uint32_t>(words, lane / 4 * 4 + k % 4, i / 2 + k / 4 * 2);
      const uint32_t right = machine::of<uint32_t>(words, 4 * column + k % 4, 4 + k / 4);
      sum += __uint_as_float(left) * __uint_as_float(right);
    }
    d[i] += sum;
  }
  machine::leave_warp();
}

// What `sm90/ptx.cuh` has, on the machine of `machine.h`; and what a compiler for CUDA knows by
// itself.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <math.h>

#include <algorithm>
#include <cmath>

#include "machine.h"

using std::isfinite;
using std::max;
using std::min;

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define threadIdx (machine::current->index)
#define blockIdx (machine::current->block->index)
#define gridDim (machine::grid)

struct int4 {
  int x, y, z, w;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline float __uint_as_float(uint32_t x) {
  float out;
  memcpy(&out, &x, 4);
  return out;
}

inline int __ffs(unsigned x) { return __builtin_ffs(x); }
inline void __nanosleep(int) { machine::yield(); }

template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
T atomicAdd(T* to, T x) {
  const T before = *to;
  *to += x;
  return before;
}

template <typename T>
T from_lane(T x, int lane) {
  const T found = machine::of<T>(machine::meet_warp(&x, sizeof x), lane % 32);
  machine::leave_warp();
  return found;
}
template <typename T>
T __shfl_sync(unsigned, T x, int lane) {
  return from_lane(x, lane);
}
template <typename T>
T __shfl_xor_sync(unsigned, T x, int step) {
  return from_lane(x, threadIdx.x % 32 ^ step);
}
template <typename T>
T __shfl_up_sync(unsigned, T x, int step) {
  const int lane = threadIdx.x % 32;
  return from_lane(x, lane < step ? lane : lane - step);
}
template <typename T>
T __shfl_down_sync(unsigned, T x, int step) {
  const int lane = threadIdx.x % 32;
  return from_lane(x, lane + step < 32 ? lane + step : lane);
}
inline unsigned __ballot_sync(unsigned, int x) {
  const char (*words)[32] = machine::meet_warp(&x, sizeof x);
  unsigned found = 0;
  for (int lane = 0; lane < 32; lane++)
    found |= unsigned(machine::of<int>(words, lane) != 0) << lane;
  machine::leave_warp();
  return found;
}
inline void __syncwarp() { machine::leave_warp(); }
inline void __syncthreads() {
  machine::arrive(machine::current->block->named[0], machine::threads_a_block, true,
                  "its block's threads");
}

inline uint32_t shared_address(const void* pointer) {
  const int64_t out = static_cast<const char*>(pointer) - machine::current->block->shared;
  if (out < 0 || out >= machine::SHARED) machine::fault("a pointer that is not into shared memory");
  return out;
}

inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
  machine::Counter& x = machine::current->block->counters[barrier];
  x = machine::Counter();
  x.arrivals = x.pending = arrivals;
}
inline void barrier_init_done() {}
inline void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  machine::Counter& x = machine::counter(machine::blocks[rank], barrier);
  x.pending--;
  machine::settle(x);
}
inline uint32_t cluster_rank() { return machine::current->block->rank; }
inline void barrier_arrive(uint32_t barrier) { barrier_arrive_at(barrier, cluster_rank()); }
inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  machine::counter(machine::current->block, barrier).bytes += bytes;
  barrier_arrive(barrier);
}
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  machine::Counter& x = machine::counter(machine::current->block, barrier);
  machine::wait("an mbarrier", [&] { return x.phase != parity; });
}

inline void cluster_sync() {
  machine::arrive(machine::cluster, machine::blocks.size() * machine::threads_a_block, true,
                  "its cluster's threads");
}
inline void send_word(uint32_t to, uint32_t value, uint32_t barrier, uint32_t rank) {
  memcpy(machine::blocks[rank]->shared + to, &value, 4);
  machine::Counter& x = machine::counter(machine::blocks[rank], barrier);
  x.bytes -= 4;
  machine::settle(x);
}

inline void let_next_start() {}
inline void await_previous() {}
inline void fence_copies() {}
inline void fence_release() {}
inline void fence_acquire() {}
inline void fence_async() {}
inline void add_relaxed(int* counter) { ++*counter; }
inline void add_release(int* counter) { ++*counter; }
// Others run before each look, since whoever looks does so again and again.
inline int read_relaxed(const int* counter) {
  machine::yield();
  return *counter;
}
inline void write_release(int* to, int value) {
  *to = value;
  machine::events++;
}
inline int read_acquire(const int* from) { return read_relaxed(from); }

inline void named_sync(int id, int threads) {
  machine::arrive(machine::current->block->named[id], threads, true, "a named barrier");
}
inline void named_arrive(int id, int threads) {
  machine::arrive(machine::current->block->named[id], threads, false, "");
}

inline void load_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int x, int y, int z,
                     int w) {
  machine::load(machine::current->block, to, map, barrier, x, y, z, w);
}
inline void load_box_for(uint16_t blocks, uint32_t to, const CUtensorMap& map, uint32_t barrier,
                         int x, int y, int z, int w) {
  for (machine::Block* block : machine::blocks) {
    if (blocks >> block->rank & 1) machine::load(block, to, map, barrier, x, y, z, w);
  }
}
inline void store_box(const CUtensorMap& map, uint32_t from, int x, int y, int z, int w) {
  machine::copy_box(map, machine::current->block->shared, from, x, y, z, w, false);
}
inline void load_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  if ((to | bytes | reinterpret_cast<uintptr_t>(from)) % 16)
    machine::fault("a copy not in sixteens");
  memcpy(machine::at(to), from, bytes);
  machine::Counter& x = machine::counter(machine::current->block, barrier);
  x.bytes -= bytes;
  machine::settle(x);
}
inline void stores_commit() {}
inline void stores_have_read() {}
template <int Pending>
void stores_wait() {}

inline void copy_word(uint32_t to, const void* from, bool there) {
  if (there) {
    memcpy(machine::at(to), from, 4);
  } else {
    memset(machine::at(to), 0, 4);
  }
}
inline void copy_sixteen(uint32_t to, const void* from) { memcpy(machine::at(to), from, 16); }
inline void copies_wait() {}

// Lane l's two elements of the four matrices, whose rows' addresses eight lanes each give.
template <typename Use>
void each_of_four(uint32_t address, bool transposed, Use use) {
  if (address % 16) machine::fault("a matrix's row that does not begin at sixteen bytes");
  const char (*rows)[32] = machine::meet_warp(&address, sizeof address);
  const int lane = threadIdx.x % 32;
  for (int matrix = 0; matrix < 4; matrix++) {
    for (int i = 0; i < 2; i++) {
      const int row = transposed ? 2 * (lane % 4) + i : lane / 4;
      const int column = transposed ? lane / 4 : 2 * (lane % 4) + i;
      use(matrix, i, machine::at(machine::of<uint32_t>(rows, 8 * matrix + row)) + 2 * column);
    }
  }
  machine::leave_warp();
}
inline void read_four(uint32_t (&r)[4], uint32_t address, bool transposed) {
  for (uint32_t& word : r) word = 0;
  each_of_four(address, transposed, [&](int matrix, int i, const char* from) {
    uint16_t half;
    memcpy(&half, from, 2);
    r[matrix] |= uint32_t(half) << 16 * i;
  });
}
inline void write_four(uint32_t address, const uint32_t (&r)[4], bool transposed) {
  each_of_four(address, transposed, [&](int matrix, int i, char* to) {
    const uint16_t half = r[matrix] >> 16 * i;
    memcpy(to, &half, 2);
  });
}
inline void load_matrices(uint32_t (&r)[4], uint32_t address) { read_four(r, address, false); }
inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  read_four(r, address, true);
}
inline void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  write_four(address, {a, b, c, d}, false);
}
inline void store_matrices_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                      uint32_t d) {
  write_four(address, {a, b, c, d}, true);
}

inline uint32_t pack(float low, float high) {
  return __float2bfloat16_rn(low).bits | uint32_t(__float2bfloat16_rn(high).bits) << 16;
}
inline float low_half(uint32_t both) { return __uint_as_float(both << 16); }
inline float high_half(uint32_t both) { return __uint_as_float(both & 0xffff0000u); }

inline float exponential(float x) {
  const float out = exp2f(x * 1.44269504f);
  return fabsf(out) < 0x1p-126f ? 0.f : out;
}

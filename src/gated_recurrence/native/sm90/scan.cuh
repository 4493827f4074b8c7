// The frame of the two scans over chunks: a ring of stages filled by the copy engine, one warpgroup
// that computes, and warps that carry its results out.
//
// A block owns one sequence and value head and 64 of the 128 value channels. Rows of S^T over V are
// independent, so the state stays in the accumulators of one warpgroup, and every product whose left
// operand comes out of the one before takes it from registers.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

constexpr int STAGES = 3;
constexpr int WARPGROUP = 128;
constexpr int SCAN_THREADS = 2 * WARPGROUP;
constexpr int VECTOR_BYTES = 4 * CHUNK * 4;

// One chunk's operands.
struct Stage {
  char k[2 * BLOCK_BYTES];
  char q[2 * BLOCK_BYTES];
  char rows[BLOCK_BYTES];  // V or dO, the block's 64 channels
  char inverse[BLOCK_BYTES];
  char weights[BLOCK_BYTES];
  float vectors[4][CHUNK];
};

struct alignas(1024) ScanMemory {
  char state_out[2 * BLOCK_BYTES];
  char rows_out[BLOCK_BYTES];
  struct alignas(1024) {
    Stage stage;
  } ring[STAGES];
  uint64_t full[STAGES], empty[STAGES];
};

// Named barriers; 0 is the whole block's.
enum : int { STATE_FREE = 1, STATE_READY, ROWS_FREE, ROWS_READY, COMPUTING };
constexpr int STATE_WARPS = 1, ROWS_WARPS = 2;  // after the loading warp, in the second warpgroup
constexpr int STATE_THREADS = WARPGROUP + 32 * STATE_WARPS;
constexpr int ROWS_THREADS = WARPGROUP + 32 * ROWS_WARPS;

// The block's share of the work.
struct Place {
  int4 sequence;  // batch, first token, tokens, first chunk
  int sequence_head, value_head, head, channel, chunk_count;

  __device__ Place(const Parameters& p, int block) {
    channel = 64 * (block % 2);
    sequence_head = block / 2;
    value_head = sequence_head % p.value_heads;
    head = value_head / (p.value_heads / p.heads);
    sequence = p.sequences[sequence_head / p.value_heads];
    chunk_count = (sequence.z + CHUNK - 1) / CHUNK;
  }
  __device__ int token(int chunk) const { return sequence.y + chunk * CHUNK; }
  __device__ int tokens(int chunk) const { return min(CHUNK, sequence.z - chunk * CHUNK); }
  __device__ int chunk_head(const Parameters& p, int chunk) const {
    return (sequence.w + chunk) * p.value_heads + value_head;
  }
};

struct Operands {
  bool q, weights;
};

__device__ __forceinline__ void prepare_ring(ScanMemory& memory) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(shared_address(&memory.full[s]), 1);
      barrier_init(shared_address(&memory.empty[s]), WARPGROUP / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
}

// One thread fills stages in the order that `reverse` says.
__device__ __forceinline__ void load_chunks(const Parameters& p, ScanMemory& memory,
                                            const Place& place, const CUtensorMap& rows,
                                            Operands wanted, bool reverse) {
  const uint32_t bytes = BLOCK_BYTES * (4 + 2 * wanted.q + wanted.weights) + VECTOR_BYTES;
  for (int step = 0; step < place.chunk_count; step++) {
    const int chunk = reverse ? place.chunk_count - 1 - step : step;
    const int s = step % STAGES, round = step / STAGES;
    if (round > 0) barrier_wait(shared_address(&memory.empty[s]), (round - 1) & 1);
    const uint32_t full = shared_address(&memory.full[s]);
    const Stage& stage = memory.ring[s].stage;
    barrier_expect(full, bytes);
    const int token = place.token(chunk), batch = place.sequence.x;
    const int chunk_head = place.chunk_head(p, chunk);
    for (int b = 0; b < 2; b++) {
      load_box(shared_address(stage.k) + b * BLOCK_BYTES, p.k, full, 64 * b, place.head, token,
               batch);
    }
    load_box(shared_address(stage.rows), rows, full, place.channel, place.value_head, token, batch);
    load_box(shared_address(stage.inverse), p.inverse, full, 0, 0, chunk_head, 0);
    load_bytes(shared_address(stage.vectors), p.vectors + int64_t(chunk_head) * 4 * CHUNK,
               VECTOR_BYTES, full);
    for (int b = 0; b < 2 && wanted.q; b++) {
      load_box(shared_address(stage.q) + b * BLOCK_BYTES, p.q, full, 64 * b, place.head, token,
               batch);
    }
    if (wanted.weights) {
      load_box(shared_address(stage.weights), p.weights, full, 0, 0, chunk_head, 0);
    }
  }
}

// The computing warpgroup's side of the ring. Rows past the sequence's end hold what follows it in
// memory: they become zero, which neither writes nor decays.
__device__ __forceinline__ Stage& await_chunk(ScanMemory& memory, int step, int tokens) {
  const int s = step % STAGES;
  barrier_wait(shared_address(&memory.full[s]), step / STAGES & 1);
  Stage& stage = memory.ring[s].stage;
  if (tokens < CHUNK) {
    clear_rows(stage.k, 2, tokens, threadIdx.x, WARPGROUP);
    clear_rows(stage.q, 2, tokens, threadIdx.x, WARPGROUP);
    clear_rows(stage.rows, 1, tokens, threadIdx.x, WARPGROUP);
    fence_async();
    named_sync(COMPUTING, WARPGROUP);
  }
  return stage;
}

__device__ __forceinline__ void release_chunk(ScanMemory& memory, int step) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&memory.empty[step % STAGES]));
}

// Two warps copy a tile of 64 tokens to rows `pitch` apart.
__device__ __forceinline__ void carry_rows(ScanMemory& memory, __nv_bfloat16* to, int64_t pitch,
                                           int tokens, bool last) {
  named_sync(ROWS_READY, ROWS_THREADS);
  const int thread = threadIdx.x % (32 * ROWS_WARPS);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = 8 * i + thread / 8, eighth = thread % 8;
    if (row < tokens) {
      const uint4 value = *reinterpret_cast<const uint4*>(memory.rows_out + place(row, eighth));
      *reinterpret_cast<uint4*>(to + row * pitch + 8 * eighth) = value;
    }
  }
  if (!last) named_arrive(ROWS_FREE, ROWS_THREADS);
}

// The computing warpgroup hands a transposed accumulator [channels, tokens], packed in pairs, over.
__device__ __forceinline__ void hand_rows(ScanMemory& memory, const uint32_t (&packed)[16]) {
  named_sync(ROWS_FREE, ROWS_THREADS);
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    store_matrices_transposed(fragment_transposed(shared_address(memory.rows_out), b),
                              packed[2 * b], packed[2 * b + 1], packed[2 * b + 2],
                              packed[2 * b + 3]);
  }
  named_arrive(ROWS_READY, ROWS_THREADS);
}

// One warp stores the state's tile [64 channels, K] of a chunk.
__device__ __forceinline__ void carry_state(ScanMemory& memory, const CUtensorMap& map, int channel,
                                            int chunk_head, bool last) {
  named_sync(STATE_READY, STATE_THREADS);
  if (threadIdx.x % 32 == 0) {
    for (int b = 0; b < 2; b++) {
      store_box(map, shared_address(memory.state_out) + b * BLOCK_BYTES, 64 * b, channel,
                chunk_head, 0);
    }
    stores_commit();
    stores_have_read();
  }
  __syncwarp();
  if (!last) named_arrive(STATE_FREE, STATE_THREADS);
}

__device__ __forceinline__ void hand_state(ScanMemory& memory, const uint32_t (&packed)[32]) {
  named_sync(STATE_FREE, STATE_THREADS);
#pragma unroll
  for (int b = 0; b < 16; b += 2) {
    const uint32_t block = shared_address(memory.state_out) + b / 8 * BLOCK_BYTES;
    store_matrices(fragment(block, b % 8), packed[2 * b], packed[2 * b + 1], packed[2 * b + 2],
                   packed[2 * b + 3]);
  }
  fence_async();
  named_arrive(STATE_READY, STATE_THREADS);
}

// A state [K, V] of float32 in memory and its transpose in an accumulator.
template <typename Use>
__device__ __forceinline__ void each_state_element(const Place& place, const Lane& lane, Use use) {
  const int64_t base = int64_t(place.sequence_head) * HEAD * HEAD + place.channel;
#pragma unroll
  for (int i = 0; i < 64; i++) {
    const int key = 8 * (i / 4) + lane.pair + i % 2, channel = lane.row + 8 * (i / 2 % 2);
    use(i, base + int64_t(key) * HEAD + channel);
  }
}

__device__ __forceinline__ void read_state(float (&state)[64], const float* from,
                                           const Place& place, const Lane& lane) {
  each_state_element(place, lane,
                     [&](int i, int64_t at) { state[i] = from == nullptr ? 0.f : from[at]; });
}

__device__ __forceinline__ void write_state(const float (&state)[64], float* to, const Place& place,
                                            const Lane& lane) {
  if (to == nullptr) return;
  each_state_element(place, lane, [&](int i, int64_t at) { to[at] = state[i]; });
}

template <int N>
__device__ __forceinline__ void pack_pairs(uint32_t (&packed)[N], const float (&x)[2 * N]) {
#pragma unroll
  for (int i = 0; i < N; i++) packed[i] = pack(x[2 * i], x[2 * i + 1]);
}

// A per-token vector's two entries for column block b of a transposed accumulator.
__device__ __forceinline__ float2 at_columns(const float* vector, const Lane& lane, int b) {
  return *reinterpret_cast<const float2*>(vector + 8 * b + lane.pair);
}

// The frame of the two scans over chunks: a ring of stages filled by the copy engine, one warpgroup
// that computes, and a second whose warps load and take its results on.
//
// A cluster of two blocks owns one sequence and value head, each block 64 of the 128 value
// channels. Rows of S^T over V are independent, so the state stays in the accumulators of one
// warpgroup, and every product whose left operand comes out of the one before takes it from
// registers. What both blocks read, each fetches half of and sends to both.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

constexpr int STAGES = 3;
constexpr int WARPGROUP = 128;
constexpr int VECTOR_BYTES = 4 * CHUNK * 4;

// One chunk's operands.
struct Stage {
  char k[2 * BLOCK_BYTES];
  char q[2 * BLOCK_BYTES];
  char rows[BLOCK_BYTES];    // V or dO, the block's 64 channels
  char values[BLOCK_BYTES];  // V beside dO
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
  float sums[4][CHUNK];  // of the reverse scan
  int prepared;          // of the forward scan: how many chunks gdn_prepare has stored
};

// Named barriers; 0 is the whole block's. A tile's FREE and READY join the computing warpgroup and
// the warp that takes the tile on.
enum : int { STATE_FREE = 1, STATE_READY, ROWS_FREE, ROWS_READY, OUT_FREE, OUT_READY, COMPUTING };
constexpr int JOINED = WARPGROUP + 32;

// What the second warpgroup's warps do: the tiles of states, those of tokens, the loads, and, in the
// forward pass, watching gdn_prepare.
constexpr int STATE_WARP = 4, ROWS_WARP = 5, WATCHING_WARP = 6, LOADING_WARP = 7;

// The block's share of the work.
struct Place {
  int4 sequence;  // batch, first token, tokens, first chunk
  int sequence_head, value_head, head, channel, chunk_count;

  __device__ Place(const Parameters& p, int turn, int rank) : channel(64 * rank) {
    const int4* row = p.sequences + 2 * (turn / p.value_heads);
    value_head = turn % p.value_heads;
    head = value_head / (p.value_heads / p.heads);
    sequence = row[0];
    sequence_head = row[1].x * p.value_heads + value_head;
    chunk_count = (sequence.z + CHUNK - 1) / CHUNK;
  }
  __device__ int token(int chunk) const { return sequence.y + chunk * CHUNK; }
  __device__ int tokens(int chunk) const { return min(CHUNK, sequence.z - chunk * CHUNK); }
  __device__ int chunk_head(const Parameters& p, int chunk) const {
    return (sequence.w + chunk) * p.value_heads + value_head;
  }
};

struct Operands {
  bool inverse, q, weights, values;
};

__device__ __forceinline__ bool first_lane() { return threadIdx.x % 32 == 0; }

// Four warps of each block release a stage.
__device__ __forceinline__ void prepare_ring(ScanMemory& memory) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(shared_address(&memory.full[s]), 1);
      barrier_init(shared_address(&memory.empty[s]), 2 * 4);
    }
    barrier_init_done();
    memory.prepared = 0;
  }
  cluster_sync();
}

// One warp keeps up with gdn_prepare, for the thread that loads: the fences wait for all of a
// thread's copies under way.
__device__ __forceinline__ void watch_prepared(const Parameters& p, ScanMemory& memory,
                                               const Place& place) {
  for (int prepared = 0; prepared < place.chunk_count;) {
    const int chunk = min(prepared + int(threadIdx.x % 32), place.chunk_count - 1);
    const bool there = read_relaxed(p.prepared + place.chunk_head(p, chunk)) != 0;
    const unsigned missing = ~__ballot_sync(0xffffffffu, there);
    if (missing & 1) {
      __nanosleep(40);
      continue;
    }
    fence_acquire();
    fence_copies();
    __syncwarp();
    prepared += missing ? __ffs(missing) - 1 : 32;
    if (first_lane()) write_release(&memory.prepared, prepared);
  }
}

// One thread fills stages in the order that `reverse` says; `behind`: as gdn_prepare comes to them.
// With a gate a channel, `Channel`, what stands for keys and queries has their decays in it.
template <bool Channel>
__device__ __forceinline__ void load_chunks(const Parameters& p, ScanMemory& memory,
                                            const Place& place, const CUtensorMap& rows,
                                            Operands wanted, bool reverse, bool behind) {
  int prepared = 0;
  const uint32_t bytes =
      BLOCK_BYTES * (3 + wanted.inverse + 2 * wanted.q + wanted.weights + wanted.values) +
      VECTOR_BYTES;
  for (int step = 0; step < place.chunk_count; step++) {
    const int chunk = reverse ? place.chunk_count - 1 - step : step;
    const int s = step % STAGES, round = step / STAGES;
    while (behind && prepared <= step) prepared = read_acquire(&memory.prepared);
    if (round > 0) barrier_wait(shared_address(&memory.empty[s]), (round - 1) & 1);
    const uint32_t full = shared_address(&memory.full[s]);
    const Stage& stage = memory.ring[s].stage;
    barrier_expect(full, bytes);
    const int token = place.token(chunk), batch = place.sequence.x;
    const int chunk_head = place.chunk_head(p, chunk), rank = place.channel / 64;
    const uint32_t half = rank * BLOCK_BYTES;
    constexpr uint16_t both = 3;
    const int head = Channel ? 0 : place.head, row = Channel ? chunk_head : token;
    const int outer = Channel ? 0 : batch;
    load_box_for(both, shared_address(stage.k) + half, Channel ? p.k_end : p.k, full, 64 * rank,
                 head, row, outer);
    load_box(shared_address(stage.rows), rows, full, place.channel, place.value_head, token, batch);
    load_bytes(shared_address(stage.vectors), p.vectors + int64_t(chunk_head) * 4 * CHUNK,
               VECTOR_BYTES, full);
    if (wanted.values) {
      load_box(shared_address(stage.values), p.v, full, place.channel, place.value_head, token,
               batch);
    }
    if (wanted.inverse && rank == 0) {
      load_box_for(both, shared_address(stage.inverse), p.inverse, full, 0, 0, chunk_head, 0);
    }
    if (wanted.q) {
      load_box_for(both, shared_address(stage.q) + half, Channel ? p.q_read : p.q, full, 64 * rank,
                   head, row, outer);
    }
    if (wanted.weights && rank == 1) {
      load_box_for(both, shared_address(stage.weights), p.weights, full, 0, 0, chunk_head, 0);
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
  const int lane = threadIdx.x % 32;
  if (lane < 2) barrier_arrive_at(shared_address(&memory.empty[step % STAGES]), lane);
}

// Writes a transposed accumulator [channels, tokens], packed in pairs, as a tile [tokens,
// channels].
__device__ __forceinline__ void store_rows(char* tile, const uint32_t (&packed)[16]) {
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    store_matrices_transposed(fragment_transposed(shared_address(tile), b), packed[2 * b],
                              packed[2 * b + 1], packed[2 * b + 2], packed[2 * b + 3]);
  }
}

// Handing tiles over: wait until each was taken (`named_sync` on its FREE), write them, and one
// `hand_over` for all of them, since a fence holds the warpgroup up.
__device__ __forceinline__ void store_state(ScanMemory& memory, const uint32_t (&packed)[32]) {
#pragma unroll
  for (int b = 0; b < 16; b += 2) {
    const uint32_t block = shared_address(memory.state_out) + b / 8 * BLOCK_BYTES;
    store_matrices(fragment(block, b % 8), packed[2 * b], packed[2 * b + 1], packed[2 * b + 2],
                   packed[2 * b + 3]);
  }
}

__device__ __forceinline__ void hand_over(bool state, bool rows, bool out) {
  fence_async();
  if (state) named_arrive(STATE_READY, JOINED);
  if (rows) named_arrive(ROWS_READY, JOINED);
  if (out) named_arrive(OUT_READY, JOINED);
}

// The other side, one warp. Each store is a group of the warp's first lane.
//
// The state's tile [64 channels, K] of a chunk.
__device__ __forceinline__ void carry_state(ScanMemory& memory, const CUtensorMap& map, int channel,
                                            int chunk_head, bool last) {
  named_sync(STATE_READY, JOINED);
  if (first_lane()) {
    for (int b = 0; b < 2; b++) {
      store_box(map, shared_address(memory.state_out) + b * BLOCK_BYTES, 64 * b, channel,
                chunk_head, 0);
    }
    stores_commit();
    stores_have_read();
  }
  __syncwarp();
  if (!last) named_arrive(STATE_FREE, JOINED);
}

// A tile of 64 tokens, padded in memory too.
__device__ __forceinline__ void carry_update(const Parameters& p, ScanMemory& memory, int channel,
                                             int chunk_head, bool last) {
  named_sync(ROWS_READY, JOINED);
  if (first_lane()) {
    store_box(p.update, shared_address(memory.rows_out), channel, 0, chunk_head, 0);
    stores_commit();
    stores_have_read();
  }
  __syncwarp();
  if (!last) named_arrive(ROWS_FREE, JOINED);
}

// A tile of a chunk's tokens in [B, T, HV, V], whose map is `map` and whose first element is `to`.
// A box would overrun a chunk cut short.
__device__ __forceinline__ void carry_rows(const Parameters& p, const char* tile,
                                           const CUtensorMap& map, __nv_bfloat16* to,
                                           const Place& place, int chunk, int free, bool last) {
  const int tokens = place.tokens(chunk), token = place.token(chunk), batch = place.sequence.x;
  if (tokens == CHUNK) {
    if (first_lane()) {
      store_box(map, shared_address(tile), place.channel, place.value_head, token, batch);
      stores_commit();
      stores_have_read();
    }
  } else {
    const int64_t pitch = int64_t(p.value_heads) * HEAD;
    to += (batch * p.length + token) * pitch + place.value_head * HEAD + place.channel;
    for (int i = threadIdx.x % 32; i < tokens * 8; i += 32) {
      const int row = i / 8, eighth = i % 8;
      *reinterpret_cast<uint4*>(to + row * pitch + 8 * eighth) =
          *reinterpret_cast<const uint4*>(tile + ::place(row, eighth));
    }
    fence_release();
  }
  __syncwarp();
  if (!last) named_arrive(free, JOINED);
}

// Says chunk by chunk, to the kernel that may be waiting, what a warp has stored. A release waits
// for memory, so it is done for four chunks at a time.
struct Publisher {
  int* ready;  // of the warp's first chunk
  int stride;  // to that of the next
  int stored = 0, said = 0;

  // After the one group of a chunk. `last`: no chunk follows.
  __device__ __forceinline__ void stored_one(bool last) {
    stored++;
    if (!last && stored % 4 != 0) return;
    if (first_lane()) {
      if (last) {
        stores_wait<0>();
      } else {
        stores_wait<1>();
      }
      fence_copies();
      fence_release();
      for (; said < stored - !last; said++) add_relaxed(ready + int64_t(said) * stride);
    }
    __syncwarp();
  }
};

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
                                            const Lane& lane, float factor = 1.f) {
  if (to == nullptr) return;
  each_state_element(place, lane, [&](int i, int64_t at) { to[at] = factor * state[i]; });
}

template <int N>
__device__ __forceinline__ void pack_pairs(uint32_t (&packed)[N], const float (&x)[2 * N]) {
#pragma unroll
  for (int i = 0; i < N; i++) packed[i] = pack(x[2 * i], x[2 * i + 1]);
}

// A per-token vector at the columns of a transposed accumulator: two entries for each block of 8.
struct Columns {
  float2 x[8];
  __device__ __forceinline__ Columns(const float* vector, const Lane& lane) {
#pragma unroll
    for (int b = 0; b < 8; b++) {
      x[b] = *reinterpret_cast<const float2*>(vector + 8 * b + lane.pair);
    }
  }
  // Of accumulator index i.
  __device__ __forceinline__ float operator[](int i) const {
    return i % 2 ? x[i / 4].y : x[i / 4].x;
  }
};

// The state's decays with a gate a channel, a number a key: the columns of its accumulator.
__device__ __forceinline__ void decay_state(float (&state)[64], const Stage& stage,
                                            const Lane& lane, float factor = 1.f) {
  const float* decay = stage.vectors[0];
#pragma unroll
  for (int b = 0; b < 16; b++) {
    const float2 two = *reinterpret_cast<const float2*>(decay + 8 * b + lane.pair);
    const float x = factor * two.x, y = factor * two.y;
    state[4 * b] *= x;
    state[4 * b + 1] *= y;
    state[4 * b + 2] *= x;
    state[4 * b + 3] *= y;
  }
}

// The block's rows of the chunk, [tokens, channels] in shared memory, in a transposed accumulator's
// places.
__device__ __forceinline__ void load_rows(uint32_t (&words)[16], const char* tile) {
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    uint32_t four[4];
    load_matrices_transposed(four, fragment_transposed(shared_address(tile), b));
#pragma unroll
    for (int x = 0; x < 4; x++) words[2 * b + x] = four[x];
  }
}

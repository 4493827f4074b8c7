// The frame of the two scans over chunks.
//
// A block owns one sequence and value head. The state's transpose [V, K] and the left operands of all
// products stay in tensor memory, a value channel a lane, so no block needs another's. One warp loads
// a ring of stages, one stores, and four compute: a thread has one channel's row; the first thread
// starts the products. Compiled and inspected, not run: see docs/recurrence.md.
#pragma once

#include "../sm90/parameters.cuh"
#include "tensor.cuh"

constexpr int CHUNK = 64, HEAD = 128;
constexpr int STAGES = 2;
constexpr int COMPUTING_THREADS = 128;
constexpr int LOADING_WARP = 4, STORING_WARP = 5;
constexpr int THREADS = COMPUTING_THREADS + 64;
constexpr int JOINED = COMPUTING_THREADS + 32;  // with the warp that stores

// Columns of tensor memory: accumulators, then left operands.
enum : uint32_t {
  STATE = 0, UPDATE = 128, OUT = 192, STATE_LEFT = 256, LEFT = 320, END_LEFT = 352, ROWS_LEFT = 384
};
constexpr uint32_t TENSOR_COLUMNS = 512;

// Named barriers; 0 is the whole block's.
enum : int { COMPUTING = 1, TILES_FREE, TILES_READY };

struct Stage {
  char k[2 * BLOCK_BYTES];
  char q[2 * BLOCK_BYTES];
  char rows[2 * BLOCK_BYTES];    // V or dO
  char values[2 * BLOCK_BYTES];  // V beside dO; of the first stage, O in the forward pass
  char inverse[BLOCK_BYTES];
  char weights[BLOCK_BYTES];
  float vectors[4][CHUNK];
};

struct alignas(1024) Memory {
  char state_out[4 * BLOCK_BYTES];  // [V, K]: rows 0 to 63, then the others, each two blocks
  char rows_out[2 * BLOCK_BYTES];   // [64, V]: U' or dV
  struct alignas(1024) {
    Stage stage;
  } ring[STAGES];
  uint64_t full[STAGES], empty[STAGES];
  uint64_t read, update, states;  // products are done
  uint32_t tensor;                // where tensor memory begins
  float sums[4][CHUNK];           // of the reverse scan
};

static_assert(sizeof(Memory) == SHARED_SCANS && SHARED_SCANS <= 227 * 1024);

struct Place {
  int4 sequence;  // batch, first token, tokens, first chunk
  int sequence_head, value_head, head, chunk_count;

  __device__ Place(const Parameters& p, int turn) {
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

// Of a tile of 64 rows a block: where row and column stand.
__device__ __forceinline__ uint32_t place(int row, int column) {
  return column / 64 * BLOCK_BYTES + row * 128 + ((column % 64 / 8 ^ row % 8) * 16) +
         column % 8 * 2;
}

// One of the threads that compute. `row`: its value channel.
struct Row {
  const Parameters& p;
  Memory& memory;
  const Place& at;
  const uint32_t tensor;  // the warp's lanes
  const int row;

  __device__ __forceinline__ void sync() {
    tensor_before_barrier();
    named_sync(COMPUTING, COMPUTING_THREADS);
    tensor_after_barrier();
  }
  __device__ __forceinline__ void await(uint64_t& barrier, int phase) {
    barrier_wait(shared_address(&barrier), phase);
    tensor_after_barrier();
  }

  template <typename Change>
  __device__ __forceinline__ void each_state_element(Change change) {
#pragma unroll
    for (int c = 0; c < HEAD; c += 16) {
      uint32_t x[16];
      load_columns(x, tensor + STATE + c);
      loads_wait(x);
      change(c, x);
    }
  }

  __device__ __forceinline__ int64_t state_at(int key) {
    return (int64_t(at.sequence_head) * HEAD + key) * HEAD + row;
  }

  __device__ __forceinline__ void read_state(const float* from) {
#pragma unroll
    for (int c = 0; c < HEAD; c += 16) {
      uint32_t x[16];
#pragma unroll
      for (int i = 0; i < 16; i++) {
        x[i] = __float_as_uint(from == nullptr ? 0.f : from[state_at(c + i)]);
      }
      store_columns(tensor + STATE + c, x);
    }
    stores_to_tensor_wait();
  }

  __device__ __forceinline__ void write_state(float* to, float factor) {
    if (to == nullptr) return;
    each_state_element([&](int c, uint32_t (&x)[16]) {
#pragma unroll
      for (int i = 0; i < 16; i++) to[state_at(c + i)] = factor * __uint_as_float(x[i]);
    });
  }

  // The state becomes a left operand, and a tile where it is kept; a multiple of it stays.
  __device__ __forceinline__ void pass_state_on(float decay, bool keep) {
    each_state_element([&](int c, uint32_t (&x)[16]) {
      uint32_t packed[8];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        packed[i] = pack(__uint_as_float(x[2 * i]), __uint_as_float(x[2 * i + 1]));
      }
      store_columns(tensor + STATE_LEFT + c / 2, packed);
      if (keep) {
        char* tile = memory.state_out + row / 64 * 2 * BLOCK_BYTES;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          *reinterpret_cast<uint4*>(tile + place(row % 64, c + 8 * i)) =
              make_uint4(packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        }
      }
#pragma unroll
      for (int i = 0; i < 16; i++) x[i] = __float_as_uint(decay * __uint_as_float(x[i]));
      store_columns(tensor + STATE + c, x);
    });
    stores_to_tensor_wait();
  }

  __device__ __forceinline__ float read_row(const char* tile, int token) {
    return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(tile + place(token, row)));
  }
  __device__ __forceinline__ void write_row(char* tile, int token, float x) {
    *reinterpret_cast<__nv_bfloat16*>(tile + place(token, row)) = __float2bfloat16(x);
  }

  // Rows past the sequence's end hold what follows it in memory: they become zero.
  __device__ __forceinline__ void clear_tails(Stage& stage, int tokens) {
    for (int i = tokens * 8 + row; i < 64 * 8; i += COMPUTING_THREADS) {
      for (int b = 0; b < 2; b++) {
        const uint4 zero = make_uint4(0, 0, 0, 0);
        reinterpret_cast<uint4*>(stage.k + b * BLOCK_BYTES)[i] = zero;
        reinterpret_cast<uint4*>(stage.q + b * BLOCK_BYTES)[i] = zero;
        reinterpret_cast<uint4*>(stage.rows + b * BLOCK_BYTES)[i] = zero;
      }
    }
    fence_async();
    named_sync(COMPUTING, COMPUTING_THREADS);
  }

  // 16 of the row's tokens, `c` and on, in a left operand.
  __device__ __forceinline__ void store_left(uint32_t columns, int c, const float (&x)[16]) {
    uint32_t packed[8];
#pragma unroll
    for (int i = 0; i < 8; i++) packed[i] = pack(x[2 * i], x[2 * i + 1]);
    store_columns(tensor + columns + c / 2, packed);
  }
  __device__ __forceinline__ void load_floats(float (&x)[16], uint32_t columns) {
    uint32_t words[16];
    load_columns(words, tensor + columns);
    loads_wait(words);
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = __uint_as_float(words[i]);
  }
  __device__ __forceinline__ void store_floats(uint32_t columns, const float (&x)[16]) {
    uint32_t words[16];
#pragma unroll
    for (int i = 0; i < 16; i++) words[i] = __float_as_uint(x[i]);
    store_columns(tensor + columns, words);
  }
};

// A tile [64, V] of a chunk's tokens in [B, T, HV, V] by one warp, whose map is `map` and whose first
// element is `to`. A box would overrun a chunk cut short.
__device__ __forceinline__ void store_tokens(const Parameters& p, const char* tile,
                                             const CUtensorMap& map, __nv_bfloat16* to,
                                             const Place& at, int chunk) {
  const int lane = threadIdx.x % 32, tokens = at.tokens(chunk), token = at.token(chunk);
  if (tokens == CHUNK) {
    for (int b = 0; lane == 0 && b < 2; b++) {
      store_box(map, shared_address(tile) + b * BLOCK_BYTES, 64 * b, at.value_head, token,
                at.sequence.x);
    }
    return;
  }
  const int64_t pitch = int64_t(p.value_heads) * HEAD;
  to += (at.sequence.x * p.length + token) * pitch + at.value_head * HEAD;
  for (int i = lane; i < tokens * 16; i += 32) {
    const int row = i / 16, column = i % 16 * 8;
    *reinterpret_cast<uint4*>(to + row * pitch + column) =
        *reinterpret_cast<const uint4*>(tile + place(row, column));
  }
}

// The state's tile, by one thread.
__device__ __forceinline__ void store_state(const Memory& memory, const CUtensorMap& map,
                                            int chunk_head) {
  for (int b = 0; b < 4; b++) {
    store_box(map, shared_address(memory.state_out) + b * BLOCK_BYTES, 64 * (b % 2), 64 * (b / 2),
              chunk_head, 0);
  }
}

// What the scan reads of each chunk, by one thread, in the order that `reverse` says.
template <bool Delta>
__device__ __forceinline__ void load_chunks(const Parameters& p, Memory& memory, const Place& at,
                                            const CUtensorMap& rows, bool reverse) {
  const bool values = Delta && reverse;
  const uint32_t bytes = (7 + Delta + 2 * values) * BLOCK_BYTES + sizeof(Stage::vectors);
  await_previous();
  for (int step = 0; step < at.chunk_count; step++) {
    const int chunk = reverse ? at.chunk_count - 1 - step : step;
    const int s = step % STAGES, round = step / STAGES;
    if (round > 0) barrier_wait(shared_address(&memory.empty[s]), (round - 1) & 1);
    const uint32_t full = shared_address(&memory.full[s]);
    const Stage& stage = memory.ring[s].stage;
    const int token = at.token(chunk), batch = at.sequence.x;
    const int chunk_head = at.chunk_head(p, chunk);
    barrier_expect(full, bytes);
    for (int b = 0; b < 2; b++) {
      const uint32_t to = b * BLOCK_BYTES;
      load_box(shared_address(stage.k) + to, p.k, full, 64 * b, at.head, token, batch);
      load_box(shared_address(stage.q) + to, p.q, full, 64 * b, at.head, token, batch);
      load_box(shared_address(stage.rows) + to, rows, full, 64 * b, at.value_head, token, batch);
      if (values) {
        load_box(shared_address(stage.values) + to, p.v, full, 64 * b, at.value_head, token, batch);
      }
    }
    if constexpr (Delta) {
      load_box(shared_address(stage.inverse), p.inverse, full, 0, 0, chunk_head, 0);
    }
    load_box(shared_address(stage.weights), p.weights, full, 0, 0, chunk_head, 0);
    load_bytes(shared_address(stage.vectors), p.vectors + int64_t(chunk_head) * 4 * CHUNK,
               sizeof(Stage::vectors), full);
  }
}

// A block from its first barrier to its last: `compute(tensor memory)` by four warps, `load` by one
// thread, `store` by one warp.
template <typename Computes, typename Loads, typename Stores>
__device__ __forceinline__ void run_block(Memory& memory, Computes compute, Loads load,
                                          Stores store) {
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(shared_address(&memory.full[s]), 1);
      barrier_init(shared_address(&memory.empty[s]), 1);
    }
    barrier_init(shared_address(&memory.read), 1);
    barrier_init(shared_address(&memory.update), 1);
    barrier_init(shared_address(&memory.states), 1);
    barrier_init_done();
  }
  if (warp == 0) tensor_allocate(shared_address(&memory.tensor), TENSOR_COLUMNS);
  tensor_before_barrier();
  __syncthreads();
  tensor_after_barrier();
  if (warp < 4) {
    compute(memory.tensor + (uint32_t(32 * warp) << 16));  // a lane's number is the upper half
    tensor_before_barrier();
  } else if (warp == LOADING_WARP) {
    if (threadIdx.x % 32 == 0) load();
  } else {
    store();
  }
  __syncthreads();
  if (warp == 0) {
    tensor_after_barrier();
    tensor_free(memory.tensor, TENSOR_COLUMNS);
  }
}

// The forward scan on compute capability 10.0: S' = c S + (diag(r) K)^T U, chunk after chunk, and the
// output O = s diag(e) Q S + P' U', with U' = W + (A' - I) W, W = V - diag(e) K S. Without a delta rule
// U' = V and P' is P. The same tensors and the same roundings as `sm90/forward_scan.cuh`.
//
// A block owns one sequence and value head. All of S^T [V, K], (K S)^T, (Q S)^T and the left operands
// stay in tensor memory, a value channel a lane, so no block needs another's. One warp loads a ring of
// stages, one stores, and four compute: a thread has one channel's row; its first thread starts the
// products. Compiled and inspected, not run: see docs/recurrence.md.
#pragma once

#include "../sm90/parameters.cuh"
#include "tensor.cuh"

constexpr int CHUNK = 64, HEAD = 128;
constexpr int STAGES = 2;
constexpr int COMPUTING_THREADS = 128;
constexpr int LOADING_WARP = 4, STORING_WARP = 5;
constexpr int THREADS = COMPUTING_THREADS + 64;

// Columns of tensor memory: accumulators, then left operands.
enum : uint32_t { STATE = 0, UPDATE = 128, OUT = 192, STATE_LEFT = 256, LEFT = 320, END_LEFT = 352 };
constexpr uint32_t TENSOR_COLUMNS = 512;

// Named barriers; 0 is the whole block's.
enum : int { COMPUTING = 1, TILES_FREE, TILES_READY };

struct Stage {
  char k[2 * BLOCK_BYTES];
  char q[2 * BLOCK_BYTES];
  char v[2 * BLOCK_BYTES];
  char inverse[BLOCK_BYTES];
  char weights[BLOCK_BYTES];
  float vectors[4][CHUNK];
};

struct alignas(1024) Memory {
  char state_out[4 * BLOCK_BYTES];   // S^T [V, K]: two blocks of columns, each two of 64 rows
  char update_out[2 * BLOCK_BYTES];  // U' [64, V]
  char out[2 * BLOCK_BYTES];         // O [64, V]
  struct alignas(1024) {
    Stage stage;
  } ring[STAGES];
  uint64_t full[STAGES], empty[STAGES];
  uint64_t read, update, states;  // products are done
  uint32_t tensor;                // where tensor memory begins
};

static_assert(sizeof(Memory) == SHARED_FORWARD);

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

// What the scan reads of a chunk, once gdn_prepare has stored it.
template <bool Delta>
__device__ __forceinline__ void load_chunks(const Parameters& p, Memory& memory,
                                            const Place& at) {
  constexpr uint32_t bytes = (7 + Delta) * BLOCK_BYTES + sizeof(Stage::vectors);
  await_previous();
  for (int chunk = 0; chunk < at.chunk_count; chunk++) {
    const int s = chunk % STAGES, round = chunk / STAGES;
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
      load_box(shared_address(stage.v) + to, p.v, full, 64 * b, at.value_head, token, batch);
    }
    if constexpr (Delta) {
      load_box(shared_address(stage.inverse), p.inverse, full, 0, 0, chunk_head, 0);
    }
    load_box(shared_address(stage.weights), p.weights, full, 0, 0, chunk_head, 0);
    load_bytes(shared_address(stage.vectors), p.vectors + int64_t(chunk_head) * 4 * CHUNK,
               sizeof(Stage::vectors), full);
  }
}

// One warp takes the tiles of each chunk to memory.
template <bool Delta>
__device__ __forceinline__ void store_chunks(const Parameters& p, Memory& memory,
                                             const Place& at) {
  const int lane = threadIdx.x % 32;
  constexpr int joined = COMPUTING_THREADS + 32;
  for (int chunk = 0; chunk < at.chunk_count; chunk++) {
    named_arrive(TILES_FREE, joined);
    named_sync(TILES_READY, joined);
    const int token = at.token(chunk), tokens = at.tokens(chunk), batch = at.sequence.x;
    const int chunk_head = at.chunk_head(p, chunk);
    if (lane == 0) {
      for (int b = 0; b < 2; b++) {
        const uint32_t from = b * BLOCK_BYTES;
        if (p.keep_states) {
          for (int half = 0; half < 2; half++) {
            store_box(p.state, shared_address(memory.state_out) + (2 * half + b) * BLOCK_BYTES,
                      64 * b, 64 * half, chunk_head, 0);
          }
          if (Delta) {
            store_box(p.update, shared_address(memory.update_out) + from, 64 * b, 0, chunk_head, 0);
          }
        }
        if (tokens == CHUNK) {
          store_box(p.out, shared_address(memory.out) + from, 64 * b, at.value_head, token, batch);
        }
      }
      stores_commit();
    }
    if (tokens < CHUNK) {  // a box would overrun
      const int64_t pitch = int64_t(p.value_heads) * HEAD;
      __nv_bfloat16* to = p.out_rows + (batch * p.length + token) * pitch + at.value_head * HEAD;
      for (int i = lane; i < tokens * 16; i += 32) {
        const int row = i / 16, column = i % 16 * 8;
        *reinterpret_cast<uint4*>(to + row * pitch + column) =
            *reinterpret_cast<const uint4*>(memory.out + place(row, column));
      }
    }
    if (lane == 0) stores_have_read();
    __syncwarp();
  }
  if (lane == 0) stores_wait<0>();
}

// The four warps that compute. `row`: the thread's value channel.
template <bool Delta>
struct Compute {
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

  __device__ __forceinline__ void read_state() {
#pragma unroll
    for (int c = 0; c < HEAD; c += 16) {
      uint32_t x[16];
#pragma unroll
      for (int i = 0; i < 16; i++) {
        x[i] = __float_as_uint(p.initial_state == nullptr ? 0.f : p.initial_state[state_at(c + i)]);
      }
      store_columns(tensor + STATE + c, x);
    }
    stores_to_tensor_wait();
  }

  // S becomes a left operand, and a tile where it is kept; c S stays.
  __device__ __forceinline__ void pass_state_on(float decay) {
    each_state_element([&](int c, uint32_t (&x)[16]) {
      uint32_t packed[8];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        packed[i] = pack(__uint_as_float(x[2 * i]), __uint_as_float(x[2 * i + 1]));
      }
      store_columns(tensor + STATE_LEFT + c / 2, packed);
      if (p.keep_states) {
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

  __device__ __forceinline__ float value(const Stage& stage, int token) {
    return __bfloat162float(
        *reinterpret_cast<const __nv_bfloat16*>(stage.v + place(token, row)));
  }
  __device__ __forceinline__ void write_row(char* tile, int token, float x) {
    *reinterpret_cast<__nv_bfloat16*>(tile + place(token, row)) = __float2bfloat16(x);
  }

  // W = V - e K S in float32 and as a left operand.
  __device__ __forceinline__ void residual(const Stage& stage) {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      uint32_t x[16], packed[8];
      load_columns(x, tensor + UPDATE + c);
      loads_wait(x);
#pragma unroll
      for (int i = 0; i < 16; i++) {
        x[i] = __float_as_uint(value(stage, c + i) -
                               stage.vectors[1][c + i] * __uint_as_float(x[i]));
      }
#pragma unroll
      for (int i = 0; i < 8; i++) {
        packed[i] = pack(__uint_as_float(x[2 * i]), __uint_as_float(x[2 * i + 1]));
      }
      store_columns(tensor + UPDATE + c, x);
      store_columns(tensor + LEFT + c / 2, packed);
    }
    stores_to_tensor_wait();
  }

  // s e Q S
  __device__ __forceinline__ void scale_out(const Stage& stage) {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      uint32_t x[16];
      load_columns(x, tensor + OUT + c);
      loads_wait(x);
#pragma unroll
      for (int i = 0; i < 16; i++) {
        x[i] = __float_as_uint(p.scale * stage.vectors[1][c + i] * __uint_as_float(x[i]));
      }
      store_columns(tensor + OUT + c, x);
    }
    stores_to_tensor_wait();
  }

  // U' and diag(r) U' as left operands, U' as a tile where it is kept.
  __device__ __forceinline__ void pass_update_on(const Stage& stage) {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float u[16];
      if constexpr (Delta) {
        uint32_t x[16];
        load_columns(x, tensor + UPDATE + c);
        loads_wait(x);
#pragma unroll
        for (int i = 0; i < 16; i++) u[i] = __uint_as_float(x[i]);
      } else {
#pragma unroll
        for (int i = 0; i < 16; i++) u[i] = value(stage, c + i);
      }
      uint32_t packed[8], end[8];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const float2 rest = *reinterpret_cast<const float2*>(&stage.vectors[2][c + 2 * i]);
        packed[i] = pack(u[2 * i], u[2 * i + 1]);
        end[i] = pack(rest.x * u[2 * i], rest.y * u[2 * i + 1]);
      }
      store_columns(tensor + LEFT + c / 2, packed);
      store_columns(tensor + END_LEFT + c / 2, end);
      if (Delta && p.keep_states) {
#pragma unroll
        for (int i = 0; i < 16; i++) write_row(memory.update_out, c + i, u[i]);
      }
    }
    stores_to_tensor_wait();
  }

  __device__ __forceinline__ void write_out() {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      uint32_t x[16];
      load_columns(x, tensor + OUT + c);
      loads_wait(x);
#pragma unroll
      for (int i = 0; i < 16; i++) write_row(memory.out, c + i, __uint_as_float(x[i]));
    }
  }

  // Rows past the sequence's end hold what follows it in memory: they become zero.
  __device__ __forceinline__ void clear_tails(Stage& stage, int tokens) {
    for (int i = tokens * 8 + row; i < 64 * 8; i += COMPUTING_THREADS) {
      for (int b = 0; b < 2; b++) {
        const uint4 zero = make_uint4(0, 0, 0, 0);
        reinterpret_cast<uint4*>(stage.k + b * BLOCK_BYTES)[i] = zero;
        reinterpret_cast<uint4*>(stage.q + b * BLOCK_BYTES)[i] = zero;
        reinterpret_cast<uint4*>(stage.v + b * BLOCK_BYTES)[i] = zero;
      }
    }
    fence_async();
    named_sync(COMPUTING, COMPUTING_THREADS);
  }

  __device__ __forceinline__ void chunk(int index) {
    constexpr int joined = COMPUTING_THREADS + 32;
    const int s = index % STAGES, phase = index & 1;
    const bool starts = threadIdx.x == 0;
    Stage& stage = memory.ring[s].stage;
    barrier_wait(shared_address(&memory.full[s]), index / STAGES & 1);
    if (at.tokens(index) < CHUNK) clear_tails(stage, at.tokens(index));
    named_sync(TILES_FREE, joined);
    pass_state_on(stage.vectors[1][CHUNK - 1]);
    if (!Delta) pass_update_on(stage);
    sync();
    const uint32_t base = memory.tensor;
    if (starts) {
      if constexpr (Delta) {
        multiply<8, CHUNK, Major::K>(base + UPDATE, base + STATE_LEFT, shared_address(stage.k),
                                     false);  // (K S)^T
        products_signal(shared_address(&memory.update));
      }
      multiply<8, CHUNK, Major::K>(base + OUT, base + STATE_LEFT, shared_address(stage.q),
                                   false);  // (Q S)^T
      products_signal(shared_address(&memory.read));
    }
    if constexpr (Delta) {
      await(memory.update, 0);  // twice a chunk
      residual(stage);
      sync();
      if (starts) {
        multiply<4, CHUNK, Major::K>(base + UPDATE, base + LEFT, shared_address(stage.inverse),
                                     true);  // U'^T
        products_signal(shared_address(&memory.update));
      }
    }
    await(memory.read, phase);
    scale_out(stage);
    if constexpr (Delta) {
      await(memory.update, 1);
      pass_update_on(stage);
    }
    sync();
    if (starts) {
      multiply<4, HEAD, Major::Other>(base + STATE, base + END_LEFT, shared_address(stage.k),
                                      true);  // += (diag(r) U)^T K
      multiply<4, CHUNK, Major::K>(base + OUT, base + LEFT, shared_address(stage.weights),
                                   true);  // += (P' U')^T
      products_signal(shared_address(&memory.states));
    }
    await(memory.states, phase);
    if (starts) barrier_arrive(shared_address(&memory.empty[s]));
    write_out();
    fence_async();
    named_arrive(TILES_READY, joined);
  }

  __device__ __forceinline__ void write_state() {
    each_state_element([&](int c, uint32_t (&x)[16]) {
#pragma unroll
      for (int i = 0; i < 16; i++) p.final_state[state_at(c + i)] = __uint_as_float(x[i]);
    });
  }
};

template <bool Delta>
__device__ __forceinline__ void forward_block(const Parameters& p, char* shared) {
  Memory& memory = *reinterpret_cast<Memory*>(shared);
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
  const Place at(p, blockIdx.x);
  if (warp < 4) {
    // A lane's number stands in the upper half of an address.
    const uint32_t lanes = memory.tensor + (uint32_t(32 * warp) << 16);
    Compute<Delta> compute{p, memory, at, lanes, int(threadIdx.x)};
    compute.read_state();
    for (int chunk = 0; chunk < at.chunk_count; chunk++) compute.chunk(chunk);
    compute.write_state();
    tensor_before_barrier();
  } else if (warp == LOADING_WARP) {
    if (threadIdx.x % 32 == 0) load_chunks<Delta>(p, memory, at);
  } else {
    store_chunks<Delta>(p, memory, at);
  }
  __syncthreads();
  if (warp == 0) {
    tensor_after_barrier();
    tensor_free(memory.tensor, TENSOR_COLUMNS);
  }
}

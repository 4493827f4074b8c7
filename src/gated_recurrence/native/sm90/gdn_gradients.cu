// The gradients that need a chunk's states and no other chunk: dQ, dK, dbeta and the gate's. An
// item is a chunk and value head; a cluster of two blocks, each with half of the key channels,
// takes one after another, in the order in which the scans finish them, and loads the next one's tiles as
// it finishes with this one's. Each block fetches half of what both read and sends it to both. Two
// warpgroups, one for dQ and one for dK. The kernel starts while the scans still run: `ready` says
// which chunks are there.
//
//   dP = s tril(dO U^T o decay)            N = -tril(dV U'^T o decay diag(beta), -1)
//   dQ = s diag(e) dO S^T + dP K
//   dK = dK+ + dK-    dK+ = -diag(e) dV S^T + N K    dK- = diag(r) U dS'^T + dP^T Q + N^T K
//   dG = rowsum(Q o dQ + K o dK+ - K o dK-)
// where U = diag(beta) U'. dbeta = (rowsum(dV o V) + rowsum(K o dK+)) / beta.
#include "parameters.cuh"
#include "tile.cuh"

namespace {

constexpr int THREADS = 256;

struct alignas(1024) Memory {
  char d_out[2 * BLOCK_BYTES];    // [64, V]
  char d_v[2 * BLOCK_BYTES];      // [64, V]
  char update[2 * BLOCK_BYTES];   // [64, V]
  char state[2 * BLOCK_BYTES];    // [V, 64 keys]
  char d_state[2 * BLOCK_BYTES];  // [V, 64 keys]
  char q[BLOCK_BYTES];
  char k[BLOCK_BYTES];
  char d_weights[BLOCK_BYTES];  // dP, then dQ on its way out
  char d_inner[BLOCK_BYTES];    // N, then dK on its way out
  float log_decay[CHUNK];
  float beta[CHUNK];
  uint32_t tickets[2];  // the next item's, by turns, and the item
  int4 next_chunk[2];
  int2 next_heads[2];
  uint64_t values_full, values_empty, states_full, keys_full, ticket_full;
};

struct Item {
  int4 chunk;  // of `chunks`
  int chunk_head, value_head;

  __device__ Item(const Parameters& p, int ticket) {
    const int index = p.order[ticket / p.value_heads];
    value_head = ticket % p.value_heads;
    chunk_head = index * p.value_heads + value_head;
    chunk = p.chunks[index];
  }
  // The next item, which one thread has looked up.
  __device__ Item(const Memory& memory, int turn)
      : chunk(memory.next_chunk[turn]),
        chunk_head(memory.next_heads[turn].x),
        value_head(memory.next_heads[turn].y) {}
  // The reverse scan sums S o dS' of a sequence's first chunk, to which S comes in float32.
  __device__ bool first() const { return chunk.w > 0; }
  __device__ int head(const Parameters& p) const { return value_head / (p.value_heads / p.heads); }
};

// The block's half of the key channels, and the first of them.
__device__ __forceinline__ int half() { return blockIdx.x % 2; }
__device__ __forceinline__ int key() { return 64 * half(); }

// One thread of each block asks for the next item. A block hears of the one after only when both
// have begun this one, so two places do.
__device__ __forceinline__ void take_next(const Parameters& p, Memory& memory, int turn) {
  const uint32_t full = shared_address(&memory.ticket_full);
  barrier_expect(full, 4);
  if (half() == 0) {
    const uint32_t ticket = gridDim.x / 2 + atomicAdd(p.taken, 1);
    for (int rank = 0; rank < 2; rank++) {
      send_word(shared_address(&memory.tickets[turn]), ticket, full, rank);
    }
  }
}

__device__ __forceinline__ void await_scans(const Parameters& p, int chunk_head) {
  while (read_acquire(p.ready + chunk_head) < 2 * p.state_blocks) __nanosleep(100);
  fence_copies();
}

// Into both blocks' memory, so only after both have released it.
__device__ void load_values(const Parameters& p, Memory& memory, const Item& at) {
  const uint32_t values = shared_address(&memory.values_full);
  barrier_expect(values, 6 * BLOCK_BYTES + 2 * CHUNK * 4);
  const float* vectors = p.vectors + int64_t(at.chunk_head) * 4 * CHUNK;
  load_bytes(shared_address(memory.log_decay), vectors, CHUNK * 4, values);
  load_bytes(shared_address(memory.beta), vectors + 3 * CHUNK, CHUNK * 4, values);
  constexpr uint16_t both = 3;
  const int column = 64 * half();
  const uint32_t offset = half() * BLOCK_BYTES;
  load_box_for(both, shared_address(memory.update) + offset, p.update, values, column, 0,
               at.chunk_head, 0);
  load_box_for(both, shared_address(memory.d_out) + offset, p.d_out, values, column, at.value_head,
               at.chunk.y, at.chunk.x);
  load_box_for(both, shared_address(memory.d_v) + offset, p.d_v, values, column, at.value_head,
               at.chunk.y, at.chunk.x);
}

__device__ void load_states(const Parameters& p, Memory& memory, const Item& at) {
  const uint32_t states = shared_address(&memory.states_full);
  barrier_expect(states, 4 * BLOCK_BYTES);
  for (int b = 0; b < 2; b++) {
    const uint32_t offset = b * BLOCK_BYTES;
    load_box(shared_address(memory.state) + offset, p.state, states, key(), 64 * b, at.chunk_head,
             0);
    load_box(shared_address(memory.d_state) + offset, p.d_state, states, key(), 64 * b,
             at.chunk_head, 0);
  }
}

__device__ void load_keys(const Parameters& p, Memory& memory, const Item& at) {
  const uint32_t keys = shared_address(&memory.keys_full);
  barrier_expect(keys, 2 * BLOCK_BYTES);
  load_box(shared_address(memory.q), p.q, keys, key(), at.head(p), at.chunk.y, at.chunk.x);
  load_box(shared_address(memory.k), p.k, keys, key(), at.head(p), at.chunk.y, at.chunk.x);
}

// Rows past the sequence's end hold what follows it in memory.
__device__ void clear_tails(Memory& memory, int tokens) {
  clear_rows(memory.d_out, 2, tokens, threadIdx.x, THREADS);
  clear_rows(memory.d_v, 2, tokens, threadIdx.x, THREADS);
  clear_rows(memory.q, 1, tokens, threadIdx.x, THREADS);
  clear_rows(memory.k, 1, tokens, threadIdx.x, THREADS);
  fence_async();
}

// diag(factor) x within the decay's triangle, in pairs: x_ij beta_j exp(G_i - G_j) factor.
__device__ __forceinline__ void decayed(uint32_t (&packed)[16], const float (&x)[32],
                                        const Memory& memory, const Lane& lane, float factor,
                                        int strict) {
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int row = lane.row + 8 * (i / 2 % 2), column = 8 * (i / 4) + lane.pair;
    float out[2];
#pragma unroll
    for (int y = 0; y < 2; y++) {
      const int j = column + y;
      const bool kept = j + strict <= row;
      const float decay = kept ? __expf(memory.log_decay[row] - memory.log_decay[j]) : 0.f;
      out[y] = kept ? factor * decay * memory.beta[j] * x[i + y] : 0.f;
    }
    packed[i / 2] = pack(out[0], out[1]);
  }
}

__device__ __forceinline__ void store_tile(uint32_t block, const uint32_t (&packed)[16]) {
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    store_matrices(fragment(block, b), packed[2 * b], packed[2 * b + 1], packed[2 * b + 2],
                   packed[2 * b + 3]);
  }
}

// The sum over the row of x times a tile in shared memory, for the thread's two rows.
__device__ __forceinline__ float2 row_sums(const float (&x)[32], uint32_t tile) {
  float2 sum = make_float2(0.f, 0.f);
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    uint32_t words[4];
    load_matrices(words, fragment(tile, b));
#pragma unroll
    for (int m = 0; m < 4; m++) {
      const float part =
          low_half(words[m]) * x[4 * b + 2 * m] + high_half(words[m]) * x[4 * b + 2 * m + 1];
      (m % 2 ? sum.y : sum.x) += part;
    }
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
  }
  return sum;
}

// Of the warp's rows, the sum of `row_sums`.
__device__ __forceinline__ float warp_sum(float2 rows) {
  float sum = rows.x + rows.y;
#pragma unroll
  for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

__device__ __forceinline__ void scale_rows(float (&x)[32], float first, float second) {
#pragma unroll
  for (int i = 0; i < 32; i++) x[i] *= i / 2 % 2 ? second : first;
}

// The warp's share of the sum of S o dS'.
__device__ __forceinline__ float state_product(const Memory& memory) {
  float sum = 0.f;
  const uint4* x = reinterpret_cast<const uint4*>(memory.state);
  const uint4* y = reinterpret_cast<const uint4*>(memory.d_state);
#pragma unroll
  for (int i = threadIdx.x; i < 2 * int(BLOCK_BYTES) / 16; i += THREADS) {
    const uint4 a = x[i], b = y[i];
    const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int w = 0; w < 4; w++) {
      sum += low_half(left[w]) * low_half(right[w]);
      sum += high_half(left[w]) * high_half(right[w]);
    }
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

// One warpgroup writes its gradient [64 tokens, 64 keys]: the half type through shared memory, or
// float32 where a group of value heads is summed afterwards.
__device__ __forceinline__ void write_gradient(const Parameters& p, const Item& at, char* tile,
                                               const float (&x)[32], const Lane& lane,
                                               __nv_bfloat16* narrow, float* wide, int barrier) {
  const int64_t first = at.chunk.x * p.length + at.chunk.y;
  const int64_t base = (first * p.value_heads + at.value_head) * HEAD + key();
  const int64_t pitch = int64_t(p.value_heads) * HEAD;
  if (wide != nullptr) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const int row = lane.row + 8 * (i / 2 % 2), column = 8 * (i / 4) + lane.pair;
      if (row < at.chunk.z) {
        *reinterpret_cast<float2*>(wide + base + row * pitch + column) =
            make_float2(x[i], x[i + 1]);
      }
    }
    return;
  }
  uint32_t packed[16];
#pragma unroll
  for (int i = 0; i < 16; i++) packed[i] = pack(x[2 * i], x[2 * i + 1]);
  store_tile(shared_address(tile), packed);
  named_sync(barrier, 128);
  const int thread = threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = 16 * i + thread / 8, eighth = thread % 8;
    if (row < at.chunk.z) {
      *reinterpret_cast<uint4*>(narrow + base + row * pitch + 8 * eighth) =
          *reinterpret_cast<const uint4*>(tile + place(row, eighth));
    }
  }
}

// What a warpgroup adds to the gate's gradient: at its rows, and, a share a warp, at the chunk's
// end.
__device__ __forceinline__ void write_gate(const Parameters& p, const Item& at, const Lane& lane,
                                           float2 rows, float end) {
  const int part = 2 * half() + (warp_index() / 4);
  const int64_t base = int64_t(part) * p.chunk_heads + at.chunk_head;
  if (threadIdx.x % 4 == 0) {
    p.d_log_parts[base * CHUNK + lane.row] = rows.x;
    p.d_log_parts[base * CHUNK + lane.row + 8] = rows.y;
  }
  if (threadIdx.x % 32 == 0) p.d_end_parts[base * 4 + lane.warp] = end;
}

// Called once both warpgroups are through with the item's values and states: the next one's may
// come.
__device__ __forceinline__ void load_next(const Parameters& p, Memory& memory, int phase) {
  if (threadIdx.x != 0) return;
  barrier_wait(shared_address(&memory.ticket_full), phase);
  const int next = memory.tickets[phase];
  if (next >= p.chunk_heads) return;
  const uint32_t empty = shared_address(&memory.values_empty);
  for (int rank = 0; rank < 2; rank++) barrier_arrive_at(empty, rank);
  const Item at(p, next);
  memory.next_chunk[phase] = at.chunk;
  memory.next_heads[phase] = make_int2(at.chunk_head, at.value_head);
  await_scans(p, at.chunk_head);
  load_states(p, memory, at);
  barrier_wait(empty, phase);
  load_values(p, memory, at);
}

__device__ __forceinline__ void query_gradient(const Parameters& p, Memory& memory, const Item& at,
                                               int phase) {
  const Lane lane;
  const uint32_t d_out = shared_address(memory.d_out);
  float pairs[32], d_q[32];
  products_begin();
  multiply<8, Major::K, Major::K>(pairs, d_out, shared_address(memory.update), false);
  products_commit();
  barrier_wait(shared_address(&memory.states_full), phase);
  products_begin();
  multiply<8, Major::K, Major::Other>(d_q, d_out, shared_address(memory.state), false);
  products_commit();
  products_wait<1>();
  settled(pairs);
  uint32_t packed[16];
  decayed(packed, pairs, memory, lane, p.scale, 0);
  store_tile(shared_address(memory.d_weights), packed);
  products_wait<0>();
  settled(d_q);
  scale_rows(d_q, p.scale * __expf(memory.log_decay[lane.row]),
             p.scale * __expf(memory.log_decay[lane.row + 8]));
  barrier_wait(shared_address(&memory.keys_full), phase);
  const float end = at.first() ? 0.f : __expf(memory.log_decay[CHUNK - 1]) * state_product(memory);
  fence_async();
  __syncthreads();
  products_begin();
  multiply<4, Major::K, Major::Other>(d_q, shared_address(memory.d_weights),
                                      shared_address(memory.k), true);
  products_commit();
  load_next(p, memory, phase);
  products_wait<0>();
  settled(d_q);
  write_gate(p, at, lane, row_sums(d_q, shared_address(memory.q)), end);
  __syncthreads();  // the other warpgroup is through with dP
  write_gradient(p, at, memory.d_weights, d_q, lane, p.d_q, p.d_q_wide, 1);
}

__device__ __forceinline__ void key_gradient(const Parameters& p, Memory& memory, const Item& at,
                                             int phase) {
  const Lane lane;
  const uint32_t d_v = shared_address(memory.d_v), update = shared_address(memory.update);
  const uint32_t k = shared_address(memory.k), d_inner = shared_address(memory.d_inner);
  float pairs[32], early[32], late[32];
  products_begin();
  multiply<8, Major::K, Major::K>(pairs, d_v, update, false);
  products_commit();
  barrier_wait(shared_address(&memory.states_full), phase);
  products_begin();
  multiply<8, Major::K, Major::Other>(early, d_v, shared_address(memory.state), false);
  products_commit();
  products_wait<1>();
  settled(pairs);
  uint32_t packed[16];
  decayed(packed, pairs, memory, lane, -1.f, 1);
  store_tile(d_inner, packed);
  products_begin();
  multiply<8, Major::K, Major::Other>(late, update, shared_address(memory.d_state), false);
  products_commit();
  products_wait<1>();
  settled(early);
  const float first = memory.log_decay[lane.row], second = memory.log_decay[lane.row + 8];
  const float last = memory.log_decay[CHUNK - 1], decay = __expf(last);
  scale_rows(early, -__expf(first), -__expf(second));
  products_wait<0>();
  settled(late);
  scale_rows(late, memory.beta[lane.row] * __expf(last - first),
             memory.beta[lane.row + 8] * __expf(last - second));
  barrier_wait(shared_address(&memory.keys_full), phase);
  float end = warp_sum(row_sums(late, k));
  end += at.first() ? 0.f : decay * state_product(memory);
  fence_async();
  __syncthreads();
  products_begin();
  multiply<4, Major::K, Major::Other>(early, d_inner, k, true);
  multiply<4, Major::Other, Major::Other>(late, d_inner, k, true);
  multiply<4, Major::Other, Major::Other>(late, shared_address(memory.d_weights),
                                          shared_address(memory.q), true);
  products_commit();
  products_wait<0>();
  settled(early);
  settled(late);
  const float2 erased = row_sums(early, k), kept = row_sums(late, k);
  if (threadIdx.x % 4 == 0) {
    float* to = p.d_erase_parts + (int64_t(half()) * p.chunk_heads + at.chunk_head) * CHUNK;
    to[lane.row] = erased.x;
    to[lane.row + 8] = erased.y;
  }
  write_gate(p, at, lane, make_float2(erased.x - kept.x, erased.y - kept.y), end);
#pragma unroll
  for (int i = 0; i < 32; i++) early[i] += late[i];
  __syncthreads();
  write_gradient(p, at, memory.d_inner, early, lane, p.d_k, p.d_k_wide, 2);
}

static_assert(sizeof(Memory) == SHARED_GRADIENTS);

}  // namespace

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 2)
    gdn_gradients(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  const int warp = warp_index();
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&memory.values_full), 1);
    barrier_init(shared_address(&memory.values_empty), 2);
    barrier_init(shared_address(&memory.states_full), 1);
    barrier_init(shared_address(&memory.keys_full), 1);
    barrier_init(shared_address(&memory.ticket_full), 1);
    barrier_init_done();
  }
  cluster_sync();
  int ticket = blockIdx.x / 2, phase = 0;
  Item at(p, ticket);
  if (threadIdx.x == 0) {
    load_keys(p, memory, at);
    await_scans(p, at.chunk_head);
    load_values(p, memory, at);
    load_states(p, memory, at);
  }
  while (ticket < p.chunk_heads) {
    if (threadIdx.x == 0) take_next(p, memory, phase);
    barrier_wait(shared_address(&memory.values_full), phase);
    if (at.chunk.z < CHUNK) {
      barrier_wait(shared_address(&memory.keys_full), phase);
      clear_tails(memory, at.chunk.z);
      __syncthreads();
    }
    if (warp < 4) {
      query_gradient(p, memory, at, phase);
    } else {
      key_gradient(p, memory, at, phase);
    }
    barrier_wait(shared_address(&memory.ticket_full), phase);
    ticket = memory.tickets[phase];
    __syncthreads();
    if (ticket < p.chunk_heads) {
      at = Item(memory, phase);
      if (threadIdx.x == 0) load_keys(p, memory, at);
    }
    phase ^= 1;
  }
  cluster_sync();    // the other block may still send here
  await_previous();  // the next kernel counts on all that the scans write
}

// The parts of the gates' gradients meet, in a fixed order: dbeta, and dg, the reverse cumulative
// sum in the chunk. A warp a chunk and value head, two tokens a lane.
__device__ float2 part_sum(const float* parts, int count, const Parameters& p, int chunk_head) {
  float2 sum = make_float2(0.f, 0.f);
  for (int part = 0; part < count; part++) {
    const int64_t base = int64_t(part) * p.chunk_heads + chunk_head;
    const float2 x = reinterpret_cast<const float2*>(parts)[base * 32 + threadIdx.x % 32];
    sum.x += x.x;
    sum.y += x.y;
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gdn_gates(const __grid_constant__ Parameters p) {
  const int chunk_head = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (chunk_head >= p.chunk_heads) return;
  const int4 chunk = p.chunks[chunk_head / p.value_heads];
  float2 d_log = part_sum(p.d_log_parts, 4, p, chunk_head);
  if (lane == 31) {
    for (int part = 0; part < 4; part++) {
      const int64_t base = int64_t(part) * p.chunk_heads + chunk_head;
      const float4 end = reinterpret_cast<const float4*>(p.d_end_parts)[base];
      d_log.y += (end.x + end.y) + (end.z + end.w);
    }
    if (chunk.w > 0) {
      const int sequence_head = (chunk.w - 1) * p.value_heads + chunk_head % p.value_heads;
      float sum = 0.f;
      for (int part = 0; part < 8; part++) sum += p.d_start_parts[sequence_head * 8 + part];
      d_log.y += p.vectors[(int64_t(chunk_head) * 4 + 1) * CHUNK + CHUNK - 1] * sum;
    }
  }
  float sum = d_log.x + d_log.y;  // of this lane's tokens and all after them
  for (int step = 1; step < 32; step *= 2) {
    const float after = __shfl_down_sync(0xffffffffu, sum, step);
    if (lane + step < 32) sum += after;
  }
  const float after = __shfl_down_sync(0xffffffffu, sum, 1);
  const float rest = d_log.y + (lane < 31 ? after : 0.f);

  const float2 value = part_sum(p.d_value_parts, 2, p, chunk_head);
  const float2 erase = part_sum(p.d_erase_parts, 2, p, chunk_head);
  const float* beta = p.vectors + (int64_t(chunk_head) * 4 + 3) * CHUNK + 2 * lane;
  const int64_t token = chunk.x * p.length + chunk.y + 2 * lane;
  const int64_t to = token * p.value_heads + chunk_head % p.value_heads;
  if (2 * lane < chunk.z) {
    p.d_g[to] = d_log.x + rest;
    p.d_beta[to] = (value.x + erase.x) / beta[0];
  }
  if (2 * lane + 1 < chunk.z) {
    p.d_g[to + p.value_heads] = rest;
    p.d_beta[to + p.value_heads] = (value.y + erase.y) / beta[1];
  }
}

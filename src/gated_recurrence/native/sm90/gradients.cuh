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
// where U = diag(beta) U'. dbeta = (rowsum(dV o V) + rowsum(K o dK+)) / beta; dg is the reverse
// cumulative sum of dG in the chunk. Either is a sum of two, one a block, added to zeroes in memory.
// Without a delta rule U = V, there are no N, dK+ and dbeta, and the sum of S o dS' is left to
// `gates.cuh`.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

namespace {

constexpr int THREADS = 256;

struct alignas(1024) Memory {
  char d_out[2 * BLOCK_BYTES];    // [64, V]
  char d_v[2 * BLOCK_BYTES];      // [64, V], with a delta rule
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
  int4 next_heads[2];
  uint64_t values_full, values_empty, states_full, keys_full, ticket_full;
  float gate[CHUNK];  // dG but for its sums at the chunk's end
  float ends[THREADS / 32];   // the warps' shares of the sum of S o dS'
  float kept[THREADS / 64];  // and, without a delta rule, of K o diag(r) U dS'^T
};

struct Item {
  int4 chunk;  // batch, first token, tokens (1 to 64), 0 or a first chunk's sequence + 1
  int chunk_head, value_head;
  bool last;  // of its sequence's chunks
  int sequence;

  __device__ Item(const Parameters& p, int ticket) {
    const int4* turn = p.order + 2 * (ticket / p.value_heads);
    chunk = __ldg(turn);
    const int4 where = __ldg(turn + 1);
    value_head = ticket % p.value_heads;
    chunk_head = where.x * p.value_heads + value_head;
    last = where.z == 0;
    sequence = where.w;
  }
  // The next item, which one thread has looked up.
  __device__ Item(const Memory& memory, int turn)
      : chunk(memory.next_chunk[turn]),
        chunk_head(memory.next_heads[turn].x),
        value_head(memory.next_heads[turn].y),
        last(memory.next_heads[turn].z),
        sequence(memory.next_heads[turn].w) {}
  // The reverse scan sums S o dS' of a sequence's first chunk, to which S comes in float32.
  __device__ bool first() const { return chunk.w > 0; }
  // So it does that of the last, where there is no delta rule.
  template <bool Delta>
  __device__ bool summed() const {
    return first() || (!Delta && last);
  }
  // Of the tile of dS'.
  template <bool Delta>
  __device__ float unit(const Parameters& p) const {
    return Delta || last ? 1.f : p.mantissa;
  }
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

// `stored`: how many tiles of the item were known to be there. Each block of the scans stores two; of
// those without a delta rule one counts here.
template <bool Delta>
__device__ __forceinline__ void await_scans(const Parameters& p, int chunk_head, int stored) {
  const int tiles = (1 + Delta) * p.state_blocks;
  while (stored < tiles) {
    stored = read_relaxed(p.ready + chunk_head);
    if (stored < tiles) __nanosleep(40);
  }
  fence_acquire();
  fence_copies();
}

// Into both blocks' memory, so only after both have released it.
template <bool Delta>
__device__ void load_values(const Parameters& p, Memory& memory, const Item& at) {
  const uint32_t values = shared_address(&memory.values_full);
  barrier_expect(values, (Delta ? 6 : 4) * BLOCK_BYTES + 2 * CHUNK * 4);
  const float* vectors = p.vectors + int64_t(at.chunk_head) * 4 * CHUNK;
  load_bytes(shared_address(memory.log_decay), vectors, CHUNK * 4, values);
  load_bytes(shared_address(memory.beta), vectors + 3 * CHUNK, CHUNK * 4, values);
  constexpr uint16_t both = 3;
  const int column = 64 * half();
  const uint32_t offset = half() * BLOCK_BYTES;
  if constexpr (Delta) {
    load_box_for(both, shared_address(memory.update) + offset, p.update, values, column, 0,
                 at.chunk_head, 0);
  } else {
    load_box_for(both, shared_address(memory.update) + offset, p.v, values, column, at.value_head,
                 at.chunk.y, at.chunk.x);
  }
  load_box_for(both, shared_address(memory.d_out) + offset, p.d_out, values, column, at.value_head,
               at.chunk.y, at.chunk.x);
  if constexpr (Delta) {
    load_box_for(both, shared_address(memory.d_v) + offset, p.d_v, values, column, at.value_head,
                 at.chunk.y, at.chunk.x);
  }
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

// Rows past the sequence's end hold what follows it in memory; those of U' are kept padded.
template <bool Delta>
__device__ void clear_tails(Memory& memory, int tokens) {
  clear_rows(memory.d_out, 2, tokens, threadIdx.x, THREADS);
  clear_rows(Delta ? memory.d_v : memory.update, 2, tokens, threadIdx.x, THREADS);
  clear_rows(memory.q, 1, tokens, threadIdx.x, THREADS);
  clear_rows(memory.k, 1, tokens, threadIdx.x, THREADS);
  fence_async();
}

// diag(factor) x within the decay's triangle, in pairs: x_ij beta_j exp(G_i - G_j) factor.
template <bool Delta>
__device__ __forceinline__ void decayed(uint32_t (&packed)[16], const float (&x)[32],
                                        const Memory& memory, const Lane& lane, float factor,
                                        int strict) {
  const float to[2] = {memory.log_decay[lane.row], memory.log_decay[lane.row + 8]};
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int row = lane.row + 8 * (i / 2 % 2), column = 8 * (i / 4) + lane.pair;
    const float2 from = *reinterpret_cast<const float2*>(memory.log_decay + column);
    float2 write = make_float2(1.f, 1.f);
    if constexpr (Delta) write = *reinterpret_cast<const float2*>(memory.beta + column);
    float out[2];
#pragma unroll
    for (int y = 0; y < 2; y++) {
      const bool kept = column + y + strict <= row;
      const float decay = decay_between(to[i / 2 % 2], y ? from.y : from.x, kept);
      out[y] = factor * decay * (y ? write.y : write.x) * x[i + y];
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
  for (int i = 0; i < 2 * int(BLOCK_BYTES) / 16 / THREADS; i++) {
    const uint4 a = x[i * THREADS + threadIdx.x], b = y[i * THREADS + threadIdx.x];
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

// The sum of a sequence and head's eight parts.
__device__ __forceinline__ float eight(const float* parts, int sequence_head) {
  float sum = 0.f;
#pragma unroll
  for (int part = 0; part < 8; part++) sum += __ldcg(parts + sequence_head * 8 + part);
  return sum;
}

// The block's share of dg, the reverse cumulative sum of dG in the chunk, by one warp, two tokens a
// lane. Two blocks add to a zero, so the order does not matter to a single bit.
template <bool Delta>
__device__ __forceinline__ void add_gate(const Parameters& p, const Memory& memory,
                                         const Item& at) {
  const int lane = threadIdx.x % 32;
  float2 d_log = *reinterpret_cast<const float2*>(&memory.gate[2 * lane]);
  float states = 0.f, keys = 0.f;
#pragma unroll
  for (int w = 0; w < THREADS / 32; w++) states += memory.ends[w];
  if constexpr (!Delta) {
#pragma unroll
    for (int w = 0; w < THREADS / 64; w++) keys += memory.kept[w];
  }
  if (at.summed<Delta>() && half() == 0) {
    const float sum =
        at.first() ? eight(p.d_start_parts, (at.chunk.w - 1) * p.value_heads + at.value_head)
                   : eight(p.d_end_parts, at.sequence * p.value_heads + at.value_head);
    // With a delta rule `ends` holds the sum of K o diag(r) U dS'^T already, else nothing.
    states += p.vectors[(int64_t(at.chunk_head) * 4 + 1) * CHUNK + CHUNK - 1] * sum;
  }
  if (lane == 31) d_log.y += Delta ? states : keys;
  float sum = d_log.x + d_log.y;  // of this lane's tokens and all after them
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float after = __shfl_down_sync(0xffffffffu, sum, step);
    if (lane + step < 32) sum += after;
  }
  if constexpr (!Delta) {
    if (lane == 0) {
      p.d_gate_parts[int64_t(at.chunk_head) * 2 + half()] = make_float4(states, keys, sum, 0.f);
    }
  }
  const float after = __shfl_down_sync(0xffffffffu, sum, 1);
  const float rest = d_log.y + (lane < 31 ? after : 0.f);
  const int64_t token = at.chunk.x * p.length + at.chunk.y + 2 * lane;
  float* to = p.d_g + token * p.value_heads + at.value_head;
  if (2 * lane < at.chunk.z) atomicAdd(to, d_log.x + rest);
  if (2 * lane + 1 < at.chunk.z) atomicAdd(to + p.value_heads, rest);
}

// What one thread finds out about the next item while the others compute: each step asks for what
// the step after it reads.
struct Ahead {
  Item item;
  int stored;

  // `at` stands in where there is no next item.
  __device__ __forceinline__ Ahead(const Parameters& p, Memory& memory, const Item& at, int phase)
      : item(at), stored(0) {
    if (threadIdx.x != 0) return;
    barrier_wait(shared_address(&memory.ticket_full), phase);
    const int next = memory.tickets[phase];
    if (next < p.chunk_heads) item = Item(p, next);
  }
  __device__ __forceinline__ void ask(const Parameters& p) {
    if (threadIdx.x == 0) stored = read_relaxed(p.ready + item.chunk_head);
  }
};

// Called once both warpgroups are through with the item's values and states: the next one's may
// come.
template <bool Delta>
__device__ __forceinline__ void load_next(const Parameters& p, Memory& memory, const Item& at,
                                          const Ahead& ahead, int phase) {
  const Item& next = ahead.item;
  if (threadIdx.x != 0 || next.chunk_head == at.chunk_head) return;
  const uint32_t empty = shared_address(&memory.values_empty);
  for (int rank = 0; rank < 2; rank++) barrier_arrive_at(empty, rank);
  memory.next_chunk[phase] = next.chunk;
  memory.next_heads[phase] = make_int4(next.chunk_head, next.value_head, Delta ? 0 : next.last,
                                       Delta ? 0 : next.sequence);
  await_scans<Delta>(p, next.chunk_head, ahead.stored);
  load_states(p, memory, next);
  barrier_wait(empty, phase);
  load_values<Delta>(p, memory, next);
}

template <bool Delta>
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
  Ahead ahead(p, memory, at, phase);
  products_wait<1>();
  settled(pairs);
  uint32_t packed[16];
  decayed<Delta>(packed, pairs, memory, lane, p.scale, 0);
  store_tile(shared_address(memory.d_weights), packed);
  products_wait<0>();
  settled(d_q);
  scale_rows(d_q, p.scale * exponential(memory.log_decay[lane.row]),
             p.scale * exponential(memory.log_decay[lane.row + 8]));
  barrier_wait(shared_address(&memory.keys_full), phase);
  float end = 0.f;
  if (!at.template summed<Delta>()) {
    end = at.template unit<Delta>(p) * exponential(memory.log_decay[CHUNK - 1]) *
          state_product(memory);
  }
  fence_async();
  ahead.ask(p);
  __syncthreads();
  products_begin();
  multiply<4, Major::K, Major::Other>(d_q, shared_address(memory.d_weights),
                                      shared_address(memory.k), true);
  products_commit();
  load_next<Delta>(p, memory, at, ahead, phase);
  products_wait<0>();
  settled(d_q);
  const float2 rows = row_sums(d_q, shared_address(memory.q));
  if (threadIdx.x % 32 == 0) memory.ends[threadIdx.x / 32] = end;
  __syncthreads();  // the other warpgroup is through with dP, and has written its share of dG
  if (threadIdx.x % 4 == 0) {
    memory.gate[lane.row] += rows.x;
    memory.gate[lane.row + 8] += rows.y;
  }
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
  decayed<true>(packed, pairs, memory, lane, -1.f, 1);
  store_tile(d_inner, packed);
  products_begin();
  multiply<8, Major::K, Major::Other>(late, update, shared_address(memory.d_state), false);
  products_commit();
  products_wait<1>();
  settled(early);
  const float first = memory.log_decay[lane.row], second = memory.log_decay[lane.row + 8];
  const float last = memory.log_decay[CHUNK - 1], decay = exponential(last);
  scale_rows(early, -exponential(first), -exponential(second));
  products_wait<0>();
  settled(late);
  const float beta[2] = {memory.beta[lane.row], memory.beta[lane.row + 8]};
  scale_rows(late, beta[0] * exponential(last - first), beta[1] * exponential(last - second));
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
  const bool first_of_row = threadIdx.x % 4 == 0;
  const float* parts =
      p.d_value_parts + (int64_t(half()) * p.chunk_heads + at.chunk_head) * CHUNK + lane.row;
  const float value[2] = {first_of_row ? __ldcg(parts) : 0.f,
                          first_of_row ? __ldcg(parts + 8) : 0.f};
  products_wait<0>();
  settled(early);
  settled(late);
  const float2 erased = row_sums(early, k), kept = row_sums(late, k);
  if (first_of_row) {
    memory.gate[lane.row] = erased.x - kept.x;
    memory.gate[lane.row + 8] = erased.y - kept.y;
    const int64_t token = at.chunk.x * p.length + at.chunk.y + lane.row;
    float* to = p.d_beta + token * p.value_heads + at.value_head;
    if (lane.row < at.chunk.z) atomicAdd(to, __fdividef(value[0] + erased.x, beta[0]));
    if (lane.row + 8 < at.chunk.z) {
      atomicAdd(to + 8 * p.value_heads, __fdividef(value[1] + erased.y, beta[1]));
    }
  }
  if (threadIdx.x % 32 == 0) memory.ends[threadIdx.x / 32] = end;
#pragma unroll
  for (int i = 0; i < 32; i++) early[i] += late[i];
  __syncthreads();
  write_gradient(p, at, memory.d_inner, early, lane, p.d_k, p.d_k_wide, 2);
}

// The same without a delta rule.
__device__ __forceinline__ void plain_key_gradient(const Parameters& p, Memory& memory,
                                                   const Item& at, int phase) {
  const Lane lane;
  const uint32_t k = shared_address(memory.k);
  float late[32];
  barrier_wait(shared_address(&memory.states_full), phase);
  products_begin();
  multiply<8, Major::K, Major::Other>(late, shared_address(memory.update),
                                      shared_address(memory.d_state), false);
  products_commit();
  const float first = memory.log_decay[lane.row], second = memory.log_decay[lane.row + 8];
  const float last = memory.log_decay[CHUNK - 1], unit = at.unit<false>(p);
  products_wait<0>();
  settled(late);
  scale_rows(late, unit * exponential(last - first), unit * exponential(last - second));
  barrier_wait(shared_address(&memory.keys_full), phase);
  const float sum = warp_sum(row_sums(late, k));
  const float end = at.summed<false>() ? 0.f : unit * exponential(last) * state_product(memory);
  __syncthreads();  // dP is there
  products_begin();
  multiply<4, Major::Other, Major::Other>(late, shared_address(memory.d_weights),
                                          shared_address(memory.q), true);
  products_commit();
  products_wait<0>();
  settled(late);
  const float2 kept = row_sums(late, k);
  if (threadIdx.x % 4 == 0) {
    memory.gate[lane.row] = -kept.x;
    memory.gate[lane.row + 8] = -kept.y;
  }
  if (threadIdx.x % 32 == 0) {
    memory.ends[threadIdx.x / 32] = end;
    memory.kept[threadIdx.x / 32 - 4] = sum;
  }
  __syncthreads();
  write_gradient(p, at, memory.d_inner, late, lane, p.d_k, p.d_k_wide, 2);
}

static_assert(sizeof(Memory) == SHARED_GRADIENTS);

template <bool Delta>
__device__ __forceinline__ void gradients_block(const Parameters& p, char* shared) {
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
    await_scans<Delta>(p, at.chunk_head, 0);
    load_values<Delta>(p, memory, at);
    load_states(p, memory, at);
  }
  while (ticket < p.chunk_heads) {
    if (threadIdx.x == 0) take_next(p, memory, phase);
    barrier_wait(shared_address(&memory.values_full), phase);
    if (at.chunk.z < CHUNK) {
      barrier_wait(shared_address(&memory.keys_full), phase);
      clear_tails<Delta>(memory, at.chunk.z);
      __syncthreads();
    }
    if (warp < 4) {
      query_gradient<Delta>(p, memory, at, phase);
    } else if constexpr (Delta) {
      key_gradient(p, memory, at, phase);
    } else {
      plain_key_gradient(p, memory, at, phase);
    }
    barrier_wait(shared_address(&memory.ticket_full), phase);
    ticket = memory.tickets[phase];
    __syncthreads();
    const Item next = ticket < p.chunk_heads ? Item(memory, phase) : at;
    if (threadIdx.x == 0 && ticket < p.chunk_heads) load_keys(p, memory, next);
    if (warp == 0) add_gate<Delta>(p, memory, at);  // while the next item's tiles are on their way
    at = next;
    phase ^= 1;
  }
  if (!Delta) let_next_start();
  cluster_sync();    // the other block may still send here
  await_previous();  // the next kernel counts on all that the scans write
}

}  // namespace

#define GRADIENTS_BOUNDS __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 2)

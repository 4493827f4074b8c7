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
// where U = diag(beta) U'. Of the pairs of tokens, X = dP o Q K^T + N o K K^T,
//   dg_t = sum(X_ij: i >= t > j) + c sum(S o dS')
//          + sum(Q o s diag(e) dO S^T - K o diag(e) dV S^T: rows i >= t)
//          + sum(K o diag(r) U dS'^T: rows j < t)
//   dbeta_j = (column j of X + row j of K o diag(r) U dS'^T) / beta_j
// with no beta_j in what is divided, and no difference in dg: the gradient of a gate that is closed,
// or of a beta of zero, is not the rounding of others. Either is a sum of two, one a block, added to
// zeroes in memory. Without a delta rule U = V, there are no N, dK+ and dbeta, and the sum of S o dS'
// is left to `gates.cuh`.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

namespace {

constexpr int THREADS = 256;

// What a chunk's gates and rates are found from, once the products with the keys and queries are done.
struct Sums {
  // Each warp's, of its rows of X: for two tokens t of a lane the sums over i >= t > j, and of the
  // columns t before beta.
  float4 pairs[THREADS / 32][32];
  float read[CHUNK];    // rowsum(Q o s diag(e) dO S^T)
  float keys[2][CHUNK];  // rowsum(K o -diag(e) dV S^T), and rowsum(K o diag(r) U' dS'^T)
};
static_assert(sizeof(Sums) <= BLOCK_BYTES);

struct alignas(1024) Memory {
  char d_out[2 * BLOCK_BYTES];    // [64, V]
  char d_v[2 * BLOCK_BYTES];      // [64, V], with a delta rule
  char update[2 * BLOCK_BYTES];   // [64, V]
  char state[2 * BLOCK_BYTES];    // [V, 64 keys]
  char d_state[2 * BLOCK_BYTES];  // [V, 64 keys]
  union {
    char q[BLOCK_BYTES];
    Sums sums;  // at the item's end
  };
  char k[BLOCK_BYTES];
  char d_weights[BLOCK_BYTES];  // dP, then dQ on its way out
  char d_inner[BLOCK_BYTES];    // N, then dK on its way out
  float log_decay[CHUNK];
  float beta[CHUNK];
  uint32_t tickets[2];  // the next item's, by turns, and the item
  int4 chunk[2];  // the items, by the same turns
  int4 heads[2];
  uint64_t values_full, values_empty, states_full, keys_full, ticket_full;
  float ends[THREADS / 32];  // the warps' shares of the sum of S o dS'
  float rates[CHUNK];        // beta, when the next item's may already be where it was
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
  // What one thread has looked up. The current item is read from there wherever it is needed: it would
  // take eight registers all the time.
  __device__ __forceinline__ Item(const Memory& memory, int turn)
      : chunk(memory.chunk[turn]),
        chunk_head(memory.heads[turn].x),
        value_head(memory.heads[turn].y),
        last(memory.heads[turn].z),
        sequence(memory.heads[turn].w) {}
  template <bool Delta>
  __device__ __forceinline__ void keep(Memory& memory, int turn) const {
    memory.chunk[turn] = chunk;
    memory.heads[turn] = make_int4(chunk_head, value_head, Delta ? 0 : last, Delta ? 0 : sequence);
  }
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

// Not an invariant of the loop over items: the compiler would keep all that follows from it, a hundred
// addresses and conditions, in registers from one item to the next.
struct ItemLane : Lane {
  uint32_t first;  // where `fragment` has the first two blocks of a tile
  __device__ __forceinline__ ItemLane() : first(fragment(0, 0)) {
    asm volatile("" : "+r"(row), "+r"(pair), "+r"(first));
  }
  // `b` is even, so that it changes bits of its own.
  __device__ __forceinline__ uint32_t fragment_of(uint32_t tile, int b) const {
    return tile + (first ^ 16 * b);
  }
};

// x_ij exp(G_i - G_j) factor within the decay's triangle, and, into a tile, times beta_j.
template <bool Delta>
__device__ __forceinline__ void decayed(uint32_t tile, float (&x)[32], const Memory& memory,
                                        const ItemLane& lane, float factor, int strict) {
  const float to[2] = {memory.log_decay[lane.row], memory.log_decay[lane.row + 8]};
  const int reach = lane.row - lane.pair - strict;  // so that a column's number is in its instruction
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    uint32_t packed[4];
#pragma unroll
    for (int m = 0; m < 4; m++) {
      const int i = 4 * b + 2 * m, block = 8 * (b + m / 2), column = block + lane.pair;
      const float2 from = *reinterpret_cast<const float2*>(memory.log_decay + column);
      float2 write = make_float2(1.f, 1.f);
      if constexpr (Delta) write = *reinterpret_cast<const float2*>(memory.beta + column);
#pragma unroll
      for (int y = 0; y < 2; y++) {
        const bool kept = reach >= block + y - 8 * (m % 2);
        x[i + y] *= factor * decay_between(to[m % 2], y ? from.y : from.x, kept);
      }
      packed[m] = pack(write.x * x[i], write.y * x[i + 1]);
    }
    store_matrices(lane.fragment_of(tile, b), packed[0], packed[1], packed[2], packed[3]);
  }
}

__device__ __forceinline__ void store_tile(uint32_t block, const uint32_t (&packed)[16],
                                           const ItemLane& lane) {
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    store_matrices(lane.fragment_of(block, b), packed[2 * b], packed[2 * b + 1],
                   packed[2 * b + 2], packed[2 * b + 3]);
  }
}

// The sum over the row of x times a tile in shared memory, for the thread's two rows.
__device__ __forceinline__ float2 row_sums(const float (&x)[32], uint32_t tile,
                                           const ItemLane& lane) {
  float2 sum = make_float2(0.f, 0.f);
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    uint32_t words[4];
    load_matrices(words, lane.fragment_of(tile, b));
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

// Adds the sums of two lanes, and leaves each with half of them.
template <int Step, int Kept>
__device__ __forceinline__ void halve(float (&sums)[16], int lane) {
  const bool upper = lane & Step;
#pragma unroll
  for (int i = 0; i < Kept; i++) {
    const float given = upper ? sums[i] : sums[i + Kept];
    const float held = upper ? sums[i + Kept] : sums[i];
    sums[i] = held + __shfl_xor_sync(0xffffffffu, given, Step);
  }
}

// Of 2b + p, for column 8b + pair + p of the lane's rows, the sums over the warp's rows of columns
// 2 lane and 2 lane + 1.
__device__ __forceinline__ float2 column_sums(float (&sums)[16]) {
  const int lane = threadIdx.x % 32;  // eight lanes hold the other rows of a column
  halve<16, 8>(sums, lane);
  halve<8, 4>(sums, lane);
  halve<4, 2>(sums, lane);
  return make_float2(sums[0], sums[1]);
}

// A warp's share of `Sums::pairs`, of x_ij before beta_j. Sums over j < t are products with a matrix of
// ones and zeroes, which takes x apart in two bfloat16 that hold 16 bits of it.
template <bool Delta>
__device__ __forceinline__ float4 pair_sums(const float (&x)[32], const Memory& memory,
                                            const ItemLane& lane) {
  float2 columns = make_float2(0.f, 0.f);
  if constexpr (Delta) {
    float sums[16];
#pragma unroll
    for (int i = 0; i < 16; i++) sums[i] = x[4 * (i / 2) + i % 2] + x[4 * (i / 2) + i % 2 + 2];
    columns = column_sums(sums);
  }
  constexpr uint32_t ones = 0x3f803f80u;
  const int reach = lane.row - lane.pair;
  // Columns t = lane / 4 of 8, rows j = pair and pair + 1: one where j < t.
  const int t = threadIdx.x % 32 / 4;
  const uint32_t below = (lane.pair < t ? 0x3f80u : 0u) | (lane.pair + 1 < t ? 0x3f800000u : 0u);
  float sums[16], before[4] = {0.f, 0.f, 0.f, 0.f};  // over the columns so far; 1 and 3 as 0 and 2
#pragma unroll
  for (int k = 0; k < 4; k++) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float y[2] = {x[8 * k + 2 * i], x[8 * k + 2 * i + 1]};
      if constexpr (Delta) {
        const int column = 16 * k + 8 * (i / 2) + lane.pair;
        const float2 write = *reinterpret_cast<const float2*>(memory.rates + column);
        y[0] *= write.x;
        y[1] *= write.y;
      }
      high[i] = pack(y[0], y[1]);
      low[i] = pack(y[0] - low_half(high[i]), y[1] - high_half(high[i]));
    }
    float first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; i++) first[i] = second[i] = before[i];
    warp_product(first, high[0], high[1], high[2], high[3], below, 0u);
    warp_product(first, low[0], low[1], low[2], low[3], below, 0u);
    warp_product(second, high[0], high[1], high[2], high[3], ones, below);
    warp_product(second, low[0], low[1], low[2], low[3], ones, below);
    warp_product(before, high[0], high[1], high[2], high[3], ones, ones);
    warp_product(before, low[0], low[1], low[2], low[3], ones, ones);
#pragma unroll
    for (int p = 0; p < 2; p++) {
      const int column = 16 * k + p;
      sums[4 * k + p] =
          (reach >= column ? first[p] : 0.f) + (reach >= column - 8 ? first[2 + p] : 0.f);
      sums[4 * k + 2 + p] =
          (reach >= column + 8 ? second[p] : 0.f) + (reach >= column ? second[2 + p] : 0.f);
    }
  }
  const float2 between = column_sums(sums);
  return make_float4(between.x, between.y, columns.x, columns.y);
}

// x_ij a_i b_j^T, over the block's channels.
__device__ __forceinline__ void times_product(float (&x)[32], uint32_t a, uint32_t b) {
  float y[32];
  products_begin();
  multiply<4, Major::K, Major::K>(y, a, b, false);
  products_commit();
  products_wait<0>();
  settled(y);
#pragma unroll
  for (int i = 0; i < 32; i++) x[i] *= y[i];
}

// The quad's sums of two rows, of which each lane keeps one; x[1] without a delta rule is not there.
struct RowSums {
  float kept;
  __device__ __forceinline__ RowSums(float2 x) : kept(threadIdx.x % 2 ? x.y : x.x) {}
  __device__ __forceinline__ RowSums(float2 x, float2 y)
      : kept(threadIdx.x % 4 < 2 ? (threadIdx.x % 2 ? x.y : x.x) : (threadIdx.x % 2 ? y.y : y.x)) {}
  __device__ __forceinline__ void store(float (&rows)[CHUNK], const ItemLane& lane) const {
    if (threadIdx.x % 4 < 2) rows[lane.row + 8 * (threadIdx.x % 2)] = kept;
  }
  __device__ __forceinline__ void store(float (&rows)[2][CHUNK], const ItemLane& lane) const {
    rows[threadIdx.x % 4 / 2][lane.row + 8 * (threadIdx.x % 2)] = kept;
  }
};

__device__ __forceinline__ float2 scaled(float2 x, float first, float second) {
  return make_float2(first * x.x, second * x.y);
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
#pragma unroll 1
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

// One warpgroup's gradient [64 tokens, 64 keys] on its way to memory: float32 where a group of value
// heads is summed afterwards, at once; else the half type, through shared memory.
struct Outgoing {
  uint32_t packed[16];

  __device__ static __forceinline__ int64_t base(const Parameters& p, const Item& at) {
    const int64_t first = at.chunk.x * p.length + at.chunk.y;
    return (first * p.value_heads + at.value_head) * HEAD + key();
  }
  __device__ __forceinline__ Outgoing(const Parameters& p, const Item& at, const float (&x)[32],
                                      const ItemLane& lane, float* wide) {
#pragma unroll
    for (int i = 0; i < 16; i++) packed[i] = pack(x[2 * i], x[2 * i + 1]);
    if (wide == nullptr) return;
    const int pitch = p.value_heads * HEAD;
    wide += base(p, at) + int64_t(lane.row) * pitch + lane.pair;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if (lane.row + 8 * h >= at.chunk.z) return;
#pragma unroll
      for (int b = 0; b < 8; b++) {
        *reinterpret_cast<float2*>(wide + 8 * b) = make_float2(x[4 * b + 2 * h], x[4 * b + 2 * h + 1]);
      }
      wide += 8 * pitch;
    }
  }
  // `tile` is free.
  __device__ __forceinline__ void finish(const Parameters& p, const Item& at, char* tile,
                                         __nv_bfloat16* narrow, int barrier,
                                         const ItemLane& lane) const {
    if (narrow == nullptr) return;
    store_tile(shared_address(tile), packed, lane);
    named_sync(barrier, 128);
    narrow += base(p, at);
    const int thread = threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = 16 * i + thread / 8, eighth = thread % 8;
      if (row < at.chunk.z) {
        *reinterpret_cast<uint4*>(narrow + int64_t(row) * p.value_heads * HEAD + 8 * eighth) =
            *reinterpret_cast<const uint4*>(tile + place(row, eighth));
      }
    }
  }
};

// The sum of a sequence and head's eight parts.
__device__ __forceinline__ float eight(const float* parts, int sequence_head) {
  float sum = 0.f;
#pragma unroll
  for (int part = 0; part < 8; part++) sum += __ldcg(parts + sequence_head * 8 + part);
  return sum;
}

// One warp's, two tokens a lane: what the item's memory holds for dg and dbeta. Read before the next
// item's queries are sent for.
struct Found {
  float2 between, from_here, before, per_beta;
  float states;
};

__device__ __forceinline__ float2 operator+(float2 x, float2 y) {
  return make_float2(x.x + y.x, x.y + y.y);
}

template <bool Delta>
__device__ __forceinline__ Found read_sums(const Memory& memory) {
  const Sums& sums = memory.sums;
  const int lane = threadIdx.x % 32;
  Found found;
  const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);
  float4 pairs = zero;
#pragma unroll
  for (int w = 0; w < (Delta ? 8 : 4); w++) {
    const float4 part = sums.pairs[w][lane];
    pairs.x += part.x;
    pairs.y += part.y;
    pairs.z += part.z;
    pairs.w += part.w;
  }
  const auto two = [&](const float (&rows)[CHUNK]) {
    return *reinterpret_cast<const float2*>(&rows[2 * lane]);
  };
  found.between = make_float2(pairs.x, pairs.y);
  found.from_here = two(sums.read);
  found.before = two(sums.keys[1]);
  if constexpr (Delta) {
    found.from_here = found.from_here + two(sums.keys[0]);
    found.per_beta = make_float2(pairs.z, pairs.w) + found.before;
    const float2 rates = two(memory.rates);
    found.before = make_float2(rates.x * found.before.x, rates.y * found.before.y);
  }
  found.states = 0.f;
#pragma unroll
  for (int w = 0; w < THREADS / 32; w++) found.states += memory.ends[w];
  return found;
}

// The block's share of dg and dbeta. Two blocks add to a zero, so the order does not matter to a single
// bit.
template <bool Delta>
__device__ __forceinline__ void add_gate(const Parameters& p, const Found& found, const Item& at) {
  const int lane = threadIdx.x % 32;
  float states = found.states;
  if (at.summed<Delta>() && half() == 0) {
    const float sum =
        at.first() ? eight(p.d_start_parts, (at.chunk.w - 1) * p.value_heads + at.value_head)
                   : eight(p.d_end_parts, at.sequence * p.value_heads + at.value_head);
    // With a delta rule `ends` holds the sum of K o diag(r) U dS'^T already, else nothing.
    states += p.vectors[(int64_t(at.chunk_head) * 4 + 1) * CHUNK + CHUNK - 1] * sum;
  }
  // Of this lane's tokens and all after them, and of those and all before them.
  float after = found.from_here.x + found.from_here.y;
  float before = found.before.x + found.before.y;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float later = __shfl_down_sync(0xffffffffu, after, step);
    const float earlier = __shfl_up_sync(0xffffffffu, before, step);
    if (lane + step < 32) after += later;
    if (lane >= step) before += earlier;
  }
  if constexpr (!Delta) {
    const float keys = __shfl_sync(0xffffffffu, before, 31);
    if (lane == 0) {
      p.d_gate_parts[int64_t(at.chunk_head) * 2 + half()] = make_float4(states, keys, after, 0.f);
    }
    states = 0.f;
  }
  const float later = __shfl_down_sync(0xffffffffu, after, 1);
  const float earlier = __shfl_up_sync(0xffffffffu, before, 1);
  const float rest = found.from_here.y + (lane < 31 ? later : 0.f);
  const float until = lane > 0 ? earlier : 0.f;
  const float d_g[2] = {found.between.x + (found.from_here.x + rest) + until + states,
                        found.between.y + rest + (until + found.before.x) + states};
  const int64_t token = at.chunk.x * p.length + at.chunk.y + 2 * lane;
  const int64_t to = token * p.value_heads + at.value_head;
  const float d_beta[2] = {found.per_beta.x, found.per_beta.y};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (2 * lane + i < at.chunk.z) {
      atomicAdd(p.d_g + to + i * p.value_heads, d_g[i]);
      if (Delta) atomicAdd(p.d_beta + to + i * p.value_heads, d_beta[i]);
    }
  }
}

// What one thread finds out about the next item while the others compute: each step asks for what
// the step after it reads.
struct Ahead {
  Item item;
  int stored;

  // The current item stands in where there is no next one.
  __device__ __forceinline__ Ahead(const Parameters& p, Memory& memory, int phase)
      : item(memory, phase ^ 1), stored(0) {
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
__device__ __forceinline__ void load_next(const Parameters& p, Memory& memory, const Ahead& ahead,
                                          int phase) {
  const Item& next = ahead.item;
  if (threadIdx.x != 0 || next.chunk_head == memory.heads[phase ^ 1].x) return;
  const uint32_t empty = shared_address(&memory.values_empty);
  for (int rank = 0; rank < 2; rank++) barrier_arrive_at(empty, rank);
  next.keep<Delta>(memory, phase);
  await_scans<Delta>(p, next.chunk_head, ahead.stored);
  load_states(p, memory, next);
  barrier_wait(empty, phase);
  load_values<Delta>(p, memory, next);
}

template <bool Delta>
__device__ __forceinline__ void query_gradient(const Parameters& p, Memory& memory, int phase) {
  const ItemLane lane;
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
  if (Delta && threadIdx.x < 32) {  // the warp that read the item's before
    const int token = 2 * threadIdx.x;
    *reinterpret_cast<float2*>(&memory.rates[token]) =
        *reinterpret_cast<const float2*>(&memory.beta[token]);
  }
  decayed<Delta>(shared_address(memory.d_weights), pairs, memory, lane, p.scale, 0);
  Ahead ahead(p, memory, phase);
  products_wait<0>();
  settled(d_q);
  scale_rows(d_q, p.scale * exponential(memory.log_decay[lane.row]),
             p.scale * exponential(memory.log_decay[lane.row + 8]));
  barrier_wait(shared_address(&memory.keys_full), phase);
  const uint32_t q = shared_address(memory.q), k = shared_address(memory.k);
  const RowSums read(row_sums(d_q, q, lane));
  float end = 0.f;
  {
    const Item at(memory, phase ^ 1);
    if (!at.template summed<Delta>()) {
      end = at.template unit<Delta>(p) * exponential(memory.log_decay[CHUNK - 1]) *
            state_product(memory);
    }
  }
  fence_async();
  ahead.ask(p);
  __syncthreads();
  if (threadIdx.x % 32 == 0) memory.ends[threadIdx.x / 32] = end;
  products_begin();
  multiply<4, Major::K, Major::Other>(d_q, shared_address(memory.d_weights), k, true);
  products_commit();
  load_next<Delta>(p, memory, ahead, phase);
  products_wait<0>();
  settled(d_q);
  const ItemLane again;
  const Outgoing outgoing(p, Item(memory, phase ^ 1), d_q, again, p.d_q_wide);
  times_product(pairs, q, k);
  const float4 found = pair_sums<Delta>(pairs, memory, again);
  __syncthreads();  // the other warpgroup is through with dP, q and k
  memory.sums.pairs[threadIdx.x / 32][threadIdx.x % 32] = found;
  read.store(memory.sums.read, again);
  outgoing.finish(p, Item(memory, phase ^ 1), memory.d_weights, p.d_q, 1, again);
}

__device__ __forceinline__ void key_gradient(const Parameters& p, Memory& memory, int phase) {
  const ItemLane lane;
  const uint32_t d_v = shared_address(memory.d_v), update = shared_address(memory.update);
  const uint32_t k = shared_address(memory.k), d_inner = shared_address(memory.d_inner);
  float pairs[32], early[32];
  barrier_wait(shared_address(&memory.states_full), phase);
  const RowSums rows = [&]() {
    float late[32];
    products_begin();
    multiply<8, Major::K, Major::Other>(early, d_v, shared_address(memory.state), false);
    products_commit();
    products_begin();
    multiply<8, Major::K, Major::Other>(late, update, shared_address(memory.d_state), false);
    products_commit();
    barrier_wait(shared_address(&memory.keys_full), phase);
    products_wait<1>();
    settled(early);
    const float log[2] = {memory.log_decay[lane.row], memory.log_decay[lane.row + 8]};
    const float last = memory.log_decay[CHUNK - 1];
    const float erase[2] = {-exponential(log[0]), -exponential(log[1])};
    const float2 erased = scaled(row_sums(early, k, lane), erase[0], erase[1]);
    products_wait<0>();
    settled(late);
    const float rest[2] = {exponential(last - log[0]), exponential(last - log[1])};
    const float write[2] = {memory.beta[lane.row] * rest[0], memory.beta[lane.row + 8] * rest[1]};
    const float2 written = scaled(row_sums(late, k, lane), rest[0], rest[1]);
#pragma unroll
    for (int i = 0; i < 32; i++) {
      early[i] = erase[i / 2 % 2] * early[i] + write[i / 2 % 2] * late[i];
    }
    return RowSums(erased, written);
  }();
  products_begin();
  multiply<8, Major::K, Major::K>(pairs, d_v, update, false);
  products_commit();
  const float decay = exponential(memory.log_decay[CHUNK - 1]);
  const float end = Item(memory, phase ^ 1).first() ? 0.f : decay * state_product(memory);
  products_wait<0>();
  settled(pairs);
  decayed<true>(d_inner, pairs, memory, lane, -1.f, 1);
  fence_async();
  __syncthreads();
  if (threadIdx.x % 32 == 0) memory.ends[threadIdx.x / 32] = end;
  products_begin();
  multiply<4, Major::K, Major::Other>(early, d_inner, k, true);
  multiply<4, Major::Other, Major::Other>(early, d_inner, k, true);
  multiply<4, Major::Other, Major::Other>(early, shared_address(memory.d_weights),
                                          shared_address(memory.q), true);
  products_commit();
  products_wait<0>();
  settled(early);
  const ItemLane again;
  {  // nobody else reads N
    const Item at(memory, phase ^ 1);
    Outgoing(p, at, early, again, p.d_k_wide).finish(p, at, memory.d_inner, p.d_k, 2, again);
  }
  times_product(pairs, k, k);
  const float4 found = pair_sums<true>(pairs, memory, again);
  __syncthreads();
  memory.sums.pairs[threadIdx.x / 32][threadIdx.x % 32] = found;
  rows.store(memory.sums.keys, again);
}

// The same without a delta rule.
__device__ __forceinline__ void plain_key_gradient(const Parameters& p, Memory& memory, int phase) {
  const ItemLane lane;
  const uint32_t k = shared_address(memory.k);
  float late[32];
  barrier_wait(shared_address(&memory.states_full), phase);
  products_begin();
  multiply<8, Major::K, Major::Other>(late, shared_address(memory.update),
                                      shared_address(memory.d_state), false);
  products_commit();
  const float first = memory.log_decay[lane.row], second = memory.log_decay[lane.row + 8];
  const Item at(memory, phase ^ 1);
  const float last = memory.log_decay[CHUNK - 1], unit = at.unit<false>(p);
  products_wait<0>();
  settled(late);
  scale_rows(late, unit * exponential(last - first), unit * exponential(last - second));
  barrier_wait(shared_address(&memory.keys_full), phase);
  const RowSums written(row_sums(late, k, lane));
  const float end = at.summed<false>() ? 0.f : unit * exponential(last) * state_product(memory);
  __syncthreads();  // dP is there
  if (threadIdx.x % 32 == 0) memory.ends[threadIdx.x / 32] = end;
  products_begin();
  multiply<4, Major::Other, Major::Other>(late, shared_address(memory.d_weights),
                                          shared_address(memory.q), true);
  products_commit();
  products_wait<0>();
  settled(late);
  __syncthreads();
  written.store(memory.sums.keys[1], lane);
  Outgoing(p, at, late, lane, p.d_k_wide).finish(p, at, memory.d_inner, p.d_k, 2, lane);
}

static_assert(sizeof(Memory) == SHARED_GRADIENTS);

template <bool Delta>
__device__ __forceinline__ void gradients_block(const Parameters& p, char* shared) {
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&memory.values_full), 1);
    barrier_init(shared_address(&memory.values_empty), 2);
    barrier_init(shared_address(&memory.states_full), 1);
    barrier_init(shared_address(&memory.keys_full), 1);
    barrier_init(shared_address(&memory.ticket_full), 1);
    barrier_init_done();
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    const Item at(p, blockIdx.x / 2);
    at.keep<Delta>(memory, 1);
    load_keys(p, memory, at);
    await_scans<Delta>(p, at.chunk_head, 0);
    load_values<Delta>(p, memory, at);
    load_states(p, memory, at);
  }
  __syncthreads();
  for (int phase = 0, more = true; more; phase ^= 1) {
    if (threadIdx.x == 0) take_next(p, memory, phase);
    barrier_wait(shared_address(&memory.values_full), phase);
    const int tokens = memory.chunk[phase ^ 1].z;
    if (tokens < CHUNK) {
      barrier_wait(shared_address(&memory.keys_full), phase);
      clear_tails<Delta>(memory, tokens);
      __syncthreads();
    }
    if (warp_index() < 4) {
      query_gradient<Delta>(p, memory, phase);
    } else if constexpr (Delta) {
      key_gradient(p, memory, phase);
    } else {
      plain_key_gradient(p, memory, phase);
    }
    barrier_wait(shared_address(&memory.ticket_full), phase);
    more = memory.tickets[phase] < p.chunk_heads;
    fence_async();  // the next item's queries come to where the sums are
    __syncthreads();
    if (warp_index() == 0) {
      const Found found = read_sums<Delta>(memory);
      __syncwarp();
      if (threadIdx.x == 0 && more) load_keys(p, memory, Item(memory, phase));
      // While the next item's tiles are on their way.
      add_gate<Delta>(p, found, Item(memory, phase ^ 1));
    }
  }
  if (!Delta) let_next_start();
  cluster_sync();    // the other block may still send here
  await_previous();  // the next kernel counts on all that the scans write
}

}  // namespace

#define GRADIENTS_BOUNDS __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 2)

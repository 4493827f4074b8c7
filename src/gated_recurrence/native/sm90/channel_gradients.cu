// The gradients that need a chunk's states and no other chunk, with a gate a channel: dQ, dK and
// the gates', but for what every gate of a chunk has of the sum of S o dS', which
// `channel_gates.cuh` adds. A block takes one chunk and value head, and half of the key channels,
// which see nothing of the others. The kernel starts while the scans still run: `ready` says which
// chunks are there.
//
//   dP = s tril(dO V^T)
//   dQ_i = s e^(G_i) dO S^T + sum_j dP_ij e^(G_i - G_j) K_j
//   dK_j = dK'_j + e^(G_63 - G_j) V dS'^T        dK'_j = sum_i dP_ij e^(G_i - G_j) Q_i
//   dg_t = sum over i >= t of (Q o dQ - K o dK')_i + sum over j < t of (K o (dK - dK'))_j
// One warpgroup takes dQ and the other dK, each warp a strip of tokens; from a strip to the next
// the sum is multiplied by the strip's decay, which the part that comes from the state needs too.
#include "channel.cuh"
#include "channel_gates.cuh"

namespace {

constexpr int THREADS = 256;

struct alignas(1024) Memory {
  union {
    struct {
      char d_out[2 * BLOCK_BYTES];    // [64, V]
      char values[2 * BLOCK_BYTES];   // [64, V]
      char state[2 * BLOCK_BYTES];    // [V, 64 keys]
      char d_state[2 * BLOCK_BYTES];  // [V, 64 keys]
    };
    struct {                    // after the products
      float to_q[CHUNK][64];    // dQ / x, but for pairs of one strip
      float to_k[CHUNK][64];    // dK' / y, the same
      float to_end[CHUNK][64];  // V dS'^T
      char x_queries[BLOCK_BYTES];
      char y_keys[BLOCK_BYTES];
    };
  };
  char q[BLOCK_BYTES];
  char k[BLOCK_BYTES];
  float gate[CHUNK][64];                 // e^g
  char d_weights[BLOCK_BYTES];           // dP
  float diagonal[STRIPS][STRIP][STRIP];  // dP of pairs of one strip, the column first
  float sums[2][STRIPS][64];             // over a strip: Q o dQ - K o dK', and K o (dK - dK')
  union {
    float ends[THREADS / 32][64];  // the warps' shares of the sum of S o dS'
    struct {
      float whole[STRIPS][64];    // a strip's decay
      float queries[STRIPS][64];  // over a strip: Q o s e^G dO S^T
    };
  };
  uint64_t inputs_full, states_full;
};
static_assert(sizeof(Memory) == SHARED_CHANNEL_GRADIENTS);

struct Item {
  int4 chunk;  // batch, first token, tokens (1 to 64), 0 or a first chunk's sequence + 1
  int chunk_head, value_head, head, sequence;
  bool last;  // of its sequence's chunks

  __device__ Item(const Parameters& p, int turn) {
    const int4* row = p.order + 2 * (turn / p.value_heads);
    chunk = __ldg(row);
    const int4 where = __ldg(row + 1);
    value_head = turn % p.value_heads;
    chunk_head = where.x * p.value_heads + value_head;
    head = value_head / (p.value_heads / p.heads);
    sequence = where.w;
    last = where.z == 0;
  }
};

__device__ __forceinline__ int key() { return 64 * (blockIdx.x % 2); }

__device__ __forceinline__ void load_item(const Parameters& p, Memory& memory, const Item& at) {
  const uint32_t inputs = shared_address(&memory.inputs_full);
  const uint32_t states = shared_address(&memory.states_full);
  const int token = at.chunk.y, batch = at.chunk.x;
  barrier_expect(inputs, 6 * BLOCK_BYTES + sizeof(memory.gate));
  load_box(shared_address(memory.gate), p.gate, inputs, key(), at.value_head, token, batch);
  load_box(shared_address(memory.q), p.q, inputs, key(), at.head, token, batch);
  load_box(shared_address(memory.k), p.k, inputs, key(), at.head, token, batch);
  for (int b = 0; b < 2; b++) {
    const uint32_t offset = b * BLOCK_BYTES;
    load_box(shared_address(memory.d_out) + offset, p.d_out, inputs, 64 * b, at.value_head, token,
             batch);
    load_box(shared_address(memory.values) + offset, p.v, inputs, 64 * b, at.value_head, token,
             batch);
  }
  // Each block of the scans says of a chunk that its tile of dS' is there.
  while (read_relaxed(p.ready + at.chunk_head) < p.state_blocks) __nanosleep(40);
  fence_acquire();
  fence_copies();
  barrier_expect(states, 4 * BLOCK_BYTES);
  for (int b = 0; b < 2; b++) {
    const uint32_t offset = b * BLOCK_BYTES;
    load_box(shared_address(memory.state) + offset, p.state, states, key(), 64 * b, at.chunk_head,
             0);
    load_box(shared_address(memory.d_state) + offset, p.d_state, states, key(), 64 * b,
             at.chunk_head, 0);
  }
}

// The warp's share, 16 of the value channels, of each key's sum of S o dS'.
__device__ __forceinline__ void state_products(Memory& memory) {
  const int warp = threadIdx.x / 32, column = threadIdx.x % 32 * 2;
  float2 sum = make_float2(0.f, 0.f);
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int row = 16 * warp + i;  // the tile's blocks stand one under the other
    const uint32_t offset = row / 64 * BLOCK_BYTES + element(row % 64, column);
    const uint32_t x = *reinterpret_cast<const uint32_t*>(memory.state + offset);
    const uint32_t y = *reinterpret_cast<const uint32_t*>(memory.d_state + offset);
    sum.x += low_half(x) * low_half(y);
    sum.y += high_half(x) * high_half(y);
  }
  *reinterpret_cast<float2*>(&memory.ends[warp][column]) = sum;
}

// An accumulator's tile in float32. Rows that a warp writes together stand eight banks apart.
__device__ __forceinline__ int swizzled(int row, int column) { return column ^ (row % 4 * 8); }

__device__ __forceinline__ void store_floats(float (&tile)[CHUNK][64], const float (&x)[32],
                                             const Lane& lane) {
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int row = lane.row + 8 * (i / 2 % 2), column = 8 * (i / 4) + lane.pair;
    *reinterpret_cast<float2*>(&tile[row][swizzled(row, column)]) = make_float2(x[i], x[i + 1]);
  }
}

// dP, whole in bfloat16, and the pairs of one strip in float32.
__device__ __forceinline__ void store_pairs(Memory& memory, const float (&pairs)[32],
                                            const Lane& lane, float scale) {
  uint32_t packed[16];
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int row = lane.row + 8 * (i / 2 % 2), column = 8 * (i / 4) + lane.pair;
    const float x = column <= row ? scale * pairs[i] : 0.f;
    const float y = column < row ? scale * pairs[i + 1] : 0.f;
    packed[i / 2] = pack(x, y);
    if (i / 8 == lane.warp) {
      memory.diagonal[lane.warp][column % STRIP][row % STRIP] = x;
      memory.diagonal[lane.warp][column % STRIP + 1][row % STRIP] = y;
    }
  }
  const uint32_t tile = shared_address(memory.d_weights);
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    store_matrices(fragment(tile, b), packed[2 * b], packed[2 * b + 1], packed[2 * b + 2],
                   packed[2 * b + 3]);
  }
}

// The decays of a strip and channel, a thread, into its queries and keys.
__device__ __forceinline__ void decay_strip(Memory& memory, int tokens) {
  const int strip = threadIdx.x / 64, column = threadIdx.x % 64;
  float gate[STRIP], x = 1.f, y = 1.f;
#pragma unroll
  for (int i = 0; i < STRIP; i++) {
    const int row = STRIP * strip + i;
    gate[i] = row < tokens ? exponential(memory.gate[row][column]) : 1.f;
    memory.gate[row][column] = gate[i];
    x *= gate[i];
    write_half(memory.x_queries, row, column, x * read_half(memory.q, row, column));
  }
  memory.whole[strip][column] = x;
#pragma unroll
  for (int i = STRIP - 1; i >= 0; i--) {
    const int row = STRIP * strip + i;
    write_half(memory.y_keys, row, column, y * read_half(memory.k, row, column));
    y *= gate[i];
  }
}

// The columns of an accumulator times a strip's decay.
__device__ __forceinline__ void decay_columns(float (&x)[32], const float* whole,
                                              const Lane& lane) {
#pragma unroll
  for (int b = 0; b < 8; b++) {
    const float2 two = *reinterpret_cast<const float2*>(whole + 8 * b + lane.pair);
    x[4 * b] *= two.x;
    x[4 * b + 1] *= two.y;
    x[4 * b + 2] *= two.x;
    x[4 * b + 3] *= two.y;
  }
}

// Each channel's sum over the warp's strip of Q o s e^G dO S^T, of which d_q is dO S^T.
__device__ __forceinline__ void sum_queries(Memory& memory, const float (&d_q)[32],
                                            const Lane& lane, float scale) {
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    uint32_t words[4];
    load_matrices(words, fragment(shared_address(memory.x_queries), b));
    float sums[4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const uint32_t upper = words[2 * n], lower = words[2 * n + 1];
      const float* x = d_q + 4 * (b + n);
      sums[2 * n] = low_half(upper) * x[0] + low_half(lower) * x[2];
      sums[2 * n + 1] = high_half(upper) * x[1] + high_half(lower) * x[3];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
      }
      const int column = 8 * (b + i / 2) + lane.pair + i % 2;
      float sum = scale * sums[i];
#pragma unroll
      for (int strip = 0; strip < STRIPS - 1; strip++) {
        if (strip < lane.warp) sum *= memory.whole[strip][column];
      }
      if (lane.row % 8 == 0) memory.queries[lane.warp][column] = sum;
    }
  }
}

// d += A B, of a strip's 16 tokens by 16 and by the 64 channels of another strip's rows of `tile`.
__device__ __forceinline__ void add_strip(float (&d)[32], const uint32_t (&a)[4], uint32_t tile,
                                          int strip) {
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    uint32_t words[4];
    load_matrices_transposed(words, square(tile, STRIP * strip, b));
    warp_product(d + 4 * b, a[0], a[1], a[2], a[3], words[0], words[1]);
    warp_product(d + 4 * b + 4, a[0], a[1], a[2], a[3], words[2], words[3]);
  }
}

// From s dO S^T to dQ / x, but for pairs of one strip.
__device__ __forceinline__ void earlier_strips(Memory& memory, float (&d_q)[32], const Lane& lane) {
  const int strip = warp_index() % 4;
  for (int from = 0; from < strip; from++) {
    uint32_t a[4];
    load_matrices(a, square(shared_address(memory.d_weights), STRIP * strip, 2 * from));
    decay_columns(d_q, memory.whole[from], lane);
    add_strip(d_q, a, shared_address(memory.y_keys), from);
  }
}

// dK' / y, the same.
__device__ __forceinline__ void later_strips(Memory& memory, float (&d_k)[32], const Lane& lane) {
  const int strip = warp_index() % 4;
#pragma unroll
  for (int i = 0; i < 32; i++) d_k[i] = 0.f;
  for (int from = STRIPS - 1; from > strip; from--) {
    uint32_t words[4];
    load_matrices_transposed(words,
                             square(shared_address(memory.d_weights), STRIP * from, 2 * strip));
    const uint32_t a[4] = {words[0], words[2], words[1], words[3]};
    decay_columns(d_k, memory.whole[from], lane);
    add_strip(d_k, a, shared_address(memory.x_queries), from);
  }
}

__device__ __forceinline__ void write_gradient(__nv_bfloat16* narrow, float* wide, int64_t at,
                                               float x) {
  if (wide != nullptr) {
    wide[at] = x;
  } else {
    narrow[at] = __float2bfloat16_rn(x);
  }
}

// The rest, a strip and channel a thread.
__device__ __forceinline__ void finish(const Parameters& p, Memory& memory, const Item& at,
                                       float states) {
  const int strip = threadIdx.x / 64, column = threadIdx.x % 64, first = STRIP * strip;
  float gate[STRIP], q[STRIP], k[STRIP], d_q[STRIP], d_k[STRIP];
  float x = 1.f, y = 1.f;
#pragma unroll
  for (int i = 0; i < STRIP; i++) {
    const int row = first + i;
    gate[i] = memory.gate[row][column];
    q[i] = read_half(memory.q, row, column);
    k[i] = read_half(memory.k, row, column);
    x *= gate[i];
    d_q[i] = x * memory.to_q[row][swizzled(row, column)];
  }
#pragma unroll
  for (int j = STRIP - 1; j >= 0; j--) {
    const int row = first + j;
    float sum = y * memory.to_k[row][swizzled(row, column)], decay = 1.f;
#pragma unroll
    for (int i = j; i < STRIP; i++) {
      if (i > j) decay *= gate[i];
      const float weight = memory.diagonal[strip][j][i] * decay;
      d_q[i] += weight * k[j];
      sum += weight * q[i];
    }
    d_k[j] = sum;
    y *= gate[j];
  }
  float after = 1.f;  // of the strips that follow
#pragma unroll
  for (int later = 1; later < STRIPS; later++) {
    if (later > strip) after *= memory.whole[later][column];
  }
  float late[STRIP], own = 0.f, kept = 0.f;
  y = at.last ? after : p.mantissa * after;  // with the unit of the tile of dS'
#pragma unroll
  for (int i = STRIP - 1; i >= 0; i--) {
    const int row = first + i;
    late[i] = y * memory.to_end[row][swizzled(row, column)];
    own += q[i] * d_q[i] - k[i] * d_k[i];
    kept += k[i] * late[i];
    y *= gate[i];
  }
  memory.sums[0][strip][column] = own;
  memory.sums[1][strip][column] = kept;
  __syncthreads();
  float rest = 0.f, earlier = 0.f;
#pragma unroll
  for (int other = 0; other < STRIPS; other++) {
    if (other > strip) rest += memory.sums[0][other][column];
    if (other < strip) earlier += memory.sums[1][other][column];
  }
  const int64_t token = at.chunk.x * p.length + at.chunk.y + first;
  const int64_t pitch = int64_t(p.value_heads) * HEAD;
  const int64_t base = token * pitch + at.value_head * HEAD + key() + column;
  float gates[STRIP];
#pragma unroll
  for (int i = STRIP - 1; i >= 0; i--) {
    rest += q[i] * d_q[i] - k[i] * d_k[i];
    gates[i] = rest;
  }
#pragma unroll
  for (int i = 0; i < STRIP; i++) {
    const int64_t to = base + i * pitch;
    if (first + i < at.chunk.z) {
      p.d_g[to] = gates[i] + earlier;
      write_gradient(p.d_q, p.d_q_wide, to, d_q[i]);
      write_gradient(p.d_k, p.d_k_wide, to, d_k[i] + late[i]);
    }
    earlier += k[i] * late[i];
  }
  if (strip == 0) {
    float keys = 0.f, queries = 0.f;
#pragma unroll
    for (int other = 0; other < STRIPS; other++) {
      keys += memory.sums[1][other][column];
      queries += memory.queries[other][column];
    }
    float* parts = p.d_channel_parts + int64_t(at.chunk_head) * 3 * HEAD + key() + column;
    parts[0] = states;
    parts[HEAD] = keys;
    parts[2 * HEAD] = queries;
  }
}

// Of a channel, the sum of S o dS' before the decay of the chunk: from float32 where a sequence
// begins and ends.
__device__ __forceinline__ float state_sum(const Parameters& p, const Memory& memory,
                                           const Item& at, int column) {
  float sum = 0.f;
  if (at.chunk.w > 0 || at.last) {
    const float* parts =
        at.chunk.w > 0
            ? p.d_start_parts + int64_t((at.chunk.w - 1) * p.value_heads + at.value_head) * 8 * HEAD
            : p.d_end_parts + int64_t(at.sequence * p.value_heads + at.value_head) * 8 * HEAD;
#pragma unroll
    for (int part = 0; part < 8; part++) sum += __ldcg(parts + part * HEAD + key() + column);
    return sum;
  }
#pragma unroll
  for (int part = 0; part < 8; part++) sum += memory.ends[part][column];
  return p.mantissa * sum;  // the unit of the tile of dS'
}

// One warpgroup's part, up to what `finish` reads; a thread's channel's c sum(S o dS').
__device__ __forceinline__ float query_products(const Parameters& p, Memory& memory,
                                                const Item& at) {
  const Lane lane;
  const uint32_t d_out = shared_address(memory.d_out);
  float pairs[32], d_q[32];
  products_begin();
  multiply<8, Major::K, Major::K>(pairs, d_out, shared_address(memory.values), false);
  multiply<8, Major::K, Major::Other>(d_q, d_out, shared_address(memory.state), false);
  products_commit();
  state_products(memory);
  products_wait<0>();
  settled(pairs);
  settled(d_q);
  __syncthreads();
  const int column = threadIdx.x % 64;
  float states = state_sum(p, memory, at, column);
  __syncthreads();  // the shares stand where the strips' decays will
  store_pairs(memory, pairs, lane, p.scale);
  decay_strip(memory, at.chunk.z);
  __syncthreads();
#pragma unroll
  for (int strip = 0; strip < STRIPS; strip++) states *= memory.whole[strip][column];
  sum_queries(memory, d_q, lane, p.scale);
#pragma unroll
  for (int i = 0; i < 32; i++) d_q[i] *= p.scale;
  earlier_strips(memory, d_q, lane);
  store_floats(memory.to_q, d_q, lane);
  return states;
}

// The other's.
__device__ __forceinline__ void key_products(Memory& memory, int tokens) {
  const Lane lane;
  float product[32];
  products_begin();
  multiply<8, Major::K, Major::Other>(product, shared_address(memory.values),
                                      shared_address(memory.d_state), false);
  products_commit();
  state_products(memory);
  products_wait<0>();
  settled(product);
  __syncthreads();
  __syncthreads();  // the shares of the sum of S o dS' have been read
  decay_strip(memory, tokens);
  __syncthreads();
  store_floats(memory.to_end, product, lane);
  later_strips(memory, product, lane);
  store_floats(memory.to_k, product, lane);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    channel_gradients(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  const Item at(p, blockIdx.x / 2);
  const int warp = warp_index();
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&memory.inputs_full), 1);
    barrier_init(shared_address(&memory.states_full), 1);
    barrier_init_done();
    load_item(p, memory, at);
  }
  __syncthreads();
  barrier_wait(shared_address(&memory.inputs_full), 0);
  if (at.chunk.z < CHUNK) {  // rows past the sequence's end hold what follows it in memory
    clear_rows(memory.d_out, 2, at.chunk.z, threadIdx.x, THREADS);
    clear_rows(memory.values, 2, at.chunk.z, threadIdx.x, THREADS);
    clear_rows(memory.q, 1, at.chunk.z, threadIdx.x, THREADS);
    clear_rows(memory.k, 1, at.chunk.z, threadIdx.x, THREADS);
    fence_async();
    __syncthreads();
  }
  barrier_wait(shared_address(&memory.states_full), 0);
  float states;
  if (warp < 4) {
    states = query_products(p, memory, at);
  } else {
    key_products(memory, at.chunk.z);
    states = 0.f;
  }
  __syncthreads();
  finish(p, memory, at, states);
  // The next kernel counts on all that the scans write. One block is enough to wait for them.
  if (blockIdx.x + 1 == gridDim.x) await_previous();
}

extern "C" __global__ void __launch_bounds__(HEAD)
    channel_gates(const __grid_constant__ Parameters p) {
  add_channel_states(p);
}

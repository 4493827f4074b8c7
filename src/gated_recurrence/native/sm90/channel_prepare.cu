// What the scans need of each chunk and depends on no other, with a gate a channel: the keys and
// queries with their decays, the matrix P of weights within the chunk, and the decay of a whole
// chunk. The warpgroups of a block take a chunk and value head each, one after another, in the
// order in which the forward scan comes to them; that scan starts beside them, on the
// multiprocessors that they leave free, and reads in `prepared` which are there.
#include "channel.cuh"

namespace {

constexpr int THREADS = 128;  // a group
constexpr int GROUPS = 2;
constexpr int PAIRS = STRIP * (STRIP + 1) / 2;  // of tokens of a strip, one not before the other
constexpr int LATER = 48 * 128;                 // bytes of a block of columns of three strips
constexpr int BLOCKS = 6;                       // of 16 x 16 below those on P's diagonal
constexpr int EARLIER = BLOCKS * STRIP * 128;   // the same, of what stands for six strips

struct alignas(1024) Memory {
  char q[2 * BLOCK_BYTES];   // at the end, exp(G) o Q
  char k[2 * BLOCK_BYTES];   // at the end, exp(G_63 - G) o K
  float gate[2][CHUNK][64];  // e^g
  char weights[BLOCK_BYTES];
  char later[2 * LATER];      // x o Q of the strips after the first
  char earlier[2 * EARLIER];  // t ... t y o K, for each block below the diagonal
  float diagonal[STRIPS][PAIRS];
  uint64_t full;
};
static_assert(GROUPS * sizeof(Memory) == SHARED_CHANNEL_PREPARE);

__device__ __forceinline__ int thread_of_group() { return threadIdx.x % THREADS; }

// A barrier of the group's threads; 0 is the block's.
__device__ __forceinline__ void group_sync() { named_sync(1 + threadIdx.x / THREADS, THREADS); }

// The strips of rows and of columns that meet in a block below the diagonal.
__device__ __forceinline__ int row_strip(int block) {
  return block < 3 ? block + 1 : block < 5 ? block - 1 : 3;
}
__device__ __forceinline__ int column_strip(int block) {
  return block < 3 ? block : block < 5 ? block - 3 : 0;
}

// Adds the sums of two lanes, and leaves each with half of them.
template <int Step, int Kept, int N>
__device__ __forceinline__ void halve(float (&sums)[N], int lane) {
  const bool upper = lane & Step;
#pragma unroll
  for (int i = 0; i < Kept; i++) {
    const float given = upper ? sums[i] : sums[i + Kept];
    const float held = upper ? sums[i + Kept] : sums[i];
    sums[i] = held + __shfl_xor_sync(0xffffffffu, given, Step);
  }
}

// The pairs of a strip's tokens, by one warp. A lane has four channels, and every pair's sum over
// them.
__device__ __forceinline__ void pairs_within(Memory& memory, int strip, int lane) {
  float sums[128] = {}, rest[PAIRS - 128] = {};
#pragma unroll 1
  for (int part = 0; part < 4; part++) {
    const int column = lane + 32 * (part % 2), half = part / 2;
    const char *q = memory.q + half * BLOCK_BYTES, *k = memory.k + half * BLOCK_BYTES;
    float keys[STRIP];  // decayed to the row
#pragma unroll
    for (int i = 0; i < STRIP; i++) {
      const int row = STRIP * strip + i;
      const float decay = memory.gate[half][row][column], query = read_half(q, row, column);
      keys[i] = read_half(k, row, column);
#pragma unroll
      for (int j = 0; j <= i; j++) {
        if (j < i) keys[j] *= decay;
        const int pair = i * (i + 1) / 2 + j;
        if (pair < 128) {
          sums[pair] += query * keys[j];
        } else {
          rest[pair - 128] += query * keys[j];
        }
      }
    }
  }
  halve<16, 64>(sums, lane);
  halve<8, 32>(sums, lane);
  halve<4, 16>(sums, lane);
  halve<2, 8>(sums, lane);
  halve<1, 4>(sums, lane);
  // The bits of the lane chose halves of halves, the highest first.
  *reinterpret_cast<float4*>(&memory.diagonal[strip][4 * lane]) =
      make_float4(sums[0], sums[1], sums[2], sums[3]);
  halve<4, 4>(rest, lane);
  halve<2, 2>(rest, lane);
  halve<1, 1>(rest, lane);
  float sum = rest[0];
  sum += __shfl_xor_sync(0xffffffffu, sum, 8);
  sum += __shfl_xor_sync(0xffffffffu, sum, 16);
  if (lane < 8) memory.diagonal[strip][128 + lane] = sum;
}

// Of one channel, a thread: the decays into keys and queries. Returns that of the chunk.
__device__ __forceinline__ float decayed(Memory& memory, int channel) {
  const int half = channel / 64, column = channel % 64;
  char *q = memory.q + half * BLOCK_BYTES, *k = memory.k + half * BLOCK_BYTES;
  char *later = memory.later + half * LATER, *earlier = memory.earlier + half * EARLIER;
  float whole[STRIPS], before = 1.f, after = 1.f;
#pragma unroll
  for (int strip = 0; strip < STRIPS; strip++) {
    float x = 1.f;
#pragma unroll
    for (int i = 0; i < STRIP; i++) {
      const int row = STRIP * strip + i;
      x *= memory.gate[half][row][column];
      const float query = read_half(q, row, column);
      if (strip > 0) write_half(later, row - STRIP, column, x * query);
      write_half(q, row, column, before * x * query);
    }
    whole[strip] = x;
    before *= x;
  }
#pragma unroll
  for (int strip = STRIPS - 1; strip >= 0; strip--) {
    float y = 1.f;
#pragma unroll
    for (int i = STRIP - 1; i >= 0; i--) {
      const int row = STRIP * strip + i;
      const float key = y * read_half(k, row, column);
      write_half(k, row, column, after * key);
      float to = key;
#pragma unroll
      for (int block = 0; block < BLOCKS; block++) {
        if (column_strip(block) != strip) continue;
        if (row_strip(block) > strip + 1) to *= whole[row_strip(block) - 1];
        write_half(earlier, STRIP * block + i, column, to);
      }
      y *= memory.gate[half][row][column];
    }
    after *= whole[strip];
  }
  return before;
}

// Two neighbours of P.
__device__ __forceinline__ void write_weights(Memory& memory, int row, int column, float x,
                                              float y) {
  *reinterpret_cast<uint32_t*>(memory.weights + element(row, column)) = pack(x, y);
}

// A block of P below the diagonal, by one warp.
__device__ __forceinline__ void pairs_between(Memory& memory, int block, float scale) {
  const uint32_t later = shared_address(memory.later), earlier = shared_address(memory.earlier);
  const int rows = row_strip(block), columns = column_strip(block);
  float sums[2][4] = {};
#pragma unroll
  for (int step = 0; step < HEAD / 16; step++) {
    uint32_t a[4], b[4];
    load_matrices(a, square(later + step / 4 * LATER, STRIP * (rows - 1), step % 4 * 2));
    load_matrices(b, square(earlier + step / 4 * EARLIER, STRIP * block, step % 4 * 2));
    warp_product(sums[0], a[0], a[1], a[2], a[3], b[0], b[2]);
    warp_product(sums[1], a[0], a[1], a[2], a[3], b[1], b[3]);
  }
  const int row = STRIP * rows + threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < 2; n++) {
    const int column = STRIP * columns + 8 * n + pair;
    write_weights(memory, row, column, scale * sums[n][0], scale * sums[n][1]);
    write_weights(memory, row + 8, column, scale * sums[n][2], scale * sums[n][3]);
  }
}

struct Item {
  int4 chunk;  // batch, first token, tokens (1 to 64), -
  int chunk_head, value_head, head;

  __device__ Item(const Parameters& p, int turn) {
    const int4* row = p.forward_order + 2 * (turn / p.value_heads);
    chunk = __ldg(row);
    value_head = turn % p.value_heads;
    chunk_head = __ldg(row + 1).x * p.value_heads + value_head;
    head = value_head / (p.value_heads / p.heads);
  }
};

__device__ __forceinline__ void load_item(const Parameters& p, Memory& memory, const Item& at) {
  const uint32_t full = shared_address(&memory.full);
  barrier_expect(full, sizeof(memory.q) + sizeof(memory.k) + sizeof(memory.gate));
  for (int b = 0; b < 2; b++) {
    load_box(shared_address(memory.gate[b]), p.gate, full, 64 * b, at.value_head, at.chunk.y,
             at.chunk.x);
    load_box(shared_address(memory.k) + b * BLOCK_BYTES, p.k, full, 64 * b, at.head, at.chunk.y,
             at.chunk.x);
    load_box(shared_address(memory.q) + b * BLOCK_BYTES, p.q, full, 64 * b, at.head, at.chunk.y,
             at.chunk.x);
  }
}

// e^g, one past the sequence's end.
__device__ __forceinline__ void open_gates(Memory& memory, int tokens) {
  for (int i = thread_of_group(); i < 2 * CHUNK * 64 / 4; i += THREADS) {
    float4& four = reinterpret_cast<float4*>(memory.gate)[i];
    const bool there = i / 16 % CHUNK < tokens;
    four = make_float4(there ? exponential(four.x) : 1.f, there ? exponential(four.y) : 1.f,
                       there ? exponential(four.z) : 1.f, there ? exponential(four.w) : 1.f);
  }
}

}  // namespace

// A cluster only so that it takes two neighbouring multiprocessors and leaves two to the scan's.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(GROUPS* THREADS, 1)
    channel_prepare(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  const int group = warp_index() / 4, warp = warp_index() % 4;
  const int thread = thread_of_group(), lane = thread % 32;
  Memory& memory = reinterpret_cast<Memory*>(shared)[group];
  const uint32_t full = shared_address(&memory.full);
  const int first = group * gridDim.x + blockIdx.x, stride = GROUPS * gridDim.x;
  let_next_start();
  if (thread == 0) {
    barrier_init(full, 1);
    barrier_init_done();
    if (first < p.chunk_heads) load_item(p, memory, Item(p, first));
  }
  group_sync();
  for (int turn = first, phase = 0; turn < p.chunk_heads; turn += stride, phase ^= 1) {
    const Item at(p, turn);
    barrier_wait(full, phase);
    open_gates(memory, at.chunk.z);
    if (at.chunk.z < CHUNK) {
      clear_rows(memory.q, 2, at.chunk.z, thread, THREADS);
      clear_rows(memory.k, 2, at.chunk.z, thread, THREADS);
    }
    for (int i = thread; i < BLOCK_BYTES / 16; i += THREADS) {
      reinterpret_cast<uint4*>(memory.weights)[i] = make_uint4(0, 0, 0, 0);
    }
    group_sync();
    pairs_within(memory, warp, lane);
    group_sync();
    p.vectors[int64_t(at.chunk_head) * 4 * CHUNK + thread] = decayed(memory, thread);
    fence_async();
    group_sync();
    if (thread == 0) {
      for (int b = 0; b < 2; b++) {
        const uint32_t offset = b * BLOCK_BYTES;
        store_box(p.q_read, shared_address(memory.q) + offset, 64 * b, 0, at.chunk_head, 0);
        store_box(p.k_end, shared_address(memory.k) + offset, 64 * b, 0, at.chunk_head, 0);
      }
    }
    pairs_between(memory, warp, p.scale);
    if (warp < BLOCKS - 4) pairs_between(memory, warp + 4, p.scale);
    const int row = thread / 8, pair = thread % 8 * 2;
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
      const float* sums = &memory.diagonal[strip][row * (row + 1) / 2];
      write_weights(memory, STRIP * strip + row, STRIP * strip + pair,
                    pair <= row ? p.scale * sums[pair] : 0.f,
                    pair < row ? p.scale * sums[pair + 1] : 0.f);
    }
    fence_async();  // the copy engine reads these, and writes where the others were
    group_sync();
    if (thread == 0) {
      store_box(p.weights, shared_address(memory.weights), 0, 0, at.chunk_head, 0);
      stores_commit();
      stores_have_read();
      if (turn + stride < p.chunk_heads) load_item(p, memory, Item(p, turn + stride));
      stores_wait<0>();
      fence_copies();
      add_release(p.prepared + at.chunk_head);
    }
  }
}

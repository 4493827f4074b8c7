// What the scans need of each chunk and depends on no other: the cumulative gate, the matrix P of
// weights within the chunk, and with a delta rule the inverse A'. Warpgroups, several a block, take a
// chunk and value head each, in the order in which the forward scan comes to them. That scan starts
// beside them, on the multiprocessors that they leave free, and reads in `prepared` which are there.
//
// `Delta` false, here and in all that follows: the members without a delta rule, beta = 1 and A' = I,
// so that U = U' = V.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

namespace {

constexpr int THREADS = 128;  // a group
constexpr int GROUPS = THREADS_PREPARE / THREADS;
constexpr int PITCH =
    CHUNK + 4;  // floats; rows stay 16-byte aligned, columns spread over the banks
constexpr int TILE = 16;
// exp is exactly zero below -104, so a step this far down forgets everything; going further would
// only cost the later sums their low bits (and -inf would make them undefined).
constexpr float DEEPEST_GATE = -128.f;

struct alignas(1024) Memory {
  union {
    struct {
      char q[2 * BLOCK_BYTES];
      char k[2 * BLOCK_BYTES];
    };
    struct {  // after the products
      char weights[BLOCK_BYTES];
      float matrix[CHUNK][PITCH];
    };
  };
  float vectors[4][CHUNK];
  float gates[2][CHUNK];  // g and beta of the next item
  int4 rows[2][2];        // of `forward_order`, by turns: the next item's and that of the one after
  uint64_t full;
};

__device__ __forceinline__ int thread_of_group() { return threadIdx.x % THREADS; }

// A barrier of the group's threads; 0 is the block's.
__device__ __forceinline__ void group_sync() { named_sync(1 + threadIdx.x / THREADS, THREADS); }

// Of the chunk whose gates are in memory.
template <bool Delta>
__device__ void gates(Memory& memory, const int4& chunk) {
  const int lane = thread_of_group();
  if (lane >= 32) return;
  float g[2], beta[2];
  for (int i = 0; i < 2; i++) {
    const int row = 2 * lane + i;
    g[i] = memory.gates[0][row];
    if (g[i] < DEEPEST_GATE) g[i] = DEEPEST_GATE;
    beta[i] = 1.f;
    if constexpr (Delta) beta[i] = memory.gates[1][row];
  }
  float sum = g[0] + g[1];
  for (int step = 1; step < 32; step *= 2) {
    const float before = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += before;
  }
  const float last = __shfl_sync(0xffffffffu, sum, 31);
  float log_decay[2];
  log_decay[1] = sum;
  log_decay[0] = sum - g[1];
  for (int i = 0; i < 2; i++) {
    const int row = 2 * lane + i;
    memory.vectors[0][row] = log_decay[i];
    memory.vectors[1][row] = expf(log_decay[i]);
    memory.vectors[2][row] = beta[i] * expf(last - log_decay[i]);
    memory.vectors[3][row] = beta[i];
  }
}

// Inverts the unit lower triangular 16 x 16 blocks on the diagonal, a warp each, a column a lane.
__device__ void invert_diagonal(float (&matrix)[CHUNK][PITCH], int warp, int lane) {
  const int base = TILE * warp;
  float x[TILE];
#pragma unroll
  for (int i = 0; i < TILE; i++) {
    float sum[4] = {i == lane ? 1.f : 0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 m = *reinterpret_cast<const float4*>(&matrix[base + i][base + j]);
      sum[0] -= m.x * x[j];
      if (j + 1 < i) sum[1] -= m.y * x[j + 1];
      if (j + 2 < i) sum[2] -= m.z * x[j + 2];
      if (j + 3 < i) sum[3] -= m.w * x[j + 3];
    }
    x[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < TILE; i++) {
    if (lane < TILE) matrix[base + i][base + lane] = x[i];
  }
}

// 16 x 8 * Blocks of the product of two blocks with `Inner` columns and rows, by one warp. tf32
// keeps eight times bfloat16's precision, to which the inverse is rounded in the end.
template <int Inner, int Blocks>
__device__ void block_product(const float (&matrix)[CHUNK][PITCH], int row, int inner_column,
                              int inner_row, int column, float (&sum)[Blocks][4]) {
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < Inner; k += 8) {
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      a[i] = to_tf32(matrix[row + group + 8 * (i % 2)][inner_column + k + member + 4 * (i / 2)]);
    }
#pragma unroll
    for (int n = 0; n < Blocks; n++) {
      uint32_t b[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        b[i] = to_tf32(matrix[inner_row + k + member + 4 * i][column + 8 * n + group]);
      }
      warp_product_tf32(sum[n], a, b);
    }
  }
}

template <int Blocks>
__device__ void write_block(float (&matrix)[CHUNK][PITCH], int row, int column, float sign,
                            const float (&sum)[Blocks][4]) {
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < Blocks; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      matrix[row + group + 8 * (i / 2)][column + 8 * n + 2 * member + i % 2] = sign * sum[n][i];
    }
  }
}

// Joins the inverses of blocks of `Size` on the diagonal, two by two: the block between is -A22 M21
// A11. M21 A11 waits in its mirror image above the diagonal, which is zero before and after. Four
// warps share the CHUNK / (2 * Size) joins.
template <int Size>
__device__ void join(float (&matrix)[CHUNK][PITCH], int warp) {
  constexpr int BLOCKS = Size * Size / 16 * (CHUNK / (2 * Size)) / 4 / 8;  // of 16 x 8, a warp
  constexpr int ACROSS = Size / (8 * BLOCKS), WARPS = Size / 16 * ACROSS;
  const int first = 2 * Size * (warp / WARPS), second = first + Size;
  const int row = 16 * (warp % WARPS / ACROSS), column = 8 * BLOCKS * (warp % ACROSS);
  float inner[BLOCKS][4] = {}, outer[BLOCKS][4] = {};
  const float zero[BLOCKS][4] = {};
  block_product<Size>(matrix, second + row, first, first, first + column, inner);
  write_block(matrix, first + row, second + column, 1.f, inner);
  group_sync();
  block_product<Size>(matrix, second + row, second, first, second + column, outer);
  group_sync();
  write_block(matrix, second + row, first + column, -1.f, outer);
  write_block(matrix, first + row, second + column, 1.f, zero);
  group_sync();
}

static_assert(GROUPS * sizeof(Memory) == SHARED_PREPARE);

struct Item {
  int4 chunk;  // batch, first token, tokens (1 to 64), -
  int chunk_head, value_head;

  // With its row of `forward_order`.
  __device__ Item(const Parameters& p, int turn, const int4 (&row)[2]) {
    chunk = row[0];
    value_head = turn % p.value_heads;
    chunk_head = row[1].x * p.value_heads + value_head;
  }
};

// An item's row, and what of it no other item shares, are asked for while the one before is worked on:
// a thread that waited for them would wait for memory three times over.
__device__ __forceinline__ void load_row(const Parameters& p, int4 (&row)[2], int turn) {
  const int thread = thread_of_group();
  if (thread < 2 && turn < p.chunk_heads) {
    copy_sixteen(shared_address(&row[thread]),
                 p.forward_order + 2 * (turn / p.value_heads) + thread);
  }
}

template <bool Delta>
__device__ __forceinline__ void load_gates(const Parameters& p, Memory& memory, const Item& at) {
  const int row = thread_of_group() % CHUNK, which = thread_of_group() / CHUNK;
  if (which > Delta) return;
  const int token = at.chunk.y + min(row, at.chunk.z - 1);
  const int64_t from = (at.chunk.x * p.length + token) * p.value_heads + at.value_head;
  copy_word(shared_address(&memory.gates[which][row]), (which ? p.beta : p.g) + from,
            row < at.chunk.z);
}

__device__ __forceinline__ void load_item(const Parameters& p, Memory& memory, const Item& at) {
  const uint32_t full = shared_address(&memory.full);
  const int head = at.value_head / (p.value_heads / p.heads);
  barrier_expect(full, 4 * BLOCK_BYTES);
  for (int b = 0; b < 2; b++) {
    load_box(shared_address(memory.k) + b * BLOCK_BYTES, p.k, full, 64 * b, head, at.chunk.y,
             at.chunk.x);
    load_box(shared_address(memory.q) + b * BLOCK_BYTES, p.q, full, 64 * b, head, at.chunk.y,
             at.chunk.x);
  }
}

// A thread's share of P' and A', eight columns of a row each step.
constexpr int STEPS = CHUNK * CHUNK / 8 / THREADS;
struct Matrices {
  uint4 weights[STEPS], inverse[STEPS];
};

// Of a chunk whose keys and queries are there.
template <bool Delta>
__device__ __forceinline__ Matrices matrices(const Parameters& p, Memory& memory) {
  Matrices found;
  const uint32_t k = shared_address(memory.k), q = shared_address(memory.q);
  const int warp = warp_index() % 4, thread = thread_of_group();
  float keys[32], weights[32];
  products_begin();
  if constexpr (Delta) multiply<8, Major::K, Major::K>(keys, k, k, false);
  multiply<8, Major::K, Major::K>(weights, q, k, false);
  products_commit();
  products_wait<0>();
  if constexpr (Delta) settled(keys);
  settled(weights);
  group_sync();

  const Lane lane;
  const float *log_decay = memory.vectors[0], *beta = memory.vectors[3];
  const float to[2] = {log_decay[lane.row], log_decay[lane.row + 8]};
  uint32_t packed[16];
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int row = lane.row + 8 * (i / 2 % 2), column = 8 * (i / 4) + lane.pair;
    const float2 from = *reinterpret_cast<const float2*>(log_decay + column);
    float2 write = make_float2(1.f, 1.f);
    if constexpr (Delta) write = *reinterpret_cast<const float2*>(beta + column);
    float weight[2], inner[2];
#pragma unroll
    for (int x = 0; x < 2; x++) {
      const int j = column + x;
      const float decay = (x ? write.y : write.x) *
                          decay_between(to[i / 2 % 2], x ? from.y : from.x, j <= row);
      weight[x] = p.scale * decay * weights[i + x];
      if constexpr (Delta) inner[x] = decay * keys[i + x];  // of the diagonal, what is not read
    }
    packed[i / 2] = pack(weight[0], weight[1]);
    if constexpr (Delta) {
      *reinterpret_cast<float2*>(&memory.matrix[row][column]) = make_float2(inner[0], inner[1]);
    }
  }
  group_sync();
#pragma unroll
  for (int b = 0; b < 8; b += 2) {
    store_matrices(fragment(shared_address(memory.weights), b), packed[2 * b], packed[2 * b + 1],
                   packed[2 * b + 2], packed[2 * b + 3]);
  }
  if constexpr (Delta) {
    invert_diagonal(memory.matrix, warp, threadIdx.x % 32);
    group_sync();
    join<TILE>(memory.matrix, warp);
    join<2 * TILE>(memory.matrix, warp);
  } else {
    group_sync();
  }

#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const int i = step * THREADS + thread, row = i / 8, eighth = i % 8;
    found.weights[step] = *reinterpret_cast<const uint4*>(memory.weights + place(row, eighth));
    if constexpr (Delta) {
      float x[8];  // without the identity, which the scans add in float32
#pragma unroll
      for (int j = 0; j < 8; j++) {
        x[j] = 8 * eighth + j == row ? 0.f : memory.matrix[row][8 * eighth + j];
      }
      found.inverse[step] =
          make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
    }
  }
  return found;
}

template <bool Delta>
__device__ __forceinline__ void store(const Parameters& p, const Item& at, const Matrices& found) {
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const int64_t to =
        int64_t(at.chunk_head) * CHUNK * CHUNK + 8 * (step * THREADS + thread_of_group());
    *reinterpret_cast<uint4*>(p.weights_out + to) = found.weights[step];
    if constexpr (Delta) *reinterpret_cast<uint4*>(p.inverse_out + to) = found.inverse[step];
  }
}

template <bool Delta>
__device__ __forceinline__ void prepare_chunks(const Parameters& p, char* shared) {
  let_next_start();
  const int group = warp_index() / 4, thread = thread_of_group();
  Memory& memory = reinterpret_cast<Memory*>(shared)[group];
  const uint32_t full = shared_address(&memory.full);
  if (thread == 0) {
    barrier_init(full, 1);
    barrier_init_done();
  }
  const int stride = gridDim.x * GROUPS;
  int turn = group * gridDim.x + blockIdx.x, stored = -1;
  load_row(p, memory.rows[0], turn);
  load_row(p, memory.rows[1], turn + stride);
  copies_wait();
  group_sync();
  if (turn < p.chunk_heads) {
    const Item first(p, turn, memory.rows[0]);
    if (thread == 0) load_item(p, memory, first);
    load_gates<Delta>(p, memory, first);
  }
  for (int phase = 0; turn < p.chunk_heads; turn += stride, phase ^= 1) {
    const Item at(p, turn, memory.rows[phase]);
    copies_wait();
    group_sync();
    gates<Delta>(memory, at.chunk);
    group_sync();
    const Item next(p, turn + stride, memory.rows[phase ^ 1]);
    const bool more = turn + stride < p.chunk_heads;
    // Only now, when the stores of the item before have had time to arrive: to say so waits for them.
    if (thread == 0 && stored >= 0) add_release(p.prepared + stored);
    if (more) load_gates<Delta>(p, memory, next);
    load_row(p, memory.rows[phase], turn + 2 * stride);
    float* vectors = p.vectors + int64_t(at.chunk_head) * 4 * CHUNK;
    vectors[thread] = memory.vectors[0][thread];
    vectors[THREADS + thread] = memory.vectors[2][thread];
    barrier_wait(full, phase);
    if (at.chunk.z < CHUNK) {
      clear_rows(memory.k, 2, at.chunk.z, thread, THREADS);
      clear_rows(memory.q, 2, at.chunk.z, thread, THREADS);
      fence_async();
      group_sync();
    }
    const Matrices found = matrices<Delta>(p, memory);
    fence_async();  // the copy engine writes where the matrices were
    group_sync();
    if (thread == 0 && more) load_item(p, memory, Item(p, turn + stride, memory.rows[phase ^ 1]));
    store<Delta>(p, at, found);
    stored = at.chunk_head;
  }
  group_sync();
  if (thread == 0 && stored >= 0) add_release(p.prepared + stored);
}

}  // namespace

// A cluster only so that it takes two neighbouring multiprocessors and leaves two to the scan's.
#define PREPARE_BOUNDS __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS* GROUPS, 1)

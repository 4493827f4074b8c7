// The forward scan: S' = c S + (diag(r) K)^T U, chunk after chunk, and the output
// O = s diag(e) Q S + P' U', with U' = W + (A' - I) W, W = V - diag(e) K S. Without a delta rule U' = V
// and P' is P. The same tensors and the same roundings as `sm90/forward_scan.cuh`.
#pragma once

#include "scan.cuh"

template <bool Delta>
__device__ __forceinline__ void store_outputs(const Parameters& p, Memory& memory,
                                              const Place& at) {
  const int lane = threadIdx.x % 32;
  for (int chunk = 0; chunk < at.chunk_count; chunk++) {
    named_arrive(TILES_FREE, JOINED);
    named_sync(TILES_READY, JOINED);
    const int chunk_head = at.chunk_head(p, chunk);
    if (lane == 0 && p.keep_states) {
      store_state(memory, p.state, chunk_head);
      for (int b = 0; Delta && b < 2; b++) {
        store_box(p.update, shared_address(memory.rows_out) + b * BLOCK_BYTES, 64 * b, 0, chunk_head,
                  0);
      }
    }
    store_tokens(p, memory.ring[0].stage.values, p.out, p.out_rows, at, chunk);
    if (lane == 0) {
      stores_commit();
      stores_have_read();
    }
    __syncwarp();
  }
  if (lane == 0) stores_wait<0>();
}

template <bool Delta>
struct Forward : Row {
  // W = V - e K S in float32 and as a left operand.
  __device__ __forceinline__ void residual(const Stage& stage) {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float x[16];
      load_floats(x, UPDATE + c);
#pragma unroll
      for (int i = 0; i < 16; i++) {
        x[i] = read_row(stage.rows, c + i) - stage.vectors[1][c + i] * x[i];
      }
      store_floats(UPDATE + c, x);
      store_left(LEFT, c, x);
    }
    stores_to_tensor_wait();
  }

  // s e Q S
  __device__ __forceinline__ void scale_out(const Stage& stage) {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float x[16];
      load_floats(x, OUT + c);
#pragma unroll
      for (int i = 0; i < 16; i++) x[i] *= p.scale * stage.vectors[1][c + i];
      store_floats(OUT + c, x);
    }
    stores_to_tensor_wait();
  }

  // U' and diag(r) U' as left operands, U' as a tile where it is kept.
  __device__ __forceinline__ void pass_update_on(const Stage& stage) {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float u[16];
      if constexpr (Delta) {
        load_floats(u, UPDATE + c);
      } else {
#pragma unroll
        for (int i = 0; i < 16; i++) u[i] = read_row(stage.rows, c + i);
      }
      store_left(LEFT, c, u);
      if (Delta && p.keep_states) {
#pragma unroll
        for (int i = 0; i < 16; i++) write_row(memory.rows_out, c + i, u[i]);
      }
#pragma unroll
      for (int i = 0; i < 16; i++) u[i] *= stage.vectors[2][c + i];
      store_left(END_LEFT, c, u);
    }
    stores_to_tensor_wait();
  }

  __device__ __forceinline__ void write_out() {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float x[16];
      load_floats(x, OUT + c);
#pragma unroll
      for (int i = 0; i < 16; i++) write_row(memory.ring[0].stage.values, c + i, x[i]);
    }
  }

  __device__ __forceinline__ void chunk(int index) {
    const int s = index % STAGES, phase = index & 1;
    const bool starts = threadIdx.x == 0;
    Stage& stage = memory.ring[s].stage;
    if (!Delta && index > 0 && index + 1 == at.chunk_count) write_state(p.last_state, 1.f);
    barrier_wait(shared_address(&memory.full[s]), index / STAGES & 1);
    if (at.tokens(index) < CHUNK) clear_tails(stage, at.tokens(index));
    named_sync(TILES_FREE, JOINED);
    pass_state_on(stage.vectors[1][CHUNK - 1], p.keep_states);
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
    named_arrive(TILES_READY, JOINED);
  }
};

template <bool Delta>
__device__ __forceinline__ void forward_block(const Parameters& p, char* shared) {
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  const Place at(p, blockIdx.x);
  const auto compute = [&](uint32_t tensor) {
    Forward<Delta> scan{{p, memory, at, tensor, int(threadIdx.x)}};
    scan.read_state(p.initial_state);
    for (int chunk = 0; chunk < at.chunk_count; chunk++) scan.chunk(chunk);
    scan.write_state(p.final_state, 1.f);
  };
  run_block(
      memory, compute, [&] { load_chunks<Delta>(p, memory, at, p.v, false); },
      [&] { store_outputs<Delta>(p, memory, at); });
}

// The scan of the state's gradient, chunks last to first:
// dS = c dS' + (s diag(e) Q)^T dO + K^T E, with dV = A'^T (diag(beta) dU), E = -diag(e) dV and
// diag(beta) dU = P'^T dO + diag(beta r) K dS'. It writes dS' of each chunk, dV and rowsum(dV o V).
// Without a delta rule dV = dU, E = 0, and the accumulators hold dS / m but in a sequence's last chunk.
// The same tensors and the same roundings as `sm90/reverse_scan.cuh`, one block where that has two: of
// what is a sum of parts, the second half of the parts is zero.
#pragma once

#include "scan.cuh"

template <bool Delta>
__device__ __forceinline__ void store_gradients(const Parameters& p, Memory& memory,
                                                const Place& at) {
  const int lane = threadIdx.x % 32;
  for (int chunk = at.chunk_count - 1; chunk >= 0; chunk--) {
    named_arrive(TILES_FREE, JOINED);
    named_sync(TILES_READY, JOINED);
    const int chunk_head = at.chunk_head(p, chunk);
    if (lane == 0) store_state(memory, p.d_state, chunk_head);
    store_tokens(p, memory.rows_out, p.d_v, p.d_v_rows, at, chunk);
    if constexpr (Delta) {
      for (int token = lane; token < CHUNK; token += 32) {
        float sum = 0.f;
        for (int warp = 0; warp < 4; warp++) sum += memory.sums[warp][token];
        p.d_value_parts[int64_t(chunk_head) * CHUNK + token] = sum;
        p.d_value_parts[(int64_t(p.chunk_heads) + chunk_head) * CHUNK + token] = 0.f;
      }
    }
    if (lane == 0) {
      stores_commit();
      stores_have_read();
    }
    __syncwarp();
  }
  if (lane == 0) stores_wait<0>();
}

template <bool Delta>
struct Reverse : Row {
  // The sum of S o dS', where both are float32.
  __device__ __forceinline__ void state_sum(float* parts, const float* state, float factor) {
    float sum = 0.f;
    each_state_element([&](int c, uint32_t (&x)[16]) {
      if (state == nullptr) return;
#pragma unroll
      for (int i = 0; i < 16; i++) sum += __uint_as_float(x[i]) * state[state_at(c + i)];
    });
#pragma unroll
    for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) {
      parts[at.sequence_head * 8 + row / 32] = factor * sum;
      parts[at.sequence_head * 8 + 4 + row / 32] = 0.f;
    }
  }

  // dO, and 2^n e dO or s e dO, as left operands.
  __device__ __forceinline__ void pass_rows_on(const Stage& stage) {
    const float factor = Delta ? p.scale : p.power;
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; i++) x[i] = read_row(stage.rows, c + i);
      store_left(ROWS_LEFT, c, x);
#pragma unroll
      for (int i = 0; i < 16; i++) x[i] *= factor * stage.vectors[1][c + i];
      store_left(END_LEFT, c, x);
    }
    stores_to_tensor_wait();
  }

  // dU of K dS' and P'^T dO: in float32 and as a left operand or, without a delta rule, as the tile of
  // dV.
  __device__ __forceinline__ void join(const Stage& stage, float unit) {
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float across[16], within[16];
      load_floats(across, UPDATE + c);
      load_floats(within, OUT + c);
#pragma unroll
      for (int i = 0; i < 16; i++) {
        within[i] += unit * stage.vectors[2][c + i] * across[i];
        if (!Delta) write_row(memory.rows_out, c + i, within[i]);
      }
      if constexpr (Delta) {
        store_floats(UPDATE + c, within);
        store_left(LEFT, c, within);
      }
    }
    stores_to_tensor_wait();
  }

  // dV's tile, E as a left operand, and each token's sum of dV o V over the warp's 32 channels.
  __device__ __forceinline__ void pass_values_on(const Stage& stage) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < CHUNK; c += 16) {
      float x[16], products[16];
      load_floats(x, UPDATE + c);
#pragma unroll
      for (int i = 0; i < 16; i++) {
        write_row(memory.rows_out, c + i, x[i]);
        products[i] = read_row(stage.values, c + i) * x[i];
        x[i] *= -stage.vectors[1][c + i];
      }
      store_left(LEFT, c, x);
      halve<16, 8>(products, lane);
      halve<8, 4>(products, lane);
      halve<4, 2>(products, lane);
      halve<2, 1>(products, lane);
      products[0] += __shfl_xor_sync(0xffffffffu, products[0], 1);
      const int token = (lane >> 4 & 1) * 8 + (lane >> 3 & 1) * 4 + (lane >> 2 & 1) * 2 +
                        (lane >> 1 & 1);
      if (lane % 2 == 0) memory.sums[row / 32][c + token] = products[0];
    }
    stores_to_tensor_wait();
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

  __device__ __forceinline__ void chunk(int step) {
    const int s = step % STAGES, phase = step & 1;
    const bool starts = threadIdx.x == 0;
    const float unit = Delta || step == 0 ? 1.f : p.mantissa;
    Stage& stage = memory.ring[s].stage;
    if (step + 1 == at.chunk_count) state_sum(p.d_start_parts, p.initial_state, unit);
    if (!Delta && step == 0) {
      const bool some = at.chunk_count > 1 && p.d_final_state != nullptr;
      state_sum(p.d_end_parts, some ? p.last_state : nullptr, 1.f);
    }
    barrier_wait(shared_address(&memory.full[s]), step / STAGES & 1);
    const int tokens = at.tokens(at.chunk_count - 1 - step);
    if (tokens < CHUNK) clear_tails(stage, tokens);
    named_sync(TILES_FREE, JOINED);
    const float decay = stage.vectors[1][CHUNK - 1];
    pass_state_on(Delta || step > 0 ? decay : decay / p.mantissa, true);
    pass_rows_on(stage);
    sync();
    const uint32_t base = memory.tensor;
    if (starts) {
      multiply<8, CHUNK, Major::K>(base + UPDATE, base + STATE_LEFT, shared_address(stage.k),
                                   false);  // (K dS')^T
      multiply<4, CHUNK, Major::Other>(base + OUT, base + ROWS_LEFT, shared_address(stage.weights),
                                       false);  // (P'^T dO)^T
      products_signal(shared_address(&memory.read));
      multiply<4, HEAD, Major::Other>(base + STATE, base + END_LEFT, shared_address(stage.q),
                                      true);  // += (s diag(e) dO)^T Q
      if (!Delta) products_signal(shared_address(&memory.states));
    }
    await(memory.read, phase);
    join(stage, unit);
    if constexpr (Delta) {
      sync();
      if (starts) {
        multiply<4, CHUNK, Major::Other>(base + UPDATE, base + LEFT, shared_address(stage.inverse),
                                         true);  // dV^T
        products_signal(shared_address(&memory.update));
      }
      await(memory.update, phase);
      pass_values_on(stage);
      sync();
      if (starts) {
        multiply<4, HEAD, Major::Other>(base + STATE, base + LEFT, shared_address(stage.k),
                                        true);  // += E^T K
        products_signal(shared_address(&memory.states));
      }
    }
    fence_async();
    named_arrive(TILES_READY, JOINED);
    await(memory.states, phase);
    sync();  // every thread has read the stage
    if (starts) barrier_arrive(shared_address(&memory.empty[s]));
  }
};

template <bool Delta>
__device__ __forceinline__ void states_block(const Parameters& p, char* shared) {
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  const Place at(p, blockIdx.x);
  const auto compute = [&](uint32_t tensor) {
    Reverse<Delta> scan{{p, memory, at, tensor, int(threadIdx.x)}};
    scan.read_state(p.d_final_state);
    for (int step = 0; step < at.chunk_count; step++) scan.chunk(step);
    scan.write_state(p.d_initial_state, Delta || at.chunk_count == 0 ? 1.f : p.mantissa);
  };
  run_block(
      memory, compute, [&] { load_chunks<Delta>(p, memory, at, p.d_out, true); },
      [&] { store_gradients<Delta>(p, memory, at); });
}

// The scan of the state's gradient of one block, chunks last to first:
// dS = c dS' + (s diag(e) Q)^T dO + K^T E, with dV = A'^T (diag(beta) dU), E = -diag(e) dV and
// diag(beta) dU = P'^T dO + diag(beta r) K dS'. It writes dS' of each chunk and dV.
#pragma once

#include "scan.cuh"

__device__ __forceinline__ void reverse_compute(const Parameters& p, ScanMemory& memory,
                                                const Place& place) {
  const Lane lane;
  float state[64];
  read_state(state, p.d_final_state, place, lane);
  float within[32], across[32];
  uint32_t packed_state[32], packed_out[16], packed[16];

  for (int step = 0; step < place.chunk_count; step++) {
    const int chunk = place.chunk_count - 1 - step;
    pack_pairs(packed_state, state);
    Stage& stage = await_chunk(memory, step, place.tokens(chunk));
    const uint32_t k = shared_address(stage.k);
    load_rows(packed_out, stage.rows);

    products_begin();
    multiply<8, Major::K>(across, packed_state, k, false);  // (K dS')^T
    multiply<4, Major::Other>(within, packed_out, shared_address(stage.weights),
                              false);  // (P'^T dO)^T
    products_commit();
    hand_state<STATE_TAKERS>(memory, packed_state);
    const Columns e(stage.vectors[1], lane), rest(stage.vectors[2], lane);
    const float decay = stage.vectors[1][CHUNK - 1];
#pragma unroll
    for (int i = 0; i < 64; i++) state[i] *= decay;
    products_wait<0>();
    settled(across);
    settled(within);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed[i / 2] = pack(rest[i] * across[i] + within[i], rest[i + 1] * across[i + 1] + within[i + 1]);
    }

    products_begin();
    multiply<4, Major::Other>(across, packed, shared_address(stage.inverse), false);  // dV^T
    products_commit();
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed_out[i / 2] = pack(p.scale * e[i] * low_half(packed_out[i / 2]),
                               p.scale * e[i + 1] * high_half(packed_out[i / 2]));
    }
    products_begin();
    multiply<4, Major::Other>(state, packed_out, shared_address(stage.q), true);
    products_commit();
    products_wait<1>();
    settled(across);
    uint32_t packed_erase[16];
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed_erase[i / 2] = pack(-e[i] * across[i], -e[i + 1] * across[i + 1]);
    }
    products_begin();
    multiply<4, Major::Other>(state, packed_erase, k, true);
    products_commit();
    pack_pairs(packed, across);
    hand_rows<ROWS_TAKERS>(memory, packed);
    products_wait<0>();
    settled(state);
    release_chunk(memory, step);
  }
  write_state(state, p.d_initial_state, place, lane);
}

__device__ __forceinline__ void reverse_scan(const Parameters& p, ScanMemory& memory,
                                             const Place& place) {
  const int warp = warp_index();
  if (warp < 4) {
    reverse_compute(p, memory, place);
    return;
  }
  if (warp == LOADING_WARP) {
    if (threadIdx.x % 32 == 0) load_chunks(p, memory, place, p.d_out, {true, true}, true);
    return;
  }
  if (place.chunk_count == 0) return;
  if (warp == STATE_WARP) {
    named_arrive(STATE_FREE, WARPGROUP + STATE_TAKERS);
  } else {
    named_arrive(ROWS_FREE, WARPGROUP + ROWS_TAKERS);
  }
  for (int chunk = place.chunk_count - 1; chunk >= 0; chunk--) {
    if (warp == STATE_WARP) {
      carry_state(memory, p.d_state, place.channel, place.chunk_head(p, chunk), chunk == 0);
    } else {
      const int64_t token = place.sequence.x * p.length + place.token(chunk);
      const int64_t row = token * p.value_heads + place.value_head;
      carry_rows(memory, p.d_v_out + row * HEAD + place.channel, int64_t(p.value_heads) * HEAD,
                 place.tokens(chunk), chunk == 0);
    }
  }
}

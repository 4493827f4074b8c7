// The forward scan of one block: S' = c S + (diag(r) K)^T U, chunk after chunk.
#pragma once

#include "scan.cuh"

// With `Output` it writes o; with `Record`, the state before each chunk and the update U'.
template <bool Output, bool Record>
__device__ __forceinline__ void forward_compute(const Parameters& p, ScanMemory& memory,
                                                const Place& place) {
  const Lane lane;
  float state[64];
  read_state(state, p.initial_state, place, lane);
  float update[32], out[32];
  uint32_t packed_state[32], packed[16], packed_end[16];

  for (int chunk = 0; chunk < place.chunk_count; chunk++) {
    pack_pairs(packed_state, state);
    Stage& stage = await_chunk(memory, chunk, place.tokens(chunk));
    const uint32_t k = shared_address(stage.k), q = shared_address(stage.q);

    products_begin();
    multiply<8, Major::K>(update, packed_state, k, false);  // (K S)^T
    products_commit();
    if constexpr (Output) {
      multiply<8, Major::K>(out, packed_state, q, false);  // (Q S)^T
      products_commit();
    }
    const float* e = stage.vectors[1];
    const float decay = e[CHUNK - 1];
    if constexpr (Record) hand_state(memory, packed_state);
    products_wait<Output ? 1 : 0>();
    settled(update);
    // Any earlier, and the compiler waits for the products just begun.
#pragma unroll
    for (int i = 0; i < 64; i++) state[i] *= decay;
#pragma unroll
    for (int b = 0; b < 8; b += 2) {
      uint32_t v[4];
      load_matrices_transposed(v, fragment_transposed(shared_address(stage.rows), b));
#pragma unroll
      for (int x = 0; x < 4; x++) {
        const int i = 4 * b + 2 * x;
        const float2 scale = at_columns(e, lane, b + x / 2);
        packed[2 * b + x] = pack(low_half(v[x]) - scale.x * update[i],
                                 high_half(v[x]) - scale.y * update[i + 1]);
      }
    }

    products_begin();
    multiply<4, Major::K>(update, packed, shared_address(stage.inverse), false);  // U'^T
    products_commit();
    if constexpr (Output) {
      products_wait<1>();
      settled(out);
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const float2 scale = at_columns(e, lane, i / 4);
        out[i] *= p.scale * scale.x;
        out[i + 1] *= p.scale * scale.y;
      }
    }
    products_wait<0>();
    settled(update);
    if constexpr (Record) {
      pack_pairs(packed, update);
      hand_rows(memory, packed);
    }
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const float2 beta = at_columns(stage.vectors[3], lane, i / 4);
      const float2 rest = at_columns(stage.vectors[2], lane, i / 4);
      const float x = beta.x * update[i], y = beta.y * update[i + 1];
      if constexpr (Output) packed[i / 2] = pack(x, y);
      packed_end[i / 2] = pack(rest.x * x, rest.y * y);
    }

    products_begin();
    if constexpr (Output) {
      multiply<4, Major::K>(out, packed, shared_address(stage.weights), true);  // += (P U)^T
      products_commit();
    }
    multiply<4, Major::Other>(state, packed_end, k, true);  // += (diag(r) U)^T K
    products_commit();
    if constexpr (Output) {
      products_wait<1>();
      settled(out);
      pack_pairs(packed, out);
      hand_rows(memory, packed);
    }
    products_wait<0>();
    settled(state);
    release_chunk(memory, chunk);
  }
  write_state(state, p.final_state, place, lane);
}

template <bool Output, bool Record>
__device__ __forceinline__ void forward_scan(const Parameters& p, ScanMemory& memory,
                                             const Place& place) {
  const int warp = warp_index();
  if (warp < 4) {
    forward_compute<Output, Record>(p, memory, place);
    return;
  }
  if (warp == 4) {
    if (threadIdx.x % 32 == 0) {
      load_chunks(p, memory, place, p.v, {Output, Output}, false);
    }
    return;
  }
  if (place.chunk_count == 0) return;
  if (warp == 5) {
    if constexpr (Record) {
      named_arrive(STATE_FREE, STATE_THREADS);
      for (int chunk = 0; chunk < place.chunk_count; chunk++) {
        carry_state(memory, p.state, place.channel, place.chunk_head(p, chunk),
                    chunk + 1 == place.chunk_count);
      }
    }
    return;
  }
  named_arrive(ROWS_FREE, ROWS_THREADS);
  for (int chunk = 0; chunk < place.chunk_count; chunk++) {
    const bool last = chunk + 1 == place.chunk_count;
    if constexpr (Record) {
      const int64_t row = int64_t(place.chunk_head(p, chunk)) * CHUNK;
      carry_rows(memory, p.update_out + row * HEAD + place.channel, HEAD, CHUNK, last);
    } else {
      const int64_t token = place.sequence.x * p.length + place.token(chunk);
      const int64_t row = token * p.value_heads + place.value_head;
      carry_rows(memory, p.out + row * HEAD + place.channel, int64_t(p.value_heads) * HEAD,
                 place.tokens(chunk), last);
    }
  }
}

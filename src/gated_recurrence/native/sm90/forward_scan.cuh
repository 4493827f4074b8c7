// The forward scan of one block: S' = c S + (diag(r) K)^T U, chunk after chunk. Of each chunk it hands
// over the state before it and the update U'.
#pragma once

#include "scan.cuh"

template <int StateTakers, int RowsTakers>
__device__ __forceinline__ void forward_compute(const Parameters& p, ScanMemory& memory,
                                                const Place& place) {
  const Lane lane;
  float state[64];
  read_state(state, p.initial_state, place, lane);
  float update[32];
  uint32_t packed_state[32], packed[16], packed_end[16];

  for (int chunk = 0; chunk < place.chunk_count; chunk++) {
    pack_pairs(packed_state, state);
    Stage& stage = await_chunk(memory, chunk, place.tokens(chunk));
    const uint32_t k = shared_address(stage.k);
    products_begin();
    multiply<8, Major::K>(update, packed_state, k, false);  // (K S)^T
    products_commit();
    hand_state<StateTakers>(memory, packed_state);
    const Columns e(stage.vectors[1], lane), rest(stage.vectors[2], lane);
    load_rows(packed, stage.rows);
    products_wait<0>();
    settled(update);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed[i / 2] = pack(low_half(packed[i / 2]) - e[i] * update[i],
                           high_half(packed[i / 2]) - e[i + 1] * update[i + 1]);
    }

    products_begin();
    multiply<4, Major::K>(update, packed, shared_address(stage.inverse), false);  // U'^T
    products_commit();
    const float decay = stage.vectors[1][CHUNK - 1];
#pragma unroll
    for (int i = 0; i < 64; i++) state[i] *= decay;
    products_wait<0>();
    settled(update);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed_end[i / 2] = pack(rest[i] * update[i], rest[i + 1] * update[i + 1]);
    }

    products_begin();
    multiply<4, Major::Other>(state, packed_end, k, true);  // += (diag(r) U)^T K
    products_commit();
    pack_pairs(packed, update);
    hand_rows<RowsTakers>(memory, packed);
    products_wait<0>();
    settled(state);
    release_chunk(memory, chunk);
  }
  write_state(state, p.final_state, place, lane);
}

// A second warpgroup: O = s diag(e) Q S + P' U'.
__device__ __forceinline__ void output_compute(const Parameters& p, ScanMemory& memory,
                                               const Place& place) {
  constexpr int BOTH = 2 * WARPGROUP;
  const Lane lane;
  const int64_t pitch = int64_t(p.value_heads) * HEAD;
  float out[32];
  uint32_t packed[16];
  if (place.chunk_count > 0) {
    named_arrive(STATE_FREE, BOTH);
    named_arrive(ROWS_FREE, BOTH);
  }
  for (int chunk = 0; chunk < place.chunk_count; chunk++) {
    const bool last = chunk + 1 == place.chunk_count;
    barrier_wait(shared_address(&memory.full[chunk % STAGES]), chunk / STAGES & 1);
    const Stage& stage = memory.ring[chunk % STAGES].stage;
    named_sync(STATE_READY, BOTH);
    products_begin();
    multiply<8, Major::K, Major::K>(out, shared_address(memory.state_out),
                                    shared_address(stage.q), false);  // (Q S)^T
    products_commit();
    const Columns e(stage.vectors[1], lane);
    products_wait<0>();
    settled(out);
    if (!last) named_arrive(STATE_FREE, BOTH);
#pragma unroll
    for (int i = 0; i < 32; i++) out[i] *= p.scale * e[i];
    named_sync(ROWS_READY, BOTH);
    products_begin();
    multiply<4, Major::Other, Major::K>(out, shared_address(memory.rows_out),
                                        shared_address(stage.weights), true);  // += (P' U')^T
    products_commit();
    products_wait<0>();
    settled(out);
    if (!last) named_arrive(ROWS_FREE, BOTH);
    release_chunk(memory, chunk);
    pack_pairs(packed, out);
    store_rows(memory.output, packed);
    named_sync(OUTPUT, WARPGROUP);
    const int64_t token = place.sequence.x * p.length + place.token(chunk);
    const int64_t row = token * p.value_heads + place.value_head;
    copy_rows<WARPGROUP>(memory.output, p.out + row * HEAD + place.channel, pitch,
                         place.tokens(chunk), threadIdx.x % WARPGROUP);
    named_sync(OUTPUT, WARPGROUP);
  }
}

// The forward pass: three warpgroups, the last only to load. 512 registers are shared by a thread of each.
__device__ __forceinline__ void forward_scan(const Parameters& p, ScanMemory& memory,
                                             const Place& place) {
  const int warpgroup = warp_index() / 4;
  if (warpgroup == 0) {
    registers_grow<240>();
    forward_compute<WARPGROUP, WARPGROUP>(p, memory, place);
  } else if (warpgroup == 1) {
    output_compute(p, memory, place);
  } else {
    registers_shrink<40>();
    if (threadIdx.x == 2 * WARPGROUP) load_chunks(p, memory, place, p.v, {true, true}, false);
  }
}

// The backward pass: the states and updates go to memory.
__device__ __forceinline__ void record_scan(const Parameters& p, ScanMemory& memory,
                                            const Place& place) {
  const int warp = warp_index();
  if (warp < 4) {
    forward_compute<STATE_TAKERS, ROWS_TAKERS>(p, memory, place);
    return;
  }
  if (warp == LOADING_WARP) {
    if (threadIdx.x % 32 == 0) load_chunks(p, memory, place, p.v, {false, false}, false);
    return;
  }
  if (place.chunk_count == 0) return;
  if (warp == STATE_WARP) {
    named_arrive(STATE_FREE, WARPGROUP + STATE_TAKERS);
  } else {
    named_arrive(ROWS_FREE, WARPGROUP + ROWS_TAKERS);
  }
  for (int chunk = 0; chunk < place.chunk_count; chunk++) {
    const bool last = chunk + 1 == place.chunk_count;
    const int chunk_head = place.chunk_head(p, chunk);
    if (warp == STATE_WARP) {
      carry_state(memory, p.state, place.channel, chunk_head, last);
    } else {
      __nv_bfloat16* to = p.update_out + int64_t(chunk_head) * CHUNK * HEAD + place.channel;
      carry_rows(memory, to, HEAD, CHUNK, last);
    }
  }
}

// The forward scan of one block: S' = c S + (diag(r) K)^T U, chunk after chunk, and the output
// O = s diag(e) Q S + P' U'. It may store the state before each chunk and the update U'; without a
// delta rule that is V, and P' is P.
//
// One warpgroup's products run in order, so those that the next state waits for go first, and the
// output's fill the time in which its operands are made.
#pragma once

#include "scan.cuh"

// What one warpgroup carries from chunk to chunk.
template <bool Delta, bool Channel, bool Output>
struct Forward {
  const Parameters& p;
  ScanMemory& memory;
  const Place& place;
  const Lane& lane;
  const bool keep;
  float state[64];
  float update[32], out[32];
  uint32_t packed_state[32], packed[16], packed_end[16];

  __device__ __forceinline__ char* output() { return memory.ring[0].stage.values; }

  // The update and output of the chunk before, and the state before this one.
  __device__ __forceinline__ void hand(bool before, bool now) {
    if (keep && now) {
      named_sync(STATE_FREE, JOINED);
      store_state(memory, packed_state);
    }
    if (Delta && keep && before) {
      named_sync(ROWS_FREE, JOINED);
      store_rows(memory.rows_out, packed);
    }
    if (Output && before) {
      named_sync(OUT_FREE, JOINED);
      store_rows(output(), packed_end);
    }
    if (keep || (Output && before)) {
      hand_over(keep && now, Delta && keep && before, Output && before);
    }
  }

  // From the state before a chunk to U'. No product is under way at its end.
  template <bool First>
  __device__ __forceinline__ void begin(int chunk) {
    pack_pairs(packed_state, state);
    Stage& stage = await_chunk(memory, chunk, place.tokens(chunk));
    products_begin();
    multiply<8, Major::K>(update, packed_state, shared_address(stage.k), false);  // (K S)^T
    products_commit();
    if (Output) {
      if (!First) {
        products_wait<1>();  // P' U' of the chunk before
        settled(out);
        pack_pairs(packed_end, out);
        release_chunk(memory, chunk - 1);
      }
      products_begin();
      multiply<8, Major::K>(out, packed_state, shared_address(stage.q), false);  // (Q S)^T
      products_commit();
    }
    hand(!First, true);
    const Columns e(stage.vectors[1], lane);
    load_rows(packed, stage.rows);
    const float decay = stage.vectors[1][CHUNK - 1];
    // The compiler would put this wait here itself, and say so: it takes the state for theirs.
    if (First) products_wait<0>();
#pragma unroll
    for (int i = 0; i < 64; i++) state[i] *= decay;
    products_wait<Output>();
    settled(update);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      update[i] = low_half(packed[i / 2]) - e[i] * update[i];
      update[i + 1] = high_half(packed[i / 2]) - e[i + 1] * update[i + 1];
      packed[i / 2] = pack(update[i], update[i + 1]);
    }
    products_begin();
    multiply<4, Major::K>(update, packed, shared_address(stage.inverse), true);  // U'^T
    products_commit();
    if (Output) {
      products_wait<1>();
      settled(out);
#pragma unroll
      for (int i = 0; i < 32; i++) out[i] *= p.scale * e[i];
    }
    products_wait<0>();
    settled(update);
  }

  // From U' to the state after the chunk. P' U' is under way at its end.
  __device__ __forceinline__ void end(int chunk) {
    const Stage& stage = memory.ring[chunk % STAGES].stage;
    const Columns rest(stage.vectors[2], lane);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed_end[i / 2] = pack(rest[i] * update[i], rest[i + 1] * update[i + 1]);
    }
    products_begin();
    multiply<4, Major::Other>(state, packed_end, shared_address(stage.k),
                              true);  // += (diag(r) U)^T K
    products_commit();
    pack_pairs(packed, update);
    if (Output) {
      products_begin();
      multiply<4, Major::K>(out, packed, shared_address(stage.weights), true);  // += (P' U')^T
      products_commit();
    }
    products_wait<Output>();
    settled(state);
    if (!Output) release_chunk(memory, chunk);
  }

  // Both, without a delta rule: from the state before a chunk to the one after it, since no product
  // of the chain waits for another. P V of the chunk before, which may be under way at its beginning,
  // reads this chunk's `packed`; at its end nothing is under way.
  template <bool First>
  __device__ __forceinline__ void pass(int chunk) {
    pack_pairs(packed_state, state);
    Stage& stage = await_chunk(memory, chunk, place.tokens(chunk));
    if (Output) {
      products_begin();
      multiply<8, Major::K>(update, packed_state, shared_address(stage.q), false);  // (Q S)^T
      products_commit();
      if (!First) {
        products_wait<1>();
        settled(out);
        pack_pairs(packed_end, out);
        release_chunk(memory, chunk - 1);
      }
    }
    hand(!First, true);
    const float decay = Channel ? 1.f : stage.vectors[1][CHUNK - 1];
    load_rows(packed, stage.rows);
    if constexpr (!Channel) {
      const Columns rest(stage.vectors[2], lane);
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        packed_end[i / 2] =
            pack(rest[i] * low_half(packed[i / 2]), rest[i + 1] * high_half(packed[i / 2]));
      }
    }
    if (Output && First) products_wait<0>();  // as in `begin`
    if constexpr (Channel) {
      decay_state(state, stage, lane);
    } else {
#pragma unroll
      for (int i = 0; i < 64; i++) state[i] *= decay;
    }
    products_begin();
    multiply<4, Major::Other>(state, Channel ? packed : packed_end, shared_address(stage.k),
                              true);  // += (diag(r) V)^T K
    products_commit();
    if (Output) {
      products_wait<1>();
      settled(update);
      if constexpr (Channel) {
#pragma unroll
        for (int i = 0; i < 32; i++) out[i] = p.scale * update[i];
      } else {
        const Columns e(stage.vectors[1], lane);
#pragma unroll
        for (int i = 0; i < 32; i++) out[i] = p.scale * e[i] * update[i];
      }
    }
    products_wait<0>();
    settled(state);
    if (!Output) release_chunk(memory, chunk);
  }

  // The last of an output, without a delta rule: it is under way at its end.
  __device__ __forceinline__ void finish(int chunk) {
    products_begin();
    multiply<4, Major::K>(out, packed, shared_address(memory.ring[chunk % STAGES].stage.weights),
                          true);  // += (P V)^T
    products_commit();
  }
};

// The compiler follows products only within a turn of a loop, so a turn goes from the middle of one
// chunk, where none is under way, to the middle of the next.
template <bool Delta, bool Channel, bool Output>
__device__ __forceinline__ void forward_compute(const Parameters& p, ScanMemory& memory,
                                                const Place& place, bool keep) {
  const Lane lane;
  Forward<Delta, Channel, Output> scan{p, memory, place, lane, keep};
  read_state(scan.state, p.initial_state, place, lane);
  if (place.chunk_count > 0) {
    if constexpr (Delta) {
      scan.template begin<true>(0);
      for (int chunk = 0; chunk + 1 < place.chunk_count; chunk++) {
        scan.end(chunk);
        scan.template begin<false>(chunk + 1);
      }
      scan.end(place.chunk_count - 1);
    } else {
      scan.template pass<true>(0);
      for (int chunk = 0; chunk + 1 < place.chunk_count; chunk++) {
        if (Output) scan.finish(chunk);
        if (Output && chunk + 2 == place.chunk_count) {
          write_state(scan.state, p.last_state, place, lane);
        }
        scan.template pass<false>(chunk + 1);
      }
      if (Output) scan.finish(place.chunk_count - 1);
    }
    products_wait<0>();
    if (Output) {
      settled(scan.out);
      pack_pairs(scan.packed_end, scan.out);
    }
    scan.hand(true, false);
  }
  write_state(scan.state, p.final_state, place, lane);
}

// One warp stores the states, or the updates; `announce` where another kernel may be waiting.
__device__ __forceinline__ void store_states(const Parameters& p, ScanMemory& memory,
                                             const Place& place, bool state, bool announce) {
  named_arrive(state ? STATE_FREE : ROWS_FREE, JOINED);
  Publisher publisher{p.ready + place.chunk_head(p, 0), p.value_heads};
  for (int chunk = 0; chunk < place.chunk_count; chunk++) {
    const bool last = chunk + 1 == place.chunk_count;
    const int chunk_head = place.chunk_head(p, chunk);
    if (state) {
      carry_state(memory, p.state, place.channel, chunk_head, last);
    } else {
      carry_update(p, memory, place.channel, chunk_head, last);
    }
    if (announce) publisher.stored_one(last);
  }
}

// Of the forward pass: the updates, where they are kept, and the output.
template <bool Delta>
__device__ __forceinline__ void store_output(const Parameters& p, ScanMemory& memory,
                                             const Place& place, bool keep) {
  if (Delta && keep) named_arrive(ROWS_FREE, JOINED);
  named_arrive(OUT_FREE, JOINED);
  for (int chunk = 0; chunk < place.chunk_count; chunk++) {
    const bool last = chunk + 1 == place.chunk_count;
    if (Delta && keep) carry_update(p, memory, place.channel, place.chunk_head(p, chunk), last);
    named_sync(OUT_READY, JOINED);
    carry_rows(p, memory.ring[0].stage.values, p.out, p.out_rows, place, chunk, OUT_FREE, last);
  }
}

// `Output`: the forward pass. Otherwise the backward pass finds the states again.
template <bool Delta, bool Channel, bool Output>
__device__ __forceinline__ void forward_scan(const Parameters& p, ScanMemory& memory,
                                             const Place& place) {
  const int warp = warp_index();
  const bool keep = !Output || p.keep_states;
  if (warp < 4) {
    forward_compute<Delta, Channel, Output>(p, memory, place, keep);
  } else if (warp == LOADING_WARP) {
    if (first_lane()) {
      load_chunks<Channel>(p, memory, place, p.v, {Delta, Output, Output, false}, false, Output);
    }
  } else if (warp == WATCHING_WARP) {
    if (Output) watch_prepared(p, memory, place);
  } else if (place.chunk_count == 0) {
    return;
  } else if (warp == STATE_WARP) {
    if (keep) store_states(p, memory, place, true, !Output);
  } else if (Output) {
    store_output<Delta>(p, memory, place, keep);
  } else if (Delta) {
    store_states(p, memory, place, false, true);
  }
}

// The scan of the state's gradient of one block, chunks last to first:
// dS = c dS' + (s diag(e) Q)^T dO + K^T E, with dV = A'^T (diag(beta) dU), E = -diag(e) dV and
// diag(beta) dU = P'^T dO + diag(beta r) K dS'. It writes dS' of each chunk and dV. Without a delta
// rule dV = dU, and E = 0.
//
// Without a delta rule the accumulators hold dS / m, where s = m 2^n, 1 <= m < 2: then dO is rounded
// as 2^n e dO, which without a decay is exact. The gradient of the final state, which may be a tile
// without rounding, is kept as it is: so is all of a sequence's last chunk.
//
// One warpgroup's products run in order. Those that wait for nothing, P'^T dO and
// (s diag(e) Q)^T dO, stand where the operands of the others are being made.
#pragma once

#include "scan.cuh"

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

// Each token's sum of dV o V over the warp's 16 channels, for dbeta: here dV is still float32.
__device__ __forceinline__ float2 value_sums(const Stage& stage, const float (&d_v)[32]) {
  uint32_t v[16];
  load_rows(v, stage.values);
  float sums[16];  // of the thread's two channels: 2b + p for column 8b + pair + p
#pragma unroll
  for (int b = 0; b < 8; b++) {
    sums[2 * b] = low_half(v[2 * b]) * d_v[4 * b] + low_half(v[2 * b + 1]) * d_v[4 * b + 2];
    sums[2 * b + 1] =
        high_half(v[2 * b]) * d_v[4 * b + 1] + high_half(v[2 * b + 1]) * d_v[4 * b + 3];
  }
  const int lane = threadIdx.x % 32;  // eight lanes hold the other channels of a column
  halve<16, 8>(sums, lane);
  halve<8, 4>(sums, lane);
  halve<4, 2>(sums, lane);
  return make_float2(sums[0], sums[1]);
}

// The first token of a lane's two: its bits 4, 3 and 2 chose halves of the eight column blocks.
__device__ __forceinline__ int value_sums_token() {
  const int lane = threadIdx.x % 32;
  const int block = (lane >> 4 & 1) * 4 + (lane >> 3 & 1) * 2 + (lane >> 2 & 1);
  return 8 * block + 2 * (lane % 4);
}

// The sum of S o dS' of a sequence's first chunk or, without a delta rule, its last: both are float32
// there, and nowhere else. With a gate a channel, each key's.
template <bool Channel>
__device__ __forceinline__ void state_sum(float* parts, const float* state, float factor,
                                          const Place& place, const float (&d_state)[64],
                                          const Lane& lane) {
  if constexpr (Channel) {
    const int part = place.sequence_head * 8 + place.channel / 64 * 4 + lane.warp;
    float sums[32] = {};  // 2b + p for key 8b + pair + p
    if (state != nullptr) {
      each_state_element(place, lane, [&](int i, int64_t at) {
        sums[i / 4 * 2 + i % 2] += d_state[i] * state[at];
      });
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
      }
      if (lane.row % 8 == 0) {
        parts[int64_t(part) * HEAD + 8 * (i / 2) + lane.pair + i % 2] = factor * sums[i];
      }
    }
    return;
  }
  float sum = 0.f;
  if (state != nullptr) {
    each_state_element(place, lane, [&](int i, int64_t at) { sum += d_state[i] * state[at]; });
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (first_lane()) {
    parts[place.sequence_head * 8 + place.channel / 64 * 4 + lane.warp] = factor * sum;
  }
}

// What one warpgroup carries from chunk to chunk.
template <bool Delta, bool Channel>
struct Reverse {
  const Parameters& p;
  ScanMemory& memory;
  const Place& place;
  const Lane& lane;
  float state[64];
  float within[32], across[32];
  uint32_t packed_state[32], packed_out[16], packed_read[16], packed[16], packed_rows[16];
  float2 sums;

  __device__ __forceinline__ int chunk(int step) { return place.chunk_count - 1 - step; }

  // P'^T dO, which waits for no other chunk.
  __device__ __forceinline__ void open(int step) {
    const Stage& stage = await_chunk(memory, step, place.tokens(chunk(step)));
    load_rows(packed_out, stage.rows);
    products_begin();
    multiply<4, Major::Other>(within, packed_out, shared_address(stage.weights),
                              false);  // (P'^T dO)^T
    products_commit();
  }

  // From dS' to dV. No product is under way at its end.
  __device__ __forceinline__ void begin(int step) {
    const Stage& stage = memory.ring[step % STAGES].stage;
    pack_pairs(packed_state, state);
    products_begin();
    multiply<8, Major::K>(across, packed_state, shared_address(stage.k), false);  // (K dS')^T
    products_commit();
    hand(step > 0, true);
    const Columns e(stage.vectors[1], lane);
    const float decay = stage.vectors[1][CHUNK - 1];
#pragma unroll
    for (int i = 0; i < 64; i++) state[i] *= decay;
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed_read[i / 2] = pack(p.scale * e[i] * low_half(packed_out[i / 2]),
                                p.scale * e[i + 1] * high_half(packed_out[i / 2]));
    }
    products_begin();
    multiply<2, Major::Other>(state, packed_read, shared_address(stage.q), true);
    products_commit();
    products_wait<1>();
    settled(across);
    settled(within);
    const Columns rest(stage.vectors[2], lane);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      across[i] = rest[i] * across[i] + within[i];
      across[i + 1] = rest[i + 1] * across[i + 1] + within[i + 1];
      packed[i / 2] = pack(across[i], across[i + 1]);
    }
    products_begin();
    multiply<4, Major::Other>(across, packed, shared_address(stage.inverse), true);  // dV^T
    products_commit();
    products_wait<0>();
    settled(across);
    settled(state);
  }

  // From dV to dS, whose last products are under way at its end.
  __device__ __forceinline__ void end(int step) {
    const Stage& stage = memory.ring[step % STAGES].stage;
    products_begin();
    multiply<2, Major::Other>(state, packed_read + 8, shared_address(stage.q) + 32 * 128,
                              true);  // tokens 32 and on
    products_commit();
    const Columns e(stage.vectors[1], lane);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      packed[i / 2] = pack(-e[i] * across[i], -e[i + 1] * across[i + 1]);
    }
    products_begin();
    multiply<4, Major::Other>(state, packed, shared_address(stage.k), true);
    products_commit();
    if constexpr (Channel) sums = value_sums(stage, across);
    pack_pairs(packed_rows, across);
  }

  // dV of the chunk before, and the gradient of the state after this one.
  __device__ __forceinline__ void hand(bool before, bool now) {
    if (now) {
      named_sync(STATE_FREE, JOINED);
      store_state(memory, packed_state);
    }
    if (before) {
      named_sync(ROWS_FREE, JOINED);
      store_rows(memory.rows_out, packed_rows);
      // The storing warp takes the sums on: a store to memory here would hold up the fence.
      if constexpr (Delta && Channel) {
        *reinterpret_cast<float2*>(&memory.sums[lane.warp][value_sums_token()]) = sums;
      }
    }
    hand_over(now, before, false);
  }

  // Both, without a delta rule: from dS' to dV and dS. No product is under way at its end.
  __device__ __forceinline__ void pass(int step) {
    const Stage& stage = memory.ring[step % STAGES].stage;
    pack_pairs(packed_state, state);
    products_begin();
    multiply<8, Major::K>(across, packed_state, shared_address(stage.k), false);  // (K dS')^T
    products_commit();
    hand(step > 0, true);
    const float unit = step > 0 ? p.mantissa : 1.f;
    const float divide = step > 0 ? 1.f : 1.f / p.mantissa;
    const float decay = Channel ? divide : stage.vectors[1][CHUNK - 1] * divide;
    if constexpr (Channel) {
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        packed_read[i / 2] = pack(p.power * low_half(packed_out[i / 2]),
                                  p.power * high_half(packed_out[i / 2]));
      }
      decay_state(state, stage, lane, decay);
    } else {
      const Columns e(stage.vectors[1], lane);
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        packed_read[i / 2] = pack(p.power * e[i] * low_half(packed_out[i / 2]),
                                  p.power * e[i + 1] * high_half(packed_out[i / 2]));
      }
#pragma unroll
      for (int i = 0; i < 64; i++) state[i] *= decay;
    }
    products_begin();
    multiply<4, Major::Other>(state, packed_read, shared_address(stage.q), true);
    products_commit();
    products_wait<1>();
    settled(across);
    settled(within);
    if constexpr (Channel) {
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        packed_rows[i / 2] =
            pack(unit * across[i] + within[i], unit * across[i + 1] + within[i + 1]);
      }
    } else {
      const Columns rest(stage.vectors[2], lane);
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        packed_rows[i / 2] =
            pack(unit * rest[i] * across[i] + within[i],
                 unit * rest[i + 1] * across[i + 1] + within[i + 1]);
      }
    }
    products_wait<0>();
    settled(state);
  }
};

// The compiler follows products only within a turn of a loop, so a turn goes from the middle of one
// chunk, where none is under way, to the middle of the next.
template <bool Delta, bool Channel>
__device__ __forceinline__ void reverse_compute(const Parameters& p, ScanMemory& memory,
                                                const Place& place) {
  const Lane lane;
  Reverse<Delta, Channel> scan{p, memory, place, lane};
  read_state(scan.state, p.d_final_state, place, lane);
  const float unit = Delta || place.chunk_count == 0 ? 1.f : p.mantissa;  // of the state at the end
  if (place.chunk_count > 0) {
    if (place.chunk_count == 1) {
      state_sum<Channel>(p.d_start_parts, p.initial_state, 1.f, place, scan.state, lane);
    }
    if constexpr (!Delta) {
      const bool some = place.chunk_count > 1 && p.d_final_state != nullptr;
      state_sum<Channel>(p.d_end_parts, some ? p.last_state : nullptr, 1.f, place, scan.state, lane);
    }
    scan.open(0);
    if constexpr (Delta) {
      scan.begin(0);
    } else {
      scan.pass(0);
    }
    for (int step = 0; step + 1 < place.chunk_count; step++) {
      if constexpr (Delta) {
        scan.end(step);
      } else {
        release_chunk(memory, step);
      }
      scan.open(step + 1);
      if constexpr (Delta) {
        products_wait<1>();
        settled(scan.state);
        release_chunk(memory, step);
      }
      if (step + 2 == place.chunk_count) {
        products_wait<0>();
        state_sum<Channel>(p.d_start_parts, p.initial_state, unit, place, scan.state, lane);
      }
      if constexpr (Delta) {
        scan.begin(step + 1);
      } else {
        scan.pass(step + 1);
      }
    }
    if constexpr (Delta) {
      scan.end(place.chunk_count - 1);
      products_wait<0>();
      settled(scan.state);
    }
    scan.hand(true, false);
  }
  write_state(scan.state, p.d_initial_state, place, lane, unit);
}

// One warp stores dS', one dV and its sums with V. The gradients without a delta rule need no dV.
template <bool Delta, bool Channel>
__device__ __forceinline__ void store_gradients(const Parameters& p, ScanMemory& memory,
                                                const Place& place, bool state) {
  named_arrive(state ? STATE_FREE : ROWS_FREE, JOINED);
  Publisher publisher{p.ready + place.chunk_head(p, place.chunk_count - 1), -p.value_heads};
  for (int chunk = place.chunk_count - 1; chunk >= 0; chunk--) {
    const int chunk_head = place.chunk_head(p, chunk);
    if (state) {
      carry_state(memory, p.d_state, place.channel, chunk_head, chunk == 0);
    } else {
      named_sync(ROWS_READY, JOINED);
      if constexpr (Delta && Channel) {
        const int lane = threadIdx.x % 32, half = place.channel / 64;
        float2 sum = make_float2(0.f, 0.f);
        for (int warp = 0; warp < 4; warp++) {
          const float2 part = *reinterpret_cast<const float2*>(&memory.sums[warp][2 * lane]);
          sum.x += part.x;
          sum.y += part.y;
        }
        const int64_t to = (int64_t(half) * p.chunk_heads + chunk_head) * CHUNK + 2 * lane;
        *reinterpret_cast<float2*>(p.d_value_parts + to) = sum;
      }
      carry_rows(p, memory.rows_out, p.d_v, p.d_v_rows, place, chunk, ROWS_FREE, chunk == 0);
    }
    if (Delta || state) publisher.stored_one(chunk == 0);
  }
}

template <bool Delta, bool Channel>
__device__ __forceinline__ void reverse_scan(const Parameters& p, ScanMemory& memory,
                                             const Place& place) {
  const int warp = warp_index();
  if (warp < 4) {
    reverse_compute<Delta, Channel>(p, memory, place);
  } else if (warp == LOADING_WARP) {
    if (first_lane()) {
      load_chunks<Channel>(p, memory, place, p.d_out, {Delta, true, true, Delta && Channel}, true, false);
    }
  } else if (warp <= ROWS_WARP && place.chunk_count > 0) {
    store_gradients<Delta, Channel>(p, memory, place, warp == STATE_WARP);
  }
}

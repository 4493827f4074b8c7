// What `gates.cuh` does, with a gate a channel: each channel's c sum(S o dS') of a chunk, which
// every token's dg in it holds, from the tiles of its neighbours too. `d_channel_parts` holds E, B
// and Q of that file for each key.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

constexpr int CHANNEL_REACH = 2;  // chunks to either side

struct ChannelParts {
  float states, keys, queries;  // E, B, Q
  float decay;

  __device__ __forceinline__ void read(const Parameters& p, int chunk_head, int channel) {
    const float* parts = p.d_channel_parts + int64_t(chunk_head) * 3 * HEAD + channel;
    states = parts[0];
    keys = parts[HEAD];
    queries = parts[2 * HEAD];
    decay = p.vectors[int64_t(chunk_head) * 4 * CHUNK + channel];
  }
};

// Adds what the chunks on one side, `step` being +1 or -1, have to say; not past one that has no
// number to give.
__device__ __forceinline__ void ask_channel(const ChannelParts (&parts)[2 * CHANNEL_REACH + 1],
                                            int step, int there_are, float& sum, float& weight) {
  float between = parts[CHANNEL_REACH].decay, shift = 0.f;
#pragma unroll
  for (int d = 1; d <= CHANNEL_REACH; d++) {
    const ChannelParts &last = parts[CHANNEL_REACH + step * (d - 1)],
                       &next = parts[CHANNEL_REACH + step * d];
    between *= next.decay;
    shift += step > 0 ? next.queries - last.keys : next.keys - last.queries;
    const float counts = d == there_are ? 2.f * between : between;
    const float says = counts * (next.states + shift);
    if (d > there_are || !isfinite(says)) return;
    sum += says;
    weight += counts;
  }
}

// A block has one chunk and value head, a thread one key channel of all its tokens.
__device__ __forceinline__ void add_channel_states(const Parameters& p) {
  const int channel = threadIdx.x, value_head = blockIdx.x % p.value_heads;
  const int4* row = p.order + 2 * (blockIdx.x / p.value_heads);
  const int4 chunk = __ldg(row), where = __ldg(row + 1);
  ChannelParts parts[2 * CHANNEL_REACH + 1];
#pragma unroll
  for (int i = 0; i < 2 * CHANNEL_REACH + 1; i++) {
    const int other = where.x + max(-where.y, min(where.z, i - CHANNEL_REACH));
    parts[i].read(p, other * p.value_heads + value_head, channel);
  }
  float sum = parts[CHANNEL_REACH].states, weight = 1.f;
  if (where.y > 0 && where.z > 0) {
    ask_channel(parts, 1, where.z, sum, weight);
    ask_channel(parts, -1, where.y, sum, weight);
  }
  sum /= weight;
  const int64_t pitch = int64_t(p.value_heads) * HEAD;
  float* d_g =
      p.d_g + (chunk.x * p.length + chunk.y) * pitch + int64_t(value_head) * HEAD + channel;
#pragma unroll 8
  for (int i = 0; i < chunk.z; i++) d_g[i * pitch] += sum;
}

// Without a delta rule: c sum(S o dS') of each chunk, which every token's dg in it holds, from the
// tiles of its neighbours too.
//
// The tiles are bfloat16, and where the decay is slow that sum is nearly all of dg. But
//   E_n = c_n sum(S_n o dS'_n)    B_n = sum(K o diag(r) U dS'^T)    Q_n = sum(Q o s diag(e) dO S^T)
//   E_{n+1} + Q_{n+1} = sum(S_{n+1} o dS_{n+1}) = E_n + B_n
// and B and Q are one chunk's share of sums over all, so their errors are as much smaller, and each
// neighbour gives another estimate of E_n with an error of its own. `d_gate_parts` holds E, B, Q. The
// first and the last chunk's E come from float32 states: they are left alone, and count twice. What
// lies between two chunks counts as far as the state remembers it; that is also where E_n is small.
#pragma once

#include "parameters.cuh"
#include "tile.cuh"

constexpr int GATE_THREADS = 256;  // for GATE_HEADS heads of one chunk
constexpr int REACH = 2;        // chunks to either side

struct GateParts {
  float states, keys, queries;  // E, B, Q
  float decay;

  __device__ __forceinline__ void read(const Parameters& p, int chunk, int value_head) {
    const int64_t at = int64_t(chunk) * p.value_heads + value_head;
    const float4 one = p.d_gate_parts[2 * at], other = p.d_gate_parts[2 * at + 1];
    states = one.x + other.x;
    keys = one.y + other.y;
    queries = one.z + other.z;
    decay = p.vectors[(4 * at + 1) * CHUNK + CHUNK - 1];
  }
};

// Adds what the chunks on one side, `step` being +1 or -1, have to say; not past one that has no
// number to give.
__device__ __forceinline__ void ask(const GateParts (&parts)[2 * REACH + 1], int step,
                                    int there_are, float& sum, float& weight) {
  float between = parts[REACH].decay, shift = 0.f;
#pragma unroll
  for (int d = 1; d <= REACH; d++) {
    const GateParts &last = parts[REACH + step * (d - 1)], &next = parts[REACH + step * d];
    between *= next.decay;
    shift += step > 0 ? next.queries - last.keys : next.keys - last.queries;
    const float counts = d == there_are ? 2.f * between : between;
    const float says = counts * (next.states + shift);
    if (d > there_are || !isfinite(says)) return;
    sum += says;
    weight += counts;
  }
}

// A thread has one head and every eighth token. All that it reads it asks for at once.
__device__ __forceinline__ void add_states(const Parameters& p) {
  constexpr int apart = GATE_THREADS / GATE_HEADS, tokens = CHUNK / apart;
  const int groups = (p.value_heads + GATE_HEADS - 1) / GATE_HEADS;
  const int4* row = p.order + 2 * (blockIdx.x / groups);
  const int4 chunk = __ldg(row), where = __ldg(row + 1);
  const int value_head = blockIdx.x % groups * GATE_HEADS + threadIdx.x % GATE_HEADS;
  const int first = threadIdx.x / GATE_HEADS;
  float* d_g = p.d_g + (chunk.x * p.length + chunk.y + first) * p.value_heads + value_head;
  const int64_t pitch = int64_t(apart) * p.value_heads;
  await_previous();
  if (value_head >= p.value_heads) return;
  GateParts parts[2 * REACH + 1];
#pragma unroll
  for (int i = 0; i < 2 * REACH + 1; i++) {
    parts[i].read(p, where.x + max(-where.y, min(where.z, i - REACH)), value_head);
  }
  float found[tokens];
#pragma unroll
  for (int i = 0; i < tokens; i++) {
    found[i] = first + i * apart < chunk.z ? d_g[i * pitch] : 0.f;
  }
  float sum = parts[REACH].states, weight = 1.f;
  if (where.y > 0 && where.z > 0) {
    ask(parts, 1, where.z, sum, weight);
    ask(parts, -1, where.y, sum, weight);
  }
  sum /= weight;
#pragma unroll
  for (int i = 0; i < tokens; i++) {
    if (first + i * apart < chunk.z) d_g[i * pitch] = found[i] + sum;
  }
}

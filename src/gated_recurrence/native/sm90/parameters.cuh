// What every kernel of the gated delta rule is launched with; `gated_delta_rule.py` fills the same
// fields.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

// Maps of 64 x 64 boxes. The first seven lie over [B, T, heads, 128] as (channel, head, token,
// batch), `gate` with boxes of float32; the others over padded chunks [chunk, value head, rows, columns] as (column, row,
// chunk-head, 0).
struct Parameters {
  CUtensorMap q, k, v, out, d_out, d_v;
  CUtensorMap gate;       // g, with a gate a channel
  CUtensorMap inverse;    // A' - I, A' = (I + tril(K K^T o decay, -1) diag(beta))^-1  [64, 64]
  CUtensorMap weights;    // P' = scale tril(Q K^T o decay) diag(beta)              [64, 64]
  CUtensorMap update;     // U' = A' (V - diag(e) K S): the update before its beta  [64, V]
  CUtensorMap state;      // S^T before the chunk                                   [V, K]
  CUtensorMap d_state;    // the gradient of S^T after the chunk                    [V, K]
  CUtensorMap q_read;     // with a gate a channel, exp(G) o Q                      [64, K]
  CUtensorMap k_end;      // with a gate a channel, exp(G_63 - G) o K               [64, K]
  // Batch, first token, tokens, first chunk; the sequence, -, -, -: in the order of the scans.
  const int4* sequences;
  // The chunks as the forward scans reach them, all sequences at once, and in the order in which
  // their gradients are taken: batch, first token, tokens (1 to 64), 0 or a first chunk's sequence
  // + 1; index, chunks before and after it in its sequence, sequence.
  const int4 *forward_order, *order;
  const float *g, *beta;  // [B, T, HV]
  // [chunk-head, 4, 64]: G, e = exp G, beta exp(G_63 - G), beta. With a gate a channel, exp G_63 of
  // the 128 channels, and as many that hold nothing.
  float* vectors;
  __nv_bfloat16 *inverse_out, *weights_out;
  const float *initial_state, *d_final_state;  // [sequence, HV, K, V] or null
  float *final_state, *d_initial_state;        // the same
  __nv_bfloat16 *out_rows, *d_v_rows;          // [B, T, HV, V]: `out` and `d_v`
  __nv_bfloat16 *d_q, *d_k;                    // [B, T, HV, K]
  float *d_q_wide, *d_k_wide;                  // [B, T, HV, K], or null where HV = H
  float* d_value_parts;  // with a gate a channel, [2, chunk-head, 64]: rowsum(dV o V)
  float* last_state;  // without a delta rule, [sequence, HV, K, V] or null: S before the last chunk
  // [sequence-head, 8], with a gate a channel [sequence-head, 8, 128]: the sums of S o dS' of a
  // sequence's first chunk and of its last
  float *d_start_parts, *d_end_parts;
  float4* d_gate_parts;  // [chunk-head, 2], without a delta rule: see `gates.cuh`
  float* d_channel_parts;  // [chunk-head, 3, 128], with a gate a channel: see `channel_gates.cuh`
  int* prepared;  // [chunk-head]: not zero once gdn_prepare has stored its part
  int* ready;  // [chunk-head]: how many tiles of its states are stored, two a block of gdn_states
  int* taken;            // items that gdn_gradients has begun beyond each cluster's first
  float *d_g, *d_beta;   // [B, T, HV], zeroes beforehand; with a gate a channel [B, T, HV, K]
  int64_t length;        // T
  int heads, value_heads, chunk_heads, sequence_heads;
  int keep_states;    // gdn_forward stores S^T and U'
  int state_blocks;  // of gdn_states, a sequence-head: 2, or 4 where it finds S^T and U' again
  float scale;
  float mantissa, power;  // their product is `scale`, and `power` one of two
};

// What every kernel of the gated delta rule is launched with; `load.py` fills the same fields.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

// Maps of 64 x 64 boxes. The first five lie over [B, T, heads, 128] as (channel, head, token, batch);
// the others over padded chunks [chunk, value head, rows, columns] as (column, row, chunk-head, 0).
struct Parameters {
  CUtensorMap q, k, v, d_out, d_v;
  CUtensorMap inverse;   // A' = (I + tril(K K^T o decay, -1) diag(beta))^-1      [64, 64]
  CUtensorMap weights;   // P' = scale tril(Q K^T o decay) diag(beta)              [64, 64]
  CUtensorMap update;    // U' = A' (V - diag(e) K S): the update before its beta  [64, V]
  CUtensorMap state;     // S^T before the chunk                                   [V, K]
  CUtensorMap d_state;   // the gradient of S^T after the chunk                    [V, K]
  const int4* sequences;  // batch, first token, tokens, first chunk
  const int4* chunks;     // batch, first token, tokens (1 to 64), 0
  const float *g, *beta;  // [B, T, HV]
  float* vectors;         // [chunk-head, 4, 64]: G, e = exp G, beta exp(G_63 - G), beta
  __nv_bfloat16 *inverse_out, *weights_out, *update_out;
  const float *initial_state, *d_final_state;  // [sequence, HV, K, V] or null
  float *final_state, *d_initial_state;        // the same
  __nv_bfloat16 *out, *d_v_out;                // [B, T, HV, V]
  __nv_bfloat16 *d_q, *d_k;                    // [B, T, HV, K]
  float *d_q_wide, *d_k_wide;                  // [B, T, HV, K], or null where HV = H
  float* d_log_parts;                          // [4, chunk-head, 64]
  float* d_end_parts;                          // [4, chunk-head, 4]
  float *d_g, *d_beta;                         // [B, T, HV]
  int64_t length;                              // T
  int heads, value_heads, chunk_heads, sequence_heads;
  float scale;
};

#include "scans.cuh"

extern "C" __global__ void SCAN_BOUNDS channel_forward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  forward_block<false, true>(p, shared);
}

extern "C" __global__ void SCAN_BOUNDS channel_states(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  states_block<false, true>(p, shared);
}

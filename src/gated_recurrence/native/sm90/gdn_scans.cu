#include "scans.cuh"

extern "C" __global__ void SCAN_BOUNDS gdn_forward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  forward_block<true>(p, shared);
}

extern "C" __global__ void SCAN_BOUNDS gdn_states(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  states_block<true>(p, shared);
}

#include "scans.cuh"

extern "C" __global__ void SCAN_BOUNDS simple_forward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  forward_block<false>(p, shared);
}

extern "C" __global__ void SCAN_BOUNDS simple_states(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  states_block<false>(p, shared);
}

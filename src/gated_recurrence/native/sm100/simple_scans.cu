#include "forward_scan.cuh"
#include "reverse_scan.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    simple_forward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  forward_block<false>(p, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    simple_states(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  states_block<false>(p, shared);
}

#include "gates.cuh"
#include "gradients.cuh"

extern "C" __global__ void GRADIENTS_BOUNDS simple_gradients(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  gradients_block<false>(p, shared);
}

extern "C" __global__ void __launch_bounds__(GATE_THREADS)
    simple_gates(const __grid_constant__ Parameters p) {
  add_states(p);
}

#include "gradients.cuh"

extern "C" __global__ void GRADIENTS_BOUNDS simple_gradients(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  gradients_block<false>(p, shared);
}

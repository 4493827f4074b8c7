#include "gradients.cuh"

extern "C" __global__ void GRADIENTS_BOUNDS gdn_gradients(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  gradients_block<true>(p, shared);
}

#include "prepare.cuh"

extern "C" __global__ void PREPARE_BOUNDS simple_prepare(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  prepare_chunks<false>(p, shared);
}

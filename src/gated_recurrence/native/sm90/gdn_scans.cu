// The scans over chunks: the forward pass, and the two of the backward pass in one launch, since they
// do not depend on each other and neither fills the chip.
#include "forward_scan.cuh"
#include "reverse_scan.cuh"

static_assert(sizeof(ScanMemory) == SHARED_SCANS);

extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 1)
    gdn_forward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  ScanMemory& memory = *reinterpret_cast<ScanMemory*>(shared);
  prepare_ring(memory);
  forward_scan<true, false>(p, memory, Place(p, blockIdx.x));
}

extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 1)
    gdn_states(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  ScanMemory& memory = *reinterpret_cast<ScanMemory*>(shared);
  prepare_ring(memory);
  const Place place(p, blockIdx.x / 2);
  if (blockIdx.x % 2 == 0) {
    reverse_scan(p, memory, place);
  } else {
    forward_scan<false, true>(p, memory, place);
  }
}

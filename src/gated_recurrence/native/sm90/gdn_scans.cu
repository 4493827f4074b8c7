// The scans over chunks: the forward pass, and those of the backward pass in one launch, since they
// do not depend on each other and neither fills the chip.
#include "forward_scan.cuh"
#include "reverse_scan.cuh"

static_assert(sizeof(ScanMemory) == SHARED_SCANS);

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(2 * WARPGROUP, 1)
    gdn_forward(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  ScanMemory& memory = *reinterpret_cast<ScanMemory*>(shared);
  prepare_ring(memory);
  forward_scan<true>(p, memory, Place(p, blockIdx.x / 2, cluster_rank()));
  cluster_sync();    // the other block may still send here, or wait for what it sent
  await_previous();  // what comes next counts on all that gdn_prepare writes
}

// Two blocks a sequence and value head, or four where the states have to be found again.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(2 * WARPGROUP, 1)
    gdn_states(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) char shared[];
  ScanMemory& memory = *reinterpret_cast<ScanMemory*>(shared);
  let_next_start();
  prepare_ring(memory);
  const Place place(p, blockIdx.x / p.state_blocks, cluster_rank());
  if (blockIdx.x % p.state_blocks < 2) {
    reverse_scan(p, memory, place);
  } else {
    forward_scan<false>(p, memory, place);
  }
  cluster_sync();
}

// The scans over chunks: the forward pass, and those of the backward pass in one launch, since they
// do not depend on each other and neither fills the chip.
#pragma once

#include "forward_scan.cuh"
#include "reverse_scan.cuh"

static_assert(sizeof(ScanMemory) == SHARED_SCANS);

template <bool Delta, bool Channel = false>
__device__ __forceinline__ void forward_block(const Parameters& p, char* shared) {
  ScanMemory& memory = *reinterpret_cast<ScanMemory*>(shared);
  prepare_ring(memory);
  forward_scan<Delta, Channel, true>(p, memory, Place(p, blockIdx.x / 2, cluster_rank()));
  cluster_sync();    // the other block may still send here, or wait for what it sent
  await_previous();  // what comes next counts on all that is prepared
}

// Two blocks a sequence and value head, or four where the states have to be found again.
template <bool Delta, bool Channel = false>
__device__ __forceinline__ void states_block(const Parameters& p, char* shared) {
  ScanMemory& memory = *reinterpret_cast<ScanMemory*>(shared);
  let_next_start();
  prepare_ring(memory);
  const Place place(p, blockIdx.x / p.state_blocks, cluster_rank());
  if (blockIdx.x % p.state_blocks < 2) {
    reverse_scan<Delta, Channel>(p, memory, place);
  } else {
    forward_scan<Delta, Channel, false>(p, memory, place);
  }
  cluster_sync();
}

#define SCAN_BOUNDS __cluster_dims__(2, 1, 1) __launch_bounds__(2 * WARPGROUP, 1)

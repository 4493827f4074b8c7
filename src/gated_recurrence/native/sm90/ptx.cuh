// The Hopper instructions that the kernels use, one thin function each.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- clusters

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;\n" ::
          : "memory");
}

// Arrives at the barrier that stands at the same place in block `rank` of the cluster. It says that
// this thread has read, so it need order no writes: a release at cluster scope would drain them
// all.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Writes a word at the place in block `rank` of the cluster, whose barrier hears of 4 bytes.
__device__ __forceinline__ void send_word(uint32_t to, uint32_t value, uint32_t barrier,
                                          uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there, heard;\n"
      "mapa.shared::cluster.u32 there, %0, %3;\n"
      "mapa.shared::cluster.u32 heard, %2, %3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [heard];\n"
      "}\n" ::"r"(to),
      "r"(value), "r"(barrier), "r"(rank)
      : "memory");
}

// ---- between kernels and blocks of the grid

// The next kernel of the stream may start its blocks, once every block here has said so.
__device__ __forceinline__ void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits for the kernel before to have finished.
__device__ __forceinline__ void await_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Reads and writes of the copy engine are ordered with ordinary ones, in memory of any kind.
__device__ __forceinline__ void fence_copies() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Between what was written and the count that says so, and between the count and what is read.
// `__threadfence` is the dearer, sequentially consistent one.
__device__ __forceinline__ void fence_release() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
__device__ __forceinline__ void fence_acquire() { fence_release(); }

__device__ __forceinline__ void add_relaxed(int* counter) {
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

// What this thread wrote, or saw others write, is visible to whoever reads the count.
__device__ __forceinline__ void add_release(int* counter) {
  fence_release();
  add_relaxed(counter);
}

__device__ __forceinline__ int read_relaxed(const int* counter) {
  int found;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
  return found;
}

// The same within a block, in shared memory.
__device__ __forceinline__ void write_release(int* to, int value) {
  asm volatile("st.release.cta.shared.s32 [%0], %1;" ::"r"(shared_address(to)), "r"(value)
               : "memory");
}

__device__ __forceinline__ int read_acquire(const int* from) {
  int found;
  asm volatile("ld.acquire.cta.shared.s32 %0, [%1];"
               : "=r"(found)
               : "r"(shared_address(from))
               : "memory");
  return found;
}

// ---- named barriers: a subset of the block's threads

__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- bulk copies

__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap& map, uint32_t barrier,
                                         int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// To the same place in every block of the cluster that `blocks` has a bit for; each one's barrier
// hears.
__device__ __forceinline__ void load_box_for(uint16_t blocks, uint32_t to, const CUtensorMap& map,
                                             uint32_t barrier, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"(blocks)
      : "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap& map, uint32_t from, int x, int y,
                                          int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

__device__ __forceinline__ void load_bytes(uint32_t to, const void* from, uint32_t bytes,
                                           uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// The shared memory of every store so far may be written again.
__device__ __forceinline__ void stores_have_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// All but the last `Pending` committed groups of stores are in memory.
template <int Pending>
__device__ __forceinline__ void stores_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// Ordinary writes to shared memory become visible to the tensor cores and the copy engine.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- small copies, a word or sixteen bytes a thread; a thread waits for its own

__device__ __forceinline__ void copy_word(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");  // zero where it is not there
}

__device__ __forceinline__ void copy_sixteen(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// ---- 8x8 matrices of bfloat16 between shared memory and fragments

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

__device__ __forceinline__ void store_matrices_transposed(uint32_t address, uint32_t a, uint32_t b,
                                                          uint32_t c, uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}

__device__ __forceinline__ float low_half(uint32_t both) { return __uint_as_float(both << 16); }

__device__ __forceinline__ float high_half(uint32_t both) {
  return __uint_as_float(both & 0xffff0000u);
}

// e^x; zero where that is below the normal numbers.
__device__ __forceinline__ float exponential(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x * 1.44269504f));
  return out;
}

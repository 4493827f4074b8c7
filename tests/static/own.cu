// Kernels of our own, one for each thing that is read in machine code.
#include <cuda_fp16.h>
#include <mma.h>

// Sums in float32 through the matrix unit.
__global__ void product(const half* a, const half* b, float* out) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(x, a, 16);
    wmma::load_matrix_sync(y, b, 16);
    wmma::mma_sync(sum, x, y, sum);
    wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}

// The same in float16.
__global__ void narrow(const half* a, const half* b, half* out) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, half> sum;
    wmma::fill_fragment(sum, __float2half(0.0f));
    wmma::load_matrix_sync(x, a, 16);
    wmma::load_matrix_sync(y, b, 16);
    wmma::mma_sync(sum, x, y, sum);
    wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}

// Adds in an order that no one fixes; 4 KiB of shared memory.
__global__ void total(const float* a, float* out, int n) {
    __shared__ float tile[1024];
    tile[threadIdx.x] = threadIdx.x < n ? a[threadIdx.x] : 0.0f;
    __syncthreads();
    atomicAdd(out, tile[n - 1 - threadIdx.x]);
}

// An array that is indexed at run time lies in local memory without a spill.
__global__ void indexed(const float* a, const int* where, float* out) {
    float held[32];
    for (int i = 0; i < 32; i++) held[i] = a[i] * 3.0f;
    for (int i = 0; i < 32; i++) held[where[i]] += 1.0f;
    out[threadIdx.x] = held[where[threadIdx.x]];
}

// More values than 32 registers hold.
__global__ void __launch_bounds__(1024, 2) crowded(const float* a, float* out) {
    float held[64];
#pragma unroll
    for (int i = 0; i < 64; i++) held[i] = a[i * 1024 + threadIdx.x];
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < 64; i++) held[i] += held[63 - i] * held[(i * 7 + r) % 64];
    }
#pragma unroll
    for (int i = 0; i < 64; i++) out[i * 1024 + threadIdx.x] = held[i];
}

#include <cstdio>
#include <cuda_runtime.h>

__global__ void reversed(const float* x, float* out) {
    __shared__ float held[256];
    held[threadIdx.x] = x[threadIdx.x];
    // No barrier between these two.
    out[threadIdx.x] = held[255 - threadIdx.x];
}

__global__ void divergent(float* out) {
    if (threadIdx.x < 48) __syncwarp(0xffffffffu);
    if (threadIdx.x < 32) return;
    if (threadIdx.x % 2) __syncthreads();
    out[threadIdx.x] = 1;
}

int main(int count, char** words) {
    float *x, *out;
    cudaMalloc(&x, 1024);
    cudaMalloc(&out, 1024);
    cudaMemset(x, 0, 1024);
    if (count > 1) divergent<<<1, 256>>>(out);
    else reversed<<<1, 256>>>(x, out);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}

// How kernels are written and launched, once for the GPU and once for the host. A kernel is a functor: its arithmetic
// runs on both (TP_HD), and what the threads of a block do together goes through Block, whose host version is one
// thread. In a build without nvcc (tests over fakes of CUDA's libraries) a launch puts the same loops on the fake's
// stream. Example, a row sum:
//   struct RowSum {
//     const float* in; float* out; int64_t size;
//     template <class B> TP_DEVICE void operator()(B& block, int64_t row) const {
//       const float* x = in + row * size;
//       const float sum = block.template Reduce<float>(size, 0.f, [&](int64_t i) { return x[i]; }, Sum());
//       if (block.leader()) out[row] = sum;
//     }
//   };
//   TP_RETURN_IF_ERROR(ForBlocks("row_sum", stream, rows, RowSum{in, out, size}));
// Kernels allocate nothing and synchronise nothing, so that they can be captured in a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/cuda/cuda_status.h"

#ifdef __CUDACC__
#define TP_HD __host__ __device__ __forceinline__
#define TP_DEVICE __device__
#else
#define TP_HD inline
#define TP_DEVICE
#include <fake_runtime.h>
#endif

namespace tp::worker::cuda {

struct Sum {
  template <class T>
  TP_HD T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  TP_HD T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Smaller {
  template <class T>
  TP_HD T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

inline constexpr int kBlockThreads = 256;

#ifdef __CUDACC__
// The threads of one block. Every call but thread-local ones is made by all of them.
class Block {
 public:
  __device__ explicit Block(char* shared) : shared_(shared) {}
  __device__ bool leader() const { return threadIdx.x == 0; }
  __device__ void Sync() const { __syncthreads(); }
  // `count` elements of the block's shared memory, uninitialised. The sum over all calls is what ForBlocks was told.
  template <class T>
  __device__ T* Shared(int64_t count) {
    T* memory = reinterpret_cast<T*>(shared_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return memory;
  }
  // body(i) for i in [0, n), by some thread each; all are done when it returns.
  template <class Body>
  __device__ void Each(int64_t n, const Body& body) const {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) body(i);
    __syncthreads();
  }
  // map(0) o map(1) o .. o map(n - 1), the same on all threads. The order is fixed, but not ascending: `combine` is
  // associative and commutative. T: a multiple of 4 bytes, at most 16, trivially copyable.
  template <class T, class Map, class Combine>
  __device__ T Reduce(int64_t n, T identity, const Map& map, const Combine& combine) const {
    __shared__ alignas(16) unsigned char scratch[32 * 16];
    static_assert(sizeof(T) <= 16 && sizeof(T) % 4 == 0);
    T* partial = reinterpret_cast<T*>(scratch);
    T value = identity;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) value = combine(value, map(i));
    for (int step = 16; step > 0; step /= 2) value = combine(value, FromLane(value, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    T all = partial[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) all = combine(all, partial[warp]);
    return all;
  }

 private:
  template <class T>
  static __device__ T FromLane(T value, int step) {
    union {
      T whole;
      unsigned words[sizeof(T) / 4];
    } in{value}, out{value};
    for (unsigned w = 0; w < sizeof(T) / 4; ++w) out.words[w] = __shfl_xor_sync(0xffffffffu, in.words[w], step);
    return out.whole;
  }
  char* shared_;
  int64_t used_ = 0;
};

template <class Body>
__global__ void EachKernel(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}
template <class Body>
__global__ void __launch_bounds__(kBlockThreads) BlockKernel(int64_t blocks, Body body) {
  extern __shared__ __align__(16) char shared[];
  for (int64_t index = blockIdx.x; index < blocks; index += gridDim.x) {
    Block block(shared);
    body(block, index);
    __syncthreads();
  }
}
#else
// One thread that does what all of a block's do. Shared memory starts as garbage, as on a GPU.
class Block {
 public:
  explicit Block(char* shared) : shared_(shared) {}
  bool leader() const { return true; }
  void Sync() const {}
  template <class T>
  T* Shared(int64_t count) {
    T* memory = reinterpret_cast<T*>(shared_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return memory;
  }
  template <class BodyFunction>
  void Each(int64_t n, const BodyFunction& body) const {
    for (int64_t i = 0; i < n; ++i) body(i);
  }
  template <class T, class Map, class Combine>
  T Reduce(int64_t n, T identity, const Map& map, const Combine& combine) const {
    for (int64_t i = 0; i < n; ++i) identity = combine(identity, map(i));
    return identity;
  }

 private:
  char* shared_;
  int64_t used_ = 0;
};
#endif

// body(i) for i in [0, n), in no order.
template <class Body>
absl::Status ForEach(const char* kernel, cudaStream_t stream, int64_t n, const Body& body) {
  if (n <= 0) return absl::OkStatus();
#ifdef __CUDACC__
  const int64_t blocks = std::min<int64_t>((n + kBlockThreads - 1) / kBlockThreads, 1 << 16);
  Body copy = body;
  void* arguments[] = {&n, &copy};
  return CudaStatus(cudaLaunchKernel(EachKernel<Body>, dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads),
                                     arguments, 0, stream),
                    kernel);
#else
  return CudaStatus(tp_fake::Enqueue(stream,
                                     [n, body] {
                                       for (int64_t i = 0; i < n; ++i) body(i);
                                     }),
                    kernel);
#endif
}

// body(block, b) for b in [0, blocks), each with `shared_bytes` of memory (sums of Block::Shared, each rounded up to 16
// bytes; at most 160 KiB).
template <class Body>
absl::Status ForBlocks(const char* kernel, cudaStream_t stream, int64_t blocks, const Body& body,
                       int64_t shared_bytes = 0) {
  if (blocks <= 0) return absl::OkStatus();
#ifdef __CUDACC__
  if (shared_bytes > 48 * 1024) {
    TP_RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(BlockKernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(shared_bytes)),
                                  kernel));
  }
  Body copy = body;
  void* arguments[] = {&blocks, &copy};
  return CudaStatus(cudaLaunchKernel(BlockKernel<Body>, dim3(static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 30))),
                                     dim3(kBlockThreads), arguments, static_cast<size_t>(shared_bytes), stream),
                    kernel);
#else
  return CudaStatus(tp_fake::Enqueue(stream,
                                     [blocks, body, shared_bytes] {
                                       std::vector<char> shared(static_cast<size_t>(shared_bytes) + 16);
                                       for (int64_t index = 0; index < blocks; ++index) {
                                         std::memset(shared.data(), 0xcd, shared.size());
                                         Block block(shared.data());
                                         body(block, index);
                                       }
                                     }),
                    kernel);
#endif
}

}  // namespace tp::worker::cuda

// What the fake cuBLASLt keeps in its opaque structures, and what it refuses.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace tp_fake {

struct Layout {
  cudaDataType type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};

struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, trans_c = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int64_t bias_stride = 0;
  int32_t bias_type = -1;  // the type of D
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t align[4] = {256, 256, 256, 256};  // of A, B, C and D
};

// What heuristics hand out and cublasLtMatmul checks.
struct Algorithm {
  uint64_t magic = 0;
  uint64_t workspace = 0;
  uint64_t align[4] = {1, 1, 1, 1};  // bytes that the addresses of A, B, C and D are multiples of
  uint64_t index = 0;
};

inline Layout& Of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
inline Operation& Of(cublasLtMatmulDesc_t operation) { return *reinterpret_cast<Operation*>(operation); }
inline Preference& Of(cublasLtMatmulPreference_t preference) { return *reinterpret_cast<Preference*>(preference); }

struct Shapes {
  int64_t m = 0, n = 0, k = 0;
};

// INVALID_VALUE for sizes, leading dimensions, orders and batches that do not fit each other; NOT_SUPPORTED for types,
// epilogues and orders outside the tables of the real library.
cublasStatus_t Validate(const Operation& operation, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                        Shapes* shapes);

}  // namespace tp_fake

// Descriptors of the fake cuBLASLt: their attributes and how they have to fit each other.
#include "cublaslt_descriptors.h"

#include <cstring>
#include <new>

#include "fake_runtime.h"

namespace tp_fake {
namespace {

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

bool LayoutFits(const Layout& layout) {
  if (layout.rows == 0 || layout.cols == 0 || layout.batch < 1) return false;
  const uint64_t across = layout.order == CUBLASLT_ORDER_ROW ? layout.cols : layout.rows;
  return layout.ld >= 0 && static_cast<uint64_t>(layout.ld) >= across;
}

// The rows of the real library's table that compute in floating point of one kind.
bool TypesSupported(const Operation& operation, cudaDataType a, cudaDataType b, cudaDataType c, cudaDataType d) {
  if (a != b || c != d) return false;
  switch (operation.compute) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return operation.scale == CUDA_R_64F && a == CUDA_R_64F && c == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (operation.scale != CUDA_R_32F) return false;
      if (a == CUDA_R_32F) return c == CUDA_R_32F;
      return (a == CUDA_R_16F || a == CUDA_R_16BF) && (c == a || c == CUDA_R_32F);
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return operation.scale == CUDA_R_32F && a == CUDA_R_32F && c == CUDA_R_32F;
    default:
      return false;
  }
}

bool EpilogueSupported(const Operation& operation, cudaDataType a, cudaDataType d) {
  switch (operation.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return true;
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
      return d != CUDA_R_64F;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      if (d == CUDA_R_64F) return false;
      // The bias has D's type, or that of 16-bit inputs whose product stays in F32.
      return operation.bias_type == -1 || operation.bias_type == d || (d == CUDA_R_32F && operation.bias_type == a);
    default:
      return false;
  }
}

template <class T>
cublasStatus_t Take(T& field, const void* value, size_t bytes) {
  if (bytes < sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque, class Held>
cublasStatus_t Make(Opaque** out, const Held& held) {
  if (out == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *out = new Opaque;
  new (*out) Held(held);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque>
cublasStatus_t Drop(Opaque* opaque) {
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t Validate(const Operation& operation, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                        Shapes* shapes) {
  for (const Layout* layout : {&a, &b, &c, &d})
    if (!LayoutFits(*layout)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* layout : {&a, &b, &c, &d})
    if (layout->order != CUBLASLT_ORDER_COL && layout->order != CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (operation.trans_c != CUBLAS_OP_N || operation.pointer_mode > CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool ta = operation.trans_a != CUBLAS_OP_N, tb = operation.trans_b != CUBLAS_OP_N;
  const uint64_t m = ta ? a.cols : a.rows, k = ta ? a.rows : a.cols, k_of_b = tb ? b.cols : b.rows,
                 n = tb ? b.rows : b.cols;
  if (k != k_of_b || d.rows != m || d.cols != n || c.rows != m || c.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
  if (c.order != d.order || a.batch != d.batch || b.batch != d.batch || c.batch != d.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!TypesSupported(operation, a.type, b.type, c.type, d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!EpilogueSupported(operation, a.type, d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // A bias goes along the rows of a column-major D.
  if (operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT && d.order != CUBLASLT_ORDER_COL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *shapes = {static_cast<int64_t>(m), static_cast<int64_t>(n), static_cast<int64_t>(k)};
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace tp_fake

using tp_fake::Of;

#define TP_FAKE_CUBLAS_ENTER(name) \
  if (const int error = tp_fake::InjectedError(#name); error != 0) return static_cast<cublasStatus_t>(error)

extern "C" {

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatrixLayoutCreate);
  tp_fake::Layout layout;
  layout.type = type;
  layout.rows = rows;
  layout.cols = cols;
  layout.ld = ld;
  return tp_fake::Make(matLayout, layout);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) { return tp_fake::Drop(matLayout); }

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, size_t sizeInBytes) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatrixLayoutSetAttribute);
  if (matLayout == nullptr || buf == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  tp_fake::Layout& layout = Of(matLayout);
  switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return tp_fake::Take(layout.type, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return tp_fake::Take(layout.order, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return tp_fake::Take(layout.rows, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return tp_fake::Take(layout.cols, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return tp_fake::Take(layout.ld, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return tp_fake::Take(layout.batch, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return tp_fake::Take(layout.batch_stride, buf, sizeInBytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t computeType,
                                        cudaDataType_t scaleType) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatmulDescCreate);
  tp_fake::Operation operation;
  operation.compute = computeType;
  operation.scale = scaleType;
  return tp_fake::Make(matmulDesc, operation);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) { return tp_fake::Drop(matmulDesc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr,
                                              const void* buf, size_t sizeInBytes) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatmulDescSetAttribute);
  if (matmulDesc == nullptr || buf == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  tp_fake::Operation& operation = Of(matmulDesc);
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return tp_fake::Take(operation.compute, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return tp_fake::Take(operation.scale, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return tp_fake::Take(operation.pointer_mode, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return tp_fake::Take(operation.trans_a, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return tp_fake::Take(operation.trans_b, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return tp_fake::Take(operation.trans_c, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return tp_fake::Take(operation.epilogue, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return tp_fake::Take(operation.bias, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return tp_fake::Take(operation.bias_stride, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return tp_fake::Take(operation.bias_type, buf, sizeInBytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatmulPreferenceCreate);
  return tp_fake::Make(pref, tp_fake::Preference());
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) { return tp_fake::Drop(pref); }

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void* buf,
                                                    size_t sizeInBytes) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatmulPreferenceSetAttribute);
  if (pref == nullptr || buf == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return tp_fake::Take(Of(pref).workspace, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
      uint32_t& align = Of(pref).align[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
      if (const cublasStatus_t status = tp_fake::Take(align, buf, sizeInBytes); status != CUBLAS_STATUS_SUCCESS)
        return status;
      return align == 0 || (align & (align - 1)) != 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    }
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

}  // extern "C"

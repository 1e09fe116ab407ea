// Handles, heuristics and products of the fake cuBLASLt.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cublaslt_descriptors.h"
#include "cublaslt_numbers.h"
#include "fake_runtime.h"

struct cublasLtContext {
  uint64_t magic = 0;
};

namespace tp_fake {
namespace {

constexpr uint64_t kHandle = 0x74706c74, kAlgorithm = 0x7470616c;

struct Product {
  Operation operation;
  Layout a, b, c, d;
  Shapes shapes;
  const void *a_data = nullptr, *b_data = nullptr, *c_data = nullptr;
  void* d_data = nullptr;
  double alpha = 1, beta = 0;
  const void *device_alpha = nullptr, *device_beta = nullptr;  // read when the work runs
};

int64_t Index(const Layout& layout, int64_t batch, int64_t row, int64_t col) {
  return batch * layout.batch_stride +
         (layout.order == CUBLASLT_ORDER_ROW ? row * layout.ld + col : col * layout.ld + row);
}

// What the tensor cores see of an input.
template <class T>
T Input(const Operation& operation, T value) {
  switch (operation.compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return DropBits(static_cast<float>(value), 13);
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return DropBits(static_cast<float>(value), 16);
    case CUBLAS_COMPUTE_32F_FAST_16F:
      return FromHalf(ToHalf(static_cast<float>(value)));
    default:
      return value;
  }
}

// op(X) of one batch as rows of its long dimension: [count, k].
template <class T>
std::vector<T> Rows(const Operation& operation, const Layout& layout, const void* data, int64_t batch, int64_t count,
                    int64_t k, bool k_is_row) {
  std::vector<T> rows(static_cast<size_t>(count * k));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const int64_t index = k_is_row ? Index(layout, batch, j, i) : Index(layout, batch, i, j);
      rows[static_cast<size_t>(i * k + j)] = Input(operation, ReadElement<T>(layout.type, data, index));
    }
  return rows;
}

// The real library's GELU is the approximation by tanh.
template <class T>
T Activate(uint32_t epilogue, T x) {
  if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) return std::max(x, T{0});
  if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0)
    return T{0.5} * x * (T{1} + std::tanh(T{0.7978845608028654} * (x + T{0.044715} * x * x * x)));
  return x;
}

// T: float, or double for CUBLAS_COMPUTE_64F.
template <class T>
void Multiply(const Product& p) {
  const T alpha = p.device_alpha != nullptr ? *static_cast<const T*>(p.device_alpha) : static_cast<T>(p.alpha);
  const T beta = p.device_beta != nullptr ? *static_cast<const T*>(p.device_beta) : static_cast<T>(p.beta);
  const auto [m, n, k] = p.shapes;
  const bool biased = (p.operation.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  const auto bias_type = p.operation.bias_type < 0 ? p.d.type : static_cast<cudaDataType>(p.operation.bias_type);
  for (int64_t batch = 0; batch < p.d.batch; ++batch) {
    const auto a = Rows<T>(p.operation, p.a, p.a_data, batch, m, k, p.operation.trans_a != CUBLAS_OP_N);
    const auto b = Rows<T>(p.operation, p.b, p.b_data, batch, n, k, p.operation.trans_b == CUBLAS_OP_N);
    for (int64_t col = 0; col < n; ++col)
      for (int64_t row = 0; row < m; ++row) {
        const T* x = a.data() + row * k;
        const T* y = b.data() + col * k;
        T sum = 0;
        for (int64_t j = 0; j < k; ++j) sum += x[j] * y[j];
        T value = alpha * sum;
        // With beta 0 C is not read, whatever it holds.
        if (beta != 0) value += beta * ReadElement<T>(p.c.type, p.c_data, Index(p.c, batch, row, col));
        if (biased) value += ReadElement<T>(bias_type, p.operation.bias, batch * p.operation.bias_stride + row);
        WriteElement(p.d.type, p.d_data, Index(p.d, batch, row, col), Activate(p.operation.epilogue, value));
      }
  }
}

uint64_t Pick(uint64_t value, uint64_t most) { return value == 0 ? most : std::min(value & (~value + 1), most); }

// Bytes that all columns of the matrix are multiples of, when its address is one of `align`.
uint64_t Alignment(const Layout& layout, uint64_t align) {
  const uint64_t bytes = ElementBytes(layout.type);
  uint64_t all = std::min<uint64_t>(align, Pick(static_cast<uint64_t>(layout.ld) * bytes, 16));
  if (layout.batch > 1) all = std::min(all, Pick(static_cast<uint64_t>(layout.batch_stride) * bytes, 16));
  return all;
}

bool IsHandle(cublasLtHandle_t handle) { return handle != nullptr && handle->magic == kHandle; }

bool Aligned(const void* pointer, uint64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace
}  // namespace tp_fake

using tp_fake::Of;

#define TP_FAKE_CUBLAS_ENTER(name) \
  if (const int error = tp_fake::InjectedError(#name); error != 0) return static_cast<cublasStatus_t>(error)

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  TP_FAKE_CUBLAS_ENTER(cublasLtCreate);
  if (lightHandle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *lightHandle = new cublasLtContext{tp_fake::kHandle};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  TP_FAKE_CUBLAS_ENTER(cublasLtDestroy);
  if (!tp_fake::IsHandle(lightHandle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  lightHandle->magic = 0;
  delete lightHandle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion(void) { return CUDART_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
#define TP_STATUS(name) \
  case name:            \
    return #name;
    TP_STATUS(CUBLAS_STATUS_SUCCESS)
    TP_STATUS(CUBLAS_STATUS_NOT_INITIALIZED)
    TP_STATUS(CUBLAS_STATUS_ALLOC_FAILED)
    TP_STATUS(CUBLAS_STATUS_INVALID_VALUE)
    TP_STATUS(CUBLAS_STATUS_ARCH_MISMATCH)
    TP_STATUS(CUBLAS_STATUS_MAPPING_ERROR)
    TP_STATUS(CUBLAS_STATUS_EXECUTION_FAILED)
    TP_STATUS(CUBLAS_STATUS_INTERNAL_ERROR)
    TP_STATUS(CUBLAS_STATUS_NOT_SUPPORTED)
    TP_STATUS(CUBLAS_STATUS_LICENSE_ERROR)
#undef TP_STATUS
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "the function requires a feature absent from the architecture of the device";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "unknown status";
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
                                              cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                              cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                              cublasLtMatmulPreference_t preference, int requestedAlgoCount,
                                              cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
                                              int* returnAlgoCount) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatmulAlgoGetHeuristic);
  if (!tp_fake::IsHandle(lightHandle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (operationDesc == nullptr || Adesc == nullptr || Bdesc == nullptr || Cdesc == nullptr || Ddesc == nullptr ||
      preference == nullptr || heuristicResultsArray == nullptr || returnAlgoCount == nullptr ||
      requestedAlgoCount <= 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  *returnAlgoCount = 0;
  tp_fake::Shapes shapes;
  const tp_fake::Layout* layouts[] = {&Of(Adesc), &Of(Bdesc), &Of(Cdesc), &Of(Ddesc)};
  if (const cublasStatus_t status =
          tp_fake::Validate(Of(operationDesc), *layouts[0], *layouts[1], *layouts[2], *layouts[3], &shapes);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  bool narrow = false;  // the addresses may lie between elements
  for (int i = 0; i < 4; ++i) narrow |= Of(preference).align[i] < tp_fake::ElementBytes(layouts[i]->type);
  if (narrow) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Algorithms want 16, 4 or just an element's bytes of alignment; some a workspace.
  struct Kind {
    uint64_t align, workspace;
  };
  constexpr Kind kKinds[] = {{16, 1 << 22}, {16, 1 << 16}, {16, 0}, {4, 1 << 16}, {4, 0}, {1, 0}};
  for (uint64_t index = 0; index < std::size(kKinds) && *returnAlgoCount < requestedAlgoCount; ++index) {
    tp_fake::Algorithm algorithm;
    algorithm.magic = tp_fake::kAlgorithm;
    algorithm.workspace = kKinds[index].workspace;
    algorithm.index = index;
    bool usable = algorithm.workspace <= Of(preference).workspace;
    for (int i = 0; i < 4; ++i) {
      algorithm.align[i] = std::max<uint64_t>(kKinds[index].align, tp_fake::ElementBytes(layouts[i]->type));
      usable &= tp_fake::Alignment(*layouts[i], Of(preference).align[i]) >= algorithm.align[i];
    }
    if (!usable) continue;
    cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[(*returnAlgoCount)++];
    result = {};
    new (&result.algo) tp_fake::Algorithm(algorithm);
    result.workspaceSize = algorithm.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1.f + static_cast<float>(index);
  }
  return *returnAlgoCount == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t Adesc, const void* B, cublasLtMatrixLayout_t Bdesc,
                              const void* beta, const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspaceSizeInBytes, cudaStream_t stream) {
  TP_FAKE_CUBLAS_ENTER(cublasLtMatmul);
  if (!tp_fake::IsHandle(lightHandle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (computeDesc == nullptr || alpha == nullptr || beta == nullptr || A == nullptr || B == nullptr || C == nullptr ||
      D == nullptr || Adesc == nullptr || Bdesc == nullptr || Cdesc == nullptr || Ddesc == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace == nullptr && workspaceSizeInBytes != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!tp_fake::Aligned(workspace, 16)) return CUBLAS_STATUS_INVALID_VALUE;
  tp_fake::Product product;
  product.operation = Of(computeDesc);
  product.a = Of(Adesc);
  product.b = Of(Bdesc);
  product.c = Of(Cdesc);
  product.d = Of(Ddesc);
  if (const cublasStatus_t status =
          tp_fake::Validate(product.operation, product.a, product.b, product.c, product.d, &product.shapes);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  // In place only with one layout.
  if (C == D && (product.c.ld != product.d.ld || product.c.batch_stride != product.d.batch_stride))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((product.operation.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 && product.operation.bias == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  const void* addresses[] = {A, B, C, D};
  const tp_fake::Layout* layouts[] = {&product.a, &product.b, &product.c, &product.d};
  for (int i = 0; i < 4; ++i)
    if (!tp_fake::Aligned(addresses[i], tp_fake::ElementBytes(layouts[i]->type))) return CUBLAS_STATUS_INVALID_VALUE;
  if (algo != nullptr) {
    const auto& algorithm = *reinterpret_cast<const tp_fake::Algorithm*>(algo);
    if (algorithm.magic != tp_fake::kAlgorithm || algorithm.workspace > workspaceSizeInBytes)
      return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; ++i)
      if (!tp_fake::Aligned(addresses[i], algorithm.align[i]) ||
          tp_fake::Alignment(*layouts[i], 256) < algorithm.align[i])
        return CUBLAS_STATUS_INVALID_VALUE;
  }
  product.a_data = A;
  product.b_data = B;
  product.c_data = C;
  product.d_data = D;
  const bool wide = product.operation.scale == CUDA_R_64F;
  if (product.operation.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
    product.device_alpha = alpha;
    product.device_beta = beta;
  } else {
    product.alpha = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
    product.beta = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  }
  // A workspace is scratch: what it held is lost.
  const size_t scratch = std::min<size_t>(workspaceSizeInBytes, 64);
  const cudaError_t error = tp_fake::Enqueue(stream, [product, wide, workspace, scratch] {
    std::fill_n(static_cast<char*>(workspace), scratch, char{0x5a});
    wide ? tp_fake::Multiply<double>(product) : tp_fake::Multiply<float>(product);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

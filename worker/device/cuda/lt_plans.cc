#include "worker/device/cuda/lt_plans.h"

#include <utility>

#include "worker/device/cuda/cuda_status.h"

namespace tp::worker::cuda {
namespace {

constexpr size_t kMostPlans = 4096;  // shapes beyond them are planned at each use
constexpr int kCandidates = 6, kTimedRuns = 3;
constexpr uint32_t kMostAlignment = 256;  // bytes; what cuBLASLt expects unless it is told less

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasLtEpilogue_t EpilogueOf(Activation activation, bool bias) {
  switch (activation) {
    case Activation::kRelu:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::kGelu:
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Activation::kNone:
      break;
  }
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

uint32_t AlignmentOf(const void* pointer) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | kMostAlignment;
  return static_cast<uint32_t>(bits & (~bits + 1));
}
int Log2(uint32_t power) {
  int log = 0;
  while (power > 1) {
    power /= 2;
    ++log;
  }
  return log;
}

absl::Status CreateLayout(const LtProduct& product, DType dtype, int64_t rows, int64_t columns, int64_t stride,
                          cublasLtMatrixLayout_t* layout) {
  TP_RETURN_IF_ERROR(CublasStatus(cublasLtMatrixLayoutCreate(layout, TypeOf(dtype), static_cast<uint64_t>(rows),
                                                             static_cast<uint64_t>(columns), rows),
                                  "a matrix layout"));
  if (product.batch == 1) return absl::OkStatus();
  const auto batch = static_cast<int32_t>(product.batch);
  TP_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)),
                   "a matrix layout"));
  return CublasStatus(
      cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
      "a matrix layout");
}

absl::Status SetBias(cublasLtMatmulDesc_t operation, const void* bias) {
  return CublasStatus(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)),
                      "a product's bias");
}

}  // namespace

struct LtPlans::Plan {
  Plan() = default;
  ~Plan() {
    if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
    if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
    if (d != nullptr) cublasLtMatrixLayoutDestroy(d);
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

// Two events about some work.
struct LtPlans::Timing {
  Timing() = default;
  ~Timing() {
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
  }
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;

  cudaEvent_t begin = nullptr, end = nullptr;
  bool ran = false;
};

absl::StatusOr<std::unique_ptr<LtPlans>> LtPlans::Create(bool tf32, void* workspace, int64_t workspace_bytes,
                                                         Wait wait) {
  cublasLtHandle_t handle = nullptr;
  TP_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&handle), "starting cuBLASLt"));
  return std::unique_ptr<LtPlans>(new LtPlans(handle, tf32, workspace, workspace_bytes, std::move(wait)));
}
LtPlans::LtPlans(cublasLtHandle_t handle, bool tf32, void* workspace, int64_t workspace_bytes, Wait wait)
    : handle_(handle), tf32_(tf32), workspace_(workspace), workspace_bytes_(workspace_bytes), wait_(std::move(wait)) {}
LtPlans::~LtPlans() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

absl::StatusOr<std::unique_ptr<LtPlans::Plan>> LtPlans::Make(const LtProduct& product, bool bias) const {
  auto plan = std::make_unique<Plan>();
  const bool fast = tf32_ && product.dtype == DType::kF32;
  TP_RETURN_IF_ERROR(CublasStatus(
      cublasLtMatmulDescCreate(&plan->operation, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "a product's description"));
  const int32_t transpose = product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  TP_RETURN_IF_ERROR(CublasStatus(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)),
      "a product's description"));
  const auto epilogue = static_cast<uint32_t>(EpilogueOf(product.activation, bias));
  TP_RETURN_IF_ERROR(CublasStatus(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)),
      "a product's epilogue"));
  const int64_t a_rows = product.transpose_a ? product.inner : product.rows;
  const int64_t a_columns = product.transpose_a ? product.rows : product.inner;
  TP_RETURN_IF_ERROR(CreateLayout(product, product.dtype, a_rows, a_columns, product.a_stride, &plan->a));
  TP_RETURN_IF_ERROR(CreateLayout(product, product.dtype, product.inner, product.columns, product.b_stride, &plan->b));
  TP_RETURN_IF_ERROR(
      CreateLayout(product, product.output_dtype, product.rows, product.columns, product.d_stride, &plan->d));
  return plan;
}

absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> LtPlans::Candidates(const Plan& plan,
                                                                                 const uint32_t (&align)[3],
                                                                                 int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  TP_RETURN_IF_ERROR(CublasStatus(cublasLtMatmulPreferenceCreate(&preference), "a product's preferences"));
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)> owned(
      preference, cublasLtMatmulPreferenceDestroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t size) {
    return CublasStatus(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
                        "a product's preferences");
  };
  const auto bytes = static_cast<uint64_t>(workspace_bytes_);
  TP_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
  TP_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[0], sizeof(align[0])));
  TP_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[1], sizeof(align[1])));
  TP_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof(align[2])));
  TP_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[2], sizeof(align[2])));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  TP_RETURN_IF_ERROR(CublasStatus(cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.d,
                                                                 plan.d, preference, most, found.data(), &count),
                                  "choosing a product's algorithm"));
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [](const auto& candidate) { return candidate.state != CUBLAS_STATUS_SUCCESS; });
  if (found.empty()) return absl::UnimplementedError("cuBLASLt has no algorithm for a product");
  return found;
}

absl::Status LtPlans::Launch(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                             const void* a, const void* b, void* d) const {
  const float one = 1, zero = 0;
  return CublasStatus(cublasLtMatmul(handle_, plan.operation, &one, a, plan.a, b, plan.b, &zero, d, plan.d, d, plan.d,
                                     &algorithm, workspace_, static_cast<size_t>(workspace_bytes_), stream),
                      "a product");
}

absl::StatusOr<size_t> LtPlans::Fastest(cudaStream_t stream, const Plan& plan,
                                        const std::vector<cublasLtMatmulHeuristicResult_t>& candidates, const void* a,
                                        const void* b, void* d) const {
  std::vector<Timing> timings(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    Timing& timing = timings[i];
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&timing.begin), "an event"));
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&timing.end), "an event"));
    if (!Launch(stream, plan, candidates[i].algo, a, b, d).ok()) continue;  // warm; one that cannot run is no candidate
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(timing.begin, stream), "an event"));
    for (int run = 0; run < kTimedRuns; ++run) {
      TP_RETURN_IF_ERROR(Launch(stream, plan, candidates[i].algo, a, b, d));
    }
    TP_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(timing.end, stream), "an event"));
    timing.ran = true;
  }
  size_t best = 0;
  float least = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!timings[i].ran) continue;
    TP_RETURN_IF_ERROR(wait_(timings[i].end));
    float milliseconds = 0;
    TP_RETURN_IF_ERROR(
        CudaStatus(cudaEventElapsedTime(&milliseconds, timings[i].begin, timings[i].end), "timing a product"));
    if (least >= 0 && milliseconds >= least) continue;
    least = milliseconds;
    best = i;
  }
  return best;
}

absl::Status LtPlans::Run(cudaStream_t stream, const LtProduct& product, const void* a, const void* b, const void* bias,
                          void* d) {
  const uint32_t align[3] = {AlignmentOf(a), AlignmentOf(b), AlignmentOf(d)};
  const int kind = (static_cast<int>(product.dtype) * 8 + static_cast<int>(product.output_dtype)) * 16 +
                   static_cast<int>(product.activation) * 4 + (bias != nullptr ? 2 : 0) + (product.transpose_a ? 1 : 0);
  const uint32_t bias_align = bias == nullptr ? kMostAlignment : AlignmentOf(bias);
  const int aligned = ((Log2(align[0]) * 16 + Log2(align[1])) * 16 + Log2(align[2])) * 16 + Log2(bias_align);
  const Key key(product.rows, product.columns, product.inner, kind, product.batch, product.a_stride, product.b_stride,
                product.d_stride, aligned);
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    const Plan& plan = *found->second;
    if (bias != nullptr) TP_RETURN_IF_ERROR(SetBias(plan.operation, bias));
    return Launch(stream, plan, plan.algorithm, a, b, d);
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TP_RETURN_IF_ERROR(CudaStatus(cudaStreamIsCapturing(stream, &capture), "a stream"));
  const bool keep = plans_.size() < kMostPlans;
  const bool time = keep && wait_ != nullptr && capture == cudaStreamCaptureStatusNone;
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, Make(product, bias != nullptr));
  if (bias != nullptr) TP_RETURN_IF_ERROR(SetBias(plan->operation, bias));
  TP_ASSIGN_OR_RETURN(const auto candidates, Candidates(*plan, align, time ? kCandidates : 1));
  size_t best = 0;
  if (time && candidates.size() > 1) {
    TP_ASSIGN_OR_RETURN(best, Fastest(stream, *plan, candidates, a, b, d));
  }
  plan->algorithm = candidates[best].algo;
  TP_RETURN_IF_ERROR(Launch(stream, *plan, plan->algorithm, a, b, d));
  if (keep) plans_.emplace(key, std::move(plan));
  return absl::OkStatus();
}

}  // namespace tp::worker::cuda

// Products of the fake cuBLASLt against loops in float64, and what it refuses.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "fake_runtime.h"
#include "gtest/gtest.h"

namespace tp_fake {
namespace {

// An unsigned 16-bit pattern of the type, by scaling: exact for the values used here, halves up to 4 with 5 bits.
double RoundTo(cudaDataType type, double value) {
  const int bits = type == CUDA_R_16BF ? 8 : type == CUDA_R_16F ? 11 : 24;
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, bits - exponent)), exponent - bits);
}

void Put(cudaDataType type, std::vector<char>& data, size_t index, double value) {
  const float single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, 4);
  if (type == CUDA_R_32F) {
    std::memcpy(data.data() + 4 * index, &single, 4);
    return;
  }
  // BF16 is the upper half; F16 of a normal number has its exponent moved by 112 and 13 bits less.
  const auto half =
      static_cast<uint16_t>(type == CUDA_R_16BF ? bits >> 16
                            : value == 0        ? 0
                                         : ((bits >> 16) & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13));
  std::memcpy(data.data() + 2 * index, &half, 2);
}

double Get(cudaDataType type, const std::vector<char>& data, size_t index) {
  uint32_t bits = 0;
  if (type == CUDA_R_32F) {
    std::memcpy(&bits, data.data() + 4 * index, 4);
  } else {
    uint16_t half;
    std::memcpy(&half, data.data() + 2 * index, 2);
    bits = type == CUDA_R_16BF    ? uint32_t{half} << 16
           : (half & 0x7fff) == 0 ? 0
                                  : ((half & 0x8000u) << 16) | (((half & 0x7fffu) << 13) + (112u << 23));
  }
  float single;
  std::memcpy(&single, &bits, 4);
  return single;
}

size_t BytesOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

// -2 .. 2 in eighths, exact in every type.
double Value(size_t i) { return static_cast<double>(static_cast<int>((i * 7 + 3) % 33) - 16) / 8; }

class FakeCublasLt : public testing::Test {
 protected:
  void SetUp() override {
    Reset(1);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    cublasLtDestroy(handle_);
    cudaStreamDestroy(stream_);
  }
  cublasLtMatrixLayout_t Layout(cudaDataType type, int64_t rows, int64_t cols, int64_t ld, int32_t batch,
                                int64_t stride) {
    cublasLtMatrixLayout_t layout = nullptr;
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
        CUBLAS_STATUS_SUCCESS);
    return layout;
  }
  template <class T>
  static void Set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
  }
  // Algorithms for a square product of these types, or 0 and the status.
  int Algorithms(cublasComputeType_t compute, cudaDataType in, cudaDataType out, int64_t ld, uint64_t workspace,
                 cublasStatus_t* status, int64_t rows_of_b = 8) {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, 8);
    auto* a = Layout(in, 8, 8, ld, 1, 0);
    auto* b = Layout(in, rows_of_b, 8, ld, 1, 0);
    auto* d = Layout(out, 8, 8, ld, 1, 0);
    cublasLtMatmulHeuristicResult_t results[8];
    int count = 0;
    *status = cublasLtMatmulAlgoGetHeuristic(handle_, operation, a, b, d, d, preference, 8, results, &count);
    for (auto* layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation);
    cublasLtMatmulPreferenceDestroy(preference);
    return count;
  }
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
};

struct Types {
  cublasComputeType_t compute;
  cudaDataType in, out;
};

TEST_F(FakeCublasLt, ProductsEqualLoops) {
  constexpr int64_t m = 5, n = 3, k = 7, batch = 2;
  const Types types[] = {{CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F},
                         {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F},
                         {CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF},
                         {CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_32F},
                         {CUBLAS_COMPUTE_32F, CUDA_R_16F, CUDA_R_16F}};
  const uint32_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU,
                                CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS};
  const float alpha = 0.5f, beta = 0.25f;
  for (const auto& [compute, in, out] : types)
    for (const uint32_t epilogue : epilogues)
      for (int transposes = 0; transposes < 4; ++transposes) {
        SCOPED_TRACE(testing::Message() << compute << " " << in << " " << out << " epilogue " << epilogue
                                        << " transposes " << transposes);
        const bool ta = (transposes & 1) != 0, tb = (transposes & 2) != 0;
        const int64_t a_rows = ta ? k : m, a_cols = ta ? m : k, b_rows = tb ? n : k, b_cols = tb ? k : n;
        const int64_t lda = a_rows + 1, ldb = b_rows + 2, ldd = m + 3;
        const int64_t a_size = lda * a_cols, b_size = ldb * b_cols, d_size = ldd * n;
        std::vector<char> a(static_cast<size_t>(batch * a_size) * BytesOf(in)),
            b(static_cast<size_t>(batch * b_size) * BytesOf(in)), d(static_cast<size_t>(batch * d_size) * BytesOf(out)),
            bias(m * BytesOf(out));
        for (size_t i = 0; i < static_cast<size_t>(batch * a_size); ++i) Put(in, a, i, Value(i));
        for (size_t i = 0; i < static_cast<size_t>(batch * b_size); ++i) Put(in, b, i, Value(i + 11));
        for (size_t i = 0; i < static_cast<size_t>(batch * d_size); ++i) Put(out, d, i, Value(i + 5));
        for (size_t i = 0; i < m; ++i) Put(out, bias, i, Value(i + 2));
        const std::vector<char> c = d;

        cublasLtMatmulDesc_t operation = nullptr;
        ASSERT_EQ(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
        Set(operation, CUBLASLT_MATMUL_DESC_TRANSA, int32_t{ta ? CUBLAS_OP_T : CUBLAS_OP_N});
        Set(operation, CUBLASLT_MATMUL_DESC_TRANSB, int32_t{tb ? CUBLAS_OP_T : CUBLAS_OP_N});
        Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
        Set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data()));
        auto* a_layout = Layout(in, a_rows, a_cols, lda, batch, a_size);
        auto* b_layout = Layout(in, b_rows, b_cols, ldb, batch, b_size);
        auto* d_layout = Layout(out, m, n, ldd, batch, d_size);
        ASSERT_EQ(cublasLtMatmul(handle_, operation, &alpha, a.data(), a_layout, b.data(), b_layout, &beta, d.data(),
                                 d_layout, d.data(), d_layout, nullptr, nullptr, 0, stream_),
                  CUBLAS_STATUS_SUCCESS);
        ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        for (int64_t t = 0; t < batch; ++t)
          for (int64_t col = 0; col < n; ++col)
            for (int64_t row = 0; row < m; ++row) {
              double sum = 0;
              for (int64_t j = 0; j < k; ++j)
                sum += Get(in, a, static_cast<size_t>(t * a_size + (ta ? row * lda + j : j * lda + row))) *
                       Get(in, b, static_cast<size_t>(t * b_size + (tb ? j * ldb + col : col * ldb + j)));
              const auto at = static_cast<size_t>(t * d_size + col * ldd + row);
              double expected = alpha * sum + beta * Get(out, c, at);
              if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) expected += Get(out, bias, static_cast<size_t>(row));
              if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) expected = expected < 0 ? 0 : expected;
              if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
                expected = expected * 0.5 *
                           (1 + std::tanh(std::sqrt(2 / M_PI) * (expected + 0.044715 * std::pow(expected, 3))));
                EXPECT_NEAR(Get(out, d, at), expected, std::fabs(expected) * (out == CUDA_R_16BF ? 8e-3 : 1e-3) + 1e-4);
              } else {
                EXPECT_EQ(Get(out, d, at), expected == 0 ? 0 : RoundTo(out, expected));
              }
            }
        EXPECT_EQ(Get(out, d, m), Get(out, c, m));  // between columns
        for (auto* layout : {a_layout, b_layout, d_layout}) cublasLtMatrixLayoutDestroy(layout);
        cublasLtMatmulDescDestroy(operation);
      }
}

TEST_F(FakeCublasLt, Tf32RoundsInputsTo10Bits) {
  const float one = 1, zero = 0, x = 1 + 0x1p-10f + 0x1p-12f, unread = NAN;
  for (const cublasComputeType_t compute : {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32}) {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F);
    auto* layout = Layout(CUDA_R_32F, 1, 1, 1, 1, 0);
    float result = 0;
    EXPECT_EQ(cublasLtMatmul(handle_, operation, &one, &x, layout, &one, layout, &zero, &unread, layout, &result,
                             layout, nullptr, nullptr, 0, stream_),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(result, compute == CUBLAS_COMPUTE_32F ? x : 1 + 0x1p-10f);
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation);
  }
}

TEST_F(FakeCublasLt, HeuristicsDependOnAlignmentAndWorkspace) {
  cublasStatus_t status;
  const int all = Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF, 8, 1 << 23, &status);
  EXPECT_EQ(status, CUBLAS_STATUS_SUCCESS);
  const int no_workspace = Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF, 8, 0, &status);
  const int odd = Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF, 9, 1 << 23, &status);
  EXPECT_GT(all, no_workspace);
  EXPECT_GT(no_workspace, odd);
  EXPECT_GT(odd, 0);
}

TEST_F(FakeCublasLt, RefusesWhatTheLibraryRefuses) {
  cublasStatus_t status;
  EXPECT_EQ(Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, 8, 0, &status), 0);
  EXPECT_EQ(status, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_16F, CUDA_R_16BF, 8, 0, &status), 0);
  EXPECT_EQ(status, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 7, 0, &status), 0);
  EXPECT_EQ(status, CUBLAS_STATUS_INVALID_VALUE);  // a leading dimension below the rows
  EXPECT_EQ(Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 8, 0, &status, /*rows_of_b=*/6), 0);
  EXPECT_EQ(status, CUBLAS_STATUS_INVALID_VALUE);
  FailNext("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_INTERNAL_ERROR, 0);
  EXPECT_EQ(Algorithms(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 8, 0, &status), 0);
  EXPECT_EQ(status, CUBLAS_STATUS_INTERNAL_ERROR);
  EXPECT_STREQ(cublasLtGetStatusName(status), "CUBLAS_STATUS_INTERNAL_ERROR");
}

}  // namespace
}  // namespace tp_fake

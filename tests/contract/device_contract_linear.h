// Products with packed weights.
#pragma once

#include "tests/contract/device_contract.h"

namespace tp::testing {

class LinearContract : public DeviceContract {
 protected:
  // Compares output [m, n] = input [m, k] x weight [n, k]^T + bias with loops.
  void Check(DType dtype, DType out_dtype, int64_t m, int64_t k, int64_t n, bool with_bias) {
    SCOPED_TRACE(::testing::Message() << "m=" << m << " k=" << k << " n=" << n << " " << DTypeName(dtype) << " to "
                                      << DTypeName(out_dtype) << " bias=" << with_bias);
    const auto x = Random(dtype, m * k, 1);
    const auto w = Random(dtype, n * k, 2);
    const auto b = Random(dtype, n, 3);
    const DeviceTensor input = Put(dtype, {m, k}, x);
    const DeviceTensor bias = Put(dtype, {n}, b);
    const DeviceTensor output = Empty(out_dtype, {m, n});
    std::unique_ptr<worker::PackedWeight> packed = Pack(Put(dtype, {n, k}, w));
    ASSERT_NE(packed, nullptr);
    const ConstTensorView bias_view = bias.view;
    ASSERT_EQ(Done(device_->Linear(*stream_, input.view, *packed, with_bias ? &bias_view : nullptr, output.view)),
              absl::OkStatus());
    std::vector<double> want(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = with_bias ? b[j] : 0;
        for (int64_t c = 0; c < k; ++c) sum += x[i * k + c] * w[j * k + c];
        want[i * n + j] = sum;
      }
    }
    ExpectNear(Values(output), want, out_dtype == DType::kBF16 ? 1.0 / 200 : 1e-6 * std::sqrt(k + 1.0) * 4);
  }
  // Packs and frees the plain weight.
  std::unique_ptr<worker::PackedWeight> Pack(DeviceTensor weight) {
    auto packed = device_->PackWeight(*stream_, weight.view);
    EXPECT_EQ(Done(packed.status()), absl::OkStatus());
    return packed.ok() ? std::move(*packed) : nullptr;
  }
};

TEST_P(LinearContract, OddShapesWithAndWithoutBias) {
  for (const int64_t m : {0, 1, 2, 3, 7, 8, 15, 16, 17, 33}) {
    for (const int64_t k : {0, 1, 16, 257}) {
      for (const int64_t n : {0, 1, 15, 17, 256}) {
        Check(DType::kF32, DType::kF32, m, k, n, m % 2 == 0);
      }
    }
  }
}

TEST_P(LinearContract, BF16ByBF16ToBF16AndToF32) {
  for (const int64_t m : {0, 1, 3, 16, 19}) {
    for (const int64_t k : {0, 7, 64, 257}) {
      for (const int64_t n : {0, 1, 17, 512}) {
        Check(DType::kBF16, DType::kBF16, m, k, n, true);
        Check(DType::kBF16, DType::kF32, m, k, n, false);
      }
    }
  }
}

TEST_P(LinearContract, F32ToBF16RoundsOnce) { Check(DType::kF32, DType::kBF16, 5, 33, 9, true); }

TEST_P(LinearContract, ManyRowsAndWideWeights) {
  Check(DType::kF32, DType::kF32, 1041, 24, 40, true);
  Check(DType::kF32, DType::kF32, 512, 16, 1024, false);
  Check(DType::kF32, DType::kF32, 3, 512, 1024, true);
  Check(DType::kBF16, DType::kBF16, 530, 16, 512, true);
}

TEST_P(LinearContract, OnePackedWeightServesEveryNumberOfRows) {
  const auto w = Random(DType::kF32, 12 * 20, 4);
  const auto packed = Pack(Put(DType::kF32, {12, 20}, w));
  const auto x = Random(DType::kF32, 40 * 20, 5);
  std::vector<double> want(40 * 12);
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 12; ++j) {
      for (int64_t c = 0; c < 20; ++c) want[i * 12 + j] += x[i * 20 + c] * w[j * 20 + c];
    }
  }
  for (int64_t m = 1; m <= 40; ++m) {
    const DeviceTensor input = Put(DType::kF32, {m, 20}, {x.begin(), x.begin() + m * 20});
    const DeviceTensor output = Empty(DType::kF32, {m, 12});
    ASSERT_EQ(Done(device_->Linear(*stream_, input.view, *packed, nullptr, output.view)), absl::OkStatus());
    ExpectNear(Values(output), {want.begin(), want.begin() + m * 12}, 1e-5);
  }
}

TEST_P(LinearContract, LeadingDimsAreRows) {
  const auto packed = Pack(Put(DType::kF32, {1, 2}, {1, 10}));
  const DeviceTensor input = Put(DType::kF32, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const DeviceTensor output = Empty(DType::kF32, {2, 2, 1});
  ASSERT_EQ(Done(device_->Linear(*stream_, input.view, *packed, nullptr, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(21, 43, 65, 87));
}

// NaN payloads and signed zeros included.
TEST_P(LinearContract, UnpackingGivesTheBitsBack) {
  for (const auto& [dtype, n, k] : std::vector<std::tuple<DType, int64_t, int64_t>>{{DType::kF32, 17, 33},
                                                                                    {DType::kF32, 512, 7},
                                                                                    {DType::kBF16, 17, 33},
                                                                                    {DType::kBF16, 512, 16},
                                                                                    {DType::kBF16, 0, 5},
                                                                                    {DType::kF32, 5, 0}}) {
    HostTensor weight = ConvertTo(Host({n, k}, Random(dtype, n * k, 6)), dtype);
    if (dtype == DType::kBF16 && n > 1) {
      const uint16_t special[] = {0x7fc1, 0xff81, 0x8000, 0x0001, 0x7f80};
      std::memcpy(weight.bytes.data(), special, sizeof(special));
    } else if (n > 1 && k > 1) {
      const uint32_t special[] = {0x7fc00123, 0x80000000, 0x00000001, 0xff800000};
      std::memcpy(weight.bytes.data(), special, sizeof(special));
    }
    const auto packed = Pack(Put(weight));
    ASSERT_NE(packed, nullptr);
    EXPECT_EQ(packed->dtype(), dtype);
    EXPECT_EQ(packed->out_features(), n);
    EXPECT_EQ(packed->in_features(), k);
    const int64_t item = device_->HasProduct(dtype) ? ItemSize(dtype) : 4;
    EXPECT_GE(packed->memory_bytes(), n * k * item);
    const DeviceTensor plain = Empty(dtype, {n, k});
    ASSERT_EQ(Done(device_->UnpackWeight(*stream_, *packed, plain.view)), absl::OkStatus());
    EXPECT_EQ(Get(plain), weight);
  }
}

TEST_P(LinearContract, OtherWeightTypesAreRefused) {
  for (const DType dtype : {DType::kF64, DType::kI64, DType::kF16}) {
    if (device_->HasProduct(dtype)) continue;
    const DeviceTensor weight = Put(dtype, {2, 2}, {1, 2, 3, 4});
    EXPECT_EQ(device_->PackWeight(*stream_, weight.view).status().code(), absl::StatusCode::kUnimplemented);
  }
}

}  // namespace tp::testing

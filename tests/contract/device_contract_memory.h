// Memory, copies and casts.
#pragma once

#include <cstdint>

#include "tests/contract/device_contract.h"

namespace tp::testing {

TEST_P(DeviceContract, BuffersAreAlignedAndMayBeEmpty) {
  for (const int64_t bytes : {0, 1, 63, 64, 1000}) {
    auto buffer = device_->Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->size(), bytes);
    EXPECT_NE((*buffer)->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
  }
}

TEST_P(DeviceContract, AllocatingMoreThanThereIsNamesTheBytes) {
  const auto buffer = device_->Allocate(int64_t{1} << 60);
  ASSERT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(buffer.status().message()), ::testing::HasSubstr("1152921504606846976"));
  EXPECT_FALSE(device_->Allocate(-1).ok());
}

TEST_P(DeviceContract, DescribesItselfAndItsProducts) {
  EXPECT_FALSE(device_->Describe().empty());
  EXPECT_TRUE(device_->HasProduct(DType::kF32));
  EXPECT_FALSE(device_->HasProduct(DType::kI64));
}

TEST_P(DeviceContract, CopiesAndFillsBytes) {
  const std::string text = "some bytes";
  auto a = *device_->Allocate(10);
  auto b = *device_->Allocate(10);
  ASSERT_TRUE(Done(device_->CopyToDevice(*stream_, text.data(), a->data(), 10)).ok());
  ASSERT_TRUE(Done(device_->CopyOnDevice(*stream_, a->data(), b->data(), 10)).ok());
  ASSERT_TRUE(Done(device_->FillZero(*stream_, b->data(), 4)).ok());
  ASSERT_TRUE(Done(device_->FillZero(*stream_, nullptr, 0)).ok());
  ASSERT_TRUE(Done(device_->CopyToDevice(*stream_, nullptr, nullptr, 0)).ok());
  std::string back(10, '?');
  ASSERT_TRUE(Done(device_->CopyToHost(*stream_, b->data(), back.data(), 10)).ok());
  EXPECT_EQ(back, std::string(4, '\0') + " bytes");
}

TEST_P(DeviceContract, CopyBoxMovesABox) {
  const DeviceTensor from = Put(DType::kF32, {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const DeviceTensor to = Put(DType::kF32, {2, 3}, std::vector<double>(6, -1));
  ASSERT_TRUE(Done(device_->CopyBox(*stream_, from.view, {1, 1}, to.view, {0, 1}, {2, 2})).ok());
  EXPECT_THAT(Values(to), ::testing::ElementsAre(-1, 5, 6, -1, 9, 10));
  ASSERT_TRUE(Done(device_->CopyBox(*stream_, from.view, {3, 0}, to.view, {0, 0}, {0, 3})).ok());
  EXPECT_THAT(Values(to), ::testing::ElementsAre(-1, 5, 6, -1, 9, 10));
}

TEST_P(DeviceContract, CastConvertsAllPairs) {
  const std::vector<DType> all = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                                  DType::kI64, DType::kI32,  DType::kU8,  DType::kBool};
  for (const DType from : all) {
    for (const DType to : all) {
      std::vector<double> values(19, 0.0);
      for (size_t i = 0; i < values.size(); ++i) values[i] = from == DType::kBool ? i % 2 : static_cast<double>(i);
      const DeviceTensor input = Put(from, {19}, values);
      const DeviceTensor output = Empty(to, {19});
      ASSERT_TRUE(Done(device_->Cast(*stream_, input.view, output.view)).ok());
      for (double& value : values) value = to == DType::kBool ? value != 0 : value;
      EXPECT_EQ(Values(output), values) << DTypeName(from) << " to " << DTypeName(to);
    }
  }
}

TEST_P(DeviceContract, CastRoundsToNearestEvenAndTruncatesToIntegers) {
  // 1 + 2^-8 lies halfway between two BF16s: the even one is 1; 1 + 3 * 2^-8 rounds up to 1 + 2^-6.
  const std::vector<double> values = {1 + 1.0 / 256,
                                      1 + 3.0 / 256,
                                      -1 - 1.0 / 256,
                                      3.9,
                                      -3.9,
                                      std::nan(""),
                                      INFINITY,
                                      -INFINITY,
                                      0,
                                      3.4e38,
                                      1 + 1.0 / 256 + 1e-6,
                                      7,
                                      8,
                                      9,
                                      10,
                                      11,
                                      12};
  const DeviceTensor input = Put(DType::kF32, {17}, values);
  const DeviceTensor output = Empty(DType::kBF16, {17});
  ASSERT_TRUE(Done(device_->Cast(*stream_, input.view, output.view)).ok());
  ExpectNear(Values(output),
             {1, 1 + 1.0 / 64, -1, 3.90625, -3.90625, std::nan(""), INFINITY, -INFINITY, 0, INFINITY, 1 + 1.0 / 128, 7,
              8, 9, 10, 11, 12},
             0);
  const DeviceTensor some = Put(DType::kF32, {2}, {3.9, -3.9});
  const DeviceTensor integers = Empty(DType::kI64, {2});
  ASSERT_TRUE(Done(device_->Cast(*stream_, some.view, integers.view)).ok());
  EXPECT_THAT(Ids(integers), ::testing::ElementsAre(3, -3));
}

}  // namespace tp::testing

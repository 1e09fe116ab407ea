#include "common/tensor/host_tensor.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace tp {
namespace {

template <typename T>
std::vector<T> Values(const HostTensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + ElementCount(tensor.shape)};
}

HostTensor Raw16(DType dtype, std::vector<uint16_t> bits) {
  HostTensor tensor{dtype, {static_cast<int64_t>(bits.size())}, std::string(bits.size() * 2, '\0')};
  std::memcpy(tensor.bytes.data(), bits.data(), tensor.bytes.size());
  return tensor;
}

TEST(HostTensorTest, ValidatesBytesAgainstShape) {
  HostTensor tensor = MakeHostTensor<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(ValidateHostTensor(tensor).ok());
  tensor.bytes.pop_back();
  const absl::Status status = ValidateHostTensor(tensor);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("expected 16 bytes, got 15"), std::string::npos);
  tensor.shape = {-1};
  EXPECT_EQ(ValidateHostTensor(tensor).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ValidateHostTensor(HostTensor{DType::kF32, {0, 5}, ""}).ok());
}

TEST(ConvertTest, FloatsToSixteenBits) {
  const HostTensor from = MakeHostTensor<float>({4}, {1.0f, -2.0f, 65520.0f, 257.0f});
  EXPECT_EQ(Values<uint16_t>(ConvertTo(from, DType::kBF16)), (std::vector<uint16_t>{0x3f80, 0xc000, 0x4780, 0x4380}));
  EXPECT_EQ(Values<uint16_t>(ConvertTo(from, DType::kF16)), (std::vector<uint16_t>{0x3c00, 0xc000, 0x7c00, 0x5c04}));
}

TEST(ConvertTest, WideValuesAreRoundedOnce) {
  // 1 + 2^-8 + 2^-40 lies above the tie between 0x3f80 and 0x3f81; rounded to float first it would be the tie itself.
  const double above = 1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  const double below = 1.0 + 3 * std::ldexp(1.0, -8) - std::ldexp(1.0, -40);
  const HostTensor doubles = MakeHostTensor<double>({4}, {above, below, -above, 1e300});
  EXPECT_EQ(Values<uint16_t>(ConvertTo(doubles, DType::kBF16)),
            (std::vector<uint16_t>{0x3f81, 0x3f81, 0xbf81, 0x7f80}));
  const HostTensor integers = MakeHostTensor<int64_t>({1}, {(int64_t{1} << 40) + (int64_t{1} << 32) + 1});
  EXPECT_EQ(Values<uint16_t>(ConvertTo(integers, DType::kBF16)), (std::vector<uint16_t>{0x5381}));
}

TEST(ConvertTest, SixteenBitsToWider) {
  const HostTensor bf16 = Raw16(DType::kBF16, {0x3f80, 0xc000, 0x0001, 0xff80});
  EXPECT_EQ(Values<float>(ConvertTo(bf16, DType::kF32)),
            (std::vector<float>{1.0f, -2.0f, std::ldexp(1.0f, -133), -std::numeric_limits<float>::infinity()}));
  const HostTensor f16 = Raw16(DType::kF16, {0x3c00, 0x0001});
  EXPECT_EQ(Values<double>(ConvertTo(f16, DType::kF64)), (std::vector<double>{1.0, std::ldexp(1.0, -24)}));
  EXPECT_EQ(Values<uint16_t>(ConvertTo(f16, DType::kBF16)), (std::vector<uint16_t>{0x3f80, 0x3380}));
}

TEST(ConvertTest, FloatToIntegerIsTruncatedAndSaturates) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const HostTensor from = MakeHostTensor<float>({6}, {1.9f, -1.9f, 300.0f, 1e30f, -1e30f, nan});
  EXPECT_EQ(Values<int64_t>(ConvertTo(from, DType::kI64)), (std::vector<int64_t>{1, -1, 300, INT64_MAX, INT64_MIN, 0}));
  EXPECT_EQ(Values<int32_t>(ConvertTo(from, DType::kI32)), (std::vector<int32_t>{1, -1, 300, INT32_MAX, INT32_MIN, 0}));
  EXPECT_EQ(Values<uint8_t>(ConvertTo(from, DType::kU8)), (std::vector<uint8_t>{1, 0, 255, 255, 0, 0}));
  // P(sum) of 0.6 and 0.6 is 1.2.
  EXPECT_EQ(Values<int64_t>(ConvertTo(MakeHostTensor<float>({1}, {0.6f + 0.6f}), DType::kI64)),
            (std::vector<int64_t>{1}));
}

TEST(ConvertTest, BooleansAreNotZero) {
  const HostTensor from =
      MakeHostTensor<float>({5}, {0.0f, -0.0f, 0.25f, -3.0f, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(Values<uint8_t>(ConvertTo(from, DType::kBool)), (std::vector<uint8_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(Values<uint8_t>(ConvertTo(MakeHostTensor<int64_t>({2}, {256, 0}), DType::kBool)),
            (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(Values<uint8_t>(ConvertTo(Raw16(DType::kBF16, {0x8000, 0x0001}), DType::kBool)),
            (std::vector<uint8_t>{0, 1}));
  const HostTensor booleans{DType::kBool, {3}, std::string("\0\1\7", 3)};
  EXPECT_EQ(Values<float>(ConvertTo(booleans, DType::kF32)), (std::vector<float>{0, 1, 1}));
}

TEST(ConvertTest, KeepsShapeAndHandlesNoElements) {
  const HostTensor empty{DType::kF32, {2, 0}, ""};
  const HostTensor converted = ConvertTo(empty, DType::kBF16);
  EXPECT_EQ(converted.shape, (Shape{2, 0}));
  EXPECT_EQ(converted.dtype, DType::kBF16);
  EXPECT_TRUE(converted.bytes.empty());
  const HostTensor scalar = MakeHostTensor<int32_t>({}, {3});
  EXPECT_EQ(Values<double>(ConvertTo(scalar, DType::kF64)), (std::vector<double>{3}));
  EXPECT_EQ(ConvertTo(scalar, DType::kI32), scalar);
}

TEST(CopyBoxTest, CopiesABoxBetweenOffsets) {
  const HostTensor from = MakeHostTensor<int32_t>({3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  HostTensor to = MakeHostTensor<int32_t>({2, 3}, {-1, -1, -1, -1, -1, -1});
  CopyBox(from.bytes.data(), {3, 4}, {1, 2}, to.bytes.data(), {2, 3}, {0, 1}, {2, 2}, 4);
  EXPECT_EQ(Values<int32_t>(to), (std::vector<int32_t>{-1, 6, 7, -1, 10, 11}));
}

TEST(CopyBoxTest, CopiesWholeRowsPlanesAndScalars) {
  std::vector<uint8_t> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> to(24, 99);
  CopyBox(values.data(), {2, 3, 4}, {0, 0, 0}, to.data(), {2, 3, 4}, {0, 0, 0}, {2, 3, 4}, 1);
  EXPECT_EQ(to, values);
  std::vector<uint8_t> rows(8, 99);
  CopyBox(values.data(), {2, 3, 4}, {0, 1, 0}, rows.data(), {2, 1, 4}, {0, 0, 0}, {2, 1, 4}, 1);
  EXPECT_EQ(rows, (std::vector<uint8_t>{4, 5, 6, 7, 16, 17, 18, 19}));
  uint8_t scalar = 0;
  CopyBox(values.data() + 5, {}, {}, &scalar, {}, {}, {}, 1);
  EXPECT_EQ(scalar, 5);
  std::vector<uint8_t> column(6, 99);
  CopyBox(values.data(), {2, 3, 4}, {0, 0, 3}, column.data(), {2, 3, 1}, {0, 0, 0}, {2, 3, 1}, 1);
  EXPECT_EQ(column, (std::vector<uint8_t>{3, 7, 11, 15, 19, 23}));
}

TEST(CopyBoxTest, AnEmptyBoxTouchesNothing) {
  CopyBox(nullptr, {0, 4}, {0, 0}, nullptr, {3, 4}, {3, 0}, {0, 4}, 4);
  uint8_t to = 7;
  CopyBox(nullptr, {4, 0}, {0, 0}, &to, {1, 1}, {0, 0}, {1, 0}, 1);
  EXPECT_EQ(to, 7);
}

}  // namespace
}  // namespace tp

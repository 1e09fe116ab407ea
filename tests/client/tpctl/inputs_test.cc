#include "client/tpctl/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tp::client {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<HostTensor> Parse(const std::string& text, DType dtype) {
  const std::vector<InputType> types = {{"x", dtype, {Dim(1), Dim(1)}}};
  absl::StatusOr<std::vector<NamedTensor>> inputs = ParseInputs({"x=" + text}, types);
  if (!inputs.ok()) return inputs.status();
  return (*inputs)[0].tensor;
}

TEST(InputsTest, NumbersOutsideOfTheTypesRangeAreRefused) {
  for (const auto& [text, dtype] : std::vector<std::pair<std::string, DType>>{{"1e400", DType::kF32},
                                                                              {"-1e400", DType::kF64},
                                                                              {"1e39", DType::kF32},
                                                                              {"70000", DType::kF16},
                                                                              {"4e38", DType::kBF16},
                                                                              {"3000000000", DType::kI32},
                                                                              {"-2147483649", DType::kI32},
                                                                              {"256", DType::kU8},
                                                                              {"-1", DType::kU8},
                                                                              {"9223372036854775808", DType::kI64}}) {
    const absl::StatusOr<HostTensor> tensor = Parse("0," + text, dtype);
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr("'" + text + "' is outside of the range of "));
  }
}

TEST(InputsTest, NumbersAtTheEndOfTheRangeAndWrittenInfinitiesAreTaken) {
  EXPECT_EQ(Parse("-2147483648,2147483647", DType::kI32)->data<int32_t>()[0], INT32_MIN);
  EXPECT_EQ(Parse("255", DType::kU8)->data<uint8_t>()[0], 255);
  EXPECT_EQ(Parse("3.4028234e38", DType::kF32)->data<float>()[0], 3.4028234e38f);
  EXPECT_TRUE(std::isinf(Parse("-inf", DType::kF32)->data<float>()[0]));
  EXPECT_TRUE(std::isnan(Parse("nan", DType::kF32)->data<float>()[0]));
}

TEST(InputsTest, WordsThatAreNoNumbersAreRefused) {
  for (const char* text : {"", "a", "1,,2", "1.5x", "0x"})
    EXPECT_EQ(Parse(text, DType::kF32).status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(Parse("1.5", DType::kI64).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tp::client

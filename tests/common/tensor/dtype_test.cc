#include "common/tensor/dtype.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace tp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float Bits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(DTypeTest, NamesAreThoseOfSafetensorsAndParseBack) {
  const std::pair<std::string_view, int64_t> rows[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8},
                                                       {"I64", 8}, {"I32", 4},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, size] : rows) {
    const absl::StatusOr<DType> dtype = ParseDType(name);
    ASSERT_TRUE(dtype.ok()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
    EXPECT_EQ(ItemSize(*dtype), size);
    EXPECT_EQ(IsFloating(*dtype), name.find('F') != std::string_view::npos) << name;
  }
}

TEST(DTypeTest, UnknownNameIsRefusedWithTheKnownOnes) {
  for (const std::string_view name : {"", "f32", "F8_E4M3", "F32 "}) {
    const absl::Status status = ParseDType(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(std::string(status.message()).find("F32, BF16, F16, F64, I64, I32, U8, BOOL"), std::string::npos);
  }
}

TEST(BF16Test, KnownBitPatterns) {
  const std::pair<float, uint16_t> rows[] = {
      {0.0f, 0x0000},
      {-0.0f, 0x8000},
      {1.0f, 0x3f80},
      {-2.0f, 0xc000},
      {3.140625f, 0x4049},
      {kInf, 0x7f80},
      {-kInf, 0xff80},
      {Bits(0x3f808000), 0x3f80},  // a tie between 0x3f80 and 0x3f81 goes to the even one
      {Bits(0x3f818000), 0x3f82},  // a tie between 0x3f81 and 0x3f82
      {Bits(0x3f808001), 0x3f81},  // just above the tie
      {Bits(0x3f817fff), 0x3f81},  // just below the tie
      {Bits(0x7f7fffff), 0x7f80},  // the largest float rounds to infinity
      {Bits(0x00000001), 0x0000},  // the least subnormal float
      {Bits(0x00010000), 0x0001},  // the least subnormal bfloat16
      {Bits(0x00018000), 0x0002},  // a tie among subnormals
      {Bits(0x007fffff), 0x0080},  // a subnormal that rounds to the least normal
  };
  for (const auto& [value, bits] : rows) EXPECT_EQ(BF16FromFloat(value), bits) << value;
}

TEST(BF16Test, NaNStaysNaN) {
  EXPECT_TRUE(std::isnan(FloatFromBF16(BF16FromFloat(kNaN))));
  EXPECT_TRUE(std::isnan(FloatFromBF16(BF16FromFloat(Bits(0x7f800001)))));  // payload only in the lower half
  EXPECT_TRUE(std::isnan(FloatFromBF16(BF16FromFloat(Bits(0xffffffff)))));
}

TEST(BF16Test, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = FloatFromBF16(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    if (std::isnan(value)) continue;
    ASSERT_EQ(BF16FromFloat(value), bits);
  }
}

TEST(F16Test, KnownBitPatterns) {
  const std::pair<float, uint16_t> rows[] = {
      {0.0f, 0x0000},
      {-0.0f, 0x8000},
      {1.0f, 0x3c00},
      {-2.0f, 0xc000},
      {0.333251953125f, 0x3555},
      {65504.0f, 0x7bff},   // the largest
      {65519.99f, 0x7bff},  // rounds down to it
      {65520.0f, 0x7c00},   // the tie goes to infinity
      {1e10f, 0x7c00},
      {-1e10f, 0xfc00},
      {kInf, 0x7c00},
      {-kInf, 0xfc00},
      {1.0f + 1.0f / 2048, 0x3c00},        // a tie between 1 and 1 + 2^-10 goes to the even one
      {1.0f + 3.0f / 2048, 0x3c02},        // a tie between 1 + 2^-10 and 1 + 2^-9
      {Bits(0x3f801001), 0x3c01},          // just above the tie
      {std::ldexp(1.0f, -14), 0x0400},     // the least normal
      {std::ldexp(1023.0f, -24), 0x03ff},  // the largest subnormal
      {std::ldexp(1.0f, -24), 0x0001},     // the least subnormal
      {std::ldexp(1.0f, -25), 0x0000},     // half of it: a tie, to even
      {std::ldexp(1.5f, -25), 0x0001},     // three quarters of it
      {std::ldexp(3.0f, -25), 0x0002},     // a tie between 1 and 2 units
      {std::ldexp(1.0f, -26), 0x0000},
      {std::ldexp(2047.0f, -25), 0x0400},  // a tie that rounds up into the normals
  };
  for (const auto& [value, bits] : rows) EXPECT_EQ(F16FromFloat(value), bits) << value;
}

TEST(F16Test, NaNStaysNaN) {
  EXPECT_TRUE(std::isnan(FloatFromF16(F16FromFloat(kNaN))));
  EXPECT_TRUE(std::isnan(FloatFromF16(F16FromFloat(Bits(0x7f800001)))));
  EXPECT_TRUE(std::isnan(FloatFromF16(0x7c01)));
  EXPECT_TRUE(std::isnan(FloatFromF16(0xfe00)));
}

TEST(F16Test, EveryPatternHasItsValueAndSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = FloatFromF16(static_cast<uint16_t>(bits));
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int mantissa = static_cast<int>(bits & 1023);
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) expected = kInf;
    ASSERT_EQ(value, bits >= 0x8000 ? -expected : expected) << bits;
    ASSERT_EQ(F16FromFloat(value), bits);
  }
}

}  // namespace
}  // namespace tp

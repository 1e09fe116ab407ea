#include "common/tensor/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tp {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t item_size;
  bool floating;
};

constexpr std::array<DTypeRow, 8> kRows = {{
    {DType::kF32, "F32", 4, true},
    {DType::kBF16, "BF16", 2, true},
    {DType::kF16, "F16", 2, true},
    {DType::kF64, "F64", 8, true},
    {DType::kI64, "I64", 8, false},
    {DType::kI32, "I32", 4, false},
    {DType::kU8, "U8", 1, false},
    {DType::kBool, "BOOL", 1, false},
}};

const DTypeRow& RowOf(DType dtype) {
  const size_t index = static_cast<size_t>(dtype);
  TP_CHECK(index < kRows.size() && kRows[index].dtype == dtype);
  return kRows[index];
}

}  // namespace

int64_t ItemSize(DType dtype) { return RowOf(dtype).item_size; }

std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }

absl::StatusOr<DType> ParseDType(std::string_view name) {
  std::string known;
  for (const DTypeRow& row : kRows) {
    if (row.name == name) return row.dtype;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(row.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dtype \"", std::string(name.substr(0, 64)), "\"; known: ", known));
}

bool IsFloating(DType dtype) { return RowOf(dtype).floating; }

float FloatFromBF16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t BF16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // A NaN keeps its upper payload bits and is made quiet, so that cutting can't turn it into an infinity.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float FloatFromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

uint16_t F16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  // 65520 lies half way between the largest half, 65504, and what would be the next one: it rounds to infinity.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 113) {                                      // below 2^-14: a subnormal half, a multiple of 2^-24
    if (exponent < 102) return static_cast<uint16_t>(sign);  // below 2^-25: nearer to 0
    const uint32_t shift = 126 - exponent;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t quotient = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    if (rest > half || (rest == half && (quotient & 1u) != 0)) ++quotient;
    return static_cast<uint16_t>(sign | quotient);
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

}  // namespace tp

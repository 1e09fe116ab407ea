// The element types of tensors, and conversions of the 16-bit floats. Names are those of safetensors.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace tp {

enum class DType { kF32, kBF16, kF16, kF64, kI64, kI32, kU8, kBool };

// Bytes of one element.
int64_t ItemSize(DType dtype);
// "F32", "BF16", "F16", "F64", "I64", "I32", "U8", "BOOL".
std::string_view DTypeName(DType dtype);
// The inverse of DTypeName. INVALID_ARGUMENT naming the known types otherwise.
absl::StatusOr<DType> ParseDType(std::string_view name);
bool IsFloating(DType dtype);

// bfloat16 and IEEE half as raw bits; rounding is to nearest even, NaN stays NaN.
float FloatFromBF16(uint16_t bits);
uint16_t BF16FromFloat(float value);
float FloatFromF16(uint16_t bits);
uint16_t F16FromFloat(float value);

}  // namespace tp

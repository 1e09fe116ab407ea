// Checks of single fields of messages. Errors are INVALID_ARGUMENT with the field's path in front. Example:
//   TP_RETURN_IF_ERROR(CheckSize(proto.dim(), field + ".dim"));
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/problems.h"
#include "common/base/status.h"
#include "common/proto_convert/layout.h"

namespace tp {

// At least 1.
inline absl::Status CheckSize(int64_t value, const std::string& field) {
  if (value >= 1) return absl::OkStatus();
  return FieldError(field, absl::StrCat("is ", value, "; must be at least 1"));
}

inline absl::Status CheckFinite(double value, const std::string& field) {
  if (std::isfinite(value)) return absl::OkStatus();
  return FieldError(field, absl::StrCat("is ", value, "; must be finite"));
}

// Finite and at least 0.
inline absl::Status CheckNotNegative(double value, const std::string& field) {
  TP_RETURN_IF_ERROR(CheckFinite(value, field));
  if (value >= 0) return absl::OkStatus();
  return FieldError(field, absl::StrCat("is ", value, "; must not be negative"));
}

// A message is read whole: a field that is wrong is noted, and the others are looked at all the same.
inline void Note(const absl::Status& status, Problems* problems) {
  if (!status.ok()) problems->Add(status, "");
}
template <typename Value, typename To>
void Keep(absl::StatusOr<Value> value, To* to, Problems* problems) {
  if (value.ok()) {
    *to = *std::move(value);
  } else {
    problems->Add(value.status(), "");
  }
}

// Empty where unspecified.
inline absl::StatusOr<std::optional<DType>> OptionalDType(v1::DataType dtype, const std::string& field) {
  if (dtype == v1::DATA_TYPE_UNSPECIFIED) return std::optional<DType>();
  TP_ASSIGN_OR_RETURN(DType result, DTypeFromProto(dtype, field));
  return std::optional<DType>(result);
}

}  // namespace tp

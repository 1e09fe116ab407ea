// Status macros and a helper for context. Example:
//   TP_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(axes, workers));
//   TP_RETURN_IF_ERROR(Validate(spec));
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace tp {

// `status` with "context: " put before its text; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace tp

#define TP_RETURN_IF_ERROR(expression)                       \
  do {                                                       \
    absl::Status tp_status_internal = (expression);          \
    if (!tp_status_internal.ok()) return tp_status_internal; \
  } while (false)

#define TP_STATUS_CONCAT_INNER(a, b) a##b
#define TP_STATUS_CONCAT(a, b) TP_STATUS_CONCAT_INNER(a, b)
#define TP_ASSIGN_OR_RETURN(lhs, expression) \
  TP_ASSIGN_OR_RETURN_INNER(TP_STATUS_CONCAT(tp_statusor_, __LINE__), lhs, expression)
#define TP_ASSIGN_OR_RETURN_INNER(statusor, lhs, expression) \
  auto statusor = (expression);                              \
  if (!statusor.ok()) return statusor.status();              \
  lhs = std::move(statusor).value()

// Words of the mesh and tensor commands as values. Pure. Example:
//   ParseShapeText("5x3") is {5, 3};  ParseInitializer("normal(0,0.02)").
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/tp_client/tensors.h"

namespace tp::client {

// "5x3" -> {5, 3}, "7" -> {7}; "" and "[]" are a scalar. INVALID_ARGUMENT for anything else, naming a negative size.
absl::StatusOr<Shape> ParseShapeText(const std::string& text);
// "dp=R,tp=S(1)". Errors of tp::ParseNamedPlacements, with "--placements" in front.
absl::StatusOr<NamedPlacements> ParsePlacementsOption(const std::string& text);
// "zeros", "constant(2.5)", "arange(0,1)"; numbers at the end may be left out where they have a default.
// INVALID_ARGUMENT with the known forms.
absl::StatusOr<Initializer> ParseInitializer(const std::string& text);
// "zeros, ones, constant(V), ...".
std::string InitializerForms();
// A finite number. INVALID_ARGUMENT for other text; "1e400" is outside of the range of F64.
absl::StatusOr<double> ParseFinite(const std::string& text);
// "--src-data-rank N|none".
absl::Status ParseSourceRank(const std::string& text, PutTensorOptions* options);
// "RANK=FILE".
struct RankFile {
  int rank = 0;
  std::string file;
};
absl::StatusOr<RankFile> ParseRankFile(const std::string& text);

}  // namespace tp::client

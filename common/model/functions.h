// The families of the function table and what their type inference shares: checks of dtypes and dims whose messages
// name the given types. Internal to common/model. Example:
//   TP_RETURN_IF_ERROR(NeedFloating("exp", inputs));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/function.h"

namespace tp {

using TypeInputs = absl::Span<const TensorType* const>;
using TypeOutputs = absl::StatusOr<std::vector<TensorType>>;

std::vector<FunctionDef> LinearFunctions();
std::vector<FunctionDef> AttentionFunctions();
std::vector<FunctionDef> NormFunctions();
std::vector<FunctionDef> ElementwiseFunctions();
std::vector<FunctionDef> ShapeFunctions();
std::vector<FunctionDef> IndexFunctions();
std::vector<FunctionDef> ReduceFunctions();

// "TEXT; given F32[2, 3], F32[4]" as INVALID_ARGUMENT.
absl::Status Misfit(const std::string& text, TypeInputs inputs);
// "TEXT" as INVALID_ARGUMENT.
absl::Status Wrong(const std::string& text);

bool IsInteger(DType dtype);          // I64, I32
bool IsComputeFloating(DType dtype);  // F32, BF16
// All given inputs are F32 or BF16 / are these or integers / have one dtype.
absl::Status NeedFloating(const std::string& function, TypeInputs inputs);
absl::Status NeedNumbers(const std::string& function, TypeInputs inputs);
absl::Status NeedOneDType(const std::string& function, TypeInputs inputs);

// Attribute `name` as a dim of `input`, normalised. Annotated with the function's name.
absl::StatusOr<int> DimOf(const std::string& function, const Attributes& attributes, const char* name,
                          const TensorType& input);
// Attribute `name` (integers) as distinct dims, normalised, in the given order.
absl::StatusOr<std::vector<int>> DimsOf(const std::string& function, const Attributes& attributes, const char* name,
                                        const TensorType& input);
// Numpy's broadcasting of two shapes.
absl::StatusOr<SymShape> BroadcastShapes(const std::string& function, const SymShape& a, const SymShape& b,
                                         TypeInputs inputs);
// The whole number that a numeric attribute must be for an integer tensor of `dtype`.
absl::Status NeedWhole(const std::string& function, const char* name, double value, DType dtype);

}  // namespace tp

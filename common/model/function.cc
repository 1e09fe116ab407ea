#include "common/model/function.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/model/functions.h"
#include "common/tensor/shape.h"

namespace tp {

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

absl::Status Misfit(const std::string& text, TypeInputs inputs) {
  constexpr size_t kMost = 8;  // of a cat's many
  std::string given;
  size_t count = 0;
  for (const TensorType* type : inputs) {
    if (type == nullptr) continue;
    if (++count > kMost) continue;
    absl::StrAppend(&given, given.empty() ? "" : ", ", std::string(DTypeName(type->dtype)), SymShapeText(type->shape));
  }
  if (count > kMost) absl::StrAppend(&given, " and ", count - kMost, " more");
  return Wrong(absl::StrCat(text, "; given ", given));
}

bool IsInteger(DType dtype) { return dtype == DType::kI64 || dtype == DType::kI32; }
bool IsComputeFloating(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

absl::Status NeedFloating(const std::string& function, TypeInputs inputs) {
  for (const TensorType* type : inputs) {
    if (type != nullptr && !IsComputeFloating(type->dtype)) {
      return Misfit(absl::StrCat(function, " needs a floating dtype, F32 or BF16"), inputs);
    }
  }
  return absl::OkStatus();
}

absl::Status NeedNumbers(const std::string& function, TypeInputs inputs) {
  for (const TensorType* type : inputs) {
    if (type != nullptr && !IsComputeFloating(type->dtype) && !IsInteger(type->dtype)) {
      return Misfit(absl::StrCat(function, " needs numbers: F32, BF16, I64 or I32"), inputs);
    }
  }
  return absl::OkStatus();
}

absl::Status NeedOneDType(const std::string& function, TypeInputs inputs) {
  for (const TensorType* type : inputs) {
    if (type != nullptr && type->dtype != inputs[0]->dtype) {
      return Misfit(absl::StrCat(function, ": all arguments must have one dtype (cast one of them)"), inputs);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> DimOf(const std::string& function, const Attributes& attributes, const char* name,
                          const TensorType& input) {
  absl::StatusOr<int> dim =
      NormalizeDim(AttributeOr<int64_t>(attributes, name, -1), static_cast<int>(input.shape.size()));
  if (!dim.ok()) return Annotate(dim.status(), function);
  return dim;
}

absl::StatusOr<std::vector<int>> DimsOf(const std::string& function, const Attributes& attributes, const char* name,
                                        const TensorType& input) {
  std::vector<int> dims;
  for (int64_t given : AttributeOr<std::vector<int64_t>>(attributes, name, {})) {
    absl::StatusOr<int> dim = NormalizeDim(given, static_cast<int>(input.shape.size()));
    if (!dim.ok()) return Annotate(dim.status(), function);
    if (std::find(dims.begin(), dims.end(), *dim) != dims.end()) {
      return Wrong(absl::StrCat(function, ": dim ", *dim, " is named twice"));
    }
    dims.push_back(*dim);
  }
  return dims;
}

absl::StatusOr<SymShape> BroadcastShapes(const std::string& function, const SymShape& a, const SymShape& b,
                                         TypeInputs inputs) {
  SymShape shape(std::max(a.size(), b.size()));
  for (size_t back = 1; back <= shape.size(); ++back) {
    const Dim left = back <= a.size() ? a[a.size() - back] : Dim(1);
    const Dim right = back <= b.size() ? b[b.size() - back] : Dim(1);
    if (left != right && left != Dim(1) && right != Dim(1)) {
      return Misfit(absl::StrCat(function, ": the shapes do not broadcast"), inputs);
    }
    shape[shape.size() - back] = left == Dim(1) ? right : left;
  }
  return shape;
}

absl::Status NeedWhole(const std::string& function, const char* name, double value, DType dtype) {
  const double limit = std::ldexp(1.0, dtype == DType::kI32 ? 31 : 63);
  if (value == std::floor(value) && value >= -limit && value < limit) return absl::OkStatus();
  return Wrong(absl::StrCat(function, ": ", name, " ", value, " is no value of ", std::string(DTypeName(dtype))));
}

namespace {

const std::vector<FunctionDef>& Functions() {
  static const auto* functions = [] {
    auto* all = new std::vector<FunctionDef>();
    for (auto* family : {LinearFunctions, AttentionFunctions, NormFunctions, ElementwiseFunctions, ShapeFunctions,
                         IndexFunctions, ReduceFunctions}) {
      for (FunctionDef& function : family()) all->push_back(std::move(function));
    }
    return all;
  }();
  return *functions;
}

// Names in the order of Attribute's alternatives.
std::string KindText(const Attribute& attribute) {
  static constexpr const char* kNames[] = {"a flag", "an integer", "a number", "a text", "integers", "dims", "a dtype"};
  return kNames[attribute.index()];
}

// `given` as the type of `wanted`, where nothing is lost by it.
bool Coerce(const Attribute& wanted, Attribute* given) {
  if (given->index() == wanted.index()) return true;
  if (std::holds_alternative<double>(wanted) && std::holds_alternative<int64_t>(*given)) {
    *given = static_cast<double>(std::get<int64_t>(*given));
    return true;
  }
  if (std::holds_alternative<std::vector<int64_t>>(wanted) && std::holds_alternative<int64_t>(*given)) {
    *given = std::vector<int64_t>{std::get<int64_t>(*given)};
    return true;
  }
  if (std::holds_alternative<SymShape>(wanted) && std::holds_alternative<int64_t>(*given)) {
    *given = SymShape{Dim(std::get<int64_t>(*given))};
    return true;
  }
  if (std::holds_alternative<std::string>(wanted) && std::holds_alternative<DType>(*given)) {
    *given = std::string(DTypeName(std::get<DType>(*given)));
    return true;
  }
  if (std::holds_alternative<SymShape>(wanted) && std::holds_alternative<std::vector<int64_t>>(*given)) {
    *given = ToSymShape(std::get<std::vector<int64_t>>(*given));
    return true;
  }
  if (std::holds_alternative<DType>(wanted) && std::holds_alternative<std::string>(*given)) {
    absl::StatusOr<DType> dtype = ParseDType(std::get<std::string>(*given));
    if (!dtype.ok()) return false;
    *given = *dtype;
    return true;
  }
  return false;
}

}  // namespace

const FunctionDef* FindFunction(std::string_view name) {
  static const auto* by_name = [] {
    auto* index = new std::map<std::string_view, const FunctionDef*>();
    for (const FunctionDef& function : Functions()) (*index)[function.name] = &function;
    return index;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

std::vector<std::string> FunctionNames() {
  std::vector<std::string> names;
  for (const FunctionDef& function : Functions()) names.push_back(function.name);
  return names;
}

absl::StatusOr<Attributes> CheckAttributes(const FunctionDef& function, const Attributes& given) {
  Attributes complete;
  std::vector<std::string> known, wrong;
  for (const FunctionAttribute& attribute : function.attributes) known.push_back(attribute.name);
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    wrong.push_back(absl::StrCat(function.name, " has no attribute '", Cut(name),
                                 "'; nearest: ", JoinNames(NearestNames(name, known))));
  }
  for (const FunctionAttribute& attribute : function.attributes) {
    auto it = given.find(attribute.name);
    if (it == given.end()) {
      if (attribute.required) {
        wrong.push_back(absl::StrCat(function.name, " needs attribute '", attribute.name, "'"));
        continue;
      }
      // A NaN says "not given": it stays out, and no NaN has to cross the wire.
      const double* number = std::get_if<double>(&attribute.fallback);
      if (number == nullptr || !std::isnan(*number)) complete[attribute.name] = attribute.fallback;
      continue;
    }
    Attribute value = it->second;
    if (!Coerce(attribute.fallback, &value)) {
      wrong.push_back(absl::StrCat("attribute '", attribute.name, "' of ", function.name, " is ",
                                   KindText(attribute.fallback), ", given ", KindText(value), " ",
                                   Cut(AttributeText(value))));
      continue;
    }
    complete[attribute.name] = std::move(value);
  }
  if (!wrong.empty()) return Wrong(absl::StrJoin(wrong, "; "));
  return complete;
}

}  // namespace tp

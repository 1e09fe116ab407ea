#include "common/program/program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"

namespace tp {

absl::StatusOr<Bindings> BindInputs(const ForwardProgram& program, const std::map<std::string, Shape>& shapes) {
  Bindings bindings;
  std::vector<std::string> names;
  for (const Operand& operand : program.operands) {
    if (operand.kind != OperandKind::kInput) continue;
    names.push_back(operand.name);
    const SymShape& wanted = program.values[operand.value].spec.shape;
    auto given = shapes.find(operand.name);
    if (given == shapes.end()) return absl::InvalidArgumentError(absl::StrCat("input '", operand.name, "' is missing"));
    const Shape& shape = given->second;
    const std::string field =
        absl::StrCat("input '", operand.name, "': shape ", ShapeText(shape), " does not fit ", SymShapeText(wanted));
    if (shape.size() != wanted.size())
      return absl::InvalidArgumentError(absl::StrCat(field, ": ", wanted.size(), " dims"));
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 0) return absl::InvalidArgumentError(absl::StrCat(field, ": a size is negative"));
      if (wanted[i].IsConstant()) {
        if (wanted[i].constant() != shape[i]) return absl::InvalidArgumentError(absl::StrCat(field, ": dim ", i));
        continue;
      }
      const std::vector<std::string> symbols = wanted[i].Symbols();
      if (symbols.size() != 1 || wanted[i] != Dim::Symbol(symbols[0])) {
        return absl::InvalidArgumentError(
            absl::StrCat(field, ": dim ", i, " of an input must be a number or a symbol"));
      }
      auto [binding, added] = bindings.emplace(symbols[0], shape[i]);
      if (!added && binding->second != shape[i]) {
        return absl::InvalidArgumentError(
            absl::StrCat(field, ": ", symbols[0], " is ", binding->second, " elsewhere and ", shape[i], " here"));
      }
      auto limit = program.symbol_limits.find(symbols[0]);
      if (limit != program.symbol_limits.end() && shape[i] > limit->second) {
        return absl::InvalidArgumentError(absl::StrCat("input '", operand.name, "': ", symbols[0], " is ", shape[i],
                                                       ", at most ", limit->second, " are allowed"));
      }
    }
  }
  for (const auto& [name, shape] : shapes) {
    bool known = false;
    for (const std::string& candidate : names) known |= candidate == name;
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no input '", name, "'; nearest: ", JoinNames(NearestNames(name, names))));
    }
  }
  return bindings;
}

bool WorksOnTensors(const ForwardProgram& program) {
  return std::any_of(program.operands.begin(), program.operands.end(),
                     [](const Operand& operand) { return operand.kind == OperandKind::kTensor; });
}

}  // namespace tp

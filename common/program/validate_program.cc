// Checks of a program that came over the wire.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/function.h"
#include "common/program/program.h"

namespace tp {
namespace {

class Validator {
 public:
  explicit Validator(const ForwardProgram& program) : program_(program), defined_(program.values.size(), false) {}

  absl::Status Run() {
    for (size_t i = 0; i < program_.values.size(); ++i) {
      TP_RETURN_IF_ERROR(Annotate(CheckSpec(program_.values[i].spec), absl::StrCat("value %", i)));
    }
    for (const Operand& operand : program_.operands) {
      TP_RETURN_IF_ERROR(Annotate(Define(operand.value), absl::StrCat("operand '", operand.name, "'")));
    }
    for (const CacheSpec& cache : program_.caches) {
      const std::string field = absl::StrCat("cache of '", cache.module_path, "'");
      if (cache.kv_heads < 1 || cache.head_dim < 1) return Wrong(absl::StrCat(field, ": sizes below 1"));
      TP_RETURN_IF_ERROR(
          Annotate(NormalizePlacements(cache.heads_placements, 1, cache.dtype, program_.mesh).status(), field));
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      TP_RETURN_IF_ERROR(
          Annotate(CheckInstruction(instruction), absl::StrCat("instruction ", i, " (", instruction.function, ")")));
    }
    for (const NamedValue& output : program_.outputs) {
      TP_RETURN_IF_ERROR(Annotate(Use(output.value), absl::StrCat("output '", output.name, "'")));
    }
    for (const InputCheck& check : program_.input_checks) {
      bool known = false;
      for (const Operand& operand : program_.operands) {
        known |= operand.kind == OperandKind::kInput && operand.name == check.input;
      }
      if (!known) return Wrong(absl::StrCat("check of '", check.input, "': there is no such input"));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

  absl::Status CheckSpec(const DTensorSpec& spec) const {
    TP_ASSIGN_OR_RETURN(
        const Placements normal,
        NormalizePlacements(spec.placements, static_cast<int>(spec.shape.size()), spec.dtype, program_.mesh));
    if (normal != spec.placements) return Wrong("placements are not normalised");
    for (const Dim& dim : spec.shape) {
      if (dim.IsConstant() && dim.constant() < 0) return Wrong("a size is negative");
    }
    return absl::OkStatus();
  }

  absl::Status InRange(int value) const {
    if (value >= 0 && value < static_cast<int>(program_.values.size())) return absl::OkStatus();
    return Wrong(absl::StrCat("value ", value, " is not one of ", program_.values.size()));
  }
  absl::Status Define(int value) {
    TP_RETURN_IF_ERROR(InRange(value));
    if (defined_[value]) return Wrong(absl::StrCat("value %", value, " is made twice"));
    defined_[value] = true;
    return absl::OkStatus();
  }
  absl::Status Use(int value) const {
    TP_RETURN_IF_ERROR(InRange(value));
    if (!defined_[value]) return Wrong(absl::StrCat("value %", value, " is used before it is made"));
    return absl::OkStatus();
  }
  const DTensorSpec& SpecOf(int value) const { return program_.values[value].spec; }

  absl::Status Arity(const Instruction& instruction, size_t inputs) const {
    if (instruction.inputs.size() == inputs && instruction.outputs.size() == 1) return absl::OkStatus();
    return Wrong(absl::StrCat("takes ", inputs, " inputs and makes 1 output"));
  }

  absl::Status CheckInstruction(const Instruction& instruction) {
    for (int input : instruction.inputs) {
      if (input != -1) TP_RETURN_IF_ERROR(Use(input));
    }
    for (int output : instruction.outputs) TP_RETURN_IF_ERROR(Define(output));
    if (instruction.step.has_value() != (instruction.function == "redistribute")) {
      return Wrong("a step belongs to redistribute, and redistribute has one");
    }
    if (instruction.function == "redistribute") return CheckRedistribute(instruction);
    if (instruction.function == "add_once") return CheckAddOnce(instruction);
    if (instruction.function == "select_rows") return CheckSelectRows(instruction);
    return CheckFunction(instruction);
  }

  absl::Status CheckRedistribute(const Instruction& instruction) const {
    TP_RETURN_IF_ERROR(Arity(instruction, 1));
    TP_RETURN_IF_ERROR(Use(instruction.inputs[0]));
    const DTensorSpec& from = SpecOf(instruction.inputs[0]);
    const DTensorSpec& to = SpecOf(instruction.outputs[0]);
    if (from.shape != to.shape || from.dtype != to.dtype) return Wrong("changes the shape or the dtype");
    if (instruction.step->from != from.placements || instruction.step->to != to.placements) {
      return Wrong("the step's placements are not those of its values");
    }
    for (int axis : instruction.step->axes) {
      if (axis < 0 || axis >= program_.mesh.axis_count()) return Wrong(absl::StrCat("there is no axis ", axis));
    }
    return absl::OkStatus();
  }

  absl::Status CheckAddOnce(const Instruction& instruction) const {
    TP_RETURN_IF_ERROR(Arity(instruction, 2));
    TP_RETURN_IF_ERROR(Use(instruction.inputs[0]));
    TP_RETURN_IF_ERROR(Use(instruction.inputs[1]));
    if (SpecOf(instruction.inputs[0]) != SpecOf(instruction.outputs[0])) return Wrong("changes the value's spec");
    const DTensorSpec& bias = SpecOf(instruction.inputs[1]);
    const DTensorSpec& output = SpecOf(instruction.outputs[0]);
    if (bias.shape.size() != 1 || output.shape.empty() || bias.shape[0] != output.shape.back() ||
        bias.dtype != output.dtype) {
      return Wrong("the bias must be [last dim]");
    }
    auto axes = instruction.attributes.find("axes");
    if (axes == instruction.attributes.end() || !std::holds_alternative<std::vector<int64_t>>(axes->second)) {
      return Wrong("attribute 'axes' is missing");
    }
    for (int64_t axis : std::get<std::vector<int64_t>>(axes->second)) {
      if (axis < 0 || axis >= program_.mesh.axis_count()) return Wrong(absl::StrCat("there is no axis ", axis));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSelectRows(const Instruction& instruction) const {
    TP_RETURN_IF_ERROR(Arity(instruction, 2));
    TP_RETURN_IF_ERROR(Use(instruction.inputs[0]));
    TP_RETURN_IF_ERROR(Use(instruction.inputs[1]));
    const DTensorSpec& input = SpecOf(instruction.inputs[0]);
    const DTensorSpec& rows = SpecOf(instruction.inputs[1]);
    if (input.shape.size() < 2 || rows.shape.size() != 1 || rows.dtype != DType::kI64) {
      return Wrong("takes [batch, time, ...] and I64 [rows]");
    }
    DTensorSpec wanted = input;
    wanted.shape[0] = Dim(1);
    wanted.shape[1] = rows.shape[0];
    if (SpecOf(instruction.outputs[0]) != wanted) return Wrong("makes [1, rows, ...] at the input's placements");
    for (const Placement& placement : input.placements) {
      if (placement.Cuts(0) || placement.Cuts(1)) return Wrong("batch and time must not be cut");
    }
    return absl::OkStatus();
  }

  // Counts and omissions of the arguments that the function table lists; a variadic one takes one value or more.
  absl::Status CheckArguments(const Instruction& instruction, const FunctionDef& function, size_t count) const {
    const size_t least = function.arguments.size();
    const bool variadic = !function.arguments.empty() && function.arguments.back().variadic;
    if (count < least || (!variadic && count > least)) {
      return Wrong(
          absl::StrCat("takes ", instruction.inputs.size() - count + least, variadic ? " or more" : "", " inputs"));
    }
    for (size_t i = 0; i < count; ++i) {
      const FunctionArgument& argument = function.arguments[std::min(i, least - 1)];
      if (instruction.inputs[i] < 0 && !argument.optional) return Wrong(absl::StrCat(argument.name, " is omitted"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckCache(const Instruction& instruction, Attributes* attributes) const {
    if (instruction.function != "attention") return absl::OkStatus();
    auto cache = attributes->find("cache_index");
    const bool cached = AttributeOr<bool>(*attributes, "cache", true);
    if (!cached && cache == attributes->end()) return absl::OkStatus();
    if (!cached || cache == attributes->end() || !std::holds_alternative<int64_t>(cache->second) ||
        std::get<int64_t>(cache->second) < 0 ||
        std::get<int64_t>(cache->second) >= static_cast<int64_t>(program_.caches.size())) {
      return Wrong("attribute 'cache_index' names no cache");
    }
    attributes->erase(cache);
    return absl::OkStatus();
  }

  absl::Status CheckFunction(const Instruction& instruction) const {
    const FunctionDef* function = FindFunction(instruction.function);
    if (function == nullptr) return Wrong("there is no such function");
    const bool rotary = instruction.function == "rotary";
    const size_t count = instruction.inputs.size() - (rotary && !instruction.inputs.empty() ? 1 : 0);
    TP_RETURN_IF_ERROR(CheckArguments(instruction, *function, count));
    std::vector<TensorType> types(count);
    std::vector<const TensorType*> inputs(count, nullptr);
    for (size_t i = 0; i < count; ++i) {
      const int input = instruction.inputs[i];
      if (input < 0) continue;
      types[i] = {SpecOf(input).dtype, SpecOf(input).shape};
      inputs[i] = &types[i];
    }
    Attributes attributes = instruction.attributes;
    if (auto cache = attributes.find("cache"); cache != attributes.end() && instruction.function == "attention" &&
                                               !std::holds_alternative<bool>(cache->second)) {
      return Wrong("attribute 'cache' is a flag");
    }
    TP_RETURN_IF_ERROR(CheckCache(instruction, &attributes));
    if (rotary) {
      TP_RETURN_IF_ERROR(Use(instruction.inputs[1]));
      const DTensorSpec& positions = SpecOf(instruction.inputs[1]);
      if (positions.dtype != DType::kI64 || positions.shape.size() != 2)
        return Wrong("positions must be I64 [batch, time]");
    }
    TP_ASSIGN_OR_RETURN(attributes, CheckAttributes(*function, attributes));
    TP_ASSIGN_OR_RETURN(const std::vector<TensorType> outputs, function->infer(inputs, attributes));
    if (outputs.size() != instruction.outputs.size()) {
      return Wrong(absl::StrCat("makes ", outputs.size(), " outputs, not ", instruction.outputs.size()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const DTensorSpec& output = SpecOf(instruction.outputs[i]);
      if (outputs[i].dtype == output.dtype && outputs[i].shape == output.shape) continue;
      return Wrong(absl::StrCat("makes ", std::string(DTypeName(outputs[i].dtype)), SymShapeText(outputs[i].shape),
                                ", not ", std::string(DTypeName(output.dtype)), SymShapeText(output.shape)));
    }
    return absl::OkStatus();
  }

  const ForwardProgram& program_;
  std::vector<bool> defined_;
};

}  // namespace

absl::Status ValidateProgram(const ForwardProgram& program) { return Validator(program).Run(); }

}  // namespace tp

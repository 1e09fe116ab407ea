#include "common/program/select_rows.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/program/builder.h"
#include "common/program/trim.h"

namespace tp {
namespace {

bool CutsTokens(const Placements& placements) {
  return std::any_of(placements.begin(), placements.end(),
                     [](const Placement& placement) { return placement.Cuts(0) || placement.Cuts(1); });
}

// Functions whose first input has tokens and whose others are weights.
bool HasWeights(const std::string& function) {
  return function == "linear" || function == "rms_norm" || function == "layer_norm";
}

// Functions of each element alone; the second operand broadcasts.
bool IsElementwise(const std::string& function) {
  static const auto* names =
      new std::set<std::string>{"silu", "relu",    "gelu",    "tanh",     "sigmoid",      "neg",        "abs", "exp",
                                "log",  "sqrt",    "rsqrt",   "cast",     "add",          "sub",        "mul", "div",
                                "pow",  "maximum", "minimum", "add_once", "redistribute", "masked_fill"};
  return names->contains(function);
}

// A row along a dim behind the tokens.
bool IsRowOfToken(const ForwardProgram& program, const Instruction& instruction) {
  const int64_t rank = static_cast<int64_t>(program.values[instruction.inputs[0]].spec.shape.size());
  if (instruction.function == "layer_norm") return AttributeOr<int64_t>(instruction.attributes, "dims", 1) <= rank - 2;
  if (instruction.function != "softmax" && instruction.function != "log_softmax") return false;
  const int64_t dim = AttributeOr<int64_t>(instruction.attributes, "dim", -1);
  return (dim < 0 ? dim + rank : dim) >= 2;
}

// True where the instruction makes each token of its output from the same token of its first input and from values that
// have no tokens.
bool ActsOnTokensAlone(const ForwardProgram& program, const Instruction& instruction) {
  const std::string& function = instruction.function;
  if (function != "linear" && function != "rms_norm" && !IsElementwise(function) &&
      !(instruction.outputs.size() == 1 && !instruction.inputs.empty() && IsRowOfToken(program, instruction))) {
    return false;
  }
  const DTensorSpec& from = program.values[instruction.inputs[0]].spec;
  const DTensorSpec& to = program.values[instruction.outputs[0]].spec;
  if (from.shape.size() < 3 || to.shape.size() < 3 || from.shape[0] != to.shape[0] || from.shape[1] != to.shape[1]) {
    return false;
  }
  if (CutsTokens(from.placements) || CutsTokens(to.placements)) return false;
  for (size_t i = 1; i < instruction.inputs.size(); ++i) {
    if (instruction.inputs[i] < 0 || HasWeights(function)) continue;
    // A bias is without tokens; a residual has them.
    if (program.values[instruction.inputs[i]].spec.shape.size() + 2 > to.shape.size()) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<ForwardProgram> MakeStepProgram(const ForwardProgram& program, const std::string& logits) {
  ForwardProgram step = program;
  std::erase_if(step.outputs, [&](const NamedValue& output) { return output.name != logits; });
  if (step.outputs.size() != 1) return absl::InvalidArgumentError(absl::StrCat("there is no output '", logits, "'"));
  step = TrimProgram(step);
  ProgramBuilder builder(&step);
  Placements tokens = step.values[step.outputs[0].value].spec.placements;
  for (Placement& placement : tokens) {
    if (placement.Cuts(0) || placement.Cuts(1)) placement = Placement::Replicate();  // rows are of any rank's tokens
  }
  TP_ASSIGN_OR_RETURN(step.outputs[0].value, builder.Move(step.outputs[0].value, tokens, "", "tokens for sampling"));
  std::vector<int> maker(step.values.size(), -1);
  std::vector<int> uses(step.values.size(), 0);
  for (size_t i = 0; i < step.instructions.size(); ++i) {
    for (int output : step.instructions[i].outputs) maker[output] = static_cast<int>(i);
    for (int input : step.instructions[i].inputs) {
      if (input >= 0) ++uses[input];
    }
  }
  // Back from the logits; `chain` holds the instructions that will run on the rows only.
  std::set<int> chain;
  int value = step.outputs[0].value;
  // A value that is used elsewhere too is needed with all its tokens.
  int allowed_uses = 0;
  while (maker[value] >= 0 && uses[value] == allowed_uses && ActsOnTokensAlone(step, step.instructions[maker[value]])) {
    allowed_uses = 1;
    chain.insert(maker[value]);
    value = step.instructions[maker[value]].inputs[0];
  }
  auto on_rows = [&](const DTensorSpec& spec) {
    DTensorSpec rows = spec;
    rows.shape[0] = Dim(1);
    rows.shape[1] = Dim::Symbol("rows");
    return rows;
  };
  const int rows = static_cast<int>(step.values.size());
  step.values.push_back(
      {"rows", {DType::kI64, {Dim::Symbol("rows")}, Placements(static_cast<size_t>(step.mesh.axis_count()))}});
  step.operands.push_back({OperandKind::kRows, "rows", rows});
  const int selected = rows + 1;
  step.values.push_back({absl::StrCat(step.values[value].name, ":rows"), on_rows(step.values[value].spec)});
  const Instruction select{"select_rows", {value, rows}, {selected}, {}, "", "", std::nullopt};

  std::vector<Instruction> instructions;
  if (maker[value] < 0) instructions.push_back(select);
  for (size_t i = 0; i < step.instructions.size(); ++i) {
    Instruction instruction = step.instructions[i];
    if (chain.contains(static_cast<int>(i))) {
      if (instruction.inputs[0] == value) instruction.inputs[0] = selected;
      DTensorSpec& spec = step.values[instruction.outputs[0]].spec;
      spec = on_rows(spec);
    }
    instructions.push_back(std::move(instruction));
    if (maker[value] == static_cast<int>(i)) instructions.push_back(select);
  }
  step.instructions = std::move(instructions);
  const int made = step.outputs[0].value == value ? selected : step.outputs[0].value;
  const Placements everywhere(static_cast<size_t>(step.mesh.axis_count()));
  TP_ASSIGN_OR_RETURN(step.outputs[0].value, builder.Move(made, everywhere, "", "logits for sampling"));
  return TrimProgram(step);
}

}  // namespace tp

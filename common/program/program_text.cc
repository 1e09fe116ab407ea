// The canonical text of a program and its fingerprint.
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/program/program.h"

namespace tp {
namespace {

const char* OperandKindName(OperandKind kind) {
  switch (kind) {
    case OperandKind::kParameter:
      return "parameter";
    case OperandKind::kBuffer:
      return "buffer";
    case OperandKind::kInput:
      return "input";
    case OperandKind::kPositions:
      return "positions";
    case OperandKind::kRows:
      return "rows";
    case OperandKind::kTensor:
      return "tensor";
  }
  return "?";
}

std::string Quoted(const std::string& text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

// "%3 F32[batch, 256] tp=S(1)".
std::string ValueText(const ForwardProgram& program, int value) {
  return absl::StrCat("%", value, " ", SpecText(program.values[value].spec, program.mesh), " ",
                      Quoted(program.values[value].name));
}

void AppendInstruction(const ForwardProgram& program, const Instruction& instruction, std::string* text) {
  for (size_t i = 0; i < instruction.outputs.size(); ++i) {
    absl::StrAppend(text, i == 0 ? "" : ", ", ValueText(program, instruction.outputs[i]));
  }
  absl::StrAppend(text, " = ", instruction.function, "(");
  for (size_t i = 0; i < instruction.inputs.size(); ++i) {
    absl::StrAppend(text, i == 0 ? "" : ", ");
    if (instruction.inputs[i] < 0) {
      absl::StrAppend(text, "_");
    } else {
      absl::StrAppend(text, "%", instruction.inputs[i]);
    }
  }
  absl::StrAppend(text, ")");
  for (const auto& [name, attribute] : instruction.attributes) {
    absl::StrAppend(text, " ", name, "=", AttributeText(attribute));
  }
  if (instruction.step.has_value()) {
    const RedistributeStep& step = *instruction.step;
    absl::StrAppend(text, " step ", std::string(RedistributeOpName(step.op)), " [", StepAxesText(program.mesh, step),
                    "] ", PlacementsText(program.mesh, step.from), " -> ", PlacementsText(program.mesh, step.to));
  }
  absl::StrAppend(text, " in ", Quoted(instruction.module_path));
  if (!instruction.reason.empty()) absl::StrAppend(text, " for ", Quoted(instruction.reason));
  absl::StrAppend(text, "\n");
}

}  // namespace

std::string ProgramText(const ForwardProgram& program) {
  std::string text =
      absl::StrCat("mesh ", program.mesh.ToString(), "\ncompute ", std::string(DTypeName(program.compute_dtype)), "\n");
  for (const Operand& operand : program.operands) {
    absl::StrAppend(&text, OperandKindName(operand.kind), " ", Quoted(operand.name), " ",
                    ValueText(program, operand.value), "\n");
  }
  for (const Instruction& instruction : program.instructions) AppendInstruction(program, instruction, &text);
  for (const NamedValue& output : program.outputs) {
    absl::StrAppend(&text, "output ", Quoted(output.name), " %", output.value, "\n");
  }
  for (const CacheSpec& cache : program.caches) {
    absl::StrAppend(&text, "cache ", Quoted(cache.module_path), " ", std::string(DTypeName(cache.dtype)), "[",
                    cache.kv_heads, ", ", cache.head_dim, "] ", PlacementsText(program.mesh, cache.heads_placements),
                    "\n");
  }
  for (const InputCheck& check : program.input_checks) {
    absl::StrAppend(&text, "check ", Quoted(check.input), " < ", check.limit);
    if (check.allowed.has_value()) absl::StrAppend(&text, " or ", *check.allowed);
    absl::StrAppend(&text, "\n");
  }
  for (const auto& [symbol, limit] : program.symbol_limits)
    absl::StrAppend(&text, "limit ", symbol, " <= ", limit, "\n");
  return text;
}

std::string FingerprintOf(const ForwardProgram& program) { return Sha256Hex(ProgramText(program)); }

std::string CombinedFingerprint(const ForwardProgram& program, const ForwardProgram* step_program) {
  std::string text = ProgramText(program);
  if (step_program != nullptr) absl::StrAppend(&text, "\n", ProgramText(*step_program));
  return Sha256Hex(text);
}

}  // namespace tp

#include "common/program/trim.h"

namespace tp {

std::vector<bool> LiveValues(const ForwardProgram& program) {
  std::vector<bool> live(program.values.size(), false);
  for (const NamedValue& output : program.outputs) live[output.value] = true;
  for (size_t back = program.instructions.size(); back-- > 0;) {
    const Instruction& instruction = program.instructions[back];
    bool kept = false;
    for (int output : instruction.outputs) kept = kept || live[output];
    if (!kept) continue;
    for (int input : instruction.inputs) {
      if (input >= 0) live[input] = true;
    }
    for (int output : instruction.outputs) live[output] = true;
  }
  return live;
}

ForwardProgram TrimProgram(const ForwardProgram& program) {
  const std::vector<bool> live = LiveValues(program);
  ForwardProgram trimmed{.mesh = program.mesh,
                         .compute_dtype = program.compute_dtype,
                         .values = {},
                         .operands = {},
                         .instructions = {},
                         .outputs = program.outputs,
                         .caches = {},
                         .input_checks = program.input_checks,
                         .symbol_limits = program.symbol_limits};
  std::vector<int> renamed(program.values.size(), -1);
  auto rename = [&](int value) {
    if (value < 0) return value;
    if (renamed[value] < 0) {
      renamed[value] = static_cast<int>(trimmed.values.size());
      trimmed.values.push_back(program.values[value]);
    }
    return renamed[value];
  };
  for (const Operand& operand : program.operands) {
    if (!live[operand.value] && operand.kind != OperandKind::kInput) continue;
    trimmed.operands.push_back(operand);
    trimmed.operands.back().value = rename(operand.value);
  }
  for (const Instruction& original : program.instructions) {
    if (original.outputs.empty() || !live[original.outputs[0]]) continue;  // all outputs of one are live, or none
    Instruction instruction = original;
    for (int& input : instruction.inputs) input = rename(input);
    for (int& output : instruction.outputs) output = rename(output);
    if (auto cache = instruction.attributes.find("cache_index"); cache != instruction.attributes.end()) {
      trimmed.caches.push_back(program.caches[std::get<int64_t>(cache->second)]);
      cache->second = static_cast<int64_t>(trimmed.caches.size()) - 1;
    }
    trimmed.instructions.push_back(std::move(instruction));
  }
  for (NamedValue& output : trimmed.outputs) output.value = rename(output.value);
  return trimmed;
}

}  // namespace tp

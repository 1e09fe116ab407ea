// ForwardProgram: what every rank of a mesh runs. Instructions over numbered values; each value has a DTensorSpec, each
// instruction its module and, for a step of a redistribute, its reason. Nothing in it depends on the rank: local shapes
// and offsets come from (spec, coordinate) when it runs. Immutable. Made by CompileForward (compile.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/spec.h"
#include "common/mesh/mesh.h"
#include "common/model/attribute.h"
#include "common/redistribute/plan.h"

namespace tp {

struct ProgramValue {
  std::string name;  // for messages
  DTensorSpec spec;
};

enum class OperandKind {
  kParameter,
  kBuffer,
  kInput,      // of a request
  kPositions,  // I64 [batch, time], replicated: position of each token in its sequence
  kRows,       // I64 [rows], replicated: token indices whose outputs are wanted (step programs only)
  kTensor,     // a named tensor; the outputs of a program that has one are tensors too
};
struct Operand {
  OperandKind kind = OperandKind::kInput;
  std::string name;  // state path or input name
  int value = -1;
};

// Functions of function.h, and three that only programs have:
//   redistribute(input)        `step` says what
//   add_once(input, bias)      adds bias on the coordinate 0 of every axis in attribute "axes" (integers), copies
//   elsewhere select_rows(input, rows)   [batch, time, ...] -> [1, rows, ...]: rows of the flattened first two dims
// rotary has the positions as second input. attention whose attribute "cache" is true has "cache_index", its index in
// `caches`.
struct Instruction {
  std::string function;
  std::vector<int> inputs;  // value indices, -1 = omitted
  std::vector<int> outputs;
  Attributes attributes;
  std::string module_path;
  std::string reason;  // redistribute: why, as "output of layers.0.fc: P(sum) -> R"
  std::optional<RedistributeStep> step;
};

// The cache of one attention: its pages hold [2, kv heads of the rank, 16, head_dim] elements of `dtype`.
struct CacheSpec {
  std::string module_path;
  int64_t kv_heads = 0;  // global
  int64_t head_dim = 0;
  DType dtype = DType::kF32;
  Placements heads_placements;  // of a [kv_heads] tensor (dim 0)
};
inline constexpr int64_t kPageSize = 16;  // positions in a cache page

// Values of a request's integer input must lie in [0, limit) or be `allowed`: checked before dispatch.
struct InputCheck {
  std::string input;
  int64_t limit = 0;
  std::optional<int64_t> allowed = std::nullopt;
  bool operator==(const InputCheck&) const = default;
};

struct NamedValue {
  std::string name;
  int value = -1;
};

struct ForwardProgram {
  Mesh mesh;
  DType compute_dtype = DType::kF32;
  std::vector<ProgramValue> values;
  std::vector<Operand> operands;
  std::vector<Instruction> instructions;
  std::vector<NamedValue> outputs;
  std::vector<CacheSpec> caches;
  std::vector<InputCheck> input_checks;
  std::map<std::string, int64_t> symbol_limits;
};

// Canonical text: one line an operand, instruction and output. Two programs are equal where their texts are.
std::string ProgramText(const ForwardProgram& program);
// SHA-256 of the text, 64 hex digits. Ranks refuse to run under another fingerprint than their own.
std::string FingerprintOf(const ForwardProgram& program);
// SHA-256 of both texts, joined by a newline; of the first alone where there is no step program: CompiledModel's.
std::string CombinedFingerprint(const ForwardProgram& program, const ForwardProgram* step_program);
// True where operands are named tensors: operands and outputs lie outside the arena then.
bool WorksOnTensors(const ForwardProgram& program);
// Checks indices, arities and specs of a program that came over the wire. INVALID_ARGUMENT naming the instruction.
absl::Status ValidateProgram(const ForwardProgram& program);
// Binds the symbols of the input operands to the dims of `shapes` (input name -> global shape). INVALID_ARGUMENT where
// ranks or constant dims differ, a symbol gets two values, or one exceeds its limit ("... at most 512").
absl::StatusOr<Bindings> BindInputs(const ForwardProgram& program, const std::map<std::string, Shape>& shapes);

}  // namespace tp

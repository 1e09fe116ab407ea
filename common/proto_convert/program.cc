#include "common/proto_convert/program.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/model.h"

namespace tp {
namespace {

// Both enums stand in the same order, the message's one with an unspecified value in front.
constexpr int kRedistributeOps = static_cast<int>(RedistributeOp::kPermute) + 1;
constexpr int kOperandKinds = static_cast<int>(OperandKind::kTensor) + 1;
static_assert(static_cast<int>(RedistributeOp::kAllReduce) + 1 == v1::RedistributeStep::OP_ALL_REDUCE);
static_assert(static_cast<int>(RedistributeOp::kPermute) + 1 == v1::RedistributeStep::OP_PERMUTE);
static_assert(static_cast<int>(OperandKind::kTensor) + 1 == v1::Operand::KIND_TENSOR);

absl::StatusOr<RedistributeStep> StepFromProto(const v1::RedistributeStep& proto, const std::string& field) {
  RedistributeStep step;
  const int op = static_cast<int>(proto.op());
  if (op < 1 || op > kRedistributeOps) return FieldError(field + ".op", absl::StrCat("unknown operation ", op));
  step.op = static_cast<RedistributeOp>(op - 1);
  step.axes.assign(proto.axes().begin(), proto.axes().end());
  TP_ASSIGN_OR_RETURN(step.from, PlacementsFromProto(proto.from(), field + ".from"));
  TP_ASSIGN_OR_RETURN(step.to, PlacementsFromProto(proto.to(), field + ".to"));
  return step;
}

void StepToProto(const RedistributeStep& step, v1::RedistributeStep* proto) {
  proto->set_op(static_cast<v1::RedistributeStep::Op>(static_cast<int>(step.op) + 1));
  proto->mutable_axes()->Assign(step.axes.begin(), step.axes.end());
  PlacementsToProto(step.from, proto->mutable_from());
  PlacementsToProto(step.to, proto->mutable_to());
}

absl::StatusOr<Instruction> InstructionFromProto(const v1::Instruction& proto, const std::string& field) {
  Instruction instruction;
  instruction.function = proto.function();
  instruction.inputs.assign(proto.inputs().begin(), proto.inputs().end());
  instruction.outputs.assign(proto.outputs().begin(), proto.outputs().end());
  TP_ASSIGN_OR_RETURN(instruction.attributes, AttributesFromProto(proto.attributes(), field + ".attributes"));
  instruction.module_path = proto.module_path();
  instruction.reason = proto.reason();
  if (proto.has_step()) {
    TP_ASSIGN_OR_RETURN(instruction.step, StepFromProto(proto.step(), field + ".step"));
  }
  return instruction;
}

absl::StatusOr<CacheSpec> CacheFromProto(const v1::CacheSpec& proto, const std::string& field) {
  CacheSpec cache;
  cache.module_path = proto.module_path();
  cache.kv_heads = proto.kv_heads();
  cache.head_dim = proto.head_dim();
  if (cache.kv_heads < 1 || cache.head_dim < 1) {
    return FieldError(
        field, absl::StrCat("kv_heads ", cache.kv_heads, " and head_dim ", cache.head_dim, " must be at least 1"));
  }
  absl::StatusOr<int64_t> count = CheckedElementCount({2, cache.kv_heads, kPageSize, cache.head_dim});
  if (!count.ok()) return AtField(count.status(), field);
  TP_ASSIGN_OR_RETURN(cache.dtype, DTypeFromProto(proto.dtype(), field + ".dtype"));
  TP_ASSIGN_OR_RETURN(cache.heads_placements,
                      PlacementsFromProto(proto.heads_placements(), field + ".heads_placements"));
  return cache;
}

}  // namespace

absl::StatusOr<ForwardProgram> ProgramFromProto(const v1::Program& program, const std::string& field) {
  ForwardProgram result;
  TP_ASSIGN_OR_RETURN(result.mesh, MeshFromProto(program.mesh(), field + ".mesh"));
  TP_ASSIGN_OR_RETURN(result.compute_dtype, DTypeFromProto(program.compute_dtype(), field + ".compute_dtype"));
  for (int i = 0; i < program.values_size(); ++i) {
    ProgramValue value;
    value.name = program.values(i).name();
    TP_ASSIGN_OR_RETURN(value.spec, SpecFromProto(program.values(i).spec(), Indexed(field + ".values", i) + ".spec"));
    result.values.push_back(std::move(value));
  }
  for (int i = 0; i < program.operands_size(); ++i) {
    const v1::Operand& operand = program.operands(i);
    const int kind = static_cast<int>(operand.kind());
    if (kind < 1 || kind > kOperandKinds) {
      return FieldError(Indexed(field + ".operands", i) + ".kind", absl::StrCat("unknown kind ", kind));
    }
    result.operands.push_back({static_cast<OperandKind>(kind - 1), operand.name(), operand.value()});
  }
  for (int i = 0; i < program.instructions_size(); ++i) {
    TP_ASSIGN_OR_RETURN(Instruction instruction,
                        InstructionFromProto(program.instructions(i), Indexed(field + ".instructions", i)));
    result.instructions.push_back(std::move(instruction));
  }
  for (const v1::NamedValue& output : program.outputs()) result.outputs.push_back({output.name(), output.value()});
  for (int i = 0; i < program.caches_size(); ++i) {
    TP_ASSIGN_OR_RETURN(CacheSpec cache, CacheFromProto(program.caches(i), Indexed(field + ".caches", i)));
    result.caches.push_back(std::move(cache));
  }
  for (const v1::InputCheck& check : program.input_checks()) {
    result.input_checks.push_back({check.input(), check.limit()});
    if (check.has_allowed()) result.input_checks.back().allowed = check.allowed();
  }
  for (const auto& [symbol, limit] : program.symbol_limits()) result.symbol_limits[symbol] = limit;
  TP_RETURN_IF_ERROR(AtField(ValidateProgram(result), field));
  return result;
}

void ProgramToProto(const ForwardProgram& program, v1::Program* proto) {
  MeshToProto(program.mesh.axes(), proto->mutable_mesh());
  proto->set_compute_dtype(DTypeToProto(program.compute_dtype));
  for (const ProgramValue& value : program.values) {
    v1::ProgramValue* added = proto->add_values();
    added->set_name(value.name);
    SpecToProto(value.spec, added->mutable_spec());
  }
  for (const Operand& operand : program.operands) {
    v1::Operand* added = proto->add_operands();
    added->set_kind(static_cast<v1::Operand::Kind>(static_cast<int>(operand.kind) + 1));
    added->set_name(operand.name);
    added->set_value(operand.value);
  }
  for (const Instruction& instruction : program.instructions) {
    v1::Instruction* added = proto->add_instructions();
    added->set_function(instruction.function);
    added->mutable_inputs()->Assign(instruction.inputs.begin(), instruction.inputs.end());
    added->mutable_outputs()->Assign(instruction.outputs.begin(), instruction.outputs.end());
    AttributesToProto(instruction.attributes, added->mutable_attributes());
    added->set_module_path(instruction.module_path);
    added->set_reason(instruction.reason);
    if (instruction.step.has_value()) StepToProto(*instruction.step, added->mutable_step());
  }
  for (const NamedValue& output : program.outputs) {
    v1::NamedValue* added = proto->add_outputs();
    added->set_name(output.name);
    added->set_value(output.value);
  }
  for (const CacheSpec& cache : program.caches) {
    v1::CacheSpec* added = proto->add_caches();
    added->set_module_path(cache.module_path);
    added->set_kv_heads(cache.kv_heads);
    added->set_head_dim(cache.head_dim);
    added->set_dtype(DTypeToProto(cache.dtype));
    PlacementsToProto(cache.heads_placements, added->mutable_heads_placements());
  }
  for (const InputCheck& check : program.input_checks) {
    v1::InputCheck* added = proto->add_input_checks();
    added->set_input(check.input);
    added->set_limit(check.limit);
    if (check.allowed.has_value()) added->set_allowed(*check.allowed);
  }
  for (const auto& [symbol, limit] : program.symbol_limits) (*proto->mutable_symbol_limits())[symbol] = limit;
}

}  // namespace tp

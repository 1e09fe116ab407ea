#include "common/program/memory.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/program/rank_classes.h"

namespace tp {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kMostBytes = int64_t{1} << 62;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

absl::StatusOr<int64_t> LocalBytes(const ForwardProgram& program, int value, const Bindings& bindings,
                                   absl::Span<const int> coordinate) {
  const DTensorSpec& spec = program.values[value].spec;
  TP_ASSIGN_OR_RETURN(const Shape global, EvaluateShape(spec.shape, bindings));
  absl::StatusOr<int64_t> bytes =
      CheckedBytes(LocalShape(global, spec.placements, program.mesh, coordinate), spec.dtype);
  if (!bytes.ok())
    return absl::ResourceExhaustedError(absl::StrCat("value '", program.values[value].name, "': too large"));
  return bytes;
}

// First fit among the blocks that are live at one moment, in one growing arena.
class Arena {
 public:
  // RESOURCE_EXHAUSTED past 2^62 bytes.
  absl::StatusOr<int64_t> Take(int64_t bytes) {
    int64_t offset = 0;
    auto place = blocks_.begin();
    for (; place != blocks_.end() && place->offset - offset < bytes; ++place) offset = place->offset + place->bytes;
    if (bytes > kMostBytes - offset - kAlignment) return absl::ResourceExhaustedError("the arena passes 2^62 bytes");
    if (bytes > 0) blocks_.insert(place, {offset, bytes});
    total_ = std::max(total_, offset + bytes);
    return offset;
  }
  void Give(int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    auto block =
        std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& entry) { return entry.offset == offset; });
    blocks_.erase(block);
  }
  int64_t total() const { return total_; }

 private:
  struct Block {
    int64_t offset, bytes;
  };
  std::vector<Block> blocks_;  // by offset
  int64_t total_ = 0;
};

// Has memory of its own.
bool LiesOutside(OperandKind kind) {
  return kind == OperandKind::kParameter || kind == OperandKind::kBuffer || kind == OperandKind::kTensor;
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const ForwardProgram& program, const Bindings& bindings,
                                      absl::Span<const int> coordinate) {
  const int instructions = static_cast<int>(program.instructions.size());
  const size_t values = program.values.size();
  std::vector<int> last_use(values, -1);
  for (int i = 0; i < instructions; ++i) {
    for (int input : program.instructions[i].inputs) {
      if (input >= 0) last_use[input] = i;
    }
    for (int output : program.instructions[i].outputs) last_use[output] = i;
  }
  for (const NamedValue& output : program.outputs) last_use[output.value] = instructions;
  std::vector<bool> in_arena(values, true);
  for (const Operand& operand : program.operands) {
    in_arena[operand.value] = !LiesOutside(operand.kind) && last_use[operand.value] >= 0;
  }
  if (WorksOnTensors(program)) {
    for (const NamedValue& output : program.outputs) in_arena[output.value] = false;
  }
  MemoryPlan plan{std::vector<int64_t>(values, -1), std::vector<int64_t>(instructions, -1),
                  std::vector<int64_t>(instructions, 0), 0};
  std::vector<int64_t> bytes(values, 0);
  std::vector<std::vector<int>> ends(instructions + 1);
  Arena arena;
  auto place = [&](int value) -> absl::Status {
    TP_ASSIGN_OR_RETURN(const int64_t exact, LocalBytes(program, value, bindings, coordinate));
    bytes[value] = Aligned(exact);
    TP_ASSIGN_OR_RETURN(plan.value_offset[value], arena.Take(bytes[value]));
    ends[last_use[value]].push_back(value);
    return absl::OkStatus();
  };
  for (const Operand& operand : program.operands) {
    if (in_arena[operand.value]) TP_RETURN_IF_ERROR(place(operand.value));
  }
  for (int i = 0; i < instructions; ++i) {
    const Instruction& instruction = program.instructions[i];
    for (int output : instruction.outputs) {
      if (in_arena[output]) TP_RETURN_IF_ERROR(place(output));
    }
    if (instruction.step.has_value()) {
      const DTensorSpec& spec = program.values[instruction.inputs[0]].spec;
      TP_ASSIGN_OR_RETURN(const Shape shape, EvaluateShape(spec.shape, bindings));
      TP_RETURN_IF_ERROR(CheckedBytes(shape, spec.dtype).status());
      plan.scratch_bytes[i] = StepScratchBytes(program.mesh, spec.dtype, shape, *instruction.step, coordinate);
    }
    if (plan.scratch_bytes[i] > 0) {
      TP_ASSIGN_OR_RETURN(plan.scratch_offset[i], arena.Take(Aligned(plan.scratch_bytes[i])));
      arena.Give(plan.scratch_offset[i], Aligned(plan.scratch_bytes[i]));
    }
    for (int value : ends[i]) arena.Give(plan.value_offset[value], bytes[value]);
  }
  plan.total_bytes = arena.total();
  return plan;
}

absl::StatusOr<std::vector<CollectiveRecord>> CollectivesOf(const ForwardProgram& program, const Bindings& bindings) {
  std::vector<CollectiveRecord> records;
  for (const Instruction& instruction : program.instructions) {
    if (!instruction.step.has_value()) continue;
    const RedistributeStep& step = *instruction.step;
    if (step.op == RedistributeOp::kNone || step.op == RedistributeOp::kSlice || step.op == RedistributeOp::kDivide ||
        step.op == RedistributeOp::kFill) {
      continue;
    }
    const DTensorSpec& spec = program.values[instruction.inputs[0]].spec;
    TP_ASSIGN_OR_RETURN(const Shape shape, EvaluateShape(spec.shape, bindings));
    TP_RETURN_IF_ERROR(CheckedBytes(shape, spec.dtype).status());
    records.push_back({instruction.module_path, std::string(RedistributeOpName(step.op)),
                       StepAxesText(program.mesh, step), StepBytes(program.mesh, spec.dtype, shape, step),
                       instruction.reason});
  }
  return records;
}

int64_t CachePageBytes(const ForwardProgram& program, absl::Span<const int> coordinate) {
  int64_t bytes = 0;
  for (const CacheSpec& cache : program.caches) {
    const Shape heads = LocalShape({cache.kv_heads}, cache.heads_placements, program.mesh, coordinate);
    bytes += 2 * heads[0] * kPageSize * cache.head_dim * ItemSize(cache.dtype);
  }
  return bytes;
}

absl::StatusOr<std::vector<RankMemory>> MemoryOf(const CompiledModel& model, const Bindings& bindings, bool widened) {
  std::set<std::string> linear_weights;
  std::set<int> weight_values;
  for (const Instruction& instruction : model.program.instructions) {
    if (instruction.function == "linear") weight_values.insert(instruction.inputs[1]);
  }
  for (const Operand& operand : model.program.operands) {
    if (weight_values.contains(operand.value)) linear_weights.insert(operand.name);
  }
  const ForwardProgram& cached = model.step_program.has_value() ? *model.step_program : model.program;
  TP_ASSIGN_OR_RETURN(const std::vector<int> classes, RankClasses(model, bindings));
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < model.mesh.rank_count(); ++rank) {
    if (classes[rank] != rank) {
      ranks.push_back(ranks[classes[rank]]);
      ranks.back().rank = rank;
      continue;
    }
    const Coordinate coordinate = model.mesh.CoordinateOf(rank);
    RankMemory memory{.rank = rank};
    for (const PlacedState& placed : model.states) {
      // Tied states are one storage, counted where it is.
      if (placed.source.has_value() && placed.source->kind == WeightSource::Kind::kAlias) continue;
      DType dtype = placed.state.dtype;
      if (widened && linear_weights.contains(placed.state.path) && ItemSize(dtype) < ItemSize(DType::kF32)) {
        dtype = DType::kF32;
      }
      const int64_t bytes =
          ElementCount(LocalShape(placed.state.shape, placed.placements, model.mesh, coordinate)) * ItemSize(dtype);
      (placed.state.buffer ? memory.buffer_bytes : memory.parameter_bytes) += bytes;
    }
    TP_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(model.program, bindings, coordinate));
    memory.activation_bytes = plan.total_bytes;
    if (model.max_positions > 0) {
      const int64_t pages = (model.max_positions + kPageSize - 1) / kPageSize;
      memory.cache_bytes = pages * CachePageBytes(cached, coordinate);
    }
    ranks.push_back(memory);
  }
  return ranks;
}

}  // namespace tp

#include "server/coordinator/load_plan.h"

#include <algorithm>
#include <set>
#include <string>

#include "common/base/status.h"
#include "common/program/memory.h"

namespace tp::server {
namespace {

constexpr int64_t kMostSequences = 16;  // of max_positions, for which a cache is made

// Adds the states that `program` reads as a linear's weight to `linear`, and those that it reads otherwise to `other`.
void CollectUses(const ForwardProgram& program, std::set<std::string>* linear, std::set<std::string>* other) {
  std::map<int, std::string> states;
  for (const Operand& operand : program.operands) {
    if (operand.kind == OperandKind::kParameter || operand.kind == OperandKind::kBuffer) {
      states[operand.value] = operand.name;
    }
  }
  for (const Instruction& instruction : program.instructions) {
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      const auto it = states.find(instruction.inputs[i]);
      if (it == states.end()) continue;
      (instruction.function == "linear" && i == 1 ? linear : other)->insert(it->second);
    }
  }
  for (const NamedValue& output : program.outputs) {
    const auto it = states.find(output.value);
    if (it != states.end()) other->insert(it->second);
  }
}

Bindings LargestRow(const Submission& submission, const CompiledModel& model) {
  Bindings bindings;
  const auto bind = [&](const ForwardProgram& program) {
    for (const ProgramValue& value : program.values) {
      for (const Dim& dim : value.spec.shape) {
        for (const std::string& symbol : dim.Symbols()) bindings.emplace(symbol, 1);
      }
    }
    for (const auto& [symbol, limit] : program.symbol_limits) bindings[symbol] = limit;
  };
  bind(model.program);
  if (model.step_program.has_value()) bind(*model.step_program);
  for (const auto& [symbol, limit] : submission.model.symbol_limits) bindings[symbol] = limit;
  return bindings;
}

int64_t LargestPage(const CompiledModel& model) {
  int64_t bytes = 0;
  for (int rank = 0; rank < model.mesh.rank_count(); ++rank) {
    bytes = std::max(bytes, CachePageBytes(*model.step_program, model.mesh.CoordinateOf(rank)));
  }
  return bytes;
}

}  // namespace

std::vector<LoadState> StatesToLoad(const CompiledModel& model) {
  std::set<std::string> linear, other;
  CollectUses(model.program, &linear, &other);
  if (model.step_program.has_value()) CollectUses(*model.step_program, &linear, &other);
  for (const PlacedState& placed : model.states) {  // one storage under two names is read in both ways
    if (placed.source.has_value() && placed.source->kind == WeightSource::Kind::kAlias) {
      other.insert(placed.source->path);
      other.insert(placed.state.path);
    }
  }
  std::vector<LoadState> states;
  for (const PlacedState& placed : model.states) {
    LoadState state;
    state.path = placed.state.path;
    state.shape = placed.state.shape;
    state.dtype = placed.state.dtype;
    state.placements = placed.placements;
    if (placed.source.has_value()) {
      state.source = *placed.source;
    } else {
      state.source.kind = WeightSource::Kind::kInitializer;
      state.source.initializer = placed.state.initializer;
    }
    state.buffer = placed.state.buffer;
    state.packed = linear.count(state.path) != 0 && other.count(state.path) == 0;
    states.push_back(std::move(state));
  }
  return states;
}

absl::StatusOr<int> CachePagesFor(const Submission& submission, const CompiledModel& model, int64_t cache_bytes) {
  if (!model.step_program.has_value() || !submission.model.generation.has_value()) return 0;
  const int64_t one = (submission.model.generation->max_positions + kPageSize - 1) / kPageSize;
  const int64_t page_bytes = LargestPage(model);
  const int64_t fits = page_bytes <= 0 ? one * kMostSequences : cache_bytes / page_bytes;
  if (fits < one) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cache_bytes: one sequence of ", submission.model.generation->max_positions, " positions needs ",
                     one * page_bytes, " bytes of cache on a worker, the limit is ", cache_bytes));
  }
  return static_cast<int>(std::min({one * kMostSequences, fits, int64_t{1} << 30}));
}

std::vector<std::vector<int>> ReplicasOf(const CompiledModel& model) {
  std::map<Coordinate, std::vector<int>> by_coordinate;
  for (int rank = 0; rank < model.mesh.rank_count(); ++rank) {
    const Coordinate whole = model.mesh.CoordinateOf(rank);
    Coordinate own;
    for (const int axis : model.replica_axes) own.push_back(whole[static_cast<size_t>(axis)]);
    by_coordinate[own].push_back(rank);
  }
  std::vector<std::vector<int>> replicas;
  for (auto& [coordinate, ranks] : by_coordinate) replicas.push_back(std::move(ranks));
  return replicas;
}

absl::StatusOr<int64_t> BytesOnRank(const Submission& submission, const CompiledModel& model, int cache_pages, int rank,
                                    bool widened) {
  TP_ASSIGN_OR_RETURN(const std::vector<RankMemory> memory, MemoryOf(model, LargestRow(submission, model), widened));
  for (const RankMemory& entry : memory) {
    if (entry.rank != rank) continue;
    int64_t bytes = entry.parameter_bytes + entry.buffer_bytes + entry.activation_bytes;
    if (model.step_program.has_value()) {
      bytes += cache_pages * CachePageBytes(*model.step_program, model.mesh.CoordinateOf(rank));
    }
    return bytes;
  }
  return absl::InternalError(absl::StrCat("no memory estimate for rank ", rank));
}

}  // namespace tp::server

#include "common/program/cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace tp {
namespace {

double Elements(const Shape& shape) {
  double count = 1;
  for (int64_t size : shape) count *= static_cast<double>(size);
  return count;
}

// Local shapes of the values at coordinate 0.
class BusiestRank {
 public:
  BusiestRank(const ForwardProgram& program, const Bindings& bindings)
      : program_(program), bindings_(bindings), origin_(static_cast<size_t>(program.mesh.axis_count()), 0) {}

  absl::StatusOr<Shape> ShapeOf(int value) const {
    const DTensorSpec& spec = program_.values[value].spec;
    TP_ASSIGN_OR_RETURN(const Shape global, EvaluateShape(spec.shape, bindings_));
    absl::Status fits = CheckedBytes(global, spec.dtype).status();
    if (!fits.ok())
      return absl::ResourceExhaustedError(absl::StrCat("value '", program_.values[value].name, "': too large"));
    return LocalShape(global, spec.placements, program_.mesh, origin_);
  }
  absl::StatusOr<double> BytesOf(int value) const {
    TP_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(value));
    return Elements(shape) * static_cast<double>(ItemSize(program_.values[value].spec.dtype));
  }

 private:
  const ForwardProgram& program_;
  const Bindings& bindings_;
  const Coordinate origin_;
};

absl::StatusOr<double> FlopsOf(const Instruction& instruction, const BusiestRank& rank) {
  double outputs = 0;
  for (int output : instruction.outputs) {
    TP_ASSIGN_OR_RETURN(const Shape shape, rank.ShapeOf(output));
    outputs += Elements(shape);
  }
  const std::string& function = instruction.function;
  if (function == "linear" || function == "matmul" || function == "bmm") {
    TP_ASSIGN_OR_RETURN(const Shape input, rank.ShapeOf(instruction.inputs[0]));
    return input.empty() ? outputs : 2 * outputs * static_cast<double>(input.back());
  }
  if (function == "conv1d" || function == "conv2d") {  // weight [out, in / groups, kernel...]
    TP_ASSIGN_OR_RETURN(const Shape weight, rank.ShapeOf(instruction.inputs[1]));
    return weight.empty() ? outputs : 2 * outputs * Elements(Shape(weight.begin() + 1, weight.end()));
  }
  if (function == "attention") {  // query [batch, time, heads, head_dim], key [batch, keys, kv_heads, head_dim]
    TP_ASSIGN_OR_RETURN(const Shape query, rank.ShapeOf(instruction.inputs[0]));
    TP_ASSIGN_OR_RETURN(const Shape key, rank.ShapeOf(instruction.inputs[1]));
    if (key.size() < 2) return outputs;
    return 4 * Elements(query) * static_cast<double>(key[1]);
  }
  return outputs;
}

// An embedding reads the rows that it looks up, not its whole weight.
absl::StatusOr<double> MemoryBytesOf(const Instruction& instruction, const BusiestRank& rank) {
  double bytes = 0;
  for (int output : instruction.outputs) {
    TP_ASSIGN_OR_RETURN(const double written, rank.BytesOf(output));
    bytes += written;
  }
  const bool lookup = instruction.function == "embedding";
  if (lookup) bytes *= 2;
  for (size_t i = 0; i < instruction.inputs.size(); ++i) {
    if (instruction.inputs[i] < 0 || (lookup && i == 1)) continue;
    TP_ASSIGN_OR_RETURN(const double read, rank.BytesOf(instruction.inputs[i]));
    bytes += read;
  }
  return bytes;
}

bool Reduces(RedistributeOp op) { return op == RedistributeOp::kAllReduce || op == RedistributeOp::kReduceScatter; }

bool IsCollective(RedistributeOp op) {
  return Reduces(op) || op == RedistributeOp::kAllGather || op == RedistributeOp::kAllToAll ||
         op == RedistributeOp::kPermute;
}

// Keyed by what decides the bytes, since layers repeat.
class StepBytesCache {
 public:
  explicit StepBytesCache(const Mesh& mesh) : mesh_(mesh) {}
  int64_t Of(DType dtype, const Shape& shape, const RedistributeStep& step) {
    std::string key =
        absl::StrCat(static_cast<int>(step.op), " ", static_cast<int>(dtype), " ", PlacementsText(mesh_, step.from),
                     ">", PlacementsText(mesh_, step.to), " ", StepAxesText(mesh_, step));
    for (int64_t size : shape) absl::StrAppend(&key, " ", size);
    auto [known, added] = known_.emplace(std::move(key), 0);
    if (added) known->second = StepBytes(mesh_, dtype, shape, step);
    return known->second;
  }

 private:
  const Mesh& mesh_;
  std::map<std::string, int64_t> known_;
};

int GroupSizeOf(const Mesh& mesh, const RedistributeStep& step) {
  int size = 1;
  for (int axis : step.axes) size *= mesh.axis_size(axis);
  return size;
}

double StepSeconds(const Mesh& mesh, const RedistributeStep& step, int64_t bytes, const CostModel& model) {
  const int hops = (GroupSizeOf(mesh, step) - 1) * (step.op == RedistributeOp::kAllReduce ? 2 : 1);
  return hops * model.hop_seconds + static_cast<double>(bytes) / model.link_bytes_per_second;
}

std::string Scaled(double value, double unit, const char* name) { return absl::StrFormat("%g %s", value / unit, name); }

}  // namespace

std::string CostModelText(const CostModel& model) {
  return absl::StrCat(Scaled(model.flops_per_second, 1e9, "Gflop/s"), " and ",
                      Scaled(model.memory_bytes_per_second, 1e9, "GB/s of memory a rank"), ", ",
                      Scaled(model.link_bytes_per_second, 1e9, "GB/s"), " and ", Scaled(model.hop_seconds, 1e-6, "us"),
                      " a hop between ranks");
}

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  memory_bytes += other.memory_bytes;
  collective_bytes += other.collective_bytes;
  seconds += other.seconds;
  return *this;
}

absl::StatusOr<ProgramCost> CostOf(const ForwardProgram& program, const Bindings& bindings, const CostModel& model) {
  const BusiestRank rank(program, bindings);
  StepBytesCache step_bytes(program.mesh);
  ProgramCost result;
  std::map<std::string, Cost> own;
  for (const Instruction& instruction : program.instructions) {
    Cost cost;
    if (!instruction.step.has_value() || Reduces(instruction.step->op)) {
      TP_ASSIGN_OR_RETURN(cost.flops, FlopsOf(instruction, rank));
    }
    if (!instruction.step.has_value() || instruction.step->op != RedistributeOp::kNone) {
      TP_ASSIGN_OR_RETURN(cost.memory_bytes, MemoryBytesOf(instruction, rank));
    }
    cost.seconds = std::max(cost.flops / model.flops_per_second, cost.memory_bytes / model.memory_bytes_per_second);
    if (instruction.step.has_value() && IsCollective(instruction.step->op)) {
      const DTensorSpec& spec = program.values[instruction.inputs[0]].spec;
      TP_ASSIGN_OR_RETURN(const Shape shape, EvaluateShape(spec.shape, bindings));
      const RedistributeStep& step = *instruction.step;
      const int64_t bytes = step_bytes.Of(spec.dtype, shape, step);
      cost.collective_bytes = static_cast<double>(bytes);
      cost.seconds = StepSeconds(program.mesh, step, bytes, model);
      const int group_size = GroupSizeOf(program.mesh, step);
      result.collectives.push_back({{instruction.module_path, std::string(RedistributeOpName(step.op)),
                                     StepAxesText(program.mesh, step), bytes, instruction.reason},
                                    group_size,
                                    program.mesh.rank_count() / group_size,
                                    cost.seconds});
    }
    result.instructions.push_back(cost);
    own[instruction.module_path] += cost;
    result.total += cost;
  }
  for (const auto& [path, cost] : own) {
    std::string prefix = path;
    for (;;) {
      result.modules[prefix] += cost;
      if (prefix.empty()) break;
      const size_t dot = prefix.rfind('.');
      prefix.resize(dot == std::string::npos ? 0 : dot);
    }
  }
  return result;
}

}  // namespace tp

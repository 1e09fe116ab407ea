#include "tests/support/simulator.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/initializer.h"
#include "tests/support/simulator_kernels.h"

namespace tp::testing {
namespace {

// Global indices of one dim that a coordinate holds, in local order.
std::vector<int64_t> IndicesOf(int64_t n, int dim, const Placements& placements, const Mesh& mesh,
                               absl::Span<const int> coordinate) {
  std::vector<int64_t> indices;
  for (const Interval& interval : OwnedIntervals(n, dim, placements, mesh, coordinate)) {
    for (int64_t i = interval.begin; i < interval.end; ++i) indices.push_back(i);
  }
  return indices;
}

// Calls visit(local index, global index) for every element of a block.
template <typename Visit>
void ForEachElement(const Shape& shape, const Placements& placements, const Mesh& mesh,
                    absl::Span<const int> coordinate, Visit visit) {
  std::vector<std::vector<int64_t>> indices;
  int64_t count = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    indices.push_back(IndicesOf(shape[dim], static_cast<int>(dim), placements, mesh, coordinate));
    count *= static_cast<int64_t>(indices.back().size());
  }
  for (int64_t local = 0; local < count; ++local) {
    int64_t rest = local, global = 0, stride = 1;
    for (size_t dim = shape.size(); dim-- > 0;) {
      const int64_t size = static_cast<int64_t>(indices[dim].size());
      global += indices[dim][rest % size] * stride;
      rest /= size;
      stride *= shape[dim];
    }
    visit(local, global);
  }
}

// What the rank at `index` of an axis of `size` holds of `value`: terms that differ, so that whoever forgets to reduce
// is found out. Sums of terms are exact where the value is a multiple of 1/8 (and integers stay integers).
double Term(double value, ReduceOp op, int size, int index, int64_t element) {
  const double shift = static_cast<double>(element % 5 + 1);
  switch (op) {
    case ReduceOp::kSum:  // value - shift, shift, 0, ...
      return size == 1 ? value : index == 0 ? value - shift : index == 1 ? shift : 0;
    case ReduceOp::kAvg:  // value - shift, value + shift, value, ...
      return size == 1 ? value : index == 0 ? value - shift : index == 1 ? value + shift : value;
    case ReduceOp::kMax:
      return index == element % size ? value : value - shift;
    case ReduceOp::kMin:
      return index == element % size ? value : value + shift;
    case ReduceOp::kProduct:
      return index == 0 ? value : 1;
  }
  return value;
}

double Combine(double a, double b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kMax:
      return std::isnan(a) || a > b ? a : b;
    case ReduceOp::kMin:
      return std::isnan(a) || a < b ? a : b;
    case ReduceOp::kProduct:
      return a * b;
  }
  return a;
}

using Blocks = std::vector<SimTensor>;  // by rank

class Simulation {
 public:
  Simulation(const ForwardProgram& program, Bindings bindings)
      : program_(program), bindings_(std::move(bindings)), blocks_(program.values.size()) {}

  absl::Status SetOperand(const Operand& operand, const SimTensor& global) {
    TP_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(operand.value));
    if (shape != global.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat(operand.name, ": ", ShapeText(global.shape), " given, ", ShapeText(shape), " needed"));
    }
    Distribute(operand.value, global);
    return absl::OkStatus();
  }

  absl::Status Run() {
    for (const Instruction& instruction : program_.instructions) {
      TP_RETURN_IF_ERROR(Annotate(RunInstruction(instruction),
                                  absl::StrCat(instruction.function, " in '", instruction.module_path, "'")));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SimTensor> Global(int value) const {
    TP_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(value));
    absl::StatusOr<SimTensor> global =
        GlobalValue(shape, program_.values[value].spec.placements, program_.mesh, blocks_[value]);
    if (!global.ok()) return Annotate(global.status(), program_.values[value].name);
    return global;
  }
  absl::StatusOr<Shape> ShapeOf(int value) const { return EvaluateShape(program_.values[value].spec.shape, bindings_); }
  int collectives() const { return collectives_; }

 private:
  void Distribute(int value, const SimTensor& global) {
    Blocks blocks;
    for (int rank = 0; rank < program_.mesh.rank_count(); ++rank) {
      blocks.push_back(
          LocalBlock(global, program_.values[value].spec.placements, program_.mesh, program_.mesh.CoordinateOf(rank)));
      if (program_.values[value].spec.dtype != DType::kBool) continue;
      for (double& term : blocks.back().values) term = std::clamp(term, 0.0, 1.0);
    }
    blocks_[value] = std::move(blocks);
  }

  absl::Status RunRedistribute(const Instruction& instruction) {
    TP_ASSIGN_OR_RETURN(const SimTensor global, Global(instruction.inputs[0]));
    Distribute(instruction.outputs[0], global);
    const RedistributeOp op = instruction.step->op;
    collectives_ += op == RedistributeOp::kAllGather || op == RedistributeOp::kAllToAll ||
                    op == RedistributeOp::kAllReduce || op == RedistributeOp::kReduceScatter ||
                    op == RedistributeOp::kPermute;
    return absl::OkStatus();
  }

  absl::Status RunInstruction(const Instruction& instruction) {
    if (instruction.function == "redistribute") return RunRedistribute(instruction);
    std::vector<Blocks> blocks(instruction.outputs.size());
    for (int rank = 0; rank < program_.mesh.rank_count(); ++rank) {
      const Coordinate coordinate = program_.mesh.CoordinateOf(rank);
      KernelCall call;
      call.function = instruction.function;
      call.attributes = &instruction.attributes;
      for (int output : instruction.outputs) {
        TP_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(output));
        call.output_shapes.push_back(
            LocalShape(shape, program_.values[output].spec.placements, program_.mesh, coordinate));
      }
      call.dtype = program_.values[instruction.outputs[0]].spec.dtype;
      for (int input : instruction.inputs) call.inputs.push_back(input < 0 ? nullptr : &blocks_[input][rank]);
      if (instruction.function == "add_once") {
        bool first = true;
        for (int64_t axis : std::get<std::vector<int64_t>>(instruction.attributes.at("axes"))) {
          first = first && coordinate[axis] == 0;
        }
        if (!first) {
          blocks[0].push_back(*call.inputs[0]);
          continue;
        }
        call.function = "add";
      }
      TP_RETURN_IF_ERROR(SetWhole(instruction, coordinate, &call));
      TP_ASSIGN_OR_RETURN(std::vector<SimTensor> made, RunKernel(call));
      for (size_t i = 0; i < made.size(); ++i) blocks[i].push_back(std::move(made[i]));
    }
    for (size_t i = 0; i < blocks.size(); ++i) blocks_[instruction.outputs[i]] = std::move(blocks[i]);
    return absl::OkStatus();
  }

  // What a kernel needs to know of the whole tensor.
  absl::Status SetWhole(const Instruction& instruction, absl::Span<const int> coordinate, KernelCall* call) const {
    auto set_owned = [&](int value, int64_t dim) -> absl::Status {
      TP_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(value));
      if (dim < 0) dim += static_cast<int64_t>(shape.size());
      call->total = shape[dim];
      call->owned = IndicesOf(shape[dim], static_cast<int>(dim), program_.values[value].spec.placements, program_.mesh,
                              coordinate);
      return absl::OkStatus();
    };
    if (instruction.function == "embedding") return set_owned(instruction.inputs[1], 0);
    if (instruction.function == "pick") {
      return set_owned(instruction.inputs[0], std::get<int64_t>(instruction.attributes.at("dim")));
    }
    if (instruction.function == "mean") {
      TP_ASSIGN_OR_RETURN(const Shape from, ShapeOf(instruction.inputs[0]));
      TP_ASSIGN_OR_RETURN(const Shape to, ShapeOf(instruction.outputs[0]));
      call->reduced_count = ElementCount(to) == 0 ? 0 : ElementCount(from) / ElementCount(to);
    }
    return absl::OkStatus();
  }

  const ForwardProgram& program_;
  const Bindings bindings_;
  std::vector<Blocks> blocks_;
  int collectives_ = 0;
};

}  // namespace

SimTensor LocalBlock(const SimTensor& global, const Placements& placements, const Mesh& mesh,
                     absl::Span<const int> coordinate) {
  SimTensor block{LocalShape(global.shape, placements, mesh, coordinate), {}};
  block.values.resize(static_cast<size_t>(ElementCount(block.shape)));
  ForEachElement(global.shape, placements, mesh, coordinate, [&](int64_t local, int64_t index) {
    double value = global.values[index];
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (!placements[axis].IsPartial()) continue;
      value = Term(value, placements[axis].op, mesh.axis_size(static_cast<int>(axis)), coordinate[axis],
                   index + 3 * static_cast<int64_t>(axis));
    }
    block.values[local] = value;
  });
  return block;
}

absl::StatusOr<SimTensor> GlobalValue(const Shape& shape, const Placements& placements, const Mesh& mesh,
                                      const std::vector<SimTensor>& blocks) {
  // Each copy of the tensor is made of the terms of the ranks that share its coordinates on the axes with copies.
  std::map<Coordinate, SimTensor> copies;
  double terms = 1;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].IsPartial() && placements[axis].op == ReduceOp::kAvg) {
      terms *= mesh.axis_size(static_cast<int>(axis));
    }
  }
  const auto partial =
      std::find_if(placements.begin(), placements.end(), [](const Placement& p) { return p.IsPartial(); });
  const ReduceOp op = partial == placements.end() ? ReduceOp::kSum : partial->op;
  std::map<Coordinate, std::vector<bool>> started;
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    Coordinate copy = mesh.CoordinateOf(rank);
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (placements[axis].IsReplicate()) continue;
      const int neighbours = placements[axis].kind == PlacementKind::kGroupShard
                                 ? mesh.axis_size(static_cast<int>(axis)) / placements[axis].groups
                                 : 1;
      copy[axis] %= neighbours;
    }
    SimTensor& tensor = copies.try_emplace(copy, SimTensor{shape, {}}).first->second;
    tensor.values.resize(static_cast<size_t>(ElementCount(shape)), 0.0);
    std::vector<bool>& has = started[copy];
    has.resize(tensor.values.size(), false);
    ForEachElement(shape, placements, mesh, mesh.CoordinateOf(rank), [&](int64_t local, int64_t index) {
      const double term = blocks[rank].values[local];
      tensor.values[index] = has[index] ? Combine(tensor.values[index], term, op) : term;
      has[index] = true;
    });
  }
  SimTensor& first = copies.begin()->second;
  for (const auto& [at, copy] : copies) {
    for (size_t i = 0; i < copy.values.size(); ++i) {
      if (!started[at][i]) return absl::InternalError("a copy lacks an element");
      const double a = copy.values[i], b = first.values[i];
      const bool near = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-12 * std::fabs(b);
      if (!near) return absl::InternalError(absl::StrCat("copies differ at element ", i, ": ", a, " and ", b));
    }
  }
  for (double& value : first.values) value /= terms;
  return first;
}

absl::StatusOr<SimulationResult> Simulate(const ForwardProgram& program, const std::map<std::string, SimTensor>& states,
                                          const std::map<std::string, SimTensor>& inputs,
                                          const std::vector<int64_t>& rows) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : inputs) shapes[name] = tensor.shape;
  TP_ASSIGN_OR_RETURN(Bindings bindings, BindInputs(program, shapes));
  bindings["rows"] = static_cast<int64_t>(rows.size());
  Simulation simulation(program, bindings);
  for (const Operand& operand : program.operands) {
    SimTensor global;
    if (operand.kind == OperandKind::kRows) {
      global = {{static_cast<int64_t>(rows.size())}, std::vector<double>(rows.begin(), rows.end())};
    } else if (operand.kind == OperandKind::kPositions) {
      TP_ASSIGN_OR_RETURN(global.shape, simulation.ShapeOf(operand.value));
      for (int64_t i = 0; i < ElementCount(global.shape); ++i) {
        global.values.push_back(static_cast<double>(i % global.shape[1]));
      }
    } else {
      const auto& source = operand.kind == OperandKind::kInput ? inputs : states;
      auto given = source.find(operand.name);
      if (given == source.end()) return absl::InvalidArgumentError(absl::StrCat(operand.name, " is missing"));
      global = given->second;
    }
    TP_RETURN_IF_ERROR(simulation.SetOperand(operand, global));
  }
  TP_RETURN_IF_ERROR(simulation.Run());
  SimulationResult result;
  for (const NamedValue& output : program.outputs) {
    TP_ASSIGN_OR_RETURN(result.outputs[output.name], simulation.Global(output.value));
  }
  result.collectives = simulation.collectives();
  return result;
}

std::map<std::string, SimTensor> InitialStates(const CompiledModel& model, uint64_t seed) {
  std::map<std::string, SimTensor> states;
  for (const PlacedState& placed : model.states) {
    SimTensor tensor{placed.state.shape, {}};
    for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) {
      tensor.values.push_back(InitialValue(placed.state.initializer, seed, placed.state.path, tensor.shape, i));
    }
    states[placed.state.path] = std::move(tensor);
  }
  return states;
}

}  // namespace tp::testing

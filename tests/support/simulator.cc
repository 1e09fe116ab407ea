#include "tests/support/simulator.h"

#include <algorithm>

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
    return GlobalValue(shape, program_.values[value].spec.placements, program_.mesh, blocks_[value]);
  }
  absl::StatusOr<Shape> ShapeOf(int value) const { return EvaluateShape(program_.values[value].spec.shape, bindings_); }
  int collectives() const { return collectives_; }

 private:
  void Distribute(int value, const SimTensor& global) {
    Blocks blocks;
    for (int rank = 0; rank < program_.mesh.rank_count(); ++rank) {
      blocks.push_back(
          LocalBlock(global, program_.values[value].spec.placements, program_.mesh, program_.mesh.CoordinateOf(rank)));
    }
    blocks_[value] = std::move(blocks);
  }

  absl::Status RunInstruction(const Instruction& instruction) {
    const int output = instruction.outputs[0];
    const DTensorSpec& spec = program_.values[output].spec;
    TP_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(output));
    if (instruction.function == "redistribute") {
      TP_ASSIGN_OR_RETURN(const SimTensor global, Global(instruction.inputs[0]));
      Distribute(output, global);
      const RedistributeOp op = instruction.step->op;
      collectives_ += op == RedistributeOp::kAllGather || op == RedistributeOp::kAllToAll ||
                      op == RedistributeOp::kAllReduce || op == RedistributeOp::kReduceScatter ||
                      op == RedistributeOp::kPermute;
      return absl::OkStatus();
    }
    Blocks blocks;
    for (int rank = 0; rank < program_.mesh.rank_count(); ++rank) {
      const Coordinate coordinate = program_.mesh.CoordinateOf(rank);
      KernelCall call{instruction.function,
                      {},
                      &instruction.attributes,
                      LocalShape(shape, spec.placements, program_.mesh, coordinate),
                      {}};
      for (int input : instruction.inputs) call.inputs.push_back(input < 0 ? nullptr : &blocks_[input][rank]);
      if (instruction.function == "add_once") {
        bool first = true;
        for (int64_t axis : std::get<std::vector<int64_t>>(instruction.attributes.at("axes"))) {
          first = first && coordinate[axis] == 0;
        }
        if (!first) {
          blocks.push_back(*call.inputs[0]);
          continue;
        }
        call.function = "add";
      }
      if (instruction.function == "embedding") {
        const DTensorSpec& weight = program_.values[instruction.inputs[1]].spec;
        call.owned_rows = IndicesOf(weight.shape[0].constant(), 0, weight.placements, program_.mesh, coordinate);
      }
      TP_ASSIGN_OR_RETURN(SimTensor block, RunKernel(call));
      blocks.push_back(std::move(block));
    }
    blocks_[output] = std::move(blocks);
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
  bool zero = false;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    zero |= placements[axis].IsPartial() && placements[axis].op == ReduceOp::kSum && coordinate[axis] != 0;
  }
  ForEachElement(global.shape, placements, mesh, coordinate,
                 [&](int64_t local, int64_t index) { block.values[local] = zero ? 0.0 : global.values[index]; });
  return block;
}

SimTensor GlobalValue(const Shape& shape, const Placements& placements, const Mesh& mesh,
                      const std::vector<SimTensor>& blocks) {
  SimTensor global{shape, std::vector<double>(static_cast<size_t>(ElementCount(shape)), 0.0)};
  std::vector<double> copies(global.values.size(), 0.0);
  // Each element is the sum over the terms of P(sum) and the mean over copies, so that a wrong copy shows.
  double replicas = 1;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].IsReplicate()) replicas *= mesh.axis_size(static_cast<int>(axis));
    if (placements[axis].kind == PlacementKind::kGroupShard) {
      replicas *= mesh.axis_size(static_cast<int>(axis)) / placements[axis].groups;
    }
  }
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    ForEachElement(shape, placements, mesh, mesh.CoordinateOf(rank), [&](int64_t local, int64_t index) {
      global.values[index] += blocks[rank].values[local] / replicas;
    });
  }
  return global;
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

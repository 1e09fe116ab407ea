// Small models with declarative shardings and what tests ask of them, by a simulation in float64. Example:
//   const CompiledModel model = Compile(OneLinear(4, 6, Sharding({{"weight", OnTp(kS0)}})));
//   EXPECT_EQ(StateAt(model, "fc.weight"), "tp=S(0)");
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/program/compile.h"
#include "common/program/memory.h"
#include "tests/support/model_builders.h"
#include "tests/support/simulator.h"

namespace tp::testing {

using Shardings = std::map<std::string, NamedPlacements>;
using Tensors = std::map<std::string, SimTensor>;

const Placement kR = Placement::Replicate(), kS0 = Placement::Shard(0), kS1 = Placement::Shard(1),
                kLast = Placement::Shard(-1), kP = Placement::Partial();

inline ShardingConfig Sharding(Shardings states, Shardings in_src = {}, Shardings in_dst = {}, Shardings out_src = {},
                               Shardings out_dst = {}) {
  ShardingConfig sharding;
  sharding.state_shardings = std::move(states);
  sharding.in_src_shardings = std::move(in_src);
  sharding.in_dst_shardings = std::move(in_dst);
  sharding.out_src_shardings = std::move(out_src);
  sharding.out_dst_shardings = std::move(out_dst);
  return sharding;
}
inline NamedPlacements OnTp(Placement placement) { return {{"tp", std::move(placement)}}; }

inline Module Leaf(std::string name, ModuleConfig config) {
  Module module;
  module.name = std::move(name);
  module.config = std::move(config);
  return module;
}
inline Module Linear(std::string name, int64_t in, int64_t out, bool bias = true) {
  LinearConfig config;
  config.in_features = in;
  config.out_features = out;
  config.bias = bias;
  return Leaf(std::move(name), config);
}
// A composite of one input "x" and one output.
inline Module Graph(std::string type_name, std::vector<GraphNode> nodes, std::string output,
                    std::vector<Module> children) {
  CompositeConfig config;
  config.type_name = std::move(type_name);
  config.inputs = {{"x"}};
  config.nodes = std::move(nodes);
  config.outputs = {{"y", std::move(output)}};
  Module module = Leaf("", config);
  module.children = std::move(children);
  return module;
}
inline Submission Of(Module root, SymShape shape, std::vector<MeshAxis> mesh = Tp(2)) {
  Submission submission;
  submission.name = "m";
  submission.model.root = std::move(root);
  submission.model.inputs = {{"x", DType::kF32, std::move(shape)}};
  submission.plan.mesh = std::move(mesh);
  return submission;
}
// x [rows, in] -> fc(x) [rows, out].
inline Submission OneLinear(int64_t in, int64_t out, ShardingConfig sharding, bool bias = true) {
  Module fc = Linear("fc", in, out, bias);
  fc.sharding = std::move(sharding);
  return Of(Graph("One", {CallChild("y", "fc", {"x"})}, "y", {fc}), {Dim::Symbol("batch"), Dim(in)});
}

inline CompiledModel Compile(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : CompiledModel{};
}
inline std::string Refusal(const Submission& submission, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = CompileForward(submission).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}
inline std::string StateAt(const CompiledModel& model, const std::string& path) {
  for (const PlacedState& placed : model.states) {
    if (placed.state.path == path) return PlacementsText(model.mesh, placed.placements);
  }
  return "none";
}
inline const PlacedModule& ModuleOf(const CompiledModel& model, const std::string& path) {
  for (const PlacedModule& module : model.modules) {
    if (module.path == path) return module;
  }
  return model.modules.front();
}
inline std::vector<std::string> OpsOf(const CompiledModel& model, const Bindings& bindings) {
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(model.program, bindings);
  EXPECT_TRUE(records.ok()) << records.status();
  std::vector<std::string> ops;
  for (const CollectiveRecord& record : *records) ops.push_back(record.module + " " + record.op);
  return ops;
}
inline SimTensor Simulated(const CompiledModel& model, const Tensors& states, const Tensors& inputs,
                           const std::string& name = "y") {
  EXPECT_TRUE(ValidateProgram(model.program).ok()) << ValidateProgram(model.program);
  absl::StatusOr<SimulationResult> result = Simulate(model.program, states, inputs);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->outputs.at(name) : SimTensor{};
}
inline SimTensor Wave(const Shape& shape) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) tensor.values.push_back(std::cos(0.37 * static_cast<double>(i)));
  return tensor;
}
inline SimTensor Arange(const Shape& shape, double step = 1) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) tensor.values.push_back(step * static_cast<double>(i));
  return tensor;
}
MATCHER_P(Close, tolerance, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= tolerance; }

// The values of `plain` on one rank for every mesh of `sharded`.
inline void ExpectEqual(const Submission& plain, const Submission& sharded,
                        const std::vector<std::vector<MeshAxis>>& meshes, const Tensors& inputs,
                        const std::string& name) {
  Submission one = plain;
  one.plan.entries.clear();
  one.plan.mesh = Tp(1);
  const CompiledModel whole = Compile(one);
  const SimTensor want = Simulated(whole, InitialStates(whole, 5), inputs, name);
  for (const std::vector<MeshAxis>& mesh : meshes) {
    Submission each = sharded;
    each.plan.mesh = mesh;
    const CompiledModel model = Compile(each);
    const SimTensor got = Simulated(model, InitialStates(model, 5), inputs, name);
    ASSERT_EQ(got.shape, want.shape);
    EXPECT_THAT(got.values, ::testing::Pointwise(Close(1e-9), want.values)) << mesh.back().size;
  }
}

}  // namespace tp::testing

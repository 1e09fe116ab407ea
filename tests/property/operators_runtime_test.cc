// Every function on real worker runtimes (CPU device, in-process collectives) with cut inputs and terms, against the
// simulation on one rank in float64: kernels and rules together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/support/model_builders.h"
#include "tests/support/operator_cases.h"
#include "tests/support/runtime_cluster.h"

namespace tp::testing {
namespace {

HostTensor ToHost(const SimTensor& tensor, DType dtype) {
  return ConvertTo(MakeHostTensor<double>(tensor.shape, tensor.values), dtype);
}

SimTensor ToSim(const HostTensor& tensor) {
  SimTensor sim{tensor.shape, {}};
  const HostTensor wide = ConvertTo(tensor, DType::kF64);
  for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) sim.values.push_back(wide.data<double>()[i]);
  return sim;
}

// S of the first dim, S of the last one, terms (a third of a number is not exact, so means of three in place of sums).
Placement Wanted(const OperatorInput& input, int which, int degree) {
  const int rank = static_cast<int>(input.shape.size());
  if (which == 2 && !IsFloating(input.dtype)) return Placement::Partial(ReduceOp::kMax);
  if (which == 2) return Placement::Partial(degree == 2 ? ReduceOp::kSum : ReduceOp::kAvg);
  if (rank == 0) return Placement::Replicate();
  return Placement::Shard(which == 0 ? 0 : rank - 1);
}

void ExpectNear(const SimTensor& got, const SimTensor& want, bool exact, const std::string& what) {
  ASSERT_EQ(got.shape, want.shape) << what;
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (std::isnan(want.values[i]) || std::isinf(want.values[i]) || exact) {
      ASSERT_TRUE(got.values[i] == want.values[i] || (std::isnan(got.values[i]) && std::isnan(want.values[i])))
          << what << " element " << i << ": " << got.values[i] << ", not " << want.values[i];
    } else {
      ASSERT_NEAR(got.values[i], want.values[i], 1e-4 * std::max(1.0, std::fabs(want.values[i])))
          << what << " element " << i;
    }
  }
}

class OperatorsRuntimeTest : public ::testing::TestWithParam<int> {};

TEST_P(OperatorsRuntimeTest, EqualTheSimulationOnOneRank) {
  RuntimeCluster cluster(GetParam());
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  int number = 0;
  for (const OperatorCase& test : OperatorCases()) {
    absl::StatusOr<CompiledModel> one = CompileForward(OperatorSubmission(test, Tp(1), {}));
    ASSERT_TRUE(one.ok()) << test.name << ": " << one.status();
    const auto expected = Simulate(one->program, {}, OperatorInputs(test));
    ASSERT_TRUE(expected.ok()) << test.name << ": " << expected.status();
    for (int which = 0; which < (test.inputs.empty() ? 1 : 3); ++which) {
      std::vector<Placements> placements;
      std::map<std::string, HostTensor> inputs;
      for (size_t i = 0; i < test.inputs.size(); ++i) {
        placements.push_back({Wanted(test.inputs[i], which, GetParam())});
        inputs[absl::StrCat("x", i)] = ToHost(test.inputs[i].value, test.inputs[i].dtype);
      }
      Submission submission = OperatorSubmission(test, Tp(GetParam()), placements);
      submission.name = absl::StrCat("operator", ++number);
      const std::string what = absl::StrCat(test.name, " placed ", which);
      if (absl::Status loaded = cluster.Load(submission, 8); !loaded.ok()) {
        ADD_FAILURE() << what << ": " << loaded;
        continue;
      }
      const ClusterAnswer answer = cluster.Forward(submission.name, inputs);
      if (!answer.status.ok()) {
        ADD_FAILURE() << what << ": " << answer.status;
        continue;
      }
      for (const auto& [name, want] : expected->outputs) {
        ExpectNear(ToSim(answer.outputs.at(name)), want, test.exact, absl::StrCat(what, ": ", name));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees, OperatorsRuntimeTest, ::testing::Values(2, 3));

}  // namespace
}  // namespace tp::testing

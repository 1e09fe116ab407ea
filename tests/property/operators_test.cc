// Every function on every placement of its inputs, simulated on all ranks, equals the same call on one rank. The
// default run draws from the combinations; TP_EXHAUSTIVE=1 takes all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/program/compile.h"
#include "tests/support/model_builders.h"
#include "tests/support/operator_cases.h"
#include "tests/support/simulator.h"

namespace tp::testing {
namespace {

using ::testing::UnorderedElementsAre;

bool Exhaustive() { return std::getenv("TP_EXHAUSTIVE") != nullptr; }

absl::StatusOr<std::map<std::string, SimTensor>> RunCase(const OperatorCase& test, const std::vector<MeshAxis>& mesh,
                                                         const std::vector<Placements>& placements) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(OperatorSubmission(test, mesh, placements));
  if (!compiled.ok()) return compiled.status();
  if (absl::Status valid = ValidateProgram(compiled->program); !valid.ok()) return absl::InternalError(valid.message());
  absl::StatusOr<SimulationResult> result = Simulate(compiled->program, {}, OperatorInputs(test));
  if (!result.ok()) return absl::InternalError(result.status().message());
  return result->outputs;
}

bool Same(double got, double want, bool exact) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return true;
  return !exact && std::fabs(got - want) <= 1e-9 * std::max(1.0, std::fabs(want));
}

// "" where the outputs are equal.
std::string Difference(const OperatorCase& test, const std::map<std::string, SimTensor>& got,
                       const std::map<std::string, SimTensor>& want) {
  for (const auto& [name, tensor] : want) {
    const SimTensor& other = got.at(name);
    if (other.shape != tensor.shape) return absl::StrCat(name, ": ", ShapeText(other.shape));
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      if (!Same(other.values[i], tensor.values[i], test.exact)) {
        return absl::StrCat(name, "[", i, "] is ", other.values[i], ", on one rank ", tensor.values[i]);
      }
    }
  }
  return "";
}

struct Tally {
  int runs = 0;
  std::set<std::string> refused;  // functions
};

// Combinations of one choice an input, all of them or `count` drawn ones.
class Choices {
 public:
  Choices(std::vector<size_t> sizes, int64_t count, uint64_t seed) : sizes_(std::move(sizes)), random_(seed) {
    for (size_t size : sizes_) total_ *= static_cast<int64_t>(size);
    all_ = total_ <= count;
    left_ = all_ ? total_ : count;
  }
  bool Next(std::vector<size_t>* choice) {
    if (left_-- <= 0) return false;
    int64_t rest = all_ ? left_ : static_cast<int64_t>(random_() % static_cast<uint64_t>(total_));
    choice->clear();
    for (size_t size : sizes_) {
      choice->push_back(static_cast<size_t>(rest) % size);
      rest /= static_cast<int64_t>(size);
    }
    return true;
  }

 private:
  std::vector<size_t> sizes_;
  std::mt19937_64 random_;
  int64_t total_ = 1, left_ = 0;
  bool all_ = false;
};

void ExpectEqualToOneRank(const OperatorCase& test, const std::vector<MeshAxis>& mesh, int64_t count, Tally* tally) {
  auto one = RunCase(test, Tp(1), {});
  ASSERT_TRUE(one.ok()) << test.name << ": " << one.status();
  std::vector<size_t> sizes;
  std::vector<std::vector<std::vector<Placement>>> options;  // by input and axis
  for (const OperatorInput& input : test.inputs) {
    options.emplace_back();
    for (const MeshAxis& axis : mesh) {
      options.back().push_back(AllPlacements(input, axis.size));
      sizes.push_back(options.back().back().size());
    }
  }
  Choices choices(sizes, count, 7);
  std::vector<size_t> choice;
  while (choices.Next(&choice)) {
    std::vector<Placements> placements;
    std::string text = absl::StrCat(test.name, " on ", mesh.size(), " axes of ", mesh[0].size, ":");
    size_t next = 0;
    bool legal = true;
    const Mesh grid = *Mesh::Create(mesh);
    for (size_t i = 0; i < test.inputs.size(); ++i) {
      placements.emplace_back();
      for (size_t axis = 0; axis < mesh.size(); ++axis) placements[i].push_back(options[i][axis][choice[next++]]);
      absl::StrAppend(&text, " (", PlacementsText(grid, placements[i]), ")");
      // Mixed terms, and parts that do not divide what an outer cut leaves, are no layouts.
      const OperatorInput& input = test.inputs[i];
      legal = legal &&
              NormalizePlacements(placements[i], static_cast<int>(input.shape.size()), input.dtype, grid).ok() &&
              ValidateForShape(input.value.shape, placements[i], grid).ok();
    }
    if (!legal) continue;
    auto many = RunCase(test, mesh, placements);
    if (!many.ok()) {
      ASSERT_EQ(many.status().code(), absl::StatusCode::kInvalidArgument) << text << ": " << many.status();
      tally->refused.insert(test.function);
      continue;
    }
    ++tally->runs;
    ASSERT_EQ(Difference(test, *many, *one), "") << text;
  }
}

class OperatorsTest : public ::testing::TestWithParam<int> {};

TEST_P(OperatorsTest, OneAxisEqualsOneRank) {
  Tally tally;
  for (const OperatorCase& test : OperatorCases()) {
    ExpectEqualToOneRank(test, Tp(GetParam()), Exhaustive() ? 20000 : 150, &tally);
    if (HasFatalFailure()) ADD_FAILURE() << test.name;
  }
  EXPECT_GT(tally.runs, 5000);
  EXPECT_THAT(tally.refused, UnorderedElementsAre());
}

INSTANTIATE_TEST_SUITE_P(Degrees, OperatorsTest, ::testing::Values(2, 3));

TEST(OperatorsOnTwoAxesTest, EqualOneRank) {
  Tally tally;
  for (const OperatorCase& test : OperatorCases()) {
    const int64_t all = test.inputs.size() <= 2 ? 100000 : 2000;
    ExpectEqualToOneRank(test, {{"dp", 2}, {"tp", 2}}, Exhaustive() ? all : 120, &tally);
    if (HasFatalFailure()) ADD_FAILURE() << test.name;
  }
  EXPECT_GT(tally.runs, 5000);
  // The class dim cut by both axes.
  EXPECT_THAT(tally.refused, UnorderedElementsAre("pick"));
}

TEST(OperatorsTest, EveryFunctionOfProgramsHasACase) {
  std::set<std::string> tested;
  for (const OperatorCase& test : OperatorCases()) tested.insert(test.function);
  // Flattening replaces these by others.
  const std::set<std::string> lowered{"view", "flatten", "squeeze", "unsqueeze", "stack", "chunk", "cross_entropy"};
  for (const std::string& name : FunctionNames()) EXPECT_NE(tested.contains(name), lowered.contains(name)) << name;
}

}  // namespace
}  // namespace tp::testing

#include "client/tpctl/verify_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace tp::client {
namespace {

using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

NamedTensor Floats(const std::string& name, const std::vector<float>& values) {
  return {name, MakeHostTensor<float>({static_cast<int64_t>(values.size())}, values)};
}

const std::map<std::string, std::string> kKinds = {{"", "Mlp"}, {"a", "Linear"}, {"b", "RMSNorm"}, {"b.c", "Linear"}};

TEST(CompareTest, TheFirstModuleThatExceedsIsNamedInTheOrderInWhichTheyRan) {
  const std::vector<NamedTensor> reference = {Floats("y", {1, 2}), Floats("b.c:output", {0.5f}),
                                              Floats("a:output", {1, -4}), Floats("b:0", {3})};
  std::vector<NamedTensor> parallel = {Floats("b:0", {3.5f}), Floats("y", {1, 3}), Floats("a:output", {1.25f, -4}),
                                       Floats("b.c:output", {0.5f})};
  const VerifySummary summary = Compare(reference, parallel, kKinds, {});
  ASSERT_EQ(summary.modules.size(), 3u);
  ASSERT_EQ(summary.outputs.size(), 1u);
  EXPECT_EQ(summary.modules[0].path, "b.c");
  EXPECT_EQ(summary.modules[0].max_difference, 0);
  EXPECT_FALSE(summary.modules[0].exceeds());
  ASSERT_NE(summary.first(), nullptr);
  EXPECT_EQ(summary.first()->path, "a");
  EXPECT_EQ(summary.first()->kind, "Linear");
  EXPECT_EQ(summary.first()->output, "output");
  EXPECT_EQ(summary.first()->max_difference, 0.25);
  EXPECT_EQ(summary.first()->max_value, 4);
  EXPECT_EQ(summary.modules[2].output, "0");
  EXPECT_EQ(summary.outputs[0].max_difference, 1);
  EXPECT_FALSE(summary.equal());
  EXPECT_EQ(ExceedingText(*summary.first()), "a (Linear): output differs by 0.25, allowed are 0.0004");
}

TEST(CompareTest, AnOutputOfTheModelIsNamedWhereAllModulesAreRight) {
  const VerifySummary summary =
      Compare({Floats("y", {1}), Floats("a:output", {1})}, {Floats("y", {2}), Floats("a:output", {1})}, kKinds, {});
  ASSERT_NE(summary.first(), nullptr);
  EXPECT_EQ(summary.first()->path, "");
  EXPECT_EQ(ExceedingText(*summary.first()), "the model's output: 'y' differs by 1, allowed are 0.0001");
}

TEST(CompareTest, TheToleranceGrowsWithTheLargestMagnitudeAndHasAFloor) {
  const Tolerance exact = DefaultTolerance(DType::kF32);
  EXPECT_TRUE(Compare({Floats("y", {1000, 0})}, {Floats("y", {1000, 0.09f})}, {}, exact).equal());
  EXPECT_FALSE(Compare({Floats("y", {1000, 0})}, {Floats("y", {1000, 0.11f})}, {}, exact).equal());
  EXPECT_TRUE(Compare({Floats("y", {0.001f})}, {Floats("y", {0.00109f})}, {}, exact).equal());
  const Tolerance half = DefaultTolerance(DType::kBF16);
  EXPECT_TRUE(Compare({Floats("y", {10})}, {Floats("y", {10.19f})}, {}, half).equal());
  EXPECT_FALSE(Compare({Floats("y", {10})}, {Floats("y", {10.21f})}, {}, half).equal());
  EXPECT_FALSE(Compare({Floats("y", {0.1f})}, {Floats("y", {0.103f})}, {}, half).equal());
  EXPECT_TRUE(Compare({Floats("y", {0})}, {Floats("y", {0.00019f})}, {}, half).equal());
  EXPECT_FALSE(Compare({Floats("y", {1})}, {Floats("y", {1.0000001f})}, {}, {.value = 0}).equal());
}

TEST(CompareTest, WhatIsNoNumberMustBeNoneInBoth) {
  EXPECT_TRUE(Compare({Floats("y", {kNaN, 1})}, {Floats("y", {kNaN, 1})}, {}, {}).equal());
  EXPECT_EQ(Compare({Floats("y", {kNaN, 1})}, {Floats("y", {0, 1})}, {}, {}).outputs[0].max_difference, kInfinity);
  EXPECT_EQ(Compare({Floats("y", {0, 1})}, {Floats("y", {kNaN, 1})}, {}, {}).outputs[0].max_difference, kInfinity);
  const float infinity = std::numeric_limits<float>::infinity();
  const VerifySummary same = Compare({Floats("y", {infinity, 2})}, {Floats("y", {infinity, 2})}, {}, {});
  EXPECT_TRUE(same.equal());
  EXPECT_EQ(same.outputs[0].max_value, 2);
  EXPECT_FALSE(Compare({Floats("y", {infinity})}, {Floats("y", {-infinity})}, {}, {}).equal());
}

TEST(CompareTest, OtherShapesTypesAndMissingOutputsAreInfinitelyWrong) {
  EXPECT_EQ(Compare({Floats("y", {1, 1})}, {Floats("y", {1})}, {}, {}).outputs[0].max_difference, kInfinity);
  EXPECT_EQ(Compare({Floats("y", {1})}, {Floats("z", {1})}, {}, {}).outputs[0].max_difference, kInfinity);
  const NamedTensor integers{"y", MakeHostTensor<int64_t>({1}, {1})};
  EXPECT_EQ(Compare({Floats("y", {1})}, {integers}, {}, {}).outputs[0].max_difference, kInfinity);
}

TEST(CompareTest, IntegersMustBeEqual) {
  const NamedTensor one{"best", MakeHostTensor<int64_t>({2}, {50000, 7})};
  const NamedTensor other{"best", MakeHostTensor<int64_t>({2}, {50000, 8})};
  EXPECT_TRUE(Compare({one}, {one}, {}, {}).equal());
  EXPECT_FALSE(Compare({one}, {other}, {}, {}).equal());
}

TEST(VerifyTextTest, SaysWhereAndHowMuch) {
  VerifySummary summary =
      Compare({Floats("y", {1}), Floats("a:output:call2", {1}), Floats("b:output", {1})},
              {Floats("y", {1}), Floats("a:output:call2", {1}), Floats("b:output", {1.5f})}, kKinds, {});
  summary.model = "mlp";
  EXPECT_EQ(
      VerifyText(summary, false),
      "MODULE   KIND     OUTPUT        LARGEST DIFFERENCE  LARGEST VALUE\n"
      "a        Linear   output:call2  0                   1\n"
      "b        RMSNorm  output        0.5                 1              EXCEEDS\n"
      "(model)           y             0                   1\n"
      "mlp DIFFERS FROM one rank within 0.0001, first in b (RMSNorm): output differs by 0.5, allowed are 0.0001\n");
  const nlohmann::json json = nlohmann::json::parse(VerifyText(summary, true));
  EXPECT_EQ(json["model"], "mlp");
  EXPECT_EQ(json["tolerance"], 1e-4);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["first_exceeding"], "b");
  ASSERT_EQ(json["modules"].size(), 2u);
  EXPECT_EQ(json["modules"][1]["path"], "b");
  EXPECT_EQ(json["modules"][1]["kind"], "RMSNorm");
  EXPECT_EQ(json["modules"][1]["max_difference"], 0.5);
  EXPECT_EQ(json["modules"][1]["max_value"], 1.0);
  EXPECT_EQ(json["outputs"][0]["name"], "y");
  EXPECT_EQ(json["outputs"][0]["max_difference"], 0.0);
}

TEST(VerifyTextTest, SaysThatAllAreEqual) {
  VerifySummary summary = Compare({Floats("y", {1})}, {Floats("y", {1})}, {}, {});
  summary.model = "mlp";
  EXPECT_THAT(VerifyText(summary, false), HasSubstr("\nmlp equals one rank within 0.0001\n"));
  const nlohmann::json json = nlohmann::json::parse(VerifyText(summary, true));
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["first_exceeding"], "");
  EXPECT_TRUE(json["modules"].empty());
}

}  // namespace
}  // namespace tp::client

// The other demo submissions against numpy (tests/reference/make_references.py) at 1, 2, 3 and 4 workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/npy.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

struct Param {
  std::string name;
  int tp;
};

class Submissions : public ::testing::TestWithParam<Param> {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster(4); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;
};
Cluster* Submissions::cluster_ = nullptr;

double LargestDifference(const HostTensor& a, const HostTensor& b) {
  const HostTensor x = ConvertTo(a, DType::kF64), y = ConvertTo(b, DType::kF64);
  double largest = 0;
  for (int64_t i = 0; i < ElementCount(a.shape); ++i)
    largest = std::max(largest, std::abs(x.data<double>()[i] - y.data<double>()[i]));
  return largest;
}

TEST_P(Submissions, EqualNumpyAndWhatExplainPredicts) {
  const auto& [name, tp] = GetParam();
  const std::string file = Source(absl::StrCat("deploy/demo/", name, ".textproto"));
  const std::string model = absl::StrCat(name, tp), mesh = absl::StrCat("tp=", tp);
  cluster_->Submit(file, model, mesh);

  const std::string answers = name == "mlp_sharding" ? "mlp" : name;  // the same model and weights
  auto reference = ReadSafetensors(Source(absl::StrCat("deploy/demo/", answers, ".reference.safetensors")));
  ASSERT_TRUE(reference.ok()) << reference.status();
  const nlohmann::json description = cluster_->Tpctl({"describe", model, "--output-format", "json"}).json();
  for (int i = 0; i < 3; ++i) {  // batches of several rows, one row, and none
    const std::string suffix = absl::StrCat("_", i);
    TemporaryFolder folder;
    const std::string out = folder.path() + "/out.safetensors";
    std::vector<std::string> words = {"forward", model, "--output", out, "--output-format", "json"};
    std::vector<std::string> explain = {"explain", file, "--mesh", mesh, "--output-format", "json"};
    // Inputs go in as .npy files; explain is asked for their shapes.
    for (const auto& input : description["inputs"]) {
      const std::string input_name = input["name"];
      ASSERT_TRUE(reference->count(input_name + suffix)) << input_name;
      const HostTensor& tensor = reference->at(input_name + suffix);
      const std::string npy = absl::StrCat(folder.path(), "/", input_name, ".npy");
      ASSERT_TRUE(WriteNpy(npy, tensor).ok());
      words.insert(words.end(), {"--input", absl::StrCat(input_name, "=", npy)});
      std::string shape;
      for (int64_t size : tensor.shape) absl::StrAppend(&shape, shape.empty() ? "" : "x", size);
      explain.insert(explain.end(), {"--shape", absl::StrCat(input_name, "=", shape)});
    }
    const CommandResult result = cluster_->Tpctl(words);
    ASSERT_EQ(result.code, 0) << result.err;
    auto outputs = ReadSafetensors(out);
    ASSERT_TRUE(outputs.ok());
    ASSERT_FALSE(outputs->empty());
    for (const auto& [output, tensor] : *outputs) {
      ASSERT_TRUE(reference->count(output + suffix)) << output;
      ASSERT_EQ(tensor.shape, reference->at(output + suffix).shape) << output;
      EXPECT_LE(LargestDifference(tensor, reference->at(output + suffix)), 1e-5) << output;
    }
    const nlohmann::json predicted = cluster_->Tpctl(explain).json()["collectives"];
    const nlohmann::json counted = result.json()["collectives"];
    ASSERT_EQ(predicted.size(), counted.size());
    for (size_t j = 0; j < predicted.size(); ++j)
      for (const char* field : {"module", "op", "axis", "bytes"}) EXPECT_EQ(predicted[j][field], counted[j][field]);
    EXPECT_EQ(counted.empty(), tp == 1);
  }
  EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
}

TEST_P(Submissions, VerifyFindsEveryModuleEqual) {
  const auto& [name, tp] = GetParam();
  const std::string model = absl::StrCat(name, "-verify", tp);
  cluster_->Submit(Source(absl::StrCat("deploy/demo/", name, ".textproto")), model, absl::StrCat("tp=", tp));
  const CommandResult result = cluster_->Tpctl({"verify", model, "--output-format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = result.json();
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["first_exceeding"], "");
  // The children of a root without others, each called once.
  const nlohmann::json description = cluster_->Tpctl({"describe", model, "--output-format", "json"}).json();
  EXPECT_EQ(json["modules"].size(), description["modules"].size() - 1);
  for (const auto& module : json["modules"]) {
    EXPECT_EQ(module["kind"], "Linear");
    EXPECT_GT(module["max_value"].get<double>(), 0) << module["path"];
    EXPECT_LT(module["max_difference"].get<double>(), 1e-5) << module["path"];
  }
  EXPECT_EQ(cluster_->Tpctl({"models", "--output-format", "json"}).json()["models"].size(), 1u);
  EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Submissions,
                         ::testing::Values(Param{"mlp", 1}, Param{"mlp", 2}, Param{"mlp", 3}, Param{"mlp", 4},
                                           Param{"mlp_sharding", 1}, Param{"mlp_sharding", 2}, Param{"mlp_sharding", 3},
                                           Param{"mlp_sharding", 4}, Param{"two_inputs", 1}, Param{"two_inputs", 2},
                                           Param{"two_inputs", 3}, Param{"two_inputs", 4}),
                         [](const auto& info) { return absl::StrCat(info.param.name, "_tp", info.param.tp); });

}  // namespace
}  // namespace tp::testing

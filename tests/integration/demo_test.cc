// The demo model at every legal degree against its references, which another program computed in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

struct Case {
  std::string prompt, text;
  std::vector<int64_t> ids, greedy;
};

std::vector<Case> Cases() {
  const nlohmann::json reference = nlohmann::json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")));
  std::vector<Case> cases;
  for (const auto& from : reference["cases"])
    cases.push_back({from["prompt"], from["text"], from["ids"], from["greedy"]});
  return cases;
}

// One cluster of 8 workers for all degrees; models share them.
class Demo : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster(8); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  static Cluster* cluster_;
};
Cluster* Demo::cluster_ = nullptr;

class DemoAtDegree : public Demo, public ::testing::WithParamInterface<int> {};

TEST_P(DemoAtDegree, GreedyTokensEqualTheReferenceForEveryPrompt) {
  const std::string model = cluster_->SubmitDemo(GetParam());
  const std::vector<Case> cases = Cases();
  ASSERT_EQ(cases.size(), 5u);
  for (const Case& c : cases) {
    const CommandResult by_text = cluster_->Tpctl(
        {"generate", model, "--prompt", c.prompt, "--max-new-tokens", "64", "--ignore-eos", "--output-format", "json"});
    ASSERT_EQ(by_text.code, 0) << by_text.err;
    EXPECT_THAT(by_text.json()["token_ids"].get<std::vector<int64_t>>(), ElementsAreArray(c.greedy)) << c.prompt;
    EXPECT_EQ(c.prompt + by_text.json()["text"].get<std::string>(), c.text);
    EXPECT_EQ(by_text.json()["finish_reason"], "length");
    if (!c.prompt.empty() && c.prompt != cases[0].prompt) continue;  // the same tokens, given as ids
    const CommandResult by_ids = cluster_->Tpctl({"generate", model, "--prompt-ids", absl::StrJoin(c.ids, ","),
                                                  "--max-new-tokens", "64", "--ignore-eos", "--output-format", "json"});
    ASSERT_EQ(by_ids.code, 0) << by_ids.err;
    EXPECT_THAT(by_ids.json()["token_ids"].get<std::vector<int64_t>>(), ElementsAreArray(c.greedy)) << c.prompt;
  }
  EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
}

TEST_P(DemoAtDegree, LogitsAreWithinTheBoundOfTheFloat64Reference) {
  const std::string model = cluster_->SubmitDemo(GetParam());
  auto reference = ReadSafetensors(Source("deploy/demo/kjv/reference.safetensors"));
  ASSERT_TRUE(reference.ok());
  for (int i = 0; i < 5; ++i) {
    TemporaryFolder folder;
    const HostTensor& ids = reference->at(absl::StrCat("ids_", i));
    std::vector<int64_t> list(ids.data<int64_t>(), ids.data<int64_t>() + ElementCount(ids.shape));
    const std::string out = folder.path() + "/logits.safetensors";
    const CommandResult result =
        cluster_->Tpctl({"forward", model, "--input", absl::StrCat("ids=", absl::StrJoin(list, ",")), "--output", out});
    ASSERT_EQ(result.code, 0) << result.err;
    auto outputs = ReadSafetensors(out);
    ASSERT_TRUE(outputs.ok());
    const HostTensor& logits = outputs->at("logits");
    const HostTensor& expected = reference->at(absl::StrCat("logits_", i));
    ASSERT_EQ(logits.dtype, DType::kF32);
    ASSERT_EQ(logits.shape, (Shape{1, ids.shape[0], 257}));
    double largest = 0;
    for (int64_t j = 0; j < ElementCount(expected.shape); ++j)
      largest = std::max(largest, std::abs(double{logits.data<float>()[j]} - double{expected.data<float>()[j]}));
    EXPECT_LE(largest, 1e-4) << "prompt " << i;
  }
  EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
}

INSTANTIATE_TEST_SUITE_P(Degrees, DemoAtDegree, ::testing::Values(1, 2, 4, 8));

TEST_F(Demo, Bf16LogitsStayWithinTheMeanBound) {
  for (int tp : {1, 2}) {
    const std::string model = cluster_->SubmitDemo(tp, "BF16");
    auto reference = ReadSafetensors(Source("deploy/demo/kjv/reference.safetensors"));
    ASSERT_TRUE(reference.ok());
    for (int i = 0; i < 5; ++i) {
      const HostTensor& ids = reference->at(absl::StrCat("ids_", i));
      std::vector<client::NamedTensor> inputs = {{"ids", ids}};
      inputs[0].tensor.shape = {1, ids.shape[0]};
      auto result = cluster_->Connect()->Forward(model, inputs);
      ASSERT_TRUE(result.ok()) << result.status();
      const HostTensor& expected = reference->at(absl::StrCat("logits_", i));
      ASSERT_EQ(result->outputs[0].tensor.dtype, DType::kF32);
      double sum = 0;
      for (int64_t j = 0; j < ElementCount(expected.shape); ++j)
        sum += std::abs(double{result->outputs[0].tensor.data<float>()[j]} - double{expected.data<float>()[j]});
      EXPECT_LE(sum / static_cast<double>(ElementCount(expected.shape)), 0.05) << "prompt " << i;
      EXPECT_GT(sum, 0) << "BF16 must not be computed as F32 and called BF16";
    }
    EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
  }
}

TEST_F(Demo, ThreeWorkersAreRefusedWithTheLegalDegrees) {
  const std::string file = cluster_->dir() + "/three.pb";
  ASSERT_EQ(cluster_->Tpctl({"import", Source("deploy/demo/kjv"), "--tp", "2", "--out", file}).code, 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"submit", file, "--mesh", "tp=3"}, {"explain", file, "--mesh", "tp=3"}}) {
    const CommandResult result = cluster_->Tpctl(words);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("tpctl: INVALID_ARGUMENT: "));
    EXPECT_THAT(result.err, HasSubstr("1, 2, 4"));
    EXPECT_THAT(result.err, HasSubstr("8"));
  }
  EXPECT_TRUE(cluster_->Tpctl({"models", "--output-format", "json"}).json()["models"].empty());
}

TEST_F(Demo, EachWorkerReadsOnlyItsOwnSlices) {
  for (int tp : {1, 2, 4, 8}) {
    const std::string model = cluster_->SubmitDemo(tp);
    const nlohmann::json description = cluster_->Tpctl({"describe", model, "--output-format", "json"}).json();
    EXPECT_EQ(description["name"], model);
    EXPECT_EQ(description["state"], "READY");
    std::vector<double> own(static_cast<size_t>(tp), 0);
    std::set<std::string> names;
    for (const auto& parameter : description["parameters"]) {
      names.insert(parameter["name"]);
      ASSERT_EQ(parameter["local"].size(), static_cast<size_t>(tp));
      // A run of a column slice is shorter than 4 KiB, so whole rows count as one span.
      const bool columns = parameter["placements"].get<std::string>().find("S(1)") != std::string::npos;
      for (const auto& block : parameter["local"]) {
        double elements = 1;
        const auto& shape = columns ? parameter["shape"] : block["shape"];
        for (int64_t size : shape) elements *= static_cast<double>(size);
        own[block["rank"].get<size_t>()] += elements * 2;  // BF16 in the file
      }
    }
    EXPECT_EQ(names.size(), 39u);
    EXPECT_TRUE(names.count("model.layers.3.mlp.down_proj.weight"));
    ASSERT_EQ(description["workers"].size(), static_cast<size_t>(tp));
    for (const auto& worker : description["workers"]) {
      EXPECT_LE(worker["bytes_read"].get<double>(), 1.05 * own[worker["rank"].get<size_t>()]) << "tp " << tp;
      EXPECT_GT(worker["bytes_read"].get<double>(), 0);
      EXPECT_GT(worker["parameter_bytes"].get<double>(), 0);
    }
    EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
  }
}

TEST_F(Demo, ExplainPredictsTheCollectivesThatForwardCounts) {
  for (int tp : {2, 8}) {
    const std::string model = cluster_->SubmitDemo(tp);
    const nlohmann::json predicted = cluster_
                                         ->Tpctl({"explain", absl::StrCat(cluster_->dir(), "/", model, ".pb"),
                                                  "--shape", "ids=1x5", "--output-format", "json"})
                                         .json();
    const nlohmann::json counted =
        cluster_->Tpctl({"forward", model, "--input", "ids=256,65,110,100,32", "--output-format", "json"}).json();
    int reduces = 0;
    ASSERT_EQ(predicted["collectives"].size(), counted["collectives"].size());
    for (size_t i = 0; i < predicted["collectives"].size(); ++i) {
      for (const char* field : {"module", "op", "axis", "bytes"})
        EXPECT_EQ(predicted["collectives"][i][field], counted["collectives"][i][field]) << i << " " << field;
      reduces += predicted["collectives"][i]["op"] == "all_reduce";
    }
    EXPECT_EQ(reduces, 9);  // 1 + 2 L
    EXPECT_EQ(predicted["collectives"].size(), 9u);
    EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
  }
}

TEST_F(Demo, VerifyComparesWithOneRank) {
  const std::string model = cluster_->SubmitDemo(4);
  const CommandResult result = cluster_->Tpctl({"verify", model, "--output-format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = result.json();
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["outputs"][0]["name"], "logits");
  EXPECT_EQ(json["first_exceeding"], "");
  std::map<std::string, std::string> kinds;
  for (const auto& module : json["modules"]) {
    kinds[module["path"]] = module["kind"];
    EXPECT_GT(module["max_value"].get<double>(), 0) << module["path"];
  }
  EXPECT_EQ(kinds["model.embed_tokens"], "Embedding");
  EXPECT_EQ(kinds["model.layers.3.mlp.down_proj"], "Linear");
  EXPECT_EQ(kinds["model.layers.0.input_layernorm"], "RMSNorm");
  EXPECT_EQ(kinds["lm_head"], "Linear");
  // The copy on one rank is gone, and so is a difference that is asked to be zero.
  EXPECT_EQ(cluster_->Tpctl({"models", "--output-format", "json"}).json()["models"].size(), 1u);
  const CommandResult strict = cluster_->Tpctl({"verify", model, "--tolerance", "0"});
  EXPECT_EQ(strict.code, 1);
  EXPECT_THAT(strict.err, HasSubstr("tpctl: DATA_LOSS"));
  EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
}

TEST_F(Demo, SeededSamplingIsEqualAtEveryDegreeAndDiffersFromGreedy) {
  std::vector<std::vector<int64_t>> tokens;
  for (int tp : {1, 4}) {
    const std::string model = cluster_->SubmitDemo(tp);
    tokens.push_back(cluster_
                         ->Tpctl({"generate", model, "--prompt", "And God said", "--max-new-tokens", "40",
                                  "--ignore-eos", "--temperature", "0.9", "--top-k", "50", "--top-p", "0.95", "--seed",
                                  "11", "--output-format", "json"})
                         .json()["token_ids"]);
    EXPECT_EQ(tokens.back().size(), 40u);
    EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  std::vector<int64_t> greedy = Cases()[0].greedy;
  greedy.resize(40);
  EXPECT_NE(tokens[0], greedy);
}

TEST_F(Demo, StopsAfterTheEndTokenWhichIsReturned) {
  const std::string model = cluster_->SubmitDemo(2);
  const nlohmann::json result =
      cluster_
          ->Tpctl({"generate", model, "--prompt", "Jesus wept", "--max-new-tokens", "400", "--output-format", "json"})
          .json();
  ASSERT_FALSE(result["token_ids"].empty());
  EXPECT_EQ(result["token_ids"].back(), 10);
  EXPECT_EQ(result["finish_reason"], "stop");
  EXPECT_LT(result["token_ids"].size(), 400u);
  EXPECT_EQ(cluster_->Tpctl({"delete", model}).code, 0);
}

}  // namespace
}  // namespace tp::testing

// Plans end to end: sequence parallelism, automatic plans, a submit step by step, generation over batch axes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kLayers = 4;  // of the demo model

class Plans : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster(4); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void TearDown() override {
    for (const Json& model : Json(Run({"models", "--output-format", "json"}).json()["models"])) {
      EXPECT_EQ(Run({"delete", model["name"]}).code, 0);
    }
  }

  static CommandResult Run(const std::vector<std::string>& words) { return cluster_->Tpctl(words); }
  // A submission file of the demo model.
  std::string Import(const std::string& name, int tp, const std::vector<std::string>& options) {
    const std::string file = absl::StrCat(folder_.path(), "/", name, ".pb");
    std::vector<std::string> words = {"import", Source("deploy/demo/kjv"), "--tp", absl::StrCat(tp), "--out", file};
    words.insert(words.end(), options.begin(), options.end());
    const CommandResult result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return file;
  }
  static void Submit(const std::string& file, const std::string& name) {
    const CommandResult result = Run({"submit", file, "--name", name});
    ASSERT_EQ(result.code, 0) << result.err;
  }
  // Ids that a formula gives, as --input takes them.
  static std::string Ids(int length) {
    std::vector<int> ids;
    for (int i = 0; i < length; ++i) ids.push_back((i * 37 + 65) % 256);
    return absl::StrCat("ids=", absl::StrJoin(ids, ","));
  }
  // Runs a model once: its logits and the collectives that were counted.
  std::pair<HostTensor, Json> Logits(const std::string& model, int length) {
    const std::string out = folder_.path() + "/logits.safetensors";
    const CommandResult result =
        Run({"forward", model, "--input", Ids(length), "--output", out, "--output-format", "json"});
    EXPECT_EQ(result.code, 0) << result.err;
    if (result.code != 0) return {};
    return {ReadSafetensors(out)->at("logits"), result.json()["collectives"]};
  }
  static std::map<std::string, int> CountsOf(const Json& collectives) {
    std::map<std::string, int> counts;
    for (const Json& collective : collectives) ++counts[collective["op"]];
    return counts;
  }
  static int64_t BytesOf(const Json& collectives) {
    int64_t bytes = 0;
    for (const Json& collective : collectives) bytes += collective["bytes"].get<int64_t>();
    return bytes;
  }
  static Json Predicted(const std::string& file, int length) {
    return Run({"explain", file, "--shape", absl::StrCat("ids=1x", length), "--output-format", "json"})
        .json()["collectives"];
  }
  static void ExpectEqualCollectives(const Json& predicted, const Json& counted) {
    ASSERT_EQ(predicted.size(), counted.size());
    for (size_t i = 0; i < predicted.size(); ++i) {
      for (const char* field : {"module", "op", "axis", "bytes"})
        EXPECT_EQ(predicted[i][field], counted[i][field]) << i << " " << field;
    }
  }
  static double LargestDifference(const HostTensor& a, const HostTensor& b) {
    EXPECT_EQ(a.shape, b.shape);
    if (a.shape != b.shape) return INFINITY;
    double largest = 0;
    for (int64_t i = 0; i < ElementCount(a.shape); ++i)
      largest = std::max(largest, std::abs(double{a.data<float>()[i]} - double{b.data<float>()[i]}));
    return largest;
  }

  static Cluster* cluster_;
  TemporaryFolder folder_;
};
Cluster* Plans::cluster_ = nullptr;

// Worked case 9.
TEST_F(Plans, SequenceParallelEqualsOneRankAtEveryLength) {
  Submit(Import("one", 1, {}), "one");
  for (int tp : {2, 4}) {
    const std::string file = Import(absl::StrCat("sequence", tp), tp, {"--sequence-parallel"});
    const std::string model = absl::StrCat("sequence", tp);
    Submit(file, model);
    for (int length : {1, 3, 17, 64}) {
      const auto [expected, none] = Logits("one", length);
      EXPECT_TRUE(none.empty());
      const auto [logits, counted] = Logits(model, length);
      EXPECT_LE(LargestDifference(logits, expected), 1e-4) << "tp " << tp << " length " << length;
      EXPECT_EQ(CountsOf(counted),
                (std::map<std::string, int>{{"all_gather", 1 + 2 * kLayers}, {"reduce_scatter", 1 + 2 * kLayers}}));
      ExpectEqualCollectives(Predicted(file, length), counted);
    }
    EXPECT_EQ(Run({"delete", model}).code, 0);
  }
}

TEST_F(Plans, AutomaticPlansCostNoMoreThanTheStandardOnes) {
  Submit(Import("one", 1, {}), "one");
  const auto [expected, none] = Logits("one", 17);
  for (int tp : {2, 4}) {
    for (const bool sequence : {false, true}) {
      std::vector<std::string> options;
      if (sequence) options.emplace_back("--sequence-parallel");
      const std::string standard = Import("standard", tp, options);
      options.insert(options.end(), {"--plan", "auto"});
      const std::string automatic = Import("automatic", tp, options);
      EXPECT_LE(BytesOf(Predicted(automatic, 16)), BytesOf(Predicted(standard, 16))) << tp << sequence;
      const std::string model = absl::StrCat("auto", tp, sequence);
      Submit(automatic, model);
      const auto [logits, counted] = Logits(model, 17);
      EXPECT_LE(LargestDifference(logits, expected), 1e-4);
      ExpectEqualCollectives(Predicted(automatic, 17), counted);
      EXPECT_EQ(Run({"delete", model}).code, 0);
    }
  }
}

TEST_F(Plans, AMemoryLimitShardsTheEmbedding) {
  // The embedding is [257, 256], 263168 bytes in F32.
  const auto parameter_bytes = [&](const std::string& file) {
    return Run({"explain", file, "--output-format", "json"}).json()["ranks"][0]["parameter_bytes"].get<int64_t>();
  };
  const auto placement = [&](const std::string& file) -> std::string {
    const Json explained = Run({"explain", file, "--output-format", "json"}).json();
    for (const Json& module : explained["modules"]) {
      if (module["path"] == "model.embed_tokens") return module["parameters"][0]["placements"];
    }
    return "absent";
  };
  const auto all_bytes = [&](const std::string& file) {
    int64_t most = 0;
    const Json explained = Run({"explain", file, "--output-format", "json"}).json();
    for (const Json& rank : explained["ranks"]) {
      int64_t all = 0;
      for (const char* kind : {"parameter_bytes", "buffer_bytes", "activation_bytes", "cache_bytes"})
        all += rank[kind].get<int64_t>();
      most = std::max(most, all);
    }
    return most;
  };
  const std::string free = Import("free", 8, {"--plan", "auto"});
  EXPECT_EQ(placement(free), "tp=R");
  EXPECT_GT(all_bytes(free), 2300000);
  // 2,247,936 bytes: parameters 1,657,856, activations 65,792, cache 524,288.
  const std::string sharded = Import("sharded", 8, {"--plan", "auto", "--memory-limit", "2300000"});
  EXPECT_EQ(placement(sharded), "tp=S(0)");
  EXPECT_LE(all_bytes(sharded), 2247936);
  EXPECT_LE(parameter_bytes(sharded), parameter_bytes(free) - (257 - 33) * 256 * 4);
  // A limit that leaves room changes nothing.
  EXPECT_EQ(placement(Import("roomy", 8, {"--plan", "auto", "--memory-limit", "200000000"})), "tp=R");
  // At a degree that there are workers for: 32 KiB less than the plan with the whole embedding needs.
  const std::string limit = absl::StrCat(all_bytes(Import("free", 2, {"--plan", "auto"})) - 32768);
  const std::string limited = Import("limited", 2, {"--plan", "auto", "--memory-limit", limit});
  EXPECT_EQ(placement(limited), "tp=S(0)");
  Submit(Import("one", 1, {}), "one");
  Submit(limited, "limited");
  const auto [logits, counted] = Logits("limited", 17);
  EXPECT_LE(LargestDifference(logits, Logits("one", 17).first), 1e-4);
  ExpectEqualCollectives(Predicted(limited, 17), counted);
  const CommandResult impossible = Run({"import", Source("deploy/demo/kjv"), "--tp", "4", "--plan", "auto",
                                        "--memory-limit", "1000", "--out", folder_.path() + "/none.pb"});
  EXPECT_EQ(impossible.code, 1);
  EXPECT_THAT(impossible.err, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_GT(parameter_bytes(free), 0);
}

TEST_F(Plans, ASubmitStepByStepInEitherOrder) {
  const std::string file = Source("deploy/demo/mlp.textproto");
  Submit(file, "whole");
  const std::string input = "x=1,2,3,4,5,6,7,8";
  const auto values = [&](const std::string& model) {
    const std::string out = folder_.path() + "/y.safetensors";
    const CommandResult result = Run({"forward", model, "--input", input, "--output", out});
    EXPECT_EQ(result.code, 0) << result.err;
    return ReadSafetensors(out)->at("y");
  };
  const HostTensor expected = values("whole");
  const auto state = [&](const std::string& model) -> std::string {
    return Run({"describe", model, "--output-format", "json"}).json()["state"];
  };

  ASSERT_EQ(Run({"model", "create", file, "--name", "a"}).code, 0);
  EXPECT_EQ(state("a"), "CREATED");
  EXPECT_THAT(Run({"forward", "a", "--input", input}).err, HasSubstr("FAILED_PRECONDITION: model 'a' is CREATED"));
  ASSERT_EQ(Run({"model", "init", "a"}).code, 0);
  EXPECT_EQ(state("a"), "INITIALISED");
  // One that fails changes nothing and may be repeated.
  const CommandResult too_large = Run({"model", "parallelize", "a", "--mesh", "tp=5"});
  EXPECT_EQ(too_large.code, 1);
  EXPECT_THAT(too_large.err, HasSubstr("FAILED_PRECONDITION: mesh tp=5 needs 5 workers, 4 are healthy"));
  EXPECT_EQ(state("a"), "INITIALISED");
  ASSERT_EQ(Run({"model", "parallelize", "a", "--mesh", "tp=3"}).code, 0);
  EXPECT_EQ(state("a"), "READY");
  EXPECT_LE(LargestDifference(values("a"), expected), 1e-6);
  const CommandResult twice = Run({"model", "parallelize", "a"});
  EXPECT_EQ(twice.code, 1);
  EXPECT_THAT(twice.err, HasSubstr("model 'a' has already been parallelized. Module.parallelize() must be called at "
                                   "most once per instance."));

  ASSERT_EQ(Run({"model", "create", file, "--name", "b"}).code, 0);
  const CommandResult placed = Run({"model", "parallelize", "b", file});
  ASSERT_EQ(placed.code, 0) << placed.err;
  EXPECT_THAT(placed.out, HasSubstr("b is PARALLELIZED on tp=2"));
  ASSERT_EQ(Run({"model", "init", "b", "--buffer-device", "cpu"}).code, 0);
  EXPECT_EQ(state("b"), "READY");
  EXPECT_LE(LargestDifference(values("b"), expected), 1e-6);
  EXPECT_THAT(Run({"model", "init", "b"}).err, HasSubstr("have already been initialised"));
}

// README's example of a language model written by hand.
TEST_F(Plans, AHandWrittenLanguageModelGenerates) {
  std::vector<std::vector<int64_t>> tokens;
  for (const char* mesh : {"tp=1", "tp=2", "tp=4"}) {
    const CommandResult submitted = Run({"submit", Source("deploy/demo/tiny_lm.textproto"), "--mesh", mesh});
    ASSERT_EQ(submitted.code, 0) << submitted.err;
    const CommandResult made =
        Run({"generate", "tiny_lm", "--prompt", "abc", "--max-new-tokens", "8", "--output-format", "json"});
    ASSERT_EQ(made.code, 0) << made.err;
    tokens.push_back(made.json()["token_ids"].get<std::vector<int64_t>>());
    EXPECT_FALSE(tokens.back().empty());
    EXPECT_EQ(tokens.back(), tokens.front()) << mesh;
    EXPECT_EQ(Run({"verify", "tiny_lm"}).code, 0) << mesh;
    EXPECT_EQ(Run({"delete", "tiny_lm"}).code, 0);
  }
}

// Foundation 12: each coordinate of a batch axis has its own sequences.
TEST_F(Plans, GenerationSpreadsOverBatchAxes) {
  const std::string text = folder_.path() + "/spread.textproto";
  ASSERT_EQ(Run({"import", Source("deploy/demo/kjv"), "--tp", "2", "--out", text}).code, 0);
  {
    std::stringstream whole;
    whole << std::ifstream(text).rdbuf();
    const std::string imported = whole.str(), plan = "\nplan {\n";
    const size_t at = imported.find(plan);
    ASSERT_NE(at, std::string::npos);
    std::ofstream(text) << imported.substr(0, at) << plan << "  axis: \"tp\"\n  batch_axes: \"dp\"\n"
                        << imported.substr(at + plan.size());
  }
  const CommandResult submitted = Run({"submit", text, "--name", "spread", "--mesh", "dp=2,tp=2"});
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  EXPECT_THAT(submitted.out, ::testing::Not(HasSubstr("copies")));
  const Json reference = Json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")));
  // All at once, so that both replicas work.
  std::vector<std::unique_ptr<Process>> clients;
  std::vector<std::vector<int64_t>> expected;
  for (int round = 0; round < 2; ++round) {
    for (const Json& from : reference["cases"]) {
      clients.push_back(std::make_unique<Process>(
          std::vector<std::string>{Program("tpctl"), "--server", cluster_->server(), "generate", "spread",
                                   "--prompt-ids", absl::StrJoin(from["ids"].get<std::vector<int64_t>>(), ","),
                                   "--max-new-tokens", "64", "--ignore-eos", "--output-format", "json"}));
      expected.push_back(from["greedy"]);
    }
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    const CommandResult result = clients[i]->Wait();
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.json()["token_ids"].get<std::vector<int64_t>>(), ElementsAreArray(expected[i])) << i;
  }
  // A forward cuts its batch over the axis.
  const auto [logits, counted] = Logits("spread", 5);
  Submit(Import("one", 1, {}), "one");
  EXPECT_LE(LargestDifference(logits, Logits("one", 5).first), 1e-4);
}

}  // namespace
}  // namespace tp::testing

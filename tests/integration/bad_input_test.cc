// Bad input through the real programs: each a clear "tpctl: CODE: text" and exit 1, state unchanged, servers alive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BadInput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = new Cluster(2);
    cluster_->Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=2");
    cluster_->SubmitDemo(2);
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }

  // The command fails with `code` and a text that holds `parts`; afterwards the models are the same and answer.
  void Refused(const std::vector<std::string>& words, const std::string& code, const std::vector<std::string>& parts) {
    const CommandResult result = cluster_->Tpctl(words);
    EXPECT_EQ(result.code, 1) << absl::StrJoin(words, " ") << "\n" << result.out;
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("tpctl: ", code, ": "))) << absl::StrJoin(words, " ");
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part)) << absl::StrJoin(words, " ");
    EXPECT_LT(result.err.size(), 1400u);
    const nlohmann::json models = cluster_->Tpctl({"models", "--output-format", "json"}).json()["models"];
    ASSERT_EQ(models.size(), 2u);
    for (const auto& model : models) EXPECT_EQ(model["state"], "READY");
    EXPECT_EQ(cluster_->Tpctl({"forward", "mlp", "--input", "x=1,2,3,4,5,6,7,8"}).code, 0);
    EXPECT_EQ(cluster_->Tpctl({"status", "--output-format", "json"}).json()["workers_healthy"], 2);
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder_.path(), "/", name);
    std::ofstream(path) << text;
    return path;
  }
  static std::string Mlp() {
    std::stringstream text;
    text << std::ifstream(Source("deploy/demo/mlp.textproto")).rdbuf();
    return text.str();
  }
  static std::string Replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return text;
  }

  static Cluster* cluster_;
  TemporaryFolder folder_;
};
Cluster* BadInput::cluster_ = nullptr;

TEST_F(BadInput, Files) {
  Refused({"submit", "/nowhere/plan.pb"}, "NOT_FOUND", {"/nowhere/plan.pb"});
  Refused({"submit", Source("deploy/demo")}, "INVALID_ARGUMENT", {});
  Refused({"submit", Write("plan.yaml", "name: 1")}, "INVALID_ARGUMENT", {".textproto"});
  Refused({"submit", Write("a.textproto", "name: \"a\" nonsense: 1")}, "INVALID_ARGUMENT", {"nonsense"});
  Refused({"submit", Write("a.json", "{\"name\": \"a\", \"nonsense\": 1}")}, "INVALID_ARGUMENT", {"nonsense"});
  Refused({"submit", Write("a.pb", "\xff\xff\xff\xff")}, "INVALID_ARGUMENT", {});
  // A well-formed message with a field that no version had: 1000: 1.
  Refused({"submit", Write("unknown.pb", std::string("\xc0\x3e\x01", 3))}, "INVALID_ARGUMENT", {"1000"});
  Refused({"submit", Write("empty.pb", "")}, "INVALID_ARGUMENT", {});
}

TEST_F(BadInput, Import) {
  Refused({"import", "/nowhere"}, "NOT_FOUND", {"/nowhere"});
  Refused({"import", folder_.path()}, "NOT_FOUND", {"config.json"});
  Write("config.json", "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}");
  Refused({"import", folder_.path()}, "UNIMPLEMENTED", {"GPT2LMHeadModel"});
  Write("config.json", "{\"architectures\": ");
  Refused({"import", folder_.path()}, "INVALID_ARGUMENT", {"config.json"});
  Refused({"import", Source("deploy/demo/kjv"), "--out", "/nowhere/plan.pb"}, "NOT_FOUND", {"/nowhere/plan.pb"});
  Refused({"import", Source("deploy/demo/kjv"), "--out", folder_.path() + "/plan.txt"}, "INVALID_ARGUMENT",
          {"plan.txt"});
  // Heads that can't be cut so: refused as submit and explain do, and nothing is written.
  const std::string plan = folder_.path() + "/three.pb";
  Refused({"import", Source("deploy/demo/kjv"), "--tp", "3", "--out", plan}, "INVALID_ARGUMENT",
          {"8 query heads and 4 key-value heads can't be cut over 3 ranks; legal degrees: 1, 2, 4, 8"});
  EXPECT_FALSE(std::ifstream(plan).good());
}

TEST_F(BadInput, Plans) {
  const std::string renamed = Replaced(Mlp(), "name: \"mlp\"", "name: \"other\"");
  Refused({"submit", Write("p.textproto", Replaced(renamed, "pattern: \"fc1\"", "pattern: \"fcl\""))},
          "INVALID_ARGUMENT", {"fcl", "fc1"});
  Refused({"submit", Write("p.textproto", renamed), "--mesh", "tp=4"}, "FAILED_PRECONDITION", {"4", "2"});
  Refused({"submit", Write("p.textproto", renamed), "--mesh", "tp=0"}, "INVALID_ARGUMENT", {"tp"});
  Refused({"submit", Write("p.textproto", renamed), "--mesh", "tp"}, "INVALID_ARGUMENT", {"tp"});
  Refused({"submit", Write("p.textproto", renamed), "--mesh", "a=1,a=2"}, "INVALID_ARGUMENT", {"a"});
  Refused({"submit", Write("p.textproto", renamed), "--name", "bad/name"}, "INVALID_ARGUMENT", {"bad/name"});
  Refused({"submit", Source("deploy/demo/mlp.textproto")}, "ALREADY_EXISTS", {"mlp"});
  Refused({"submit", Write("p.textproto", renamed), "--replace"}, "NOT_FOUND", {"no model 'other'", "mlp"});
}

TEST_F(BadInput, WeightFiles) {
  std::filesystem::copy_file(Source("deploy/demo/mlp.safetensors"), folder_.path() + "/mlp.safetensors");
  const std::string plan = Write("p.textproto", Replaced(Mlp(), "name: \"mlp\"", "name: \"other\""));
  std::filesystem::resize_file(folder_.path() + "/mlp.safetensors",
                               std::filesystem::file_size(folder_.path() + "/mlp.safetensors") - 1);
  Refused({"submit", plan}, "INVALID_ARGUMENT", {"mlp.safetensors"});
  std::filesystem::remove(folder_.path() + "/mlp.safetensors");
  Refused({"submit", plan}, "NOT_FOUND", {"mlp.safetensors"});
  // What failed left its name free.
  std::filesystem::copy_file(Source("deploy/demo/mlp.safetensors"), folder_.path() + "/mlp.safetensors");
  const CommandResult good = cluster_->Tpctl({"submit", plan});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(cluster_->Tpctl({"delete", "other"}).code, 0);
}

TEST_F(BadInput, WeightsOutsideTheModelRoot) {
  Cluster fenced(1, {"--model-root", folder_.path()});
  const CommandResult outside = fenced.Tpctl({"submit", Source("deploy/demo/mlp.textproto"), "--mesh", "tp=1"});
  EXPECT_EQ(outside.code, 1);
  EXPECT_THAT(outside.err, AllOf(HasSubstr("tpctl: PERMISSION_DENIED: "), HasSubstr("mlp.safetensors")));
  // A link below the root that leads out of it is outside too.
  std::filesystem::create_symlink(Source("deploy/demo/mlp.safetensors"), folder_.path() + "/mlp.safetensors");
  const CommandResult link = fenced.Tpctl({"submit", Write("p.textproto", Mlp()), "--mesh", "tp=1"});
  EXPECT_THAT(link.err, HasSubstr("tpctl: PERMISSION_DENIED: "));
  EXPECT_EQ(fenced.Tpctl({"models", "--output-format", "json"}).json()["models"].size(), 0u);
}

TEST_F(BadInput, Requests) {
  Refused({"forward", "nothing", "--input", "x=1"}, "NOT_FOUND", {"nothing"});
  Refused({"describe", "nothing"}, "NOT_FOUND", {"nothing"});
  Refused({"delete", "nothing"}, "NOT_FOUND", {"nothing"});
  Refused({"forward", "mlp", "--input", "y=1"}, "INVALID_ARGUMENT", {"'y'", "x"});
  Refused({"forward", "mlp", "--input", "x=1,2"}, "INVALID_ARGUMENT", {"x"});
  Refused({"forward", "mlp", "--input", "x=1,2,,3,4,5,6,7,8"}, "INVALID_ARGUMENT", {"''"});
  Refused({"forward", "mlp", "--input", "x="}, "INVALID_ARGUMENT", {"no values"});
  Refused({"forward", "mlp", "--input", "x=1,2,three"}, "INVALID_ARGUMENT", {"three"});
  Refused({"forward", "mlp", "--input", "x=/nowhere.npy"}, "NOT_FOUND", {"/nowhere.npy"});
  Refused({"forward", "mlp", "--input", "x=@t"}, "NOT_FOUND", {"input 'x'", "'t'"});
  for (const char* bad : {"-1", "257", "264", "9223372036854775807"})
    Refused({"forward", "kjv2", "--input", absl::StrCat("ids=256,65,", bad)}, "INVALID_ARGUMENT", {bad, "257", "2"});
  Refused({"generate", "kjv2", "--prompt-ids", "256,300"}, "INVALID_ARGUMENT", {"300", "257"});
  Refused({"generate", "kjv2", "--prompt-ids", ""}, "INVALID_ARGUMENT", {});
  Refused({"generate", "kjv2", "--prompt", std::string(600, 'a')}, "INVALID_ARGUMENT", {"601", "511"});
  Refused({"generate", "kjv2", "--prompt", "a", "--max-new-tokens", "511"}, "INVALID_ARGUMENT", {"511", "512"});
  Refused({"generate", "kjv2", "--prompt", "a", "--temperature", "-1"}, "INVALID_ARGUMENT", {"temperature"});
  Refused({"generate", "kjv2", "--prompt", "a", "--top-p", "1.5"}, "INVALID_ARGUMENT", {"top_p"});
  Refused({"generate", "mlp", "--prompt", "a"}, "INVALID_ARGUMENT", {"mlp"});
  std::vector<std::string> ids(513, "65");
  Refused({"forward", "kjv2", "--input", "ids=" + absl::StrJoin(ids, ",")}, "INVALID_ARGUMENT", {"512"});
}

// Each rank looks up its own ids: one of them fails, the request ends on all, and the model goes on.
TEST_F(BadInput, AnIdThatOneRankRefusesEndsTheRequestOnly) {
  const std::string file = Write("lookup.textproto", R"(
    name: "lookup"
    model {
      root { composite {
          inputs { name: "i" }
          nodes { name: "j" function: "add" arguments { value: "i" }
                  attributes { key: "scalar" value { integer: 2 } } }
          nodes { name: "y" child: "e" arguments { value: "j" } }
          outputs { name: "y" value: "y" } }
        children { name: "e" embedding { num_embeddings: 6 embedding_dim: 4 } } }
      inputs { name: "i" type { dtype: I64 shape: "b" } } }
    plan { mesh { axes { name: "dp" size: 2 } } batch_axes: "dp" })");
  ASSERT_EQ(cluster_->Tpctl({"submit", file}).code, 0);
  for (int i = 0; i < 3; ++i) {
    const CommandResult bad = cluster_->Tpctl({"forward", "lookup", "--input", "i=0,1,2,9"});
    EXPECT_EQ(bad.code, 1);
    EXPECT_THAT(bad.err,
                AllOf(HasSubstr("tpctl: INVALID_ARGUMENT: rank 1 "), HasSubstr("id 11 "), HasSubstr("outside [0, 6)")));
    const CommandResult good = cluster_->Tpctl({"forward", "lookup", "--input", "i=0,1,2,3"});
    EXPECT_EQ(good.code, 0) << good.err;
  }
  EXPECT_EQ(cluster_->Tpctl({"delete", "lookup"}).code, 0);
}

TEST_F(BadInput, ModelsLargerThanTheMachine) {
  const std::string huge = R"(name: "huge"
    model {
      root {
        composite {
          inputs { name: "x" }
          nodes { name: "y" child: "fc" arguments { value: "x" } }
          outputs { name: "y" value: "y" }
        }
        children { name: "fc" linear { in_features: 8 out_features: 8589934592 } }
      }
      inputs { name: "x" type { dtype: F32 shape: "batch" shape: "8" } }
    }
    plan { mesh { axes { name: "tp" size: 2 } } entries { pattern: "fc" colwise_parallel {} } })";
  Refused({"submit", Write("huge.textproto", huge)}, "RESOURCE_EXHAUSTED", {"memory limit"});
}

TEST_F(BadInput, InitialValuesOutOfAnIntegersRangeAreTheNearest) {
  const std::string text = R"(name: "integers"
    model {
      root {
        composite {
          inputs { name: "x" }
          nodes { name: "y" function: "relu" arguments { value: "x" } }
          outputs { name: "y" value: "y" }
          outputs { name: "s" value: "self.s" }
          states { name: "s" shape: 2 dtype: I64 }
        }
        param_init { key: "s" value { arange { start: -1e300 step: 2e300 } } }
      }
      inputs { name: "x" type { dtype: F32 shape: "batch" shape: "8" } }
    }
    plan { mesh { axes { name: "tp" size: 2 } } })";
  const CommandResult submitted = cluster_->Tpctl({"submit", Write("integers.textproto", text)});
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  const CommandResult result = cluster_->Tpctl({"forward", "integers", "--input", "x=1,2,3,4,5,6,7,8"});
  EXPECT_THAT(result.out, HasSubstr("[-9223372036854775808, 9223372036854775807]")) << result.err;
  EXPECT_EQ(cluster_->Tpctl({"delete", "integers"}).code, 0);
}

TEST_F(BadInput, TextThatIsNotUtf8) {
  Refused({"generate", "kjv2", "--prompt", "\xff\xfe"}, "INVALID_ARGUMENT", {"--prompt is not UTF-8", "--prompt-ids"});
  Refused({"submit", Write("a.textproto", Replaced(Mlp(), "name: \"mlp\"", "name: \"m\\377\""))}, "INVALID_ARGUMENT",
          {"not UTF-8"});
}

TEST_F(BadInput, ASubmitGivenUpWhileItIsPlannedLeavesNothing) {
  std::string nodes;
  for (int i = 0; i < 3000; ++i)
    nodes += absl::StrCat("nodes { name: \"n", i, "\" function: \"relu\" arguments { value: \"",
                          i == 0 ? "x" : absl::StrCat("n", i - 1), "\" } }\n");
  const std::string text = absl::StrCat(
      "name: \"long\" model { root { composite { inputs { name: \"x\" }\n", nodes,
      "outputs { name: \"y\" value: \"n2999\" } } } inputs { name: \"x\" type { dtype: F32 shape: \"batch\" shape: "
      "\"8\" } } } plan { mesh { axes { name: \"tp\" size: 1 } } }");
  const CommandResult given_up = cluster_->Tpctl({"--timeout", "0.01", "submit", Write("long.textproto", text)});
  EXPECT_EQ(given_up.code, 1);
  // The next submission is planned after it, so that whatever it leaves behind is there by now.
  cluster_->Submit(Source("deploy/demo/two_inputs.textproto"), "after", "tp=1");
  EXPECT_EQ(cluster_->Tpctl({"delete", "after"}).code, 0);
  EXPECT_TRUE(Eventually([&] {
    return cluster_->Tpctl({"models", "--output-format", "json"}).json()["models"].size() == 2u;
  }));
}

TEST_F(BadInput, DryRunChangesNothing) {
  const CommandResult result = cluster_->Tpctl({"submit", Source("deploy/demo/two_inputs.textproto"), "--dry-run"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(cluster_->Tpctl({"models", "--output-format", "json"}).json()["models"].size(), 2u);
}

}  // namespace
}  // namespace tp::testing

// The field cases of vocabularies, states, patterns and sources (field case N: Cases.FieldN) as a user meets them: a
// submission, tpctl, and numbers worked out by hand or here in float64. The others: cases_field_test.cc. Held
// elsewhere:
//   field 20   Boundary.AFullTensorForASequenceParallelPlanIsCutAndNeverTakenForAShard (with the same sizes)
//   field 21   Cases.Worked8
#include <filesystem>

#include "tests/integration/cases_fixture.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A language model's two ends: logits = head(embed(ids)), a vocabulary of 10.
const char kVocabulary[] = "[0, 10)";
std::string Ends(const std::string& more = "") {
  return Model(Graph({"ids"}, {Child("x", "embed", {"ids"}), Child("logits", "head", {"x"})}, {"logits"}),
               {Module("embed", "embedding { num_embeddings: 10 embedding_dim: 3 }"), Linear("head", 3, 10)},
               {Input("ids", "I64", {"batch", "time"})}) +
         Plan({Entry("embed", "rowwise_parallel {}"), Entry("head", "colwise_parallel {}")}) + more;
}

TEST_F(Cases, Field17) {
  const Doubles embed = Waves(30, 1), head = Waves(30, 2);
  Submit("ends", "tp=4", Ends(), {{"embed.weight", F32({10, 3}, embed)}, {"head.weight", F32({10, 3}, head)}});
  for (const char* name : {"embed.weight", "head.weight"})
    EXPECT_THAT(Local<Shape>(State("ends", name), "shape"),
                ElementsAre(Shape{3, 3}, Shape{3, 3}, Shape{3, 3}, Shape{1, 3}));
  const NamedTensors ids = {{"ids", I64({1, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}};
  const Answer answer = Forward("ends", ids), shards = Shards("ends", ids);
  EXPECT_EQ(answer.ShapeOf("logits"), (Shape{1, 10, 10}));
  EXPECT_THAT(answer.Numbers("logits"), Near(LinearOf(embed, head, {}, 3)));
  EXPECT_EQ(shards.ShapeOf("logits.rank2"), (Shape{1, 10, 3}));
  EXPECT_EQ(shards.ShapeOf("logits.rank3"), (Shape{1, 10, 1}));
}

TEST_F(Cases, Field18) {
  const Doubles embed = Waves(30, 1), head = Waves(30, 2);
  for (int tp : {1, 4}) {
    Submit(absl::StrCat("ends", tp), absl::StrCat("tp=", tp), Ends(),
           {{"embed.weight", F32({10, 3}, embed)}, {"head.weight", F32({10, 3}, head)}});
  }
  Doubles logits = LinearOf(Doubles(embed.end() - 3, embed.end()), head, {}, 3);
  for (int64_t id : {-1, 10, 17}) {
    std::vector<std::string> texts;
    for (const char* model : {"ends1", "ends4"}) {
      const std::string file = t().Npy("bad", I64({2, 2}, {0, 9, id, 3}));
      t().Refused({"forward", model, "--input", "ids=" + file}, "INVALID_ARGUMENT",
                  {absl::StrCat("position [1, 0]: id ", id, " outside ", kVocabulary)});
      texts.push_back(t().cluster().Tpctl({"forward", model, "--input", "ids=" + file}).err);
      EXPECT_THAT(Run(model, {"--input", "ids=9"}).Numbers("logits"), Near(logits));
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_THAT(texts[1], Not(HasSubstr("rank")));  // no rank saw it
  }
}

TEST_F(Cases, Field19) {
  const Doubles table = Waves(30, 1);
  const NamedTensors one = {{"embed.weight", F32({10, 3}, table)}};
  NamedTensors both = one;
  both["head.weight"] = one.at("embed.weight");
  const std::string tied =
      Submit("tied", "tp=4", Ends("weights { key: \"head.weight\" value { alias: \"embed.weight\" } }\n"), one);
  Submit("untied", "tp=4", Ends(), both);
  const NamedTensors ids = {{"ids", I64({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}};
  const Answer answer = Forward("tied", ids);
  EXPECT_EQ(answer.values, Forward("untied", ids).values);
  EXPECT_THAT(answer.Numbers("logits"), Near(LinearOf(table, table, {}, 3)));
  // 3, 3, 3 and 1 rows of 12 bytes, once.
  const auto bytes = [&](const nlohmann::json& list) {
    std::map<int, int64_t> by_rank;
    for (const auto& rank : list) by_rank[rank["rank"]] = rank["parameter_bytes"];
    return by_rank;
  };
  const std::map<int, int64_t> rows = {{0, 36}, {1, 36}, {2, 36}, {3, 12}};
  EXPECT_EQ(bytes(t().Json({"describe", "tied"})["workers"]), rows);
  EXPECT_EQ(bytes(t().Json({"explain", tied, "--mesh", "tp=4"})["ranks"]), rows);
  EXPECT_EQ(t().Json({"describe", "tied"})["parameter_bytes"], 120);
  EXPECT_EQ(t().Json({"describe", "untied"})["parameter_bytes"], 240);
  // Two wishes for one storage.
  std::string other = Ends("weights { key: \"head.weight\" value { alias: \"embed.weight\" } }\n");
  other.replace(other.find("colwise_parallel"), 16, "rowwise_parallel");
  RefusedPlan("tp=4", other, "INVALID_ARGUMENT", {"embed.weight", "head.weight", "S(0)", "S(1)"});
}

// A checkpoint that says so and has no lm_head.weight.
TEST_F(Cases, Field19OfAFolder) {
  const std::string folder = Source("deploy/demo/kjv");
  auto tensors = ReadSafetensors(folder + "/model.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  std::map<bool, Answer> answers;
  std::map<bool, int64_t> bytes;
  for (const bool tied : {true, false}) {
    const std::string copy = t().Path(tied ? "tied_folder" : "untied_folder"), file = copy + ".pb";
    std::filesystem::create_directories(copy);
    config["tie_word_embeddings"] = tied;
    std::ofstream(copy + "/config.json") << config;
    if (tied)
      tensors->erase("lm_head.weight");
    else
      (*tensors)["lm_head.weight"] = tensors->at("model.embed_tokens.weight");
    ASSERT_TRUE(WriteSafetensors(copy + "/model.safetensors", *tensors).ok());
    const CommandResult imported = t().cluster().Tpctl({"import", copy, "--tp", "4", "--out", file});
    ASSERT_EQ(imported.code, 0) << imported.err;
    const std::string model = tied ? "tied" : "untied";
    t().Ok({"submit", file, "--name", model});
    answers[tied] = Forward(model, {{"ids", I64({1, 5}, {256, 65, 110, 100, 32})}});
    bytes[tied] = t().Json({"describe", model})["parameter_bytes"];
  }
  EXPECT_EQ(answers[true].ShapeOf("logits"), (Shape{1, 5, 257}));
  EXPECT_THAT(answers[true].Numbers("logits"), Near(answers[false].Numbers("logits")));
  EXPECT_LT(bytes[true], bytes[false]);
}

TEST_F(Cases, Field22) {
  // A norm in a layer, and one on top; x [batch, time, 4].
  const auto model = [](const std::string& top) {
    return Model(Graph({"x"}, {Child("h", "layers.0", {"x"}), Child("y", "norm", {"h"})}, {"y"}),
                 {Module("layers", "module_list {}",
                         Module("0", Graph({"x"}, {Child("n", "norm", {"x"})}, {"n"}),
                                Module("norm", "rms_norm { dim: 4 eps: 1e-5 }"))),
                  top},
                 {Input("x", "F32", {"batch", "time", "4"})});
  };
  const std::string leaf = Module("norm", "rms_norm { dim: 4 eps: 1e-5 }");
  const std::string nested =
      Module("norm", Graph({"x"}, {Child("n", "norm", {"x"})}, {"n"}), Module("norm", "rms_norm { dim: 4 eps: 1e-5 }"));
  const Doubles w1 = Waves(4, 1), w2 = Waves(4, 2), x = Waves(12, 3);
  const NamedTensors inputs = {{"x", F32({1, 3, 4}, x)}};
  const Doubles y = RmsNormOf(RmsNormOf(x, w1, 1e-5), w2, 1e-5);
  const auto styled = [&] {
    std::vector<std::string> paths;
    const nlohmann::json described = t().Json({"describe", "norms"});
    for (const auto& module : described["modules"])
      if (module["style"] != "") paths.push_back(module["path"]);
    return paths;
  };
  const NamedTensors flat = {{"layers.0.norm.weight", F32({4}, w1)}, {"norm.weight", F32({4}, w2)}};
  Submit("norms", "tp=2", model(leaf) + Plan({Entry("layers.0.norm", "sequence_parallel {}")}), flat);
  EXPECT_THAT(styled(), ElementsAre("layers.0.norm"));
  EXPECT_THAT(Forward("norms", inputs).Numbers("y"), Near(y));
  t().Ok({"delete", "norms"});
  Submit("norms", "tp=2", model(leaf) + Plan({Entry("norm", "sequence_parallel {}")}), flat);
  EXPECT_THAT(styled(), ElementsAre("norm"));
  EXPECT_THAT(Forward("norms", inputs).Numbers("y"), Near(y));
  t().Ok({"delete", "norms"});
  // norm.norm: that of the nested one; where the top has no child, nothing has this name.
  Submit("norms", "tp=2", model(nested) + Plan({Entry("norm.norm", "sequence_parallel {}")}),
         {{"layers.0.norm.weight", F32({4}, w1)}, {"norm.norm.weight", F32({4}, w2)}});
  EXPECT_THAT(styled(), ElementsAre("norm.norm"));
  EXPECT_THAT(Forward("norms", inputs).Numbers("y"), Near(y));
  RefusedPlan("tp=2", model(leaf) + Plan({Entry("norm.norm", "sequence_parallel {}")}), "INVALID_ARGUMENT",
              {"norm.norm", "matches no module", "nearest: ", "norm"});
  EXPECT_THAT(Forward("norms", inputs).Numbers("y"), Near(y));
}

// Layers of two weights each: x -> w1 -> w2 -> w1 -> w2.
std::string Layers(const std::vector<std::string>& entries) {
  const std::string layer = Graph({"x"}, {Child("h", "w1", {"x"}), Child("y", "w2", {"h"})}, {"y"});
  std::string layers;
  for (const char* name : {"0", "1"})
    absl::StrAppend(&layers, Module(name, layer, Linear("w1", 2, 4) + Linear("w2", 4, 2)));
  return Model(Graph({"x"}, {Child("a", "layers.0", {"x"}), Child("y", "layers.1", {"a"})}, {"y"}),
               {Module("layers", "module_list {}", layers)}, {Input("x", "F32", {"batch", "2"})}) +
         Plan(entries) + "seed: 1\n";
}

TEST_F(Cases, Field23) {
  RefusedPlan("tp=2",
              Layers({Entry("layers.*.w1", "colwise_parallel {}"), Entry("layers.0.w1", "rowwise_parallel {}")}),
              "INVALID_ARGUMENT", {"two patterns shard layers.0.w1", "layers.*.w1"});
  // An entry that places nothing may join it.
  Submit(
      "layers", "tp=2",
      Layers({Entry("layers.*.w1", "colwise_parallel {}"),
              Entry("layers.0.w1",
                    "prepare_module_input { input_layouts { replicate {} } desired_input_layouts { replicate {} } }"),
              Entry("layers.*.w2", "rowwise_parallel {}")}));
  EXPECT_THAT(Run("layers", {"--input", "x=1,2"}).Collectives(), ElementsAre("all_reduce", "all_reduce"));
}

TEST_F(Cases, Field24) {
  RefusedPlan("tp=2", Layers({Entry("layers.*.wl", "colwise_parallel {}")}), "INVALID_ARGUMENT",
              {"'layers.*.wl'", "matches no module", "nearest: layers.*.w1"});
  Submit("layers", "tp=2",
         Layers({Entry("layers.*.w1", "colwise_parallel {}"), Entry("layers.*.w2", "rowwise_parallel {}")}));
  EXPECT_EQ(Run("layers", {"--input", "x=1,2"}).ShapeOf("y"), (Shape{1, 2}));
}

TEST_F(Cases, Field41) {
  // Stored as [in, out], as GPT-2's Conv1D does: y = x S + b.
  const Doubles stored = {1, 2, 3, 4, 5, 6, 7, 8, 10};
  const std::string file = t().Path("conv1d.safetensors");
  ASSERT_TRUE(WriteSafetensors(file, {{"w", F32({3, 3}, stored)}}).ok());
  const std::string bias = "weights { key: \"fc.bias\" value { initializer { ones {} } } }\n";
  const std::string source = absl::StrCat("file { path: \"", file, "\" tensor: \"w\" }");
  const std::string turned =
      absl::StrCat("weights { key: \"fc.weight\" value { transpose { of { ", source, " } permutation: [1, 0] } } }\n");
  const std::string straight = absl::StrCat("weights { key: \"fc.weight\" value { ", source, " } }\n");
  for (const std::string style : {"", "colwise_parallel {}", "rowwise_parallel {}"}) {
    for (int tp : {1, 2, 4}) {
      SCOPED_TRACE(absl::StrCat(style, tp));
      const std::string mesh = absl::StrCat("tp=", tp);
      Submit("turned", mesh, OneLinear(3, 3, true, style) + turned + bias);
      EXPECT_EQ(Run("turned", {"--input", "x=1,10,100"}).Numbers("y"), (Doubles{742, 853, 1064}));
      Submit("straight", mesh, OneLinear(3, 3, true, style) + straight + bias);
      EXPECT_EQ(Run("straight", {"--input", "x=1,10,100"}).Numbers("y"), (Doubles{322, 655, 1088}));
      for (const char* model : {"turned", "straight"}) t().Ok({"delete", model});
    }
  }
}

}  // namespace
}  // namespace tp::testing

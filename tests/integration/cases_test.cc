// The worked cases of the contract (worked case N: Cases.WorkedN) as a user meets them: a submission, tpctl, and
// numbers worked out by hand or here in float64. Field cases: cases_field_test.cc, cases_plans_test.cc. Held elsewhere,
// with the same numbers:
//   worked 3   Tensors.PartialTermsAreQuartersAndComeBack, Tensors.TransitionsOnTwoAxesAreExact
//   worked 4   operations_test's embedding_of_a_block (the terms of each rank, which an answer does not show)
//   worked 5   Tensors.AllToAllOfRegisteredBlocks
//   worked 7   Tensors.FiveRowsOverFourRanksComeBackBitForBitOnEveryRank, Tensors.NestedCutsOfOneDim
//   worked 8   Plans.SequenceParallelEqualsOneRankAtEveryLength (the language model; here a block against float64)
//   worked 9   Demo.ExplainPredictsTheCollectivesThatForwardCounts (plain plan) and
//              Plans.SequenceParallelEqualsOneRankAtEveryLength; here the head whose output is declared R
//   worked 12  Tensors.AnIntegerThroughPartialIsExact (the I64); here the other two
#include <sstream>

#include "tests/integration/cases_fixture.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST_F(Cases, Worked1) {
  // The weight says where it lies, in_dst where x is seen.
  Submit("rows", "tp=2",
         Model(Graph({"x"}, {Child("y", "fc", {"x"})}, {"y"}),
               {Linear("fc", 8, 4, false,
                       Sharding({Where("state", "weight", "tp", "shard { dim: 0 }"),
                                 Where("in_dst", "input", "tp", "replicate {}"),
                                 Where("out_src", "output", "tp", "shard { dim: 1 }")}))},
               {Input("x", "F32", {"batch", "8"})}),
         {{"fc.weight", Arange({4, 8}, 0.1f)}});
  const HostTensor ones = F32({2, 8}, Doubles(16, 1));
  const Answer shards = Shards("rows", {{"x", ones}});
  EXPECT_EQ(shards.ShapeOf("y.rank0"), (Shape{2, 2}));
  EXPECT_THAT(shards.Numbers("y.rank0"), Near({2.8, 9.2, 2.8, 9.2}));
  EXPECT_THAT(shards.Numbers("y.rank1"), Near({15.6, 22.0, 15.6, 22.0}));
  EXPECT_EQ(shards.json["outputs"][0]["placements"], "tp=S(1)");
  const Answer full = Forward("rows", {{"x", ones}});
  EXPECT_EQ(full.ShapeOf("y"), (Shape{2, 4}));
  EXPECT_THAT(full.Numbers("y"), Near({2.8, 9.2, 15.6, 22.0, 2.8, 9.2, 15.6, 22.0}));
  EXPECT_THAT(full.Collectives(), SizeIs(0));
}

TEST_F(Cases, Worked2) {
  const std::string states = "states { name: \"w\" shape: 4 shape: 4 }\nstates { name: \"b\" shape: 4 }\n";
  Submit(
      "grid", "dp=2,tp=2",
      Model(Graph({"x"}, {Function("product", "matmul", {"x", "self.w"}), Function("y", "add", {"product", "self.b"})},
                  {"y"}, states),
            {Sharding({Where("state", "w", "tp", "shard { dim: 1 }"), Where("state", "b", "tp", "shard { dim: 0 }"),
                       Where("in_dst", "x", "dp", "shard { dim: 0 }")})},
            {Input("x", "F32", {"4", "4"})}),
      {{"w", Arange({4, 4})}, {"b", Arange({4})}});
  const Answer shards = Shards("grid", {{"x", Arange({4, 4})}});
  EXPECT_EQ(shards.json["outputs"][0]["placements"], "dp=S(0),tp=S(1)");
  EXPECT_EQ(shards.Numbers("y.rank0"), (Doubles{56, 63, 152, 175}));
  EXPECT_EQ(shards.Numbers("y.rank1"), (Doubles{70, 77, 198, 221}));
  EXPECT_EQ(shards.Numbers("y.rank2"), (Doubles{248, 287, 344, 399}));
  EXPECT_EQ(shards.Numbers("y.rank3"), (Doubles{326, 365, 454, 509}));
  EXPECT_THAT(shards.Collectives(), SizeIs(0));
  EXPECT_EQ(Forward("grid", {{"x", Arange({4, 4})}}).Numbers("y"),
            (Doubles{56, 63, 70, 77, 152, 175, 198, 221, 248, 287, 326, 365, 344, 399, 454, 509}));
}

TEST_F(Cases, Worked4) {
  const std::string model = Model(Graph({"ids"}, {Child("y", "table", {"ids"})}, {"y"}),
                                  {Module("table", "embedding { num_embeddings: 6 embedding_dim: 4 }")},
                                  {Input("ids", "I64", {"batch", "time"})});
  const NamedTensors weights = {{"table.weight", Arange({6, 4})}}, ids = {{"ids", I64({2, 2}, {1, 3, 4, 0})}};
  const Doubles full = {4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19, 0, 1, 2, 3};
  // The vocabulary is cut, and the terms stay terms.
  Submit("terms", "tp=2",
         model + Plan({Entry("table", "rowwise_parallel { output_layouts { partial { op: OP_SUM } } }")}), weights);
  const nlohmann::json described = t().Json({"describe", "terms"});
  ASSERT_EQ(described["modules"].size(), 2u);
  EXPECT_THAT(described["modules"][1]["outputs"], ElementsAre("F32[batch, time, 4] tp=P(sum)"));
  const Answer reduced = Forward("terms", ids);
  EXPECT_EQ(reduced.ShapeOf("y"), (Shape{2, 2, 4}));
  EXPECT_EQ(reduced.Numbers("y"), full);
  // Both default styles.
  for (const char* style : {"rowwise_parallel", "colwise_parallel"}) {
    Submit(style, "tp=2", model + Plan({Entry("table", absl::StrCat(style, " {}"))}), weights);
    EXPECT_EQ(Forward(style, ids).Numbers("y"), full) << style;
  }
  EXPECT_EQ(Shards("colwise_parallel", ids).Numbers("y.rank1"), (Doubles{6, 7, 14, 15, 18, 19, 2, 3}));
}

TEST_F(Cases, Worked6) {
  const std::string text =
      Model(Graph({"x"}, {Child("h", "up", {"x"}), Child("y", "down", {"h"})}, {"y"}),
            {Linear("up", 2, 4, true), Linear("down", 4, 2, true)}, {Input("x", "F32", {"batch", "2"})}) +
      Plan({Entry("up", "colwise_parallel {}"), Entry("down", "rowwise_parallel {}")});
  const NamedTensors weights = {{"up.weight", F32({4, 2}, {1, 0, 0, 1, 1, 1, 1, -1})},
                                {"up.bias", F32({4}, {0, 1, 2, 3})},
                                {"down.weight", F32({2, 4}, {1, 1, 1, 1, 1, 2, 3, 4})},
                                {"down.bias", F32({2}, {10, 20})}};
  const NamedTensors x = {{"x", F32({2, 2}, {1, 2, 3, 4})}};
  const std::string file = Submit("mlp", "tp=2", text, weights);
  const Answer answer = Forward("mlp", x);
  EXPECT_EQ(answer.Numbers("y"), (Doubles{21, 50, 29, 68}));
  EXPECT_THAT(answer.Collectives(), ElementsAre("all_reduce"));
  // 2 (N - 1) / N x 16 bytes.
  const nlohmann::json reduce = {{"module", "down"}, {"op", "all_reduce"}, {"axis", "tp"}, {"bytes", 16}};
  const nlohmann::json predicted = Predicted(file, "tp=2", x);
  ASSERT_EQ(predicted.size(), 1u);
  for (const auto& [field, value] : reduce.items()) {
    EXPECT_EQ(predicted[0][field], value) << field;
    EXPECT_EQ(answer.json["collectives"][0][field], value) << field;
  }
}

TEST_F(Cases, Worked8) {
  std::stringstream text;
  text << std::ifstream(Source("deploy/demo/mlp_sequence.textproto")).rdbuf();
  const Doubles norm = Waves(8, 1), w1 = Waves(13 * 8, 2), b1 = Waves(13, 3), w2 = Waves(8 * 13, 4), b2 = Waves(8, 5);
  const NamedTensors weights = {{"norm.weight", F32({8}, norm)},
                                {"mlp.fc1.weight", F32({13, 8}, w1)},
                                {"mlp.fc1.bias", F32({13}, b1)},
                                {"mlp.fc2.weight", F32({8, 13}, w2)},
                                {"mlp.fc2.bias", F32({8}, b2)}};
  for (int tp : {2, 4}) {
    const std::string model = absl::StrCat("sequence", tp);
    Submit(model, absl::StrCat("tp=", tp), text.str(), weights);
    for (int64_t length : {3, 1}) {
      const Doubles x = Waves(2 * length * 8, 6);
      // y = x + fc2(silu(fc1(norm(x))))
      Doubles hidden = LinearOf(RmsNormOf(x, norm, 1e-5), w1, b1, 8);
      for (double& value : hidden) value = value / (1 + std::exp(-value));
      Doubles y = LinearOf(hidden, w2, b2, 13);
      for (size_t i = 0; i < y.size(); ++i) y[i] += x[i];
      const Answer answer = Forward(model, {{"x", F32({2, length, 8}, x)}});
      EXPECT_EQ(answer.ShapeOf("y"), (Shape{2, length, 8}));
      EXPECT_THAT(answer.Numbers("y"), Near(y)) << "tp " << tp << " length " << length;
      EXPECT_THAT(answer.Collectives(), ElementsAre("all_gather", "reduce_scatter"));
    }
  }
}

TEST_F(Cases, Worked9) {
  const NamedTensors ids = {{"ids", I64({1, 3}, {256, 65, 110})}};
  for (const bool sequence : {false, true}) {
    const std::string imported = t().Path("imported.textproto");
    std::vector<std::string> words = {"import", Source("deploy/demo/kjv"), "--tp", "2", "--out", imported};
    if (sequence) words.emplace_back("--sequence-parallel");
    ASSERT_EQ(t().cluster().Tpctl(words).code, 0);
    std::stringstream text;
    text << std::ifstream(imported).rdbuf();
    std::string replicated = text.str();
    const std::string head = "pattern: \"lm_head\"\n    colwise_parallel {\n";
    ASSERT_NE(replicated.find(head), std::string::npos);
    replicated.insert(replicated.find(head) + head.size(), "output_layouts { replicate {} }\n");
    for (const bool declared : {false, true}) {
      SCOPED_TRACE(absl::StrCat("sequence ", sequence, " declared ", declared));
      const std::string file = Submit("lm", "tp=2", declared ? replicated : text.str());
      const Answer answer = Forward("lm", ids);
      std::map<std::string, int> counts;
      for (const std::string& op : answer.Collectives()) ++counts[op];
      const int layers = 9;  // 1 + 2 L, L = 4
      std::map<std::string, int> expected =
          sequence ? std::map<std::string, int>{{"reduce_scatter", layers}, {"all_gather", layers}}
                   : std::map<std::string, int>{{"all_reduce", layers}};
      if (declared) ++expected["all_gather"];
      EXPECT_EQ(counts, expected);
      const nlohmann::json predicted = Predicted(file, "tp=2", ids);
      ASSERT_EQ(predicted.size(), answer.json["collectives"].size());
      for (size_t i = 0; i < predicted.size(); ++i)
        for (const char* field : {"module", "op", "axis", "bytes"})
          EXPECT_EQ(predicted[i][field], answer.json["collectives"][i][field]) << i << " " << field;
      if (declared) {  // on the vocabulary: rank 1 has 128 of 257 and gets 129 logits of 3 positions
        const nlohmann::json last = answer.json["collectives"].back();
        EXPECT_EQ(last["module"], "lm_head");
        EXPECT_EQ(last["op"], "all_gather");
        EXPECT_EQ(last["bytes"], 129 * 3 * 4);
      }
      t().Ok({"delete", "lm"});
    }
  }
}

TEST_F(Cases, Worked10) {
  const std::string model = t().cluster().SubmitDemo(8);
  for (const char* name : {"k_proj", "v_proj"}) {
    const nlohmann::json state = State(model, absl::StrCat("model.layers.0.self_attn.", name, ".weight"));
    EXPECT_EQ(state["shape"], (Shape{128, 256}));
    EXPECT_EQ(state["placements"], "tp=GS(0,4)");
    ASSERT_EQ(state["local"].size(), 8u);
    for (int64_t rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(state["local"][rank]["shape"], (Shape{32, 256}));
      EXPECT_EQ(state["local"][rank]["offset"], (Shape{32 * (rank / 2), 0}));
    }
  }
  // The rows themselves, of a tensor with the same cut.
  t().Mesh("m", "tp=8");
  t().Put("w", Arange({128, 1}), "m", "tp=GS(0,4)");
  const std::vector<Doubles> locals = t().Locals("w");
  ASSERT_EQ(locals.size(), 8u);
  for (int rank = 0; rank < 8; ++rank) {
    ASSERT_EQ(locals[rank].size(), 32u);
    for (int row = 0; row < 32; ++row) EXPECT_EQ(locals[rank][row], 32 * (rank / 2) + row);
  }
  EXPECT_EQ(t().Get("w"), Arange({128, 1}));
  // Written once: 512 bytes, not those of 8 ranks.
  EXPECT_EQ(t().Json({"tensor", "save", t().Path("once"), "w"})["bytes"], 512);
}

TEST_F(Cases, Worked11) {
  // Rows of one number each: q0-q7 are 0 to 7, k0 and k1 8 and 9, v0 and v1 10 and 11.
  t().Mesh("m", "tp=2");
  t().Put("fused", Arange({12, 1}), "m", "tp=IS(0,[8,2,2])");
  EXPECT_THAT(t().Locals("fused"), ElementsAre(Doubles{0, 1, 2, 3, 8, 10}, Doubles{4, 5, 6, 7, 9, 11}));
  EXPECT_EQ(t().Get("fused"), Arange({12, 1}));
  t().Put("equal", Arange({12, 1}), "m", "tp=IS(0,3)");  // what would be wrong for these heads
  EXPECT_THAT(t().Locals("equal"), ElementsAre(Doubles{0, 1, 4, 5, 8, 9}, Doubles{2, 3, 6, 7, 10, 11}));

  // A layer of it, heads of 2: the split needs no communication, each rank attends with its own heads.
  const Doubles wqkv = Waves(24 * 6, 1), wo = Waves(6 * 16, 2), x = Waves(3 * 6, 3);
  Submit("layer", "tp=2",
         Model(Graph({"x"},
                     {Child("fused", "qkv", {"x"}),
                      Function("parts", "split", {"fused"},
                               Attribute("sizes", "integers { values: 16 values: 4 values: 4 }") +
                                   Attribute("dim", "integer: -1") + " outputs: \"q\" outputs: \"k\" outputs: \"v\""),
                      Child("attended", "attn", {"q", "k", "v"}), Child("y", "o", {"attended"})},
                     {"y", "fused"}),
               {Linear("qkv", 6, 24, false,
                       Sharding({Where("state", "weight", "tp", "interleaved_shard { dim: 0 parts: [8, 2, 2] }")})),
                Module("attn", "attention { heads: 8 kv_heads: 2 head_dim: 2 }"), Linear("o", 16, 6)},
               {Input("x", "F32", {"batch", "time", "6"})}) +
             Plan({Entry("o", "rowwise_parallel {}")}),
         {{"qkv.weight", F32({24, 6}, wqkv)}, {"o.weight", F32({6, 16}, wo)}});
  const auto rows = [&](int begin, int end) { return Doubles(wqkv.begin() + begin * 6, wqkv.begin() + end * 6); };
  const Doubles attended = AttentionOf(LinearOf(x, rows(0, 16), {}, 6), LinearOf(x, rows(16, 20), {}, 6),
                                       LinearOf(x, rows(20, 24), {}, 6), 8, 2, 2);
  const NamedTensors inputs = {{"x", F32({1, 3, 6}, x)}};
  const Answer answer = Forward("layer", inputs);
  EXPECT_THAT(answer.Numbers("y"), Near(LinearOf(attended, wo, {}, 16)));
  EXPECT_THAT(answer.Numbers("fused"), Near(LinearOf(x, wqkv, {}, 6)));  // as on one rank
  EXPECT_THAT(answer.Collectives(), ElementsAre("all_reduce"));
  // Rank 1: q4-q7, k1, v1.
  Doubles own = rows(8, 16);
  for (const Doubles& more : {rows(18, 20), rows(22, 24)}) own.insert(own.end(), more.begin(), more.end());
  EXPECT_THAT(Shards("layer", inputs).Numbers("fused.rank1"), Near(LinearOf(x, own, {}, 6)));
}

TEST_F(Cases, Worked12) {
  // The larger of 3 and 5, times -1.
  Submit("largest", "tp=2",
         Model(Graph({"x"}, {Function("y", "mul", {"x"}, Attribute("scalar", "number: -1"))}, {"y"}),
               {Sharding({Where("in_dst", "x", "tp", "partial { op: OP_MAX }")})}, {Input("x", "F32", {"n"})}));
  const std::vector<std::string> terms = {"--input-shard", absl::StrCat("x:0=", t().Npy("three", F32({1}, {3}))),
                                          absl::StrCat("x:1=", t().Npy("five", F32({1}, {5}))), "--input-placements",
                                          "x:tp=P(max)"};
  EXPECT_EQ(Run("largest", terms).Numbers("y"), Doubles{-5});
  const Answer shards = Run("largest", terms, true);
  EXPECT_EQ(shards.Numbers("y.rank0"), Doubles{-5});
  EXPECT_EQ(shards.Numbers("y.rank1"), Doubles{-5});
  // 0.6 + 0.6, cast to I64: each rank's term alone would be 0.
  const std::string cast =
      Model(Graph({"x"}, {Child("sum", "fc", {"x"}), Function("y", "cast", {"sum"}, Attribute("dtype", "dtype: I64"))},
                  {"y"}),
            {Linear("fc", 2, 1)}, {Input("x", "F32", {"batch", "2"})});
  Submit("cast", "tp=2", cast + Plan({Entry("fc", "rowwise_parallel { output_layouts { partial { op: OP_SUM } } }")}),
         {{"fc.weight", F32({1, 2}, {1, 1})}});
  const Answer answer = Run("cast", {"--input", "x=0.6,0.6"});
  EXPECT_EQ(answer.values.at("y").dtype, DType::kI64);
  EXPECT_EQ(answer.Numbers("y"), Doubles{1});
  EXPECT_THAT(answer.Collectives(), ElementsAre("all_reduce"));
}

}  // namespace
}  // namespace tp::testing

// The field cases of operators (field case N: Cases.FieldN) as a user meets them: a submission, tpctl, and numbers
// worked out by hand or here in float64. Worked cases: cases_test.cc; field cases of plans: cases_plans_test.cc. Held
// elsewhere, with the same numbers:
//   field 1, 2, 3    Tensors.FiveRowsOverFourRanksComeBackBitForBitOnEveryRank, Tensors.NestedCutsOfOneDim,
//                    Tensors.TwoElementsOverEightRanksSavedAndLoadedOnOne
//   field 12, 26, 27 Tensors.PaddingNeverWinsAMaximumOrMinimum, Tensors.OneDimRecutIsOneAllToAllOfAnEighth,
//                    Tensors.SavedOnOneMeshLoadedOnOthers
#include "tests/integration/cases_fixture.h"

namespace tp::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// `heads` query heads over `kv` of size `size`: y = o(attn(q(x), k(x), v(x))), x [batch, time, `in`].
std::string Heads(int in, int heads, int kv, int size,
                  std::vector<std::string> entries = {Entry("[qkv]", "colwise_parallel {}")}) {
  entries.push_back(Entry("o", "rowwise_parallel {}"));
  return Model(
             Graph({"x"},
                   {Child("query", "q", {"x"}), Child("key", "k", {"x"}), Child("value", "v", {"x"}),
                    Child("attended", "attn", {"query", "key", "value"}), Child("y", "o", {"attended"})},
                   {"y", "attended"}),
             {Linear("q", in, heads * size), Linear("k", in, kv * size), Linear("v", in, kv * size, true),
              Module("attn", absl::StrCat("attention { heads: ", heads, " kv_heads: ", kv, " head_dim: ", size, " }")),
              Linear("o", heads * size, in)},
             {Input("x", "F32", {"batch", "time", absl::StrCat(in)})}) +
         Plan(entries);
}

TEST_F(Cases, Field4) {
  const Doubles w1 = Waves(20, 1), b1 = Waves(5, 2), w2 = Waves(20, 3), b2 = Waves(4, 4), x = Waves(12, 5);
  Submit("mlp", "tp=2",
         Model(Graph({"x"},
                     {Child("hidden", "up", {"x"}), Function("active", "relu", {"hidden"}),
                      Child("y", "down", {"active"})},
                     {"y", "hidden"}),
               {Linear("up", 4, 5, true), Linear("down", 5, 4, true)}, {Input("x", "F32", {"batch", "4"})}) +
             Plan({Entry("up", "colwise_parallel {}"), Entry("down", "rowwise_parallel {}")}),
         {{"up.weight", F32({5, 4}, w1)},
          {"up.bias", F32({5}, b1)},
          {"down.weight", F32({4, 5}, w2)},
          {"down.bias", F32({4}, b2)}});
  Doubles hidden = LinearOf(x, w1, b1, 4);
  const NamedTensors inputs = {{"x", F32({3, 4}, x)}};
  const Answer shards = Shards("mlp", inputs), full = Forward("mlp", inputs);
  EXPECT_EQ(shards.ShapeOf("hidden.rank0"), (Shape{3, 3}));
  EXPECT_EQ(shards.ShapeOf("hidden.rank1"), (Shape{3, 2}));
  EXPECT_THAT(full.Numbers("hidden"), Near(hidden));
  for (double& value : hidden) value = std::max(value, 0.0);
  EXPECT_THAT(full.Numbers("y"), Near(LinearOf(hidden, w2, b2, 5)));
  EXPECT_THAT(Local<Shape>(State("mlp", "up.bias"), "shape"), ElementsAre(Shape{3}, Shape{2}));
  EXPECT_THAT(Local<Shape>(State("mlp", "down.weight"), "shape"), ElementsAre(Shape{4, 3}, Shape{4, 2}));
}

TEST_F(Cases, Field6) {
  // Ranks hold 2, 2, 1 and no class. Row 0 of x ties classes 1 and 4 at the top.
  const Doubles w = {1, 0, 2, 2, 1, 0, 0, 3, 1, -1, 1, 1, 2, 1, 0}, x = {3, 1, 0, 0.5, -2, 1};
  const std::string text =
      Model(
          Graph({"x", "picked"},
                {Child("logits", "head", {"x"}), Function("p", "softmax", {"logits"}, Attribute("dim", "integer: -1")),
                 Function("log_p", "log_softmax", {"logits"}, Attribute("dim", "integer: -1")),
                 Function("best", "argmax", {"logits"}, Attribute("dim", "integer: -1")),
                 Function("chosen", "gather", {"log_p", "picked"}, Attribute("dim", "integer: -1"))},
                {"p", "log_p", "best", "chosen"}),
          {Linear("head", 3, 5)}, {Input("x", "F32", {"batch", "3"}), Input("picked", "I64", {"batch", "1"})}) +
      Plan({Entry("head", "colwise_parallel {}"),
            Entry("",
                  "prepare_module_output { output_layouts {} output_layouts {} output_layouts {} output_layouts {} "
                  "desired_output_layouts { replicate {} } desired_output_layouts { replicate {} } "
                  "desired_output_layouts { replicate {} } desired_output_layouts { replicate {} } }")});
  Doubles p = LinearOf(x, w, {}, 3), log_p = p;
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (size_t i = 0; i < 5; ++i) sum += std::exp(p[row * 5 + i]);
    for (size_t i = 0; i < 5; ++i) {
      log_p[row * 5 + i] = p[row * 5 + i] - std::log(sum);
      p[row * 5 + i] = std::exp(log_p[row * 5 + i]);
    }
  }
  const NamedTensors inputs = {{"x", F32({2, 3}, x)}, {"picked", I64({2, 1}, {4, 2})}};
  for (int tp : {1, 4}) {
    SCOPED_TRACE(tp);
    const std::string model = absl::StrCat("classes", tp);
    Submit(model, absl::StrCat("tp=", tp), text, {{"head.weight", F32({5, 3}, w)}});
    const Answer full = Forward(model, inputs), shards = Shards(model, inputs);
    EXPECT_THAT(full.Numbers("p"), Near(p));
    EXPECT_EQ(full.Numbers("best"), (Doubles{1, 0}));
    EXPECT_EQ(full.values.at("best").dtype, DType::kI64);
    for (int rank = 0; rank < tp; ++rank) {
      const std::string suffix = absl::StrCat(".rank", rank);
      EXPECT_THAT(shards.Numbers("p" + suffix), Near(p));
      EXPECT_THAT(shards.Numbers("log_p" + suffix), Near(log_p));
      EXPECT_EQ(shards.Numbers("best" + suffix), (Doubles{1, 0}));
      EXPECT_THAT(shards.Numbers("chosen" + suffix), Near({log_p[4], log_p[7]}));
    }
  }
}

TEST_F(Cases, Field7) {
  Submit("mean", "tp=2",
         Model(Graph({"x"}, {Function("y", "mean", {"x"})}, {"y"}),
               {Sharding({Where("in_dst", "x", "tp", "shard { dim: 0 }")})}, {Input("x", "F32", {"n", "4"})}));
  EXPECT_EQ(Forward("mean", {{"x", Arange({3, 4})}}).Numbers("y"), Doubles{5.5});
  EXPECT_EQ(Forward("mean", {{"x", Arange({1, 4})}}).Numbers("y"), Doubles{1.5});
}

TEST_F(Cases, Field8) {
  // x W^T = [30, 70, 110] for x = [1, 2, 3, 4].
  const NamedTensors weights = {{"fc.weight", F32({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})},
                                {"fc.bias", F32({3}, {100, 200, 300})}};
  for (int tp : {1, 2, 4}) {
    for (const std::string output : {"replicate {}", "shard { dim: 1 }"}) {
      SCOPED_TRACE(absl::StrCat(tp, " ", output));
      Submit("rows", absl::StrCat("tp=", tp),
             OneLinear(4, 3, true, absl::StrCat("rowwise_parallel { output_layouts { ", output, " } }")), weights);
      const Answer answer = Run("rows", {"--input", "x=1,2,3,4"}), shards = Run("rows", {"--input", "x=1,2,3,4"}, true);
      EXPECT_EQ(answer.Numbers("y"), (Doubles{130, 270, 410}));
      if (tp > 1) {
        const bool cut = output != "replicate {}";
        EXPECT_THAT(answer.Collectives(), ElementsAre(cut ? "reduce_scatter" : "all_reduce"));
        EXPECT_EQ(shards.Numbers("y.rank0"), !cut      ? (Doubles{130, 270, 410})
                                             : tp == 2 ? (Doubles{130, 270})
                                                       : (Doubles{130}));
        EXPECT_EQ(shards.Numbers("y.rank1"), !cut      ? (Doubles{130, 270, 410})
                                             : tp == 2 ? (Doubles{410})
                                                       : (Doubles{270}));
      }
      t().Ok({"delete", "rows"});
    }
  }
}

TEST_F(Cases, Field9) {
  // 45 as the terms 20 and 25.
  Submit("terms", "tp=2",
         Model(Graph({"x", "ten"},
                     {Child("sum", "fc", {"x"}), Function("plus", "add", {"sum"}, Attribute("scalar", "number: 10")),
                      Function("plus_tensor", "add", {"sum", "ten"}),
                      Function("twice", "mul", {"sum"}, Attribute("scalar", "number: 2"))},
                     {"sum", "plus", "plus_tensor", "twice"}),
               {Linear("fc", 2, 1)}, {Input("x", "F32", {"batch", "2"}), Input("ten", "F32", {"batch", "1"})}) +
             Plan({Entry("fc", "rowwise_parallel { output_layouts { partial { op: OP_SUM } } }")}),
         {{"fc.weight", F32({1, 2}, {1, 1})}});
  const std::vector<std::string> inputs = {"--input", "x=20,25", "ten=10"};
  const Answer full = Run("terms", inputs), shards = Run("terms", inputs, true);
  EXPECT_EQ(full.Numbers("sum"), Doubles{45});
  EXPECT_EQ(full.Numbers("plus"), Doubles{55});
  EXPECT_EQ(full.Numbers("plus_tensor"), Doubles{55});
  EXPECT_EQ(full.Numbers("twice"), Doubles{90});
  // Twice a sum is a sum still: it is reduced at the end, as the sum itself; a sum plus something is reduced before it.
  EXPECT_THAT(full.Collectives(), ElementsAre("all_reduce", "all_reduce"));
  for (const char* rank : {"plus.rank0", "plus.rank1", "plus_tensor.rank0", "plus_tensor.rank1"})
    EXPECT_EQ(shards.Numbers(rank), Doubles{55}) << rank;
}

TEST_F(Cases, Field10) {
  Submit("largest", "tp=2",
         Model(Graph({"x"}, {Function("y", "argmax", {"x"}, Attribute("dim", "integer: 0"))}, {"y"}),
               {Sharding({Where("in_dst", "x", "tp", "shard { dim: 0 }")})}, {Input("x", "F32", {"n"})}));
  EXPECT_EQ(Forward("largest", {{"x", F32({4}, {10, 5, 3, 8})}}).Numbers("y"), Doubles{0});
  EXPECT_EQ(Forward("largest", {{"x", F32({4}, {7, 1, 7, 2})}}).Numbers("y"), Doubles{0});
  EXPECT_EQ(Forward("largest", {{"x", F32({4}, {1, 5, 3, 8})}}).Numbers("y"), Doubles{3});  // global, not 1
}

TEST_F(Cases, Field13) {
  const Doubles q = Waves(16 * 6, 1), k = Waves(4 * 6, 2), v = Waves(4 * 6, 3), vb = Waves(4, 4), o = Waves(6 * 16, 5);
  const Doubles x = Waves(3 * 6, 6);
  const Doubles attended = AttentionOf(LinearOf(x, q, {}, 6), LinearOf(x, k, {}, 6), LinearOf(x, v, vb, 6), 8, 2, 2);
  const std::string weight = Where("state", "weight", "tp", "shard { dim: 0 }");
  const std::string bias = Where("state", "bias", "tp", "shard { dim: 0 }");
  const std::vector<std::string> texts = {
      Heads(6, 8, 2, 2), Heads(6, 8, 2, 2, {Entry("[qk]", Sharding({weight})), Entry("v", Sharding({weight, bias}))})};
  for (const std::string& text : texts) {  // whichever style cuts the projections
    Submit("heads", "tp=4", text,
           {{"q.weight", F32({16, 6}, q)},
            {"k.weight", F32({4, 6}, k)},
            {"v.weight", F32({4, 6}, v)},
            {"v.bias", F32({4}, vb)},
            {"o.weight", F32({6, 16}, o)}});
    // Rank r: q heads 2r and 2r + 1, kv head r / 2, of 2 rows each.
    EXPECT_THAT(Local<Shape>(State("heads", "q.weight"), "offset"),
                ElementsAre(Shape{0, 0}, Shape{4, 0}, Shape{8, 0}, Shape{12, 0}));
    for (const char* name : {"k.weight", "v.weight"}) {
      EXPECT_EQ(State("heads", name)["placements"], "tp=GS(0,2)");
      EXPECT_THAT(Local<Shape>(State("heads", name), "shape"), Each(Shape{2, 6}));
      EXPECT_THAT(Local<Shape>(State("heads", name), "offset"),
                  ElementsAre(Shape{0, 0}, Shape{0, 0}, Shape{2, 0}, Shape{2, 0}));
    }
    EXPECT_THAT(Local<Shape>(State("heads", "v.bias"), "offset"), ElementsAre(Shape{0}, Shape{0}, Shape{2}, Shape{2}));
    const Answer answer = Forward("heads", {{"x", F32({1, 3, 6}, x)}});
    EXPECT_THAT(answer.Numbers("attended"), Near(attended));
    EXPECT_THAT(answer.Numbers("y"), Near(LinearOf(attended, o, {}, 16)));
    EXPECT_THAT(answer.Collectives(), ElementsAre("all_reduce"));
    t().Ok({"delete", "heads"});
  }
}

TEST_F(Cases, Field14) {
  Submit("before", "tp=2", OneLinear(2, 2, false, "colwise_parallel {}"), {{"fc.weight", Arange({2, 2})}});
  RefusedPlan(
      "tp=8", Heads(4, 52, 52, 1), "INVALID_ARGUMENT",
      {"attn: 52 query heads and 52 key-value heads", "can't be cut over 8 ranks; legal degrees: 1, 2, 4, 13, 26, 52"});
  RefusedPlan(
      "tp=5", Heads(4, 40, 8, 1), "INVALID_ARGUMENT",
      {"attn: 40 query heads and 8 key-value heads", "can't be cut over 5 ranks; legal degrees: 1, 2, 4, 8, 40"});
  RefusedPlan("tp=8", Heads(4, 28, 4, 1), "INVALID_ARGUMENT",
              {"attn: 28 query heads and 4 key-value heads", "can't be cut over 8 ranks; legal degrees: 1, 2, 4, 28"});
  EXPECT_EQ(Run("before", {"--input", "x=1,1"}).Numbers("y"), (Doubles{1, 5}));
  // The same model at a degree that is in the list.
  Submit("after", "tp=4", Heads(4, 28, 4, 1) + "seed: 1\n");
  EXPECT_EQ(Forward("after", {{"x", Arange({1, 2, 4})}}).ShapeOf("y"), (Shape{1, 2, 4}));
}

TEST_F(Cases, Field15) {
  const auto viewed = [](const std::string& function, const std::vector<std::string>& sizes, const std::string& cut) {
    std::string dims;
    for (const std::string& size : sizes) absl::StrAppend(&dims, " values: \"", size, "\"");
    return Model(
        Graph({"x"}, {Function("y", function, {"x"}, Attribute("shape", absl::StrCat("dims {", dims, " }")))}, {"y"}),
        {Sharding({Where("in_dst", "x", "tp", cut)})}, {Input("x", "F32", {"12", "8"})});
  };
  const Doubles all = Waves(96, 1);
  const NamedTensors x = {{"x", F32({12, 8}, all)}};
  for (const char* function : {"view", "reshape"}) {
    for (const std::string cut : {"shard { dim: 1 }", "shard { dim: 0 }"}) {
      for (const std::vector<std::string>& sizes :
           {std::vector<std::string>{"16", "6"}, {"-1", "6"}, {"4", "3", "8"}}) {
        SCOPED_TRACE(absl::StrCat(function, cut, absl::StrJoin(sizes, "x")));
        Submit("view", "tp=4", viewed(function, sizes, cut));
        EXPECT_EQ(Forward("view", x).Numbers("y"), all);
        t().Ok({"delete", "view"});
      }
    }
  }
}

TEST_F(Cases, Field16) {
  // Gate rows 0 to 3, up rows 4 to 7.
  t().Mesh("m", "tp=2");
  t().Put("fused", Arange({8, 1}), "m", "tp=IS(0,2)");
  EXPECT_THAT(t().Locals("fused"), ElementsAre(Doubles{0, 1, 4, 5}, Doubles{2, 3, 6, 7}));
  EXPECT_EQ(t().Get("fused"), Arange({8, 1}));

  // y = down(silu(gate) * up), h = [gate | up]; the split needs no communication. The heads are those of Worked11.
  const Doubles w = Waves(8 * 3, 1), down = Waves(3 * 4, 2), x = Waves(2 * 3, 3);
  Submit("gated", "tp=2",
         Model(Graph({"x"},
                     {Child("h", "gate_up", {"x"}),
                      Function("parts", "split", {"h"},
                               Attribute("sizes", "integers { values: 4 values: 4 }") +
                                   Attribute("dim", "integer: -1") + " outputs: \"gate\" outputs: \"up\""),
                      Function("active", "silu", {"gate"}), Function("product", "mul", {"active", "up"}),
                      Child("y", "down", {"product"})},
                     {"y", "h"}),
               {Linear("gate_up", 3, 8, false,
                       Sharding({Where("state", "weight", "tp", "interleaved_shard { dim: 0 parts: [1, 1] }")})),
                Linear("down", 4, 3)},
               {Input("x", "F32", {"batch", "3"})}) +
             Plan({Entry("down", "rowwise_parallel {}")}),
         {{"gate_up.weight", F32({8, 3}, w)}, {"down.weight", F32({3, 4}, down)}});
  const Doubles h = LinearOf(x, w, {}, 3);
  Doubles product;
  for (size_t row = 0; row < 2; ++row)
    for (size_t i = 0; i < 4; ++i)
      product.push_back(h[row * 8 + i] / (1 + std::exp(-h[row * 8 + i])) * h[row * 8 + 4 + i]);
  const NamedTensors inputs = {{"x", F32({2, 3}, x)}};
  const Answer answer = Forward("gated", inputs), shards = Shards("gated", inputs);
  EXPECT_THAT(answer.Numbers("h"), Near(h));
  EXPECT_THAT(shards.Numbers("h.rank0"), Near({h[0], h[1], h[4], h[5], h[8], h[9], h[12], h[13]}));
  EXPECT_THAT(answer.Numbers("y"), Near(LinearOf(product, down, {}, 4)));
  EXPECT_THAT(answer.Collectives(), ElementsAre("all_reduce"));
}

}  // namespace
}  // namespace tp::testing

// Tensors through tpctl on 8 workers: worked cases and field cases of the layout rules, every value computed here.
#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/integration/tensors_fixture.h"

namespace tp::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Tensors : public TensorSuite<8> {
 protected:
  static void SetUpTestSuite() { tensors_ = new TensorCluster(8); }
  TensorCluster& t() { return *tensors_; }
  static std::vector<double> Numbers(const HostTensor& tensor) {
    const HostTensor wide = ConvertTo(tensor, DType::kF64);
    return {wide.data<double>(), wide.data<double>() + ElementCount(tensor.shape)};
  }
};

TEST_F(Tensors, FiveRowsOverFourRanksComeBackBitForBitOnEveryRank) {
  const HostTensor whole = Arange({5, 10}, 0.1f);
  t().Mesh("m", "tp=4");
  t().Put("w", whole, "m", "tp=R");
  t().Redistribute("w", "tp=S(0)");
  EXPECT_THAT(t().Shards<Shape>("w", "shape"), ElementsAre(Shape{2, 10}, Shape{2, 10}, Shape{1, 10}, Shape{0, 10}));
  EXPECT_THAT(t().Shards<Shape>("w", "offset"), ElementsAre(Shape{0, 0}, Shape{2, 0}, Shape{4, 0}, Shape{5, 0}));
  EXPECT_THAT(t().Shards<int64_t>("w", "bytes"), ElementsAre(80, 80, 40, 0));
  t().Redistribute("w", "tp=R");
  EXPECT_THAT(t().Locals("w"), Each(Numbers(whole)));
  EXPECT_EQ(t().Get("w"), whole);
}

TEST_F(Tensors, NestedCutsOfOneDim) {
  const HostTensor whole = Arange({5, 3}, 0.3f);
  t().Mesh("m", "dp=2,tp=2");
  t().Put("w", whole, "m", "dp=S(0),tp=S(0)");
  EXPECT_THAT(t().Shards<Shape>("w", "shape"), ElementsAre(Shape{2, 3}, Shape{1, 3}, Shape{1, 3}, Shape{1, 3}));
  EXPECT_THAT(t().Shards<Shape>("w", "offset"), ElementsAre(Shape{0, 0}, Shape{2, 0}, Shape{3, 0}, Shape{4, 0}));
  EXPECT_EQ(t().Get("w"), whole);
  t().Redistribute("w", "dp=R,tp=R");
  EXPECT_THAT(t().Locals("w"), Each(Numbers(whole)));
  EXPECT_EQ(t().Get("w"), whole);
}

TEST_F(Tensors, TwoElementsOverEightRanksSavedAndLoadedOnOne) {
  const HostTensor whole = Arange({2}, 7);
  t().Mesh("m", "dp=2,tp=4");
  t().Mesh("one", "tp=1");
  t().Put("w", whole, "m", "dp=S(0),tp=S(0)");
  EXPECT_THAT(t().Shards<Shape>("w", "shape"),
              ElementsAre(Shape{1}, Shape{0}, Shape{0}, Shape{0}, Shape{1}, Shape{0}, Shape{0}, Shape{0}));
  EXPECT_THAT(t().Shards<Shape>("w", "offset"),
              ElementsAre(Shape{0}, Shape{2}, Shape{2}, Shape{2}, Shape{1}, Shape{2}, Shape{2}, Shape{2}));
  t().Ok({"tensor", "save", t().Path("two"), "w"});
  t().Delete("w");
  t().Ok({"tensor", "load", t().Path("two"), "--mesh", "one"});
  EXPECT_EQ(t().Get("w"), whole);
}

TEST_F(Tensors, PartialTermsAreQuartersAndComeBack) {
  const HostTensor whole = Arange({8, 8});
  t().Mesh("m", "dp=2,tp=2");
  t().Put("w", whole, "m", "");
  t().Redistribute("w", "dp=P(sum),tp=P(sum)");
  EXPECT_THAT(t().Locals("w"), Each(Numbers(Arange({8, 8}, 0.25f))));
  EXPECT_EQ(t().Get("w"), whole);
  EXPECT_EQ(t().Json({"tensor", "list"})["tensors"][0]["placements"], "dp=P(sum),tp=P(sum)");
  t().Redistribute("w", "dp=R,tp=R");
  EXPECT_THAT(t().Locals("w"), Each(Numbers(whole)));
}

TEST_F(Tensors, TransitionsOnTwoAxesAreExact) {
  const HostTensor whole = Arange({8, 8}, 0.7f);
  t().Mesh("m", "dp=2,tp=2");
  const std::vector<std::pair<std::string, std::string>> transitions = {
      {"dp=S(0),tp=S(0)", "dp=S(1),tp=S(1)"}, {"dp=R,tp=S(0)", "dp=S(0),tp=R"}, {"dp=P(sum),tp=R", "dp=S(1),tp=R"}};
  for (const auto& [from, to] : transitions) {
    t().Put("w", whole, "m", "");
    t().Redistribute("w", from);
    t().Redistribute("w", to);
    EXPECT_EQ(t().Json({"tensor", "list"})["tensors"][0]["placements"], to);
    EXPECT_EQ(t().Get("w"), whole) << from << " -> " << to;
    t().Delete("w");
  }
}

TEST_F(Tensors, AllToAllOfRegisteredBlocks) {
  t().Mesh("m", "tp=2");
  const HostTensor block = Arange({4, 4});
  t().PutLocals("w", {block, block}, "m", "tp=S(0)");  // equal blocks: the shape is inferred
  EXPECT_EQ(t().Json({"tensor", "shards", "w"})["shape"], nlohmann::json({8, 4}));
  const nlohmann::json result = t().Redistribute("w", "tp=S(1)");
  EXPECT_EQ(result["steps"], nlohmann::json::parse(R"([{"op": "all_to_all", "axis": "tp", "bytes": 32}])"));
  EXPECT_EQ(result["counted"]["steps"], result["steps"]);
  EXPECT_EQ(result["counted"]["bytes"], 32);
  EXPECT_THAT(t().Locals("w"),
              ElementsAre(std::vector<double>{0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13},
                          std::vector<double>{2, 3, 6, 7, 10, 11, 14, 15, 2, 3, 6, 7, 10, 11, 14, 15}));
  t().Put("u", Arange({5, 3}), "m", "tp=S(0)");
  t().Redistribute("u", "tp=S(1)");
  EXPECT_THAT(t().Locals("u"),
              ElementsAre(std::vector<double>{0, 1, 3, 4, 6, 7, 9, 10, 12, 13}, std::vector<double>{2, 5, 8, 11, 14}));
}

TEST_F(Tensors, AnIntegerThroughPartialIsExact) {
  t().Mesh("m", "tp=3");
  t().Put("w", MakeHostTensor<int64_t>({}, {5}), "m", "tp=R");
  t().Redistribute("w", "tp=P(sum)");
  EXPECT_THAT(t().Locals("w"), ElementsAre(std::vector<double>{5}, std::vector<double>{0}, std::vector<double>{0}));
  t().Redistribute("w", "tp=R");
  EXPECT_THAT(t().Locals("w"), Each(std::vector<double>{5}));
  EXPECT_EQ(t().Json({"tensor", "get", "w"})["values"], 5);
}

TEST_F(Tensors, PaddingNeverWinsAMaximumOrMinimum) {
  t().Mesh("m", "tp=4");
  std::vector<HostTensor> locals;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<float> values(5);
    for (int i = 0; i < 5; ++i) values[i] = -1.0f - static_cast<float>((3 * rank + 2 * i) % 7);
    locals.push_back(MakeHostTensor<float>({5}, values));
  }
  for (const std::string op : {"max", "min"}) {
    std::vector<double> expected(5);
    for (int i = 0; i < 5; ++i) {
      expected[i] = locals[0].data<float>()[i];
      for (const HostTensor& local : locals) {
        const double value = local.data<float>()[i];
        expected[i] = op == "max" ? std::max(expected[i], value) : std::min(expected[i], value);
      }
    }
    t().PutLocals("w", locals, "m", absl::StrCat("tp=P(", op, ")"));
    t().Redistribute("w", "tp=S(0)", {"--as", "cut"});
    t().Redistribute("w", "tp=R");
    EXPECT_THAT(t().Locals("w"), Each(expected)) << op;
    EXPECT_EQ(Flat(t().Json({"tensor", "get", "cut"})["values"]), expected) << op;
    EXPECT_THAT(t().Locals("cut"), ElementsAre(std::vector<double>{expected[0], expected[1]},
                                               std::vector<double>{expected[2], expected[3]},
                                               std::vector<double>{expected[4]}, std::vector<double>{}));
    t().Delete("w");
    t().Delete("cut");
  }
}

TEST_F(Tensors, OneDimRecutIsOneAllToAllOfAnEighth) {
  const HostTensor whole = Arange({3, 8, 4});
  t().Mesh("m", "dp=2,tp=2");
  t().Put("w", whole, "m", "dp=S(1),tp=S(1)");
  const nlohmann::json result = t().Redistribute("w", "tp=S(2)");  // dp is not named: unchanged
  const int64_t eighth = static_cast<int64_t>(whole.bytes.size()) / 8;
  ASSERT_EQ(result["steps"].size(), 1u);
  EXPECT_EQ(result["steps"][0], (nlohmann::json{{"op", "all_to_all"}, {"axis", "tp"}, {"bytes", eighth}}));
  EXPECT_EQ(result["counted"]["bytes"], eighth);
  EXPECT_EQ(t().Json({"tensor", "shards", "w"})["placements"], "dp=S(1),tp=S(2)");
  EXPECT_EQ(t().Get("w"), whole);
}

TEST_F(Tensors, SavedOnOneMeshLoadedOnOthers) {
  t().Mesh("m", "dp=2,tp=2");
  const std::map<std::string, HostTensor> saved = {{"a", Arange({5, 3}, 0.1f)},
                                                   {"b/c", ConvertTo(Arange({6, 7}), DType::kBF16)},
                                                   {"d", MakeHostTensor<int64_t>({4}, {-1, 2, INT64_MAX, 4})},
                                                   {"e", Arange({8, 2})},
                                                   {"f", MakeHostTensor<uint8_t>({}, {200})}};
  t().Put("a", saved.at("a"), "m", "dp=S(0),tp=S(0)");
  t().Put("b/c", saved.at("b/c"), "m", "tp=S(1)");
  t().Put("d", saved.at("d"), "m", "");
  t().Put("e", saved.at("e"), "m", "dp=SS(0,2)");
  t().Redistribute("e", "tp=P(sum)");
  t().Put("f", saved.at("f"), "m", "");
  const std::string folder = t().Path("saved");
  const nlohmann::json result = t().Json({"tensor", "save", folder, "a", "b/c", "d", "e", "f"});
  ASSERT_EQ(result["files"].size(), 1u);
  EXPECT_EQ(result["bytes"], 60 + 84 + 32 + 64 + 1);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(entry.path().extension(), ".safetensors") << entry.path();
    const auto read = ReadSafetensors(entry.path());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, saved);
    ++files;
  }
  EXPECT_EQ(files, 1);
  for (const auto& [name, tensor] : saved) t().Delete(name);
  for (const std::string axes : {"tp=4", "tp=1", "tp=3"}) {
    t().Mesh("to", axes);
    const nlohmann::json loaded = t().Json({"tensor", "load", folder, "--mesh", "to"});
    EXPECT_EQ(loaded["tensors"].size(), saved.size());
    for (const auto& [name, tensor] : saved) {
      EXPECT_EQ(t().Get(name), tensor) << name << " on " << axes;
      t().Delete(name);
    }
    t().Ok({"tensor", "load", folder, "a", "e", "--mesh", "to", "--placements", "tp=S(-2)"});
    EXPECT_EQ(t().Json({"tensor", "shards", "a"})["placements"], "tp=S(0)");
    for (const std::string name : {"a", "e"}) {
      EXPECT_EQ(t().Get(name), saved.at(name)) << name << " on " << axes;
      t().Delete(name);
    }
    t().Ok({"mesh", "delete", "to"});
  }
}

TEST_F(Tensors, FiveMebibytesInAndOut) {
  t().Mesh("m", "tp=3");
  std::vector<float> values(5 * 1024 * 256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 2654435761u) % 1000003);
  const HostTensor whole = MakeHostTensor<float>({1280, 1024}, values);
  t().Ok({"tensor", "put", "w", t().Npy("big", whole), "--mesh", "m", "--placements", "tp=S(0)"});
  t().Redistribute("w", "tp=S(1)");
  t().Ok({"tensor", "get", "w", "--output", t().Path("big-out.npy")});
  EXPECT_EQ(*ReadNpy(t().Path("big-out.npy")), whole);
  const nlohmann::json summary = t().Json({"tensor", "get", "w"});
  EXPECT_FALSE(summary.contains("values"));
  EXPECT_EQ(summary["max"], *std::max_element(values.begin(), values.end()));
  EXPECT_EQ(summary["min"], 0);
}

TEST_F(Tensors, TablesShowStepsAndAPicture) {
  t().Mesh("m", "dp=2,tp=2");
  t().Put("w", Arange({4, 4}), "m", "dp=S(0),tp=S(1)");
  const CommandResult shards = t().cluster().Tpctl({"tensor", "shards", "w", "--values"});
  EXPECT_EQ(shards.code, 0);
  EXPECT_THAT(shards.out, HasSubstr("[2, 2]  [2, 2]  16"));
  EXPECT_THAT(shards.out, HasSubstr("| 0   0 | 1   1 |\n+-------+-------+\n| 2   2 | 3   3 |"));
  EXPECT_THAT(shards.out, HasSubstr("rank 3:\n[[10, 11],\n [14, 15]]\n"));
  const CommandResult moved = t().cluster().Tpctl({"tensor", "redistribute", "w", "--placements", "tp=R"});
  EXPECT_THAT(moved.out, HasSubstr("all_gather  tp    16               16\n"));
  EXPECT_THAT(t().cluster().Tpctl({"tensor", "get", "w"}).out, HasSubstr("[[0, 1, 2, 3],\n"));
  EXPECT_THAT(t().cluster().Tpctl({"mesh", "list"}).out, HasSubstr("dp=2,tp=2"));
  EXPECT_THAT(t().cluster().Tpctl({"tensor", "list"}).out, HasSubstr("F32[4, 4]"));
}

}  // namespace
}  // namespace tp::testing

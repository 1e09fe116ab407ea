// Tensors through the client library on 4 workers: every dtype, tensors without elements, initializers, registered
// blocks, other meshes. Every value is computed here.
#include <cmath>
#include <thread>

#include "tests/integration/tensors_fixture.h"

namespace tp::testing {
namespace {

using client::NamedPlacements;
using client::PutTensorOptions;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NamedPlacements Named(const std::string& text) {
  auto named = ParseNamedPlacements(text);
  EXPECT_TRUE(named.ok()) << text;
  return {named->begin(), named->end()};
}

// Small whole numbers, which every dtype holds and sums exactly.
HostTensor Digits(Shape shape, DType dtype) {
  HostTensor tensor = Arange(std::move(shape));
  for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) {
    float& value = tensor.data<float>()[i];
    value = dtype == DType::kBool ? static_cast<float>(i % 3 % 2) : static_cast<float>((i * 7) % 11);
  }
  return ConvertTo(tensor, dtype);
}

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                             DType::kI64, DType::kI32,  DType::kU8,  DType::kBool};

// Puts, redistributes along `path` and fetches: the value must be the same at every stop.
void Walk(client::Client* client, const std::string& mesh, const HostTensor& tensor,
          const std::vector<std::string>& path) {
  const std::string what =
      absl::StrCat(std::string(DTypeName(tensor.dtype)), ShapeText(tensor.shape), " on ", mesh, ": ");
  PutTensorOptions options{.name = "walk", .mesh = mesh, .placements = Named(path[0])};
  auto put = client->PutTensor(options, tensor);
  ASSERT_TRUE(put.ok()) << what << path[0] << ": " << put.status();
  for (size_t i = 1; i < path.size(); ++i) {
    auto moved = client->RedistributeTensor({.name = "walk", .placements = Named(path[i])});
    ASSERT_TRUE(moved.ok()) << what << path[i - 1] << " -> " << path[i] << ": " << moved.status();
    EXPECT_EQ(PlacementsText(moved->tensor.mesh, moved->tensor.placements), path[i]);
    auto got = client->GetTensor("walk");
    ASSERT_TRUE(got.ok()) << what << path[i] << ": " << got.status();
    EXPECT_EQ(*got, tensor) << what << path[i - 1] << " -> " << path[i];
  }
  EXPECT_TRUE(client->DeleteTensor("walk").ok());
}

class TensorValues : public TensorSuite<4> {
 protected:
  static void SetUpTestSuite() { tensors_ = new TensorCluster(4); }
  TensorCluster& t() { return *tensors_; }
  void SetUp() override { client_ = t().cluster().Connect(); }
  std::unique_ptr<client::Client> client_;
};

TEST_F(TensorValues, EveryDTypeThroughEveryKindOfTransition) {
  t().Mesh("m", "tp=3");
  for (const DType dtype : kDTypes) {
    std::vector<std::string> path = {"tp=S(0)", "tp=S(1)", "tp=R",      "tp=SS(0,2)",
                                     "tp=S(0)", "tp=R",    "tp=P(max)", "tp=R"};
    // Thirds are not exact in floating types: no R -> P(sum) there.
    if (IsFloating(dtype))
      path.insert(path.end(), {"tp=P(avg)", "tp=S(0)", "tp=P(sum)", "tp=S(1)", "tp=P(sum)", "tp=R"});
    if (dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kU8)
      path.insert(path.end(), {"tp=P(sum)", "tp=S(1)", "tp=P(sum)", "tp=R"});
    Walk(client_.get(), "m", Digits({5, 7}, dtype), path);
  }
}

TEST_F(TensorValues, TensorsWithoutElementsKeepTheirShape) {
  t().Mesh("m", "dp=2,tp=2");
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0, 0}})
    Walk(client_.get(), "m", MakeHostTensor<float>(shape, {}),
         {"dp=R,tp=R", "dp=S(0),tp=R", "dp=S(1),tp=S(0)", "dp=R,tp=S(1)", "dp=P(sum),tp=S(1)", "dp=S(1),tp=P(sum)",
          "dp=P(sum),tp=P(sum)", "dp=R,tp=R", "dp=P(max),tp=R", "dp=S(0),tp=S(0)", "dp=SS(0,2),tp=GS(1,2)",
          "dp=R,tp=R"});
  t().Put("w", MakeHostTensor<float>({0, 3}, {}), "m", "dp=S(1)");
  EXPECT_THAT(t().Shards<Shape>("w", "shape"), ElementsAre(Shape{0, 2}, Shape{0, 2}, Shape{0, 1}, Shape{0, 1}));
  EXPECT_EQ(t().Json({"tensor", "get", "w"})["values"], nlohmann::json::array());
}

TEST_F(TensorValues, RegisteredTermsAreReduced) {
  t().Mesh("m", "tp=2");
  // Local terms, as they are: 45 on both ranks.
  t().PutLocals("w", {MakeHostTensor<float>({2}, {45, 1}), MakeHostTensor<float>({2}, {45, -3})}, "m", "tp=P(sum)");
  EXPECT_THAT(t().Locals("w"), ElementsAre(std::vector<double>{45, 1}, std::vector<double>{45, -3}));
  EXPECT_EQ(t().Json({"tensor", "get", "w"})["values"], nlohmann::json({90.0, -2.0}));
  const HostTensor half = ConvertTo(MakeHostTensor<float>({1}, {256}), DType::kBF16);
  const HostTensor one = ConvertTo(MakeHostTensor<float>({1}, {1}), DType::kBF16);
  t().Mesh("four", "tp=4");
  t().PutLocals("sum", {half, one, one, one}, "four", "tp=P(sum)");  // 259 in F32, 260 as BF16; 256 summed in BF16
  EXPECT_EQ(t().Json({"tensor", "get", "sum"})["values"], nlohmann::json({260.0}));
}

TEST_F(TensorValues, RegisteredBlocksFollowTheChunkRule) {
  t().Mesh("m", "tp=2");
  t().PutLocals("w", {Arange({3, 3}), Arange({2, 3})}, "m", "tp=S(0)", "5x3");
  EXPECT_EQ(t().Json({"tensor", "shards", "w"})["shape"], nlohmann::json({5, 3}));
  EXPECT_EQ(Flat(t().Json({"tensor", "get", "w"})["values"]),
            (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5}));
  const std::string three = t().File("three", Arange({3, 3})), two = t().File("two", Arange({2, 3}));
  const auto put = [&](const std::string& a, const std::string& b, std::vector<std::string> more) {
    std::vector<std::string> words = {"tensor", "put", "x", "--mesh", "m", "--local", "0=" + a, "--local", "1=" + b};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  t().Refused(put(three, two, {"--placements", "tp=S(0)"}), "INVALID_ARGUMENT", {"[3, 3]", "[2, 3]"});
  t().Refused(put(two, three, {"--placements", "tp=S(0)", "--global-shape", "5x3"}), "INVALID_ARGUMENT",
              {"[3, 3]", "[2, 3]"});
  t().Refused(put(three, three, {"--placements", "tp=S(0)", "--global-shape", "5x3"}), "INVALID_ARGUMENT", {"[2, 3]"});
  // Copies of R must be equal.
  t().Refused(put(three, t().File("other", Arange({3, 3}, 2)), {"--placements", "tp=R"}), "INVALID_ARGUMENT",
              {"rank 0", "rank 1"});
  t().Refused({"tensor", "put", "x", "--mesh", "m", "--local", "0=" + three, "--placements", "tp=S(0)"},
              "INVALID_ARGUMENT");
  t().Refused({"tensor", "put", "x", "--mesh", "m", "--local", "0=" + three, "0=" + three}, "INVALID_ARGUMENT",
              {"rank 0 is given twice"});
  t().Refused({"tensor", "put", "x", "--mesh", "m", "--local", "0=" + three, "7=" + three}, "INVALID_ARGUMENT");
  EXPECT_EQ(t().Json({"tensor", "list"})["tensors"].size(), 1u);
}

TEST_F(TensorValues, WhicheverRankGetsTheBytes) {
  const HostTensor whole = Arange({5, 4});
  t().Mesh("m", "dp=2,tp=2");
  for (const std::string source : {"0", "1", "none"}) {
    t().Ok({"tensor", "put", "w", t().File("w", whole), "--mesh", "m", "--placements", "tp=S(1)", "--src-data-rank",
            source});
    EXPECT_THAT(t().Locals("w"), ElementsAre(std::vector<double>{0, 1, 4, 5, 8, 9, 12, 13, 16, 17},
                                             std::vector<double>{2, 3, 6, 7, 10, 11, 14, 15, 18, 19},
                                             std::vector<double>{0, 1, 4, 5, 8, 9, 12, 13, 16, 17},
                                             std::vector<double>{2, 3, 6, 7, 10, 11, 14, 15, 18, 19}));
    EXPECT_EQ(t().Get("w"), whole);
    t().Delete("w");
  }
  t().Refused({"tensor", "put", "w", t().File("w", whole), "--mesh", "m", "--src-data-rank", "2"}, "INVALID_ARGUMENT",
              {"2"});
}

TEST_F(TensorValues, InitializersDependOnNameAndSeedOnly) {
  t().Mesh("m", "dp=2,tp=2");
  t().Mesh("one", "tp=1");
  const auto create = [&](const std::string& mesh, const std::string& init, const std::string& shape,
                          const std::string& dtype, const std::string& placements, const std::string& seed) {
    t().Ok({"tensor", "create", "w", "--init", init, "--shape", shape, "--dtype", dtype, "--mesh", mesh, "--placements",
            placements, "--seed", seed});
    const nlohmann::json got = t().Json({"tensor", "get", "w"});
    EXPECT_EQ(got["dtype"], dtype);
    t().Delete("w");
    return Flat(got["values"]);
  };
  EXPECT_THAT(create("m", "zeros", "3x3", "F32", "dp=S(0),tp=S(1)", "0"), Each(0));
  EXPECT_THAT(create("m", "ones", "5", "BOOL", "dp=S(0),tp=S(0)", "0"), Each(1));
  EXPECT_THAT(create("m", "constant(2.5)", "5", "F64", "dp=S(0)", "0"), Each(2.5));
  EXPECT_THAT(create("m", "arange(10,-2)", "5", "I64", "dp=S(0),tp=S(0)", "0"), ElementsAre(10, 8, 6, 4, 2));
  EXPECT_THAT(create("m", "eye", "3x2", "F32", "tp=S(1)", "0"), ElementsAre(1, 0, 0, 1, 0, 0));
  EXPECT_THAT(create("m", "arange", "[]", "I32", "", "0"), ElementsAre(0));
  for (const std::string init : {"normal(0,1)", "uniform(-1,1)", "truncated_normal(0,1)", "kaiming_uniform",
                                 "kaiming_normal", "xavier_uniform", "xavier_normal"}) {
    const std::vector<double> whole = create("one", init, "7x5", "F32", "", "3");
    EXPECT_EQ(create("m", init, "7x5", "F32", "dp=S(0),tp=S(0)", "3"), whole) << init;
    EXPECT_EQ(create("m", init, "7x5", "F32", "dp=SS(0,2),tp=S(1)", "3"), whole) << init;
    EXPECT_NE(create("m", init, "7x5", "F32", "dp=S(0)", "4"), whole) << init;
    // Bounds: fan in 5, fan out 7.
    const double bound = init == "uniform(-1,1)"           ? 1
                         : init == "truncated_normal(0,1)" ? 2
                         : init == "kaiming_uniform"       ? std::sqrt(6.0 / 5)
                         : init == "xavier_uniform"        ? std::sqrt(6.0 / 12)
                                                           : 6;
    EXPECT_THAT(whole, Each(::testing::AllOf(::testing::Ge(-bound), ::testing::Le(bound)))) << init;
  }
}

TEST_F(TensorValues, MovesBetweenMeshes) {
  const HostTensor whole = Arange({7, 6}, 0.5f);
  t().Mesh("a", "tp=2", "worker-0,worker-1");
  t().Mesh("b", "dp=2,tp=2", "worker-3,worker-1,worker-0,worker-2");  // shares workers with a
  t().Mesh("c", "tp=2", "worker-2,worker-3");                         // none of a's
  t().Put("w", whole, "a", "tp=S(0)");
  const nlohmann::json moved = t().Redistribute("w", "tp=S(1)", {"--mesh", "c", "--as", "moved"});
  EXPECT_EQ(moved["steps"].back()["op"], "permute");
  EXPECT_EQ(t().Json({"tensor", "shards", "moved"})["placements"], "tp=S(1)");
  EXPECT_EQ(t().Get("moved"), whole);
  EXPECT_EQ(t().Get("w"), whole);
  t().Redistribute("w", "tp=P(sum)");  // halves are exact
  t().Redistribute("w", "dp=S(1),tp=P(sum)", {"--mesh", "b"});
  EXPECT_EQ(t().Json({"tensor", "shards", "w"})["placements"], "dp=S(1),tp=P(sum)");
  EXPECT_EQ(t().Get("w"), whole);
  t().Redistribute("w", "", {"--mesh", "c"});  // an axis that is not named is R on another mesh
  EXPECT_EQ(t().Json({"tensor", "shards", "w"})["placements"], "tp=R");
  EXPECT_EQ(t().Get("w"), whole);
  t().Refused({"mesh", "delete", "c"}, "FAILED_PRECONDITION", {"moved", "w"});
}

TEST_F(TensorValues, ConcurrentRedistributesOnDisjointAndSharedWorkers) {
  t().Mesh("a", "tp=2", "worker-0,worker-1");
  t().Mesh("b", "tp=2", "worker-1,worker-2");
  t().Mesh("c", "tp=3", "worker-3,worker-0,worker-2");
  std::vector<std::thread> threads;
  for (const std::string mesh : {"a", "b", "c"}) {
    threads.emplace_back([&, mesh] {
      const auto client = t().cluster().Connect();
      const HostTensor whole = Arange({33, 17}, static_cast<float>(mesh[0]));
      PutTensorOptions options{.name = mesh, .mesh = mesh, .placements = Named("tp=S(0)")};
      ASSERT_TRUE(client->PutTensor(options, whole).ok());
      for (int i = 0; i < 12; ++i) {
        for (const std::string to : {"tp=S(1)", "tp=R", "tp=S(0)"}) {
          auto moved = client->RedistributeTensor({.name = mesh, .placements = Named(to)});
          ASSERT_TRUE(moved.ok()) << moved.status();
        }
        auto got = client->GetTensor(mesh);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(*got, whole);
      }
      EXPECT_TRUE(client->DeleteTensor(mesh).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TensorValues, TheSameTransitionsUnderCheckedCollectives) {
  TensorCluster checked(4, {"--coordinator-flag=--check-collectives"});
  checked.Mesh("m", "dp=2,tp=2");
  const auto client = checked.cluster().Connect();
  Walk(client.get(), "m", Digits({5, 6}, DType::kF32),
       {"dp=R,tp=R", "dp=S(0),tp=S(0)", "dp=S(1),tp=S(1)", "dp=R,tp=S(0)", "dp=S(0),tp=R", "dp=P(sum),tp=R",
        "dp=S(1),tp=R", "dp=P(sum),tp=P(sum)", "dp=R,tp=R", "dp=SS(0,2),tp=S(1)", "dp=R,tp=R"});
  Walk(client.get(), "m", Digits({3}, DType::kI64), {"dp=R,tp=R", "dp=P(sum),tp=P(sum)", "dp=S(0),tp=S(0)"});
  EXPECT_EQ(checked.Json({"status"})["workers_healthy"], 4);
}

}  // namespace
}  // namespace tp::testing

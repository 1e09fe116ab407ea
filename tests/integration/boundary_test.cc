// The boundary of forward: full tensors, blocks of ranks and named tensors in, global tensors and blocks of ranks out.
// Expected values are those of the same weights on one rank.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "absl/strings/substitute.h"
#include "client/tp_client/client.h"
#include "tests/integration/tensors_fixture.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// y = down(relu(up(x))), x [batch, 4]; the hidden size 5 is cut into 3 and 2.
constexpr char kMlp[] = R"(
  model {
    root {
      composite {
        type_name: "MLP"
        inputs { name: "x" }
        nodes { name: "hidden" child: "up" arguments { value: "x" } }
        nodes { name: "activated" function: "relu" arguments { value: "hidden" } }
        nodes { name: "y" child: "down" arguments { value: "activated" } }
        outputs { name: "y" value: "y" }
      }
      children { name: "up" linear { in_features: 4 out_features: 5 } }
      children { name: "down" linear { in_features: 5 out_features: 4 } }
    }
    inputs { name: "x" type { dtype: F32 shape: "batch" shape: "4" } }
  }
  plan {
    mesh { axes { name: "tp" size: 2 } }
    entries { pattern: "up" colwise_parallel { use_local_output: $0 } }
    entries { pattern: "down" rowwise_parallel { use_local_output: $0 $1 } }
  }
  seed: 5
)";
// y = norm(x), x [batch, time, 4], cut on time.
constexpr char kNorm[] = R"(
  model {
    root {
      composite {
        type_name: "Norm"
        inputs { name: "x" }
        nodes { name: "y" child: "norm" arguments { value: "x" } }
        outputs { name: "y" value: "y" }
      }
      children { name: "norm" rms_norm { dim: 4 eps: 1e-5 } }
    }
    inputs { name: "x" type { dtype: F32 shape: "batch" shape: "time" shape: "4" } }
  }
  plan {
    mesh { axes { name: "tp" size: 2 } }
    entries { pattern: "norm" sequence_parallel {} }
  }
)";
// y = table(ids), ids [batch, time] below 10; the rows of the table are cut.
constexpr char kTable[] = R"(
  model {
    root {
      composite {
        type_name: "Table"
        inputs { name: "ids" }
        nodes { name: "y" child: "table" arguments { value: "ids" } }
        outputs { name: "y" value: "y" }
      }
      children { name: "table" embedding { num_embeddings: 10 embedding_dim: 4 } }
    }
    inputs { name: "ids" type { dtype: I64 shape: "batch" shape: "time" } }
  }
  plan {
    mesh { axes { name: "tp" size: 2 } }
    entries { pattern: "table" rowwise_parallel {} }
  }
  seed: 9
)";

HostTensor Waves(const Shape& shape) {
  std::vector<float> values(ElementCount(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(7 * i + 1));
  return MakeHostTensor<float>(shape, values);
}

// Elements [begin, end) of a dim.
HostTensor Cut(const HostTensor& whole, int dim, int64_t begin, int64_t end) {
  HostTensor part{whole.dtype, whole.shape, ""};
  part.shape[dim] = end - begin;
  part.bytes.resize(ElementCount(part.shape) * ItemSize(part.dtype));
  Shape from(whole.shape.size(), 0);
  from[dim] = begin;
  CopyBox(whole.bytes.data(), whole.shape, from, part.bytes.data(), part.shape, Shape(whole.shape.size(), 0),
          part.shape, ItemSize(part.dtype));
  return part;
}

double Difference(const HostTensor& a, const HostTensor& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return std::numeric_limits<double>::infinity();
  const HostTensor x = ConvertTo(a, DType::kF64), y = ConvertTo(b, DType::kF64);
  double largest = 0;
  for (int64_t i = 0; i < ElementCount(a.shape); ++i)
    largest = std::max(largest, std::abs(x.data<double>()[i] - y.data<double>()[i]));
  return largest;
}

class Boundary : public TensorSuite<2> {
 protected:
  static void SetUpTestSuite() { tensors_ = new TensorCluster(2); }
  static void TearDownTestSuite() {  // the workers keep the memory of steps
    delete tensors_;
    tensors_ = nullptr;
  }
  void TearDown() override {
    const nlohmann::json model_list = t().Json({"models"});
    for (const auto& model : model_list["models"]) t().Ok({"delete", model["name"]});
    TensorSuite::TearDown();
  }
  TensorCluster& t() { return *tensors_; }

  // Bytes that each worker holds, as it told with its last heartbeat.
  std::vector<int64_t> Used() {
    std::vector<int64_t> used;
    const nlohmann::json worker_list = t().Json({"workers"});
    for (const auto& worker : worker_list["workers"]) used.push_back(worker["used_bytes"]);
    return used;
  }
  // Submits under `name` and, on one rank, under NAME.one.
  void Submit(const std::string& name, const std::string& text) {
    const std::string path = t().Path(name + ".textproto");
    std::ofstream(path) << text;
    t().Ok({"submit", path, "--name", name});
    t().Ok({"submit", path, "--name", name + ".one", "--mesh", "tp=1"});
  }
  // The single output, global.
  HostTensor Forward(const std::string& model, std::vector<std::string> words) {
    const std::string out = t().Path("out.npy");
    words.insert(words.begin(), {"forward", model, "--output", out});
    t().Ok(words);
    auto tensor = ReadNpy(out);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.ok() ? *tensor : HostTensor();
  }
  std::string Input(const std::string& name, const HostTensor& tensor) {
    return absl::StrCat(name, "=", t().Npy("full", tensor));
  }
  std::vector<std::string> Shards(const std::string& name, const std::vector<HostTensor>& blocks,
                                  const std::string& placements) {
    std::vector<std::string> words = {"--input-shard"};
    for (size_t rank = 0; rank < blocks.size(); ++rank)
      words.push_back(absl::StrCat(name, ":", rank, "=", t().Npy(absl::StrCat("block", rank), blocks[rank])));
    words.insert(words.end(), {"--input-placements", absl::StrCat(name, ":", placements)});
    return words;
  }
  void Refused(const std::string& model, std::vector<std::string> words, const std::string& code,
               const std::vector<std::string>& parts) {
    words.insert(words.begin(), {"forward", model});
    t().Refused(words, code, parts);
  }
};

TEST_F(Boundary, AFullTensorForASequenceParallelPlanIsCutAndNeverTakenForAShard) {
  Submit("norm", kNorm);
  const HostTensor x = Waves({2, 3, 4});  // 2 and 1 of the time steps
  const HostTensor one = Forward("norm.one", {"--input", Input("x", x)});
  ASSERT_EQ(one.shape, (Shape{2, 3, 4}));
  EXPECT_EQ(Forward("norm", {"--input", Input("x", x)}), one);
  EXPECT_EQ(Forward("norm", Shards("x", {Cut(x, 1, 0, 2), Cut(x, 1, 2, 3)}, "tp=S(1)")), one);
  EXPECT_EQ(Forward("norm", Shards("x", {Cut(x, 0, 0, 1), Cut(x, 0, 1, 2)}, "tp=S(0)")), one);
  EXPECT_EQ(Forward("norm", Shards("x", {x, x}, "tp=R")), one);
  // Lengths that one rank has all of.
  const HostTensor step = Cut(x, 1, 0, 1);
  EXPECT_EQ(Forward("norm", Shards("x", {step, Cut(x, 1, 0, 0)}, "tp=S(1)")), Cut(one, 1, 0, 1));
  EXPECT_EQ(Forward("norm", {"--input", Input("x", step)}), Cut(one, 1, 0, 1));
  // Sizes that no tensor is cut into.
  Refused("norm", Shards("x", {Cut(x, 1, 0, 1), Cut(x, 1, 1, 3)}, "tp=S(1)"), "INVALID_ARGUMENT",
          {"input 'x'", "expected [2, 2, 4] [2, 1, 4], given [2, 1, 4] [2, 2, 4]"});
  // A whole tensor on each rank is no block of it.
  client::ForwardRequest request{.model = "norm"};
  request.inputs.push_back({.name = "x",
                            .shards = {{0, x}, {1, x}},
                            .placements = {{"tp", Placement::Shard(1)}},
                            .global_shape = Shape{2, 3, 4}});
  const auto refused = t().cluster().Connect()->Forward(request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("expected [2, 2, 4] [2, 1, 4], given [2, 3, 4] [2, 3, 4]"));
}

TEST_F(Boundary, HiddenFiveOnTwoRanksEqualsOneRankWhateverIsSaidOfLocalOutputs) {
  const HostTensor x = Waves({3, 4});
  for (const char* local : {"true", "false"}) {
    SCOPED_TRACE(local);
    const std::string name = absl::StrCat("mlp.", local);
    Submit(name, absl::Substitute(kMlp, local, ""));
    const nlohmann::json described = t().Json({"describe", name});
    for (const auto& parameter : described["parameters"]) {
      if (parameter["name"] != "up.weight") continue;
      EXPECT_EQ(parameter["local"][0]["shape"], (Shape{3, 4}));
      EXPECT_EQ(parameter["local"][1]["shape"], (Shape{2, 4}));
    }
    const HostTensor one = Forward(name + ".one", {"--input", Input("x", x)});
    const HostTensor full = Forward(name, {"--input", Input("x", x)});
    EXPECT_LE(Difference(full, one), 1e-6);
    EXPECT_EQ(Forward(name, Shards("x", {x, x}, "tp=R")), full);
    EXPECT_EQ(Forward(name, Shards("x", {Cut(x, 0, 0, 2), Cut(x, 0, 2, 3)}, "tp=S(0)")), full);
    EXPECT_EQ(Forward(name, Shards("x", {Cut(x, 1, 0, 2), Cut(x, 1, 2, 4)}, "tp=S(-1)")), full);
    t().Ok({"delete", name});
    t().Ok({"delete", name + ".one"});
  }
}

TEST_F(Boundary, NamedTensorsGoInFromWhereTheyLie) {
  Submit("norm", kNorm);
  const HostTensor x = Waves({2, 3, 4});
  const HostTensor full = Forward("norm", {"--input", Input("x", x)});
  t().Mesh("pair", "tp=2");
  for (const char* placements : {"tp=S(1)", "tp=S(0)", "tp=R", "tp=S(2)", "tp=SS(1,2)"}) {
    SCOPED_TRACE(placements);
    t().Put("t", x, "pair", placements);
    EXPECT_EQ(Forward("norm", {"--input", "x=@t"}), full);
    EXPECT_EQ(t().Get("t"), x);  // as it was
    t().Delete("t");
  }
  // Terms of a sum: x = (x / 2) + (x / 2), exact.
  HostTensor half = x;
  for (size_t i = 0; i < half.bytes.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, &half.bytes[i], 4);
    value /= 2;
    std::memcpy(&half.bytes[i], &value, 4);
  }
  t().PutLocals("t", {half, half}, "pair", "tp=P(sum)", "2x3x4");
  EXPECT_EQ(Forward("norm", {"--input", "x=@t"}), full);
  EXPECT_EQ(Forward("norm", Shards("x", {half, half}, "tp=P(sum)")), full);
  const nlohmann::json counted = t().Json({"forward", "norm", "--input", "x=@t"})["collectives"];
  ASSERT_FALSE(counted.empty());
  EXPECT_EQ(counted[0]["module"], "(input x)");
  EXPECT_EQ(counted[0]["op"], "reduce_scatter");
  EXPECT_EQ(t().Json({"tensor", "list"})["tensors"].size(), 1u);
}

TEST_F(Boundary, TensorsThatDoNotFitAreRefused) {
  Submit("norm", kNorm);
  const HostTensor x = Waves({2, 3, 4});
  t().Mesh("pair", "tp=2");
  t().Put("hidden", x, "pair", "tp=S(1)");
  Refused("norm", {"--input", "x=@hiden"}, "NOT_FOUND", {"input 'x'", "'hiden'", "nearest: hidden"});
  Refused("norm", {"--input", "x=@"}, "INVALID_ARGUMENT", {"no tensor"});
  t().Put("flat", Waves({2, 4}), "pair", "tp=R");
  Refused("norm", {"--input", "x=@flat"}, "INVALID_ARGUMENT", {"x"});
  t().Put("wide", Waves({2, 3, 8}), "pair", "tp=R");
  Refused("norm", {"--input", "x=@wide"}, "INVALID_ARGUMENT", {"x"});
  t().Put("whole", MakeHostTensor<int64_t>({1, 1, 4}, {1, 2, 3, 4}), "pair", "tp=R");
  Refused("norm", {"--input", "x=@whole"}, "INVALID_ARGUMENT", {"input 'x'", "I64", "F32[batch, time, 4]"});
  Refused("norm", Shards("x", {MakeHostTensor<int64_t>({1, 1, 4}, {1, 2, 3, 4})}, "tp=R"), "INVALID_ARGUMENT",
          {"F32", "I64"});
  // Another mesh: the same workers the other way round, one worker, other axes.
  const nlohmann::json mesh_list = t().Json({"mesh", "list"});
  const std::string w0 = mesh_list["meshes"][0]["workers"][0], w1 = mesh_list["meshes"][0]["workers"][1];
  t().Mesh("turned", "tp=2", absl::StrCat(w1, ",", w0));
  t().Put("turned", x, "turned", "tp=S(1)");
  Refused("norm", {"--input", "x=@turned"}, "FAILED_PRECONDITION",
          {absl::StrCat("mesh 'turned' (tp=2 on ", w1, ",", w0, ")"), absl::StrCat("tp=2 on ", w0, ",", w1)});
  t().Mesh("renamed", "dp=2");
  t().Put("renamed", x, "renamed", "dp=S(1)");
  Refused("norm", {"--input", "x=@renamed"}, "FAILED_PRECONDITION", {"mesh 'renamed' (dp=2"});
  EXPECT_EQ(Forward("norm", {"--input", "x=@hidden"}), Forward("norm.one", {"--input", Input("x", x)}));
  // Words that are wrong by themselves.
  Refused("norm", {"--input", "x=@hidden", "--input-shard", "x:0=" + t().Npy("b", x)}, "INVALID_ARGUMENT",
          {"'x'", "--input-shard"});
  Refused("norm", {"--input-shard", "x=" + t().Npy("b", x)}, "INVALID_ARGUMENT", {"NAME:RANK=FILE"});
  Refused("norm", {"--input", "x=@hidden", "--input-placements", "x:tp=S(1)"}, "INVALID_ARGUMENT", {"--input-shard"});
  Refused("norm", Shards("x", {x, x}, "dp=R"), "INVALID_ARGUMENT", {"dp"});
  Refused("norm", Shards("x", {x}, "tp=R"), "INVALID_ARGUMENT", {"rank 1 is missing"});
  Refused("norm", Shards("x", {x, Waves({2, 3, 4})}, "tp=S(7)"), "INVALID_ARGUMENT", {"placements"});
  EXPECT_EQ(t().cluster().Tpctl({"forward", "norm"}).code, 2);
}

TEST_F(Boundary, ShardsOfTheAnswerPutTogetherAreTheFullOne) {
  Submit("norm", kNorm);
  const HostTensor x = Waves({2, 3, 4});
  const HostTensor full = Forward("norm", {"--input", Input("x", x)});
  const std::string path = t().Path("shards.safetensors");
  const nlohmann::json json =
      t().Json({"forward", "norm", "--input", Input("x", x), "--output-form", "shards", "--output", path});
  const nlohmann::json& output = json["outputs"][0];
  EXPECT_EQ(output["name"], "y");
  EXPECT_EQ(output["shape"], (Shape{2, 3, 4}));
  EXPECT_EQ(output["dtype"], "F32");
  EXPECT_EQ(output["placements"], "tp=S(1)");
  ASSERT_EQ(output["shards"].size(), 2u);
  EXPECT_EQ(output["shards"][0], (nlohmann::json{{"rank", 0}, {"offset", {0, 0, 0}}, {"shape", {2, 2, 4}}}));
  EXPECT_EQ(output["shards"][1], (nlohmann::json{{"rank", 1}, {"offset", {0, 2, 0}}, {"shape", {2, 1, 4}}}));
  EXPECT_TRUE(json["collectives"].is_array());
  const auto blocks = ReadSafetensors(path);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->at("y.rank0"), Cut(full, 1, 0, 2));
  EXPECT_EQ(blocks->at("y.rank1"), Cut(full, 1, 2, 3));
  // One step: rank 1 has none of it, and says so.
  const nlohmann::json step = t().Json(
      {"forward", "norm", "--input", Input("x", Cut(x, 1, 0, 1)), "--output-form", "shards"})["outputs"][0]["shards"];
  EXPECT_EQ(step[1], (nlohmann::json{{"rank", 1}, {"offset", {0, 1, 0}}, {"shape", {2, 0, 4}}}));
  Refused("norm", {"--input", Input("x", x), "--output-form", "shards", "--output", t().Path("y.npy")},
          "INVALID_ARGUMENT", {".safetensors"});
  const CommandResult table =
      t().cluster().Tpctl({"forward", "norm", "--input", Input("x", x), "--output-form", "shards"});
  EXPECT_THAT(table.out, HasSubstr("y: F32[2, 3, 4] tp=S(1)"));

  // Copies: every rank its own. A cut output: S(1) of [3, 4].
  Submit("mlp", absl::Substitute(kMlp, "true", ""));
  const HostTensor rows = Waves({3, 4}), copy = Forward("mlp", {"--input", Input("x", rows)});
  t().Ok({"forward", "mlp", "--input", Input("x", rows), "--output-form", "shards", "--output", path});
  const auto copies = ReadSafetensors(path);
  ASSERT_TRUE(copies.ok());
  EXPECT_EQ(copies->at("y.rank0"), copy);
  EXPECT_EQ(copies->at("y.rank1"), copy);
}

TEST_F(Boundary, IdsAreCheckedInEveryForm) {
  Submit("table", kTable);
  const HostTensor ids = MakeHostTensor<int64_t>({2, 3}, {0, 9, 4, 5, 1, 2});
  const HostTensor full = Forward("table", {"--input", Input("ids", ids)});
  EXPECT_EQ(full, Forward("table.one", {"--input", Input("ids", ids)}));
  EXPECT_EQ(Forward("table", Shards("ids", {Cut(ids, 1, 0, 2), Cut(ids, 1, 2, 3)}, "tp=S(1)")), full);
  t().Mesh("pair", "tp=2");
  t().Put("ids", ids, "pair", "tp=S(0)");
  EXPECT_EQ(Forward("table", {"--input", "ids=@ids"}), full);
  HostTensor bad = MakeHostTensor<int64_t>({2, 3}, {0, 9, 4, 5, 10, -1});
  const std::string position = "position [1, 1]: id 10 outside [0, 10)";
  Refused("table", {"--input", Input("ids", bad)}, "INVALID_ARGUMENT", {position});
  Refused("table", Shards("ids", {Cut(bad, 1, 0, 2), Cut(bad, 1, 2, 3)}, "tp=S(1)"), "INVALID_ARGUMENT", {position});
  // Of a tensor on the ranks: at the lookup, and the model goes on.
  t().Put("bad", bad, "pair", "tp=S(0)");
  Refused("table", {"--input", "ids=@bad"}, "INVALID_ARGUMENT", {"10"});
  EXPECT_EQ(Forward("table", {"--input", "ids=@ids"}), full);
  EXPECT_EQ(t().Json({"tensor", "list"})["tensors"].size(), 2u);
}

TEST_F(Boundary, LargeShardsAreStreamedInAndOutAndNothingIsLeft) {
  Submit("norm", kNorm);
  const HostTensor x = Waves({3, 50001, 4});  // 2.4 MB, many chunks
  const auto client = t().cluster().Connect();
  const auto full = client->Forward("norm", {{"x", x}});
  ASSERT_TRUE(full.ok()) << full.status();
  // The states are a few bytes; the memory of the step, which is kept, is over the input's on each rank.
  std::vector<int64_t> used;
  ASSERT_TRUE(Eventually([&] {
    used = Used();
    return *std::min_element(used.begin(), used.end()) > int64_t{1} << 20;
  }));
  client::ForwardRequest request{.model = "norm", .output_shards = true};
  request.inputs.push_back({.name = "x",
                            .shards = {{0, Cut(x, 0, 0, 2)}, {1, Cut(x, 0, 2, 3)}},
                            .placements = {{"tp", Placement::Shard(0)}},
                            .global_shape = x.shape});
  const auto shards = client->Forward(request);
  ASSERT_TRUE(shards.ok()) << shards.status();
  ASSERT_EQ(shards->output_shards.size(), 1u);
  const client::OutputShards& y = shards->output_shards[0];
  EXPECT_EQ(y.placements, (Placements{Placement::Shard(1)}));
  ASSERT_EQ(y.shards.size(), 2u);
  EXPECT_EQ(y.shards[0].tensor == Cut(full->outputs[0].tensor, 1, 0, 25001), true);
  EXPECT_EQ(y.shards[1].tensor == Cut(full->outputs[0].tensor, 1, 25001, 50001), true);
  // Blocks as they are taken, as they were given out.
  request.inputs[0].shards = {{1, y.shards[1].tensor}, {0, y.shards[0].tensor}};
  request.inputs[0].placements = {{"tp", Placement::Shard(1)}};
  const auto again = client->Forward(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->collectives, IsEmpty());
  // One that fails on the ranks, once its blocks are there.
  Submit("table", kTable);
  client::ForwardRequest bad{.model = "table"};
  const HostTensor terms = MakeHostTensor<int64_t>({1, 20000}, std::vector<int64_t>(20000, 7));  // 14 in all
  bad.inputs.push_back({.name = "ids",
                        .shards = {{0, terms}, {1, terms}},
                        .placements = {{"tp", Placement::Partial()}},
                        .global_shape = terms.shape});
  const auto failed = client->Forward(bad);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument) << failed.status();
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("14"));
  EXPECT_THAT(t().Json({"tensor", "list"})["tensors"], IsEmpty());
  for (const char* model : {"table", "table.one"}) t().Ok({"delete", model});
  EXPECT_TRUE(Eventually([&] { return Used() == used; }));
}

}  // namespace
}  // namespace tp::testing

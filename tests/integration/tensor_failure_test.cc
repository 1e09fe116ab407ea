// Tensors and what goes wrong: bad input, limits, clients and workers that disappear. Each failure is told by its code
// and leaves nothing behind.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/integration/tensors_fixture.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TensorInput : public TensorSuite<4> {
 protected:
  static void SetUpTestSuite() { tensors_ = new TensorCluster(4, {"--worker-flag=--memory-limit=67108864"}); }
  TensorCluster& t() { return *tensors_; }
  // A put or create that is refused, and leaves no name and no bytes.
  void Nothing(const std::vector<std::string>& words, const std::string& code, const std::vector<std::string>& parts) {
    t().Refused(words, code, parts);
    EXPECT_TRUE(t().Json({"tensor", "list"})["tensors"].empty()) << absl::StrJoin(words, " ");
    EXPECT_TRUE(t().UsedBytesBecome(0)) << absl::StrJoin(words, " ");
  }
};

TEST_F(TensorInput, Meshes) {
  t().Refused({"mesh", "create", "m", "a=3,b=3"}, "FAILED_PRECONDITION", {"needs 9 workers", "4"});
  t().Mesh("m", "dp=2,tp=1");
  EXPECT_EQ(t().Json({"mesh", "list"})["meshes"][0]["mesh"], (nlohmann::json{{"dp", 2}, {"tp", 1}}));
  EXPECT_EQ(t().Json({"mesh", "list"})["meshes"][0]["workers"].size(), 2u);
  t().Refused({"mesh", "create", "m", "tp=1"}, "ALREADY_EXISTS", {"m"});
  t().Refused({"mesh", "create", "n", "tp=0"}, "INVALID_ARGUMENT", {"tp"});
  t().Refused({"mesh", "create", "n", "tp"}, "INVALID_ARGUMENT", {"tp"});
  t().Refused({"mesh", "create", "n", "tp=1,tp=2"}, "INVALID_ARGUMENT", {"tp"});
  t().Refused({"mesh", "create", "bad name", "tp=1"}, "INVALID_ARGUMENT", {"bad name"});
  t().Refused({"mesh", "create", "n", "tp=2", "--workers", "worker-0"}, "INVALID_ARGUMENT", {"2"});
  t().Refused({"mesh", "create", "n", "tp=2", "--workers", "worker-0,worker-0"}, "INVALID_ARGUMENT", {"worker-0"});
  t().Refused({"mesh", "create", "n", "tp=2", "--workers", "worker-0,,worker-1"}, "INVALID_ARGUMENT", {});
  EXPECT_NE(t().cluster().Tpctl({"mesh", "create", "n", "tp=1", "--workers", "nobody"}).code, 0);
  t().Refused({"mesh", "delete", "none"}, "NOT_FOUND", {"none"});
  EXPECT_EQ(t().Json({"mesh", "list"})["meshes"].size(), 1u);
}

TEST_F(TensorInput, NamesThatExistOrDoNot) {
  t().Mesh("m", "tp=2");
  const std::string file = t().File("w", Arange({4}));
  t().Refused({"tensor", "put", "w", file, "--mesh", "none"}, "NOT_FOUND", {"none"});
  for (const char* command : {"get", "shards", "delete"}) t().Refused({"tensor", command, "w"}, "NOT_FOUND", {"w"});
  t().Refused({"tensor", "redistribute", "w", "--placements", "tp=R"}, "NOT_FOUND", {"w"});
  t().Refused({"tensor", "save", t().Path("saved"), "w"}, "NOT_FOUND", {"w"});
  EXPECT_FALSE(std::filesystem::exists(t().Path("saved/model.safetensors")));
  t().Put("w", Arange({4}), "m", "");
  t().Put("v", Arange({4}), "m", "");
  t().Refused({"tensor", "put", "w", file, "--mesh", "m"}, "ALREADY_EXISTS", {"w"});
  t().Refused({"tensor", "create", "w", "--init", "zeros", "--shape", "1", "--mesh", "m"}, "ALREADY_EXISTS", {"w"});
  t().Refused({"tensor", "redistribute", "w", "--placements", "tp=S(0)", "--as", "v"}, "ALREADY_EXISTS", {"v"});
  t().Refused({"tensor", "put", "bad name", file, "--mesh", "m"}, "INVALID_ARGUMENT", {"bad name"});
  t().Ok({"tensor", "save", t().Path("saved"), "w", "v"});
  t().Refused({"tensor", "load", t().Path("saved"), "--mesh", "m"}, "ALREADY_EXISTS", {});
  t().Refused({"tensor", "load", t().Path("saved"), "x", "--mesh", "m"}, "NOT_FOUND", {"x"});
  t().Refused({"tensor", "load", t().Path("nowhere"), "--mesh", "m"}, "NOT_FOUND", {"nowhere"});
  EXPECT_EQ(t().Get("w"), Arange({4}));
}

TEST_F(TensorInput, Placements) {
  t().Mesh("m", "dp=2,tp=2");
  const std::string file = t().File("w", Arange({5, 3}));
  const auto put = [&](const std::string& placements) {
    return std::vector<std::string>{"tensor", "put", "w", file, "--mesh", "m", "--placements", placements};
  };
  Nothing(put("x=S(0)"), "INVALID_ARGUMENT", {"axes not in mesh: {x}"});
  Nothing(put("tp=S(2)"), "INVALID_ARGUMENT", {"2"});
  Nothing(put("tp=S(-3)"), "INVALID_ARGUMENT", {"-3"});
  Nothing(put("tp=P(sum)"), "INVALID_ARGUMENT", {"P"});
  Nothing(put("tp=IS(0,2)"), "INVALID_ARGUMENT", {"5"});
  Nothing(put("tp=GS(0,3)"), "INVALID_ARGUMENT", {"3"});
  Nothing(put("tp=SS(0,0)"), "INVALID_ARGUMENT", {"split_factor"});
  Nothing(put("tp=S(0),tp=R"), "INVALID_ARGUMENT", {"tp is placed twice"});
  Nothing(put("tp=Q"), "INVALID_ARGUMENT", {"Q"});
  t().Ok(put(" tp = S( -1 ) "));
  EXPECT_EQ(t().Json({"tensor", "shards", "w"})["placements"], "dp=R,tp=S(1)");
  t().Refused({"tensor", "redistribute", "w", "--placements", "tp=P(product)"}, "INVALID_ARGUMENT", {"product"});
  t().Refused({"tensor", "redistribute", "w", "--placements", "tp=P(max)"}, "INVALID_ARGUMENT", {"max"});
  t().Refused({"tensor", "redistribute", "w", "--placements", "y=R"}, "INVALID_ARGUMENT", {"axes not in mesh: {y}"});
  t().Refused({"tensor", "redistribute", "w", "--placements", "dp=P(min),tp=P(sum)"}, "INVALID_ARGUMENT", {"mix"});
  EXPECT_EQ(t().Get("w"), Arange({5, 3}));
  t().Put("i", MakeHostTensor<int64_t>({2}, {1, 2}), "m", "");
  t().Refused({"tensor", "redistribute", "i", "--placements", "tp=P(avg)"}, "INVALID_ARGUMENT", {"avg"});
}

TEST_F(TensorInput, ShapesTypesAndFiles) {
  t().Mesh("m", "tp=2");
  const auto create = [](const std::string& shape, const std::string& dtype, const std::string& init) {
    return std::vector<std::string>{"tensor",           "create",  "w",   "--init", init,
                                    "--shape=" + shape, "--dtype", dtype, "--mesh", "m"};
  };
  Nothing(create("-1", "F32", "zeros"), "INVALID_ARGUMENT", {"-1"});
  Nothing(create("2147483648x2147483648x2", "F32", "zeros"), "INVALID_ARGUMENT", {"2^62"});
  Nothing(create("4", "F8", "zeros"), "INVALID_ARGUMENT", {"F8", "BF16"});
  Nothing(create("4", "F32", "constant(1e400)"), "INVALID_ARGUMENT", {"1e400"});
  Nothing(create("4", "F32", "randn"), "INVALID_ARGUMENT", {"normal(mean,std)"});
  const auto put = [](const std::string& file) {
    return std::vector<std::string>{"tensor", "put", "w", file, "--mesh", "m"};
  };
  const std::string npy = t().Npy("w", Arange({3, 2}));
  std::filesystem::resize_file(npy, std::filesystem::file_size(npy) - 1);
  Nothing(put(npy), "INVALID_ARGUMENT", {"expected 24 bytes", "got 23"});
  const std::string file = t().File("x", Arange({3, 2}));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) + 1);
  Nothing(put(file), "INVALID_ARGUMENT", {file});
  ASSERT_TRUE(WriteSafetensors(t().Path("two.safetensors"), {{"a", Arange({1})}, {"b", Arange({2})}}).ok());
  Nothing(put(t().Path("two.safetensors")), "NOT_FOUND", {"'w'", "a"});
  Nothing(put(t().Path("none.npy")), "NOT_FOUND", {"none.npy"});
  Nothing(put(t().Path("w.txt")), "INVALID_ARGUMENT", {".npy"});
  t().Ok({"tensor", "put", "w", t().Path("two.safetensors"), "--tensor", "b", "--mesh", "m"});
  EXPECT_EQ(t().Json({"tensor", "get", "w"})["values"], nlohmann::json({0.0, 1.0}));
  t().Refused({"tensor", "get", "w", "--output", t().Path("w.txt")}, "INVALID_ARGUMENT", {".safetensors"});
  t().Put("h", ConvertTo(Arange({2}), DType::kBF16), "m", "");
  t().Refused({"tensor", "get", "h", "--output", t().Path("h.npy")}, "UNIMPLEMENTED", {".safetensors"});
  EXPECT_FALSE(std::filesystem::exists(t().Path("h.npy")));
  t().Refused({"tensor", "get", "w", "--output", t().Path("no/such/folder.npy")}, "NOT_FOUND", {"folder.npy"});
}

TEST_F(TensorInput, WrongUsageIsExitTwo) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"mesh"},
                                             {"mesh", "create", "m"},
                                             {"tensor"},
                                             {"tensor", "put", "w"},
                                             {"tensor", "put", "w", "f.npy"},
                                             {"tensor", "put", "w", "--mesh", "m"},
                                             {"tensor", "get"},
                                             {"tensor", "no-such"},
                                             {"tensor", "save", "dir"}})
    EXPECT_EQ(t().cluster().Tpctl(words).code, 2) << absl::StrJoin(words, " ");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"mesh", "--help"}, {"tensor", "--help"}, {"tensor", "put", "--help"}, {"tensor", "create", "--help"}})
    EXPECT_EQ(t().cluster().Tpctl(words).code, 0) << absl::StrJoin(words, " ");
}

TEST_F(TensorInput, ATensorLargerThanAWorkersLimit) {
  t().Mesh("m", "tp=4");
  const auto create = [](const std::string& shape, const std::string& placements) {
    return std::vector<std::string>{"tensor", "create", "w", "--init",       "zeros",   "--shape",
                                    shape,    "--mesh", "m", "--placements", placements};
  };
  Nothing(create("32x1048576", "tp=R"), "RESOURCE_EXHAUSTED", {"worker-0", "134217728", "67108864"});
  t().Ok(create("32x1048576", "tp=S(0)"));  // a quarter each
  t().Refused({"tensor", "redistribute", "w", "--placements", "tp=R"}, "RESOURCE_EXHAUSTED", {"67108864"});
  t().Refused(
      {"tensor", "create", "v", "--init", "zeros", "--shape", "40x1048576", "--mesh", "m", "--placements", "tp=S(0)"},
      "RESOURCE_EXHAUSTED", {"67108864"});
  EXPECT_EQ(t().Json({"tensor", "list"})["tensors"].size(), 1u);
  t().Delete("w");
  // The same for bytes that come from a client: refused before they do.
  {
    std::ofstream header(t().Path("huge.npy"), std::ios::binary);
    header << *FormatNpyHeader(DType::kU8, {int64_t{1} << 30});
  }
  std::filesystem::resize_file(t().Path("huge.npy"),
                               std::filesystem::file_size(t().Path("huge.npy")) + (int64_t{1} << 30));  // sparse
  Nothing({"tensor", "put", "w", t().Path("huge.npy"), "--mesh", "m", "--placements", "tp=S(0)"}, "RESOURCE_EXHAUSTED",
          {"67108864"});
}

// A put whose client stops in mid-upload until the gate is removed.
class HeldUpload {
 public:
  HeldUpload(TensorCluster& t, const std::string& name, const std::string& mesh) : gate_(t.Path("gate")) {
    std::ofstream(gate_) << "closed";
    const std::string file = t.Npy("held", Arange({2048, 1024}));  // 8 MiB
    process_ = std::make_unique<Process>(
        std::vector<std::string>{Program("tpctl"), "--server", t.cluster().server(), "tensor", "put", name, file,
                                 "--mesh", mesh, "--placements", "tp=S(0)"},
        std::vector<std::string>{absl::StrCat("LD_PRELOAD=", TP_SLOW_READS), "TP_SLOW_READS_PATH=held.npy",
                                 "TP_SLOW_READS_AFTER=4194304", absl::StrCat("TP_SLOW_READS_GATE=", gate_)});
    EXPECT_TRUE(Eventually([&] {
      const nlohmann::json tensors = t.Json({"tensor", "list"})["tensors"];
      return tensors.size() == 1 && tensors[0]["state"] == "CREATING";
    }));
  }
  ~HeldUpload() { Open(); }
  void Open() { std::filesystem::remove(gate_); }
  Process& process() { return *process_; }

 private:
  const std::string gate_;
  std::unique_ptr<Process> process_;
};

TEST(TensorFailure, AClientKilledInMidUploadLeavesNothing) {
  TensorCluster t(2);
  t.Mesh("m", "tp=2");
  {
    HeldUpload upload(t, "w", "m");
    t.Refused({"tensor", "get", "w"}, "FAILED_PRECONDITION", {"w"});
    t.Refused({"mesh", "delete", "m"}, "FAILED_PRECONDITION", {"w"});
    EXPECT_EQ(t.Json({"status"})["tensors"], 1);
    upload.process().Kill();
    EXPECT_TRUE(Eventually([&] { return t.Json({"tensor", "list"})["tensors"].empty(); }));
    EXPECT_TRUE(t.UsedBytesBecome(0));
  }
  EXPECT_EQ(t.Json({"status"})["requests"], 0);
  t.Put("w", Arange({4}), "m", "tp=S(0)");  // the name is free and the mesh works
  EXPECT_EQ(t.Get("w"), Arange({4}));
  EXPECT_TRUE(t.UsedBytesBecome(16));
}

TEST(TensorFailure, AForwardAnswersBesideAnUpload) {
  TensorCluster t(2);
  t.cluster().Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=2");
  t.Mesh("m", "tp=2");
  HeldUpload upload(t, "w", "m");
  EXPECT_EQ(t.cluster().Tpctl({"forward", "mlp", "--input", "x=1,2,3,4,5,6,7,8"}).code, 0);
  t.Put("v", Arange({4}), "m", "tp=S(0)");
  t.Redistribute("v", "tp=R");
  upload.Open();
  const CommandResult result = upload.process().Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(t.Get("w"), Arange({2048, 1024}));
}

TEST(TensorFailure, TensorsOfAKilledWorkerAreLostAndOthersAreFine) {
  TensorCluster t(4);
  t.Mesh("a", "tp=2", "worker-0,worker-1");
  t.Mesh("b", "tp=2", "worker-2,worker-3");
  t.Put("w", Arange({4, 2}), "a", "tp=S(0)");
  t.Put("v", Arange({4, 2}), "b", "tp=S(0)");
  ASSERT_EQ(kill(t.cluster().WorkerPid("worker-1"), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return t.Json({"status"})["workers_healthy"] == 3; }));
  ASSERT_TRUE(Eventually([&] { return t.Json({"tensor", "list"})["tensors"][1]["state"] == "LOST"; }));
  const nlohmann::json mesh_list = t.Json({"mesh", "list"});
  for (const auto& mesh : mesh_list["meshes"]) EXPECT_EQ(mesh["state"], mesh["name"] == "a" ? "BROKEN" : "READY");
  const nlohmann::json tensors = t.Json({"tensor", "list"})["tensors"];
  EXPECT_EQ(tensors[0]["name"], "v");
  EXPECT_EQ(tensors[0]["state"], "READY");
  EXPECT_THAT(tensors[1]["error"].get<std::string>(), AllOf(HasSubstr("rank 1"), HasSubstr("worker-1")));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"tensor", "get", "w"},
                                             {"tensor", "redistribute", "w", "--placements", "tp=R"},
                                             {"tensor", "save", t.Path("saved"), "w"}})
    t.Refused(words, "DATA_LOSS", {"rank 1", "worker-1"});
  t.Refused({"tensor", "create", "x", "--init", "zeros", "--shape", "4", "--mesh", "a"}, "FAILED_PRECONDITION", {"a"});
  t.Redistribute("v", "tp=S(1)");
  EXPECT_EQ(t.Get("v"), Arange({4, 2}));
  t.Delete("w");
  t.Ok({"mesh", "delete", "a"});
  t.Mesh("a", "tp=2", "worker-0,worker-2");  // what survived works on
  t.Put("w", Arange({4, 2}), "a", "tp=S(0)");
  EXPECT_EQ(t.Get("w"), Arange({4, 2}));
}

// Stops reading after the first bytes until it may go on.
class HeldSink : public client::TensorSink {
 public:
  absl::Status Begin(const client::TensorInfo&, const std::vector<client::TensorBlock>&) override {
    return absl::OkStatus();
  }
  absl::Status Write(size_t, int64_t, std::string_view) override {
    if (!reading.HasBeenNotified()) reading.Notify();
    go_on.WaitForNotification();
    return absl::OkStatus();
  }
  absl::Notification reading, go_on;
};

// The bytes of rank 0 are on their way when rank 1 dies: the client is not served to their end before it is told.
TEST(TensorFailure, AWorkerKilledDuringAGetIsNamed) {
  TensorCluster t(2);
  t.Mesh("m", "tp=2");
  t.Ok({"tensor", "create", "w", "--init", "zeros", "--shape", "32x1048576", "--mesh", "m", "--placements", "tp=S(0)"});
  HeldSink sink;
  absl::Status status;
  std::thread get([&] { status = t.cluster().Connect()->GetTensor("w", false, &sink); });
  sink.reading.WaitForNotification();
  EXPECT_EQ(kill(t.cluster().WorkerPid("worker-1"), SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] { return t.Json({"tensor", "list"})["tensors"][0]["state"] == "LOST"; }));
  sink.go_on.Notify();
  get.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (worker worker-1) was lost"));
}

}  // namespace
}  // namespace tp::testing

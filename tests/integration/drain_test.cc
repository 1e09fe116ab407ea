// SIGTERM: what has begun ends well within the limit, what comes later is refused at once, and the program ends with 0.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "tests/support/cluster.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

// A coordinator and workers as processes of this test, so that it sees how they end.
class Programs {
 public:
  explicit Programs(int workers, const Words& coordinator = {}, const Words& worker = {},
                    const Words& environment = {}) {
    Words words = {Program("tp-coordinator"),
                   "--listen",
                   "127.0.0.1:0",
                   "--endpoint-file",
                   folder_.path() + "/endpoint",
                   "--time-scale",
                   "5"};
    words.insert(words.end(), coordinator.begin(), coordinator.end());
    coordinator_ = std::make_unique<Process>(words);
    TP_CHECK(Eventually([&] {
      std::ifstream file(folder_.path() + "/endpoint");
      return static_cast<bool>(std::getline(file, server_)) && !server_.empty();
    }));
    for (int i = 0; i < workers; ++i) {
      words = {Program("tp-worker"), "--server", server_,        "--id", absl::StrCat("worker-", i), "--threads", "1",
               "--model-root",       "/",        "--time-scale", "5"};
      words.insert(words.end(), worker.begin(), worker.end());
      workers_.push_back(std::make_unique<Process>(words, environment));
    }
    TP_CHECK(Eventually([&] {
      const auto known = Connect()->ListWorkers();
      return known.ok() && static_cast<int>(known->size()) == workers;
    }));
    stub_ = v1::CoordinatorService::NewStub(CreateChannel(server_));
  }

  const std::string& server() const { return server_; }
  const std::string& dir() const { return folder_.path(); }
  Process& coordinator() { return *coordinator_; }
  Process& worker(int index) { return *workers_[static_cast<size_t>(index)]; }
  v1::CoordinatorService::Stub& stub() { return *stub_; }
  std::unique_ptr<client::Client> Connect() const { return client::Connect({.server = server_}); }
  CommandResult Tpctl(Words words) const {
    words.insert(words.begin(), {Program("tpctl"), "--server", server_});
    return RunCommand(words);
  }
  void Submit(const std::string& file, const std::string& name, const std::string& mesh) const {
    const CommandResult result = Tpctl({"submit", file, "--name", name, "--mesh", mesh});
    if (result.code != 0) std::fprintf(stderr, "submit: %s\n", result.err.c_str());
    TP_CHECK(result.code == 0);
  }
  std::string Demo() const {
    const std::string file = dir() + "/kjv.pb";
    TP_CHECK(Tpctl({"import", Source("deploy/demo/kjv"), "--tp", "2", "--out", file}).code == 0);
    return file;
  }

 private:
  TemporaryFolder folder_;
  std::string server_;
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

// What grpc.health.v1 answers: 1 = SERVING, 2 = NOT_SERVING, -1 = nothing.
int HealthOf(const std::string& server) {
  grpc::GenericStub stub(CreateChannel(server));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  grpc::Slice empty;
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&empty, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (!status.ok() || !answer.Dump(&slices).ok() || slices.empty() || slices[0].size() != 2) return -1;
  return slices[0].begin()[1];
}

// A put whose second half is not sent yet.
class HalfPut {
 public:
  HalfPut(Programs& programs, const std::string& name, const std::string& mesh) {
    call_ = programs.stub().PutTensor(&context_, &response_);
    v1::PutTensorRequest request;
    request.mutable_header()->set_name(name);
    request.mutable_header()->set_mesh(mesh);
    request.mutable_header()->set_dtype(v1::F32);
    request.mutable_header()->add_shape(2 * kHalf / 4);
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i * 7);
    TP_CHECK(call_->Write(request));
    SendFrom(0);
    TP_CHECK(Eventually([&] {  // the coordinator has taken it in
      grpc::ClientContext context;
      v1::DescribeTensorRequest describe;
      v1::DescribeTensorResponse description;
      describe.set_name(name);
      return programs.stub().DescribeTensor(&context, describe, &description).ok();
    }));
  }
  absl::Status Finish(bool send) {
    if (send) {
      SendFrom(kHalf);
      call_->WritesDone();
    }
    return FromGrpcStatus(call_->Finish());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kHalf = 1 << 20;
  void SendFrom(uint64_t offset) {
    v1::PutTensorRequest request;
    *request.mutable_chunk() = MakeChunk(0, bytes_, offset);
    call_->Write(request);
  }
  grpc::ClientContext context_;
  v1::PutTensorResponse response_;
  std::string bytes_ = std::string(2 * kHalf, '\0');
  std::unique_ptr<grpc::ClientWriter<v1::PutTensorRequest>> call_;
};

absl::Status CreateTensor(Programs& programs, const std::string& name) {
  grpc::ClientContext context;
  v1::CreateTensorRequest request;
  v1::CreateTensorResponse response;
  request.set_name(name);
  request.set_mesh("mesh");
  request.set_dtype(v1::F32);
  request.add_shape(4);
  request.mutable_initializer()->mutable_zeros();
  return FromGrpcStatus(programs.stub().CreateTensor(&context, request, &response));
}

// The tokens that the model gives.
struct Generated {
  absl::Status status;
  std::vector<int64_t> tokens;
};
Generated Generate(client::Client& client, int count, const std::function<void()>& on_token = nullptr) {
  Generated generated;
  generated.status =
      client.Generate({.model = "kjv", .prompt = "And God said", .max_new_tokens = count, .ignore_eos = true},
                      [&](const client::GenerateChunk& chunk) {
                        generated.tokens.insert(generated.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
                        if (on_token) on_token();
                        return true;
                      });
  return generated;
}

std::vector<int64_t> Reference() {
  return nlohmann::json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")))["cases"][0]["greedy"];
}

// Clients that generate and forward in loops until they are refused.
class Load {
 public:
  explicit Load(Programs& programs) {
    for (int i = 0; i < 3; ++i) {
      threads_.emplace_back([this, &programs] {
        const auto client = programs.Connect();
        while (true) {
          const Generated generated = Generate(*client, 64);
          if (!Count(generated.status, generated.tokens == reference_, generated.tokens.empty())) return;
        }
      });
      threads_.emplace_back([this, &programs] {
        const auto client = programs.Connect();
        while (true) {
          const auto result = client->Forward(
              "mlp", {{"x", MakeHostTensor<float>({1, 8}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8})}});
          const bool right = result.ok() && (expected_.empty() || result->outputs[0].tensor.bytes == expected_);
          if (!Count(result.status(), right, true)) return;
        }
      });
    }
  }
  ~Load() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  // Returns once all were refused.
  void Join() {
    for (std::thread& thread : threads_) thread.join();
  }
  int right() const { return right_; }
  int wrong() const { return wrong_; }

 private:
  // False: refused, so that this client ends.
  bool Count(const absl::Status& status, bool right, bool untouched) {
    const std::string text(status.message());
    const bool refused = absl::IsUnavailable(status) && untouched;
    if (status.ok() ? !right : !refused) {
      ++wrong_;
      ADD_FAILURE() << (status.ok() ? "another answer" : "cut: ") << status << (untouched ? "" : ", after tokens");
    }
    if (status.ok()) ++right_;
    return status.ok();
  }
  const std::vector<int64_t> reference_ = Reference();
  std::string expected_;
  std::atomic<int> right_{0}, wrong_{0};
  std::vector<std::thread> threads_;
};

TEST(Drain, ACoordinatorUnderLoadCutsNothing) {
  Programs programs(2, {"--drain-seconds", "300"});
  programs.Submit(programs.Demo(), "kjv", "tp=2");
  programs.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=1");
  Load load(programs);
  absl::Notification started;
  Generated longest;
  std::thread generation([&] {
    longest = Generate(*programs.Connect(), 400, [&] {
      if (!started.HasBeenNotified()) started.Notify();
    });
  });
  started.WaitForNotification();
  ASSERT_TRUE(Eventually([&] { return load.right() >= 10; }));
  kill(programs.coordinator().pid(), SIGTERM);
  load.Join();
  generation.join();
  EXPECT_EQ(load.wrong(), 0);
  EXPECT_TRUE(longest.status.ok()) << longest.status;
  EXPECT_EQ(longest.tokens.size(), 400u);
  EXPECT_EQ(programs.coordinator().Wait().code, 0);
}

TEST(Drain, ACoordinatorEndsWhatHasBegunAndRefusesTheRest) {
  TemporaryFolder folder;
  const std::string gate = folder.path() + "/gate";
  std::ofstream(gate) << "closed";
  Programs programs(2, {"--drain-seconds", "300"}, {},
                    {absl::StrCat("LD_PRELOAD=", TP_SLOW_READS), "TP_SLOW_READS_PATH=deploy/demo/kjv/model",
                     absl::StrCat("TP_SLOW_READS_GATE=", gate)});
  programs.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=1");
  ASSERT_EQ(programs.Tpctl({"mesh", "create", "mesh", "tp=2"}).code, 0);
  EXPECT_EQ(HealthOf(programs.server()), 1);
  // Three that have begun: a load that reads slowly, a put that is half sent, a get that nobody reads yet.
  CommandResult submitted;
  std::thread submit([&, file = programs.Demo()] { submitted = programs.Tpctl({"submit", file, "--name", "kjv"}); });
  const auto client = programs.Connect();
  ASSERT_TRUE(Eventually([&] {
    const auto description = client->GetModel("kjv", false);
    return description.ok() && description->summary.state == "LOADING";
  }));
  HalfPut first(programs, "first", "mesh");
  ASSERT_TRUE(first.Finish(true).ok());
  HalfPut put(programs, "put", "mesh");
  grpc::ClientContext context;
  v1::GetTensorRequest get;
  get.set_name("first");
  const auto read = programs.stub().GetTensor(&context, get);
  v1::GetTensorResponse response;
  ASSERT_TRUE(read->Read(&response));

  kill(programs.coordinator().pid(), SIGTERM);
  ASSERT_TRUE(Eventually([&] { return HealthOf(programs.server()) == 2; }));
  absl::Status refused;
  ASSERT_TRUE(Eventually([&] {
    refused = client->Forward("mlp", {{"x", MakeHostTensor<float>({1, 8}, std::vector<float>(8, 1.0f))}}).status();
    return !refused.ok();
  }));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is draining"));
  const absl::Status created = CreateTensor(programs, "late");
  EXPECT_EQ(created.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(created.message()), HasSubstr("is draining"));
  EXPECT_TRUE(client->GetModel("kjv", false).ok());  // what it does can be looked at

  std::string bytes;
  while (read->Read(&response)) bytes += response.chunk().data();
  EXPECT_TRUE(read->Finish().ok());
  EXPECT_EQ(bytes, first.bytes());
  const absl::Status sent = put.Finish(true);
  EXPECT_TRUE(sent.ok()) << sent;
  std::filesystem::remove(gate);
  submit.join();
  EXPECT_EQ(submitted.code, 0) << submitted.err;
  EXPECT_EQ(programs.coordinator().Wait().code, 0);
}

TEST(Drain, ACoordinatorCutsWhatDoesNotEndInTime) {
  TemporaryFolder folder;
  const std::string gate = folder.path() + "/gate";
  std::ofstream(gate) << "closed";
  Programs programs(2, {"--drain-seconds", "0.1"}, {},
                    {absl::StrCat("LD_PRELOAD=", TP_SLOW_READS), "TP_SLOW_READS_PATH=deploy/demo/kjv/model",
                     absl::StrCat("TP_SLOW_READS_GATE=", gate)});
  ASSERT_EQ(programs.Tpctl({"mesh", "create", "mesh", "tp=2"}).code, 0);
  CommandResult submitted;
  std::thread submit([&, file = programs.Demo()] { submitted = programs.Tpctl({"submit", file, "--name", "kjv"}); });
  const auto client = programs.Connect();
  ASSERT_TRUE(Eventually([&] {
    const auto description = client->GetModel("kjv", false);
    return description.ok() && description->summary.state == "LOADING";
  }));
  HalfPut put(programs, "put", "mesh");
  kill(programs.coordinator().pid(), SIGTERM);
  EXPECT_EQ(programs.coordinator().Wait().code, 0);
  submit.join();
  EXPECT_EQ(submitted.code, 1);
  EXPECT_THAT(submitted.err, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("stopped before this request was done")));
  const absl::Status cut = put.Finish(false);
  EXPECT_EQ(cut.code(), absl::StatusCode::kUnavailable) << cut;
}

TEST(Drain, ASecondSignalHurriesACoordinator) {
  Programs programs(1, {"--drain-seconds", "3000"});
  ASSERT_EQ(programs.Tpctl({"mesh", "create", "mesh", "tp=1"}).code, 0);
  HalfPut put(programs, "put", "mesh");
  kill(programs.coordinator().pid(), SIGTERM);
  ASSERT_TRUE(Eventually([&] { return absl::IsUnavailable(CreateTensor(programs, "late")); }));
  kill(programs.coordinator().pid(), SIGTERM);
  EXPECT_EQ(programs.coordinator().Wait().code, 0);
  EXPECT_EQ(put.Finish(false).code(), absl::StatusCode::kUnavailable);
}

TEST(Drain, AnIdleWorkerLeavesAtOnce) {
  Programs programs(1, {}, {"--drain-seconds", "3000"});
  kill(programs.worker(0).pid(), SIGTERM);
  EXPECT_EQ(programs.worker(0).Wait().code, 0);
  const auto workers = programs.Connect()->ListWorkers();
  ASSERT_TRUE(workers.ok());
  ASSERT_TRUE(Eventually([&] { return !programs.Connect()->ListWorkers()->at(0).healthy; }));
  EXPECT_THAT(programs.Connect()->ListWorkers()->at(0).reason, StartsWith("it was draining; "));
}

TEST(Drain, AWorkerUnderLoadCutsNothing) {
  Programs programs(2, {}, {"--drain-seconds", "300"});
  programs.Submit(programs.Demo(), "kjv", "tp=2");
  programs.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=2");
  Load load(programs);
  absl::Notification started;
  Generated longest;
  std::thread generation([&] {
    longest = Generate(*programs.Connect(), 400, [&] {
      if (!started.HasBeenNotified()) started.Notify();
    });
  });
  started.WaitForNotification();
  ASSERT_TRUE(Eventually([&] { return load.right() >= 10; }));
  kill(programs.worker(1).pid(), SIGTERM);
  load.Join();
  generation.join();
  EXPECT_EQ(load.wrong(), 0);
  EXPECT_TRUE(longest.status.ok()) << longest.status;
  EXPECT_EQ(longest.tokens.size(), 400u);
  EXPECT_EQ(programs.worker(1).Wait().code, 0);
  // What is left serves on.
  ASSERT_TRUE(Eventually([&] {
    return programs.Tpctl({"submit", Source("deploy/demo/mlp.textproto"), "--name", "one", "--mesh", "tp=1"}).code == 0;
  }));
}

TEST(Drain, AWorkerEndsWhatHasBegunAndItsMeshesGetNoMore) {
  Programs programs(2, {}, {"--drain-seconds", "300"});
  programs.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=2");
  ASSERT_EQ(programs.Tpctl({"mesh", "create", "mesh", "tp=2"}).code, 0);
  HalfPut put(programs, "put", "mesh");
  const std::string log = programs.worker(1).ErrorsSoFar();
  const std::string word = "health at ";
  ASSERT_THAT(log, HasSubstr(word));
  const size_t at = log.find(word) + word.size();
  const std::string health = log.substr(at, log.find_first_not_of("0123456789.:", at) - at);
  EXPECT_EQ(HealthOf(health), 1);
  kill(programs.worker(1).pid(), SIGTERM);
  EXPECT_TRUE(Eventually([&] { return HealthOf(health) == 2; }));
  const auto client = programs.Connect();
  absl::Status refused;
  ASSERT_TRUE(Eventually([&] {
    refused = client->Forward("mlp", {{"x", MakeHostTensor<float>({1, 8}, std::vector<float>(8, 1.0f))}}).status();
    return !refused.ok();
  }));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("worker-1"), HasSubstr("is draining")));
  const absl::Status created = CreateTensor(programs, "late");
  EXPECT_EQ(created.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(created.message()), AllOf(HasSubstr("worker-1"), HasSubstr("is draining")));
  const absl::Status sent = put.Finish(true);
  EXPECT_TRUE(sent.ok()) << sent;
  EXPECT_EQ(programs.worker(1).Wait().code, 0);
}

TEST(Drain, AWorkerCutsWhatDoesNotEndInTime) {
  Programs programs(2, {}, {"--drain-seconds", "0.1"});
  ASSERT_EQ(programs.Tpctl({"mesh", "create", "mesh", "tp=2"}).code, 0);
  HalfPut put(programs, "put", "mesh");
  kill(programs.worker(1).pid(), SIGTERM);
  EXPECT_EQ(programs.worker(1).Wait().code, 0);
  const absl::Status cut = put.Finish(false);
  EXPECT_EQ(cut.code(), absl::StatusCode::kUnavailable) << cut;
  EXPECT_THAT(std::string(cut.message()), AllOf(HasSubstr("worker-1"), HasSubstr("was draining")));
}

// A read of a file that hangs can't be ended; the program ends all the same.
TEST(Drain, AWorkerEndsThoughAReadHangs) {
  TemporaryFolder folder;
  const std::string gate = folder.path() + "/gate";
  std::ofstream(gate) << "closed";
  Programs programs(2, {}, {"--drain-seconds", "0.1"},
                    {absl::StrCat("LD_PRELOAD=", TP_SLOW_READS), "TP_SLOW_READS_PATH=deploy/demo/kjv/model",
                     absl::StrCat("TP_SLOW_READS_GATE=", gate)});
  CommandResult submitted;
  std::thread submit([&, file = programs.Demo()] { submitted = programs.Tpctl({"submit", file, "--name", "kjv"}); });
  const auto client = programs.Connect();
  ASSERT_TRUE(Eventually([&] {
    const auto description = client->GetModel("kjv", false);
    return description.ok() && description->summary.state == "LOADING";
  }));
  kill(programs.worker(1).pid(), SIGTERM);
  EXPECT_EQ(programs.worker(1).Wait().code, 0);
  submit.join();
  std::filesystem::remove(gate);
  EXPECT_EQ(submitted.code, 1);
  EXPECT_THAT(submitted.err, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("worker-1")));
}

TEST(Failure, AWorkerWhoseNameIsTakenSaysSoAndWaits) {
  Programs programs(1);
  Process second({Program("tp-worker"), "--server", programs.server(), "--id", "worker-0", "--threads", "1"});
  EXPECT_TRUE(Eventually([&] {
    return second.ErrorsSoFar().find("not a member: ALREADY_EXISTS: worker 'worker-0' is already here") !=
           std::string::npos;
  })) << second.ErrorsSoFar();
}

}  // namespace
}  // namespace tp::testing

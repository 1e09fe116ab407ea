// What only NCCL's Communicator has: groups of their own, addresses, errors found later, aborts of all, graphs.
#include <fake_nccl.h>
#include <fake_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/contract/communicator_contract.h"
#include "worker/collective/nccl/nccl_address.h"

namespace tp::worker {
namespace {

using ::testing::HasSubstr;

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tp_fake::Reset(kFakeGpus);
    tp_fake::SetNcclPolls(2);
  }
  // Every test leaves the next one nothing, and a new epoch works.
  void TearDown() override {
    tp_fake::Reset(kFakeGpus);
    {
      Ranks again(Kind::kNccl, 3);
      again.Run([](Communicator& comm) { return Sum(comm, Upto(3), 1000, Soon()); });
    }
    EXPECT_EQ(tp_fake::LiveNcclComms(), 0);
  }

  static absl::Status Sum(Communicator& comm, const std::vector<int>& group, int64_t count, absl::Time deadline) {
    NoStream stream;
    Array data(DType::kF32, count, [&](int64_t i) { return static_cast<double>((1 << comm.rank()) + i % 3); });
    double ranks = 0;
    for (const int r : group) ranks += 1 << r;
    absl::Status status = comm.AllReduce(stream, group, data.data(), count, DType::kF32, ReduceOp::kSum, deadline);
    const auto members = static_cast<double>(group.size());
    if (status.ok()) {
      EXPECT_EQ(FirstDifference(data, [&](int64_t i) { return ranks + members * static_cast<double>(i % 3); }), -1);
    }
    return status;
  }
};

TEST_F(NcclTest, PreparedGroupsHaveCommunicatorsOfTheirOwn) {
  Ranks ranks(Kind::kNccl, 4);
  const std::vector<std::vector<int>> rows = {{0, 1}, {2, 3}}, columns = {{0, 2}, {1, 3}};
  const auto both = [&](Communicator& comm) {
    const int me = comm.rank();
    TP_RETURN_IF_ERROR(Sum(comm, rows[me / 2], 5000, Soon()));
    return Sum(comm, columns[me % 2], 5000, Soon());
  };
  ranks.Run(both);
  EXPECT_EQ(tp_fake::CallsOf("ncclAllReduce"), 0);  // sends and receives
  EXPECT_GT(tp_fake::CallsOf("ncclSend"), 0);
  const std::vector<std::vector<std::vector<int>>> partitions = {rows, columns, {{0, 1, 2, 3}}, {{0}, {1}, {2}, {3}}};
  for (int repeat = 0; repeat < 2; ++repeat) {
    ranks.Run([&](Communicator& comm) { return comm.PrepareGroups(partitions, Soon()); });
  }
  EXPECT_EQ(tp_fake::CallsOf("ncclCommSplit"), 2 * 4);
  const int sends = tp_fake::CallsOf("ncclSend");
  ranks.Run(both);
  EXPECT_EQ(tp_fake::CallsOf("ncclAllReduce"), 2 * 4);
  EXPECT_EQ(tp_fake::CallsOf("ncclSend"), sends);
  EXPECT_EQ(ranks[0].PrepareGroups({{{0, 1}, {1, 2}}}, Soon()).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NcclTest, AllOpsOverAPreparedGroupInAnyOrder) {
  Ranks ranks(Kind::kNccl, 3);
  const std::vector<int> group = {2, 0};
  ranks.Run([&](Communicator& comm) {
    return comm.PrepareGroups(std::vector<std::vector<std::vector<int>>>{{group, {1}}}, Soon());
  });
  ranks.RunOn(group, [&](Communicator& comm) {
    NoStream stream;
    const double mine = comm.rank() + 1;
    const int me = comm.rank() == 2 ? 0 : 1;
    Array one(DType::kI64, 1, [&](int64_t) { return mine; }), two(DType::kI64, 2);
    EXPECT_TRUE(comm.AllGather(stream, group, one.data(), two.data(), {1, 1}, DType::kI64, Soon()).ok());
    EXPECT_EQ(two.Get(0), 3);
    EXPECT_EQ(two.Get(1), 1);
    EXPECT_TRUE(comm.Broadcast(stream, group, 2, one.data(), 1, DType::kI64, Soon()).ok());
    EXPECT_EQ(one.Get(0), 3);
    Array input(DType::kF64, 2, [&](int64_t i) { return mine * 10 + static_cast<double>(i); }), block(DType::kF64, 1);
    EXPECT_TRUE(
        comm.ReduceScatter(stream, group, input.data(), {1, 1}, block.data(), DType::kF64, ReduceOp::kAvg, Soon())
            .ok());
    EXPECT_EQ(block.Get(0), 20 + me);
    return absl::OkStatus();
  });
}

TEST_F(NcclTest, EveryCallWaitsUntilItIsNoLongerInProgress) {
  for (const int polls : {0, 1, 20}) {
    tp_fake::SetNcclPolls(polls);
    Ranks ranks(Kind::kNccl, 3);
    ranks.Run([](Communicator& comm) { return comm.PrepareGroups({{{0, 1}, {2}}}, Soon()); });
    ranks.Run([](Communicator& comm) { return Sum(comm, Upto(3), 20000, Soon()); });
    ranks.RunOn({0, 1}, [](Communicator& comm) { return Sum(comm, {0, 1}, 7, Soon()); });
  }
}

TEST_F(NcclTest, AnAsynchronousErrorEndsTheCallOnEveryRank) {
  for (const int code : {ncclSystemError, ncclRemoteError, ncclInternalError}) {
    Ranks ranks(Kind::kNccl, 3);
    tp_fake::FailNext("ncclAsync", code, 1);
    const std::vector<Outcome> outcomes = ranks.RunOn(Upto(3), [](Communicator& comm) {
      absl::Status status = Sum(comm, Upto(3), 1000, absl::Now() + absl::Seconds(2));
      EXPECT_EQ(comm.Barrier({comm.rank()}, Soon()).code(), absl::StatusCode::kAborted);
      return status;
    });
    int injected = 0;
    for (const Outcome& outcome : outcomes) {
      EXPECT_NE(outcome.code, absl::StatusCode::kOk);
      injected += absl::StrContains(outcome.message, "an injected asynchronous error");
    }
    EXPECT_EQ(injected, 1);
  }
}

TEST_F(NcclTest, RefusedCallsOfNcclBecomeStatuses) {
  for (const char* function : {"ncclAllReduce", "ncclSend"}) {
    Ranks ranks(Kind::kNccl, 2);
    for (int r = 0; r < 2; ++r) tp_fake::FailNext(function, ncclSystemError, 0);
    const std::vector<Outcome> outcomes = ranks.RunOn({0, 1}, [&](Communicator& comm) {
      NoStream stream;
      Array data(DType::kF32, 4), out(DType::kF32, 4);
      if (std::string(function) == "ncclAllReduce") return Sum(comm, {0, 1}, 4, Soon());
      return comm.AllToAll(stream, {0, 1}, data.data(), {2, 2}, out.data(), {2, 2}, DType::kF32, Soon());
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.code, absl::StatusCode::kInternal);
      EXPECT_THAT(outcome.message, HasSubstr("unhandled system error: an injected error of"));
    }
  }
}

TEST_F(NcclTest, AFailedConnectIsToldOnAllRanks) {
  Backends backends(Kind::kNccl);
  std::vector<std::unique_ptr<Connector>> connectors;
  std::vector<std::string> addresses;
  for (int r = 0; r < 2; ++r) {
    connectors.push_back(*backends.Create()->Listen(r, 2));
    addresses.push_back(connectors.back()->Address());
  }
  tp_fake::FailNext("ncclCommInitRankConfig", ncclSystemError, 0);
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] { statuses[r] = connectors[r]->Connect(addresses, Soon()).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  int failed = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    failed += status.code() == absl::StatusCode::kInternal;
    if (status.code() != absl::StatusCode::kInternal) EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(failed, 1);
}

TEST_F(NcclTest, OtherVersionsAndSharedGpusAreRefusedOnAllRanksByName) {
  Backends backends(Kind::kNccl);
  auto first = *backends.Create()->Listen(0, 2), second = *backends.Create()->Listen(1, 2);
  const std::string a = first->Address(), b = second->Address();
  const auto refused = [&](Connector& connector, const std::vector<std::string>& addresses, const char* text) {
    const absl::Status status = connector.Connect(addresses, Soon()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  const std::string old = absl::StrReplaceAll(b, {{"nccl=22809", "nccl=21805"}});
  ASSERT_NE(old, b);
  refused(*first, {a, old}, "has nccl 2.28.9, cuda 13.0, rank 1");
  refused(*first, {a, old}, "has nccl 2.18.5, cuda 13.0");
  refused(*first, {a, absl::StrReplaceAll(b, {{"cuda=13000", "cuda=12040"}})}, "has nccl 2.28.9, cuda 12.4");
  const std::string gpu_a = ParseNcclAddress(a)->gpu, gpu_b = ParseNcclAddress(b)->gpu;
  ASSERT_NE(gpu_a, gpu_b);
  refused(*first, {a, absl::StrReplaceAll(b, {{gpu_b, gpu_a}})}, "are on one GPU");
  for (const char* bad :
       {"", "host", "host gpu=x nccl=1", "host gpu=x nccl=1 cuda=y", "host gpu=x nccl=1 cuda=1 id=0g"}) {
    EXPECT_EQ(ParseNcclAddress(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(NcclTest, AnIdIsNewForEachEpochAndRankZeroHasIt) {
  Backends backends(Kind::kNccl);
  auto backend = backends.Create();
  const std::string a = ParseNcclAddress((*backend->Listen(0, 2))->Address())->id;
  const std::string b = ParseNcclAddress((*backend->Listen(0, 2))->Address())->id;
  EXPECT_EQ(a.size(), sizeof(ncclUniqueId));
  EXPECT_NE(a, b);
  EXPECT_EQ(ParseNcclAddress((*backend->Listen(1, 2))->Address())->id, "");
  EXPECT_EQ(backend->Describe(), "nccl 2.28.9, cuda 13.0");
}

// Rank 1's group waits for rank 2's, which never comes: both communicators have work on one stream, one behind the
// other.
TEST_F(NcclTest, AbortFreesCommunicatorsWhoseWorkWaitsForEachOther) {
  cuda::StreamWatches watches;
  const std::shared_ptr<InProcessHub> hub = CreateInProcessHub();
  std::vector<std::unique_ptr<Connector>> connectors;
  std::vector<std::string> addresses;
  for (int r = 0; r < 2; ++r) {
    auto backend = *CreateNcclBackend(FakeNcclOptions(r, r == 0 ? &watches : nullptr), CreateInProcessBackend(hub));
    connectors.push_back(*backend->Listen(r, 2));
    addresses.push_back(connectors.back()->Address());
  }
  std::vector<std::unique_ptr<Communicator>> comms(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      comms[r] = *connectors[r]->Connect(addresses, Soon());
      EXPECT_TRUE(comms[r]->PrepareGroups({{{1, 0}}}, Soon()).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  FakeStream stream(0);
  std::vector<float> data(100, 1);
  EXPECT_TRUE(comms[0]->Records());
  EXPECT_TRUE(comms[0]->AllReduce(stream, {0, 1}, data.data(), 100, DType::kF32, ReduceOp::kSum, Soon()).ok());
  EXPECT_TRUE(comms[0]->AllReduce(stream, {1, 0}, data.data(), 100, DType::kF32, ReduceOp::kSum, Soon()).ok());
  EXPECT_TRUE(watches.Poll().ok());
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  comms[0]->Abort("over");
  const absl::Status status = SyncFakeStream(stream.get(), watches);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("over"));
  EXPECT_EQ(comms[0]->Broadcast(stream, {0, 1}, 0, data.data(), 1, DType::kF32, Soon()).code(),
            absl::StatusCode::kAborted);
  comms.clear();
}

// NCCL runs what one communicator was given in that order, on whatever streams; others may have none of its time.
TEST_F(NcclTest, TwoStreamsOfOneCommunicatorKeepTheOrderOfItsCalls) {
  cuda::StreamWatches watches[2];
  const std::shared_ptr<InProcessHub> hub = CreateInProcessHub();
  std::vector<std::unique_ptr<Connector>> connectors;
  std::vector<std::string> addresses;
  for (int r = 0; r < 2; ++r) {
    auto backend = *CreateNcclBackend(FakeNcclOptions(r, &watches[r]), CreateInProcessBackend(hub));
    connectors.push_back(*backend->Listen(r, 2));
    addresses.push_back(connectors.back()->Address());
  }
  std::vector<std::unique_ptr<Communicator>> comms(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      comms[r] = *connectors[r]->Connect(addresses, Soon());
      FakeStream first(r), second(r);
      std::vector<Array> data;
      for (int i = 0; i < 40; ++i) data.emplace_back(DType::kF32, 100 + i, [&](int64_t) { return r + i; });
      for (int i = 0; i < 40; ++i) {
        FakeStream& stream = (i * 7 + r) % 3 == 0 ? first : second;
        EXPECT_TRUE(
            comms[r]->AllReduce(stream, {0, 1}, data[i].data(), 100 + i, DType::kF32, ReduceOp::kSum, Soon()).ok());
      }
      for (FakeStream* stream : {&first, &second}) {
        const absl::Status ended = SyncFakeStream(stream->get(), watches[r]);
        EXPECT_TRUE(ended.ok()) << ended;
      }
      for (int i = 0; i < 40; ++i) EXPECT_EQ(data[i].Get(99), 2 * i + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A graph is run as often as it is launched, and a launch whose peer is gone is overdue.
TEST_F(NcclTest, CollectivesInAGraph) {
  cuda::StreamWatches watches[2];
  const std::shared_ptr<InProcessHub> hub = CreateInProcessHub();
  std::vector<std::unique_ptr<Connector>> connectors;
  std::vector<std::string> addresses;
  for (int r = 0; r < 2; ++r) {
    auto backend = *CreateNcclBackend(FakeNcclOptions(r, &watches[r]), CreateInProcessBackend(hub));
    connectors.push_back(*backend->Listen(r, 2));
    addresses.push_back(connectors.back()->Address());
  }
  std::vector<std::thread> threads;
  std::vector<absl::Status> overdue(2);
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      auto comm = *connectors[r]->Connect(addresses, Soon());
      FakeStream stream(r);
      Array data(DType::kBF16, 3, [&](int64_t) { return r + 1; });
      const auto sum = [&] {
        return comm->AllReduce(stream, {0, 1}, data.data(), 3, DType::kBF16, ReduceOp::kSum, Soon());
      };
      ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      EXPECT_TRUE(comm->SendReceive(stream, -1, nullptr, 0, -1, nullptr, 0, DType::kF32, Soon()).ok());
      ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
      cudaGraphDestroy(graph);
      EXPECT_TRUE(sum().ok());  // once before it is captured
      EXPECT_TRUE(SyncFakeStream(stream.get(), watches[r]).ok());
      EXPECT_EQ(data.Get(2), 3);
      ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
      EXPECT_TRUE(sum().ok());
      EXPECT_TRUE(sum().ok());
      ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      EXPECT_EQ(data.Get(2), 3);
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(cudaGraphLaunch(exec, stream.get()), cudaSuccess);
        EXPECT_TRUE(comm->Launched(stream, Soon()).ok());
      }
      EXPECT_TRUE(SyncFakeStream(stream.get(), watches[r]).ok());
      EXPECT_EQ(data.Get(2), 48);  // 3 * 2 * 2 * 2 * 2
      if (r == 0) {
        ASSERT_EQ(cudaGraphLaunch(exec, stream.get()), cudaSuccess);
        EXPECT_TRUE(comm->Launched(stream, absl::Now() + absl::Milliseconds(50)).ok());
        overdue[r] = SyncFakeStream(stream.get(), watches[r]);
        comm->Abort("over");
      } else {
        while (comm->CheckPeers({0}).ok()) std::this_thread::yield();
      }
      comm.reset();
      cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overdue[0].code(), absl::StatusCode::kDeadlineExceeded) << overdue[0];
  EXPECT_THAT(std::string(overdue[0].message()), HasSubstr("a graph of group [0, 1] is overdue"));
}

TEST_F(NcclTest, AnAbortThatNeverReturnsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        NcclOptions options;
        options.kill_after = absl::Milliseconds(100);
        options.end_process = [](const std::string& why) {
          std::fprintf(stderr, "%s\n", why.c_str());
          std::_Exit(7);
        };
        const std::shared_ptr<InProcessHub> hub = CreateInProcessHub();
        auto connector = *CreateSyncedNcclBackend(0, CreateInProcessBackend(hub), options)->Listen(0, 1);
        auto comm = *connector->Connect({connector->Address()}, Soon());
        tp_fake::FailNext("ncclAbortHang", 1, 0);
        comm->Abort("over");
        comm.reset();
      },
      ::testing::ExitedWithCode(7), "ncclCommAbort of 1 communicators on GPU 0 did not return within 100ms");
}

}  // namespace
}  // namespace tp::worker

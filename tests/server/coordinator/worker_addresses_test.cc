#include "server/coordinator/worker_addresses.h"

#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

WorkerDescription At(const std::string& id, const std::string& host, const std::string& peer = "") {
  WorkerDescription worker;
  worker.id = id;
  worker.host = host;
  worker.peer = peer;
  worker.same_host = peer.empty();
  worker.version = "1";
  worker.incarnation = id + "-1";
  worker.collectives = "gloo";
  return worker;
}

TEST(WorkerAddressesTest, ARemoteWorkerMayNotAdvertiseLoopback) {
  for (const char* host : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) {
    const absl::Status status = CheckAdvertised(At("w1", host, "10.0.0.3"));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << host;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("worker 'w1'"), HasSubstr("from 10.0.0.3"),
                      HasSubstr(absl::StrCat("advertises ", host)), HasSubstr("--collective-host")));
  }
  EXPECT_TRUE(CheckAdvertised(At("w1", "10.0.0.3", "10.0.0.3")).ok());
  EXPECT_TRUE(CheckAdvertised(At("w1", "127.0.0.1")).ok());
  EXPECT_TRUE(CheckAdvertised(At("w1", "", "10.0.0.3")).ok());
}

TEST(WorkerAddressesTest, LoopbackAndOtherHostsFormNoMesh) {
  const WorkerDescription local = At("a", "127.0.0.1"), twin = At("b", "127.0.0.1"), remote = At("c", "10.0.0.3"),
                          other = At("d", "10.0.0.4");
  EXPECT_TRUE(CheckOneNetwork({&local, &twin}).ok());
  EXPECT_TRUE(CheckOneNetwork({&remote, &other}).ok());
  EXPECT_TRUE(CheckOneNetwork({&local}).ok());
  const absl::Status status = CheckOneNetwork({&other, &remote, &local});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("workers 'a' at 127.0.0.1 and 'd' at 10.0.0.4 can't reach each other"));
}

TEST(WorkerAddressesTest, AddressesInATextGetTheirWorkers) {
  const std::vector<std::string> workers = {"a", "b", "c"}, hosts = {"10.0.0.1", "10.0.0.12", "10.0.0.3"};
  EXPECT_EQ(NamesOfAddresses("rank 1 at 10.0.0.12:4001 did not reach rank 2 (10.0.0.3:4000)", workers, hosts),
            "rank 1 is worker b, which advertises 10.0.0.12; rank 2 is worker c, which advertises 10.0.0.3");
  EXPECT_EQ(NamesOfAddresses("out of memory", workers, hosts), "");
  EXPECT_EQ(NamesOfAddresses("", {"a"}, {""}), "");
}

TEST(WorkerAddressesTest, TheCoreRefusesAJoinAndAMesh) {
  Driver d;
  const auto refused = d.Of<RefuseJoin>(d.Do(WorkerJoined{At("far", "127.0.0.1", "10.0.0.3")}));
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(d.core.workers().size(), 0u);
  d.Do(WorkerJoined{At("a", "127.0.0.1")});
  d.Do(WorkerJoined{At("c", "10.0.0.3", "10.0.0.3")});
  d.Do(d.Request(1, "m", 2));
  EXPECT_EQ(d.Phase("m"), "absent");  // before anything was stored or staged
  const SubmitReply reply = ReplyTo<SubmitReply>(d, 1);
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(reply.status.message()), HasSubstr("workers 'a' at 127.0.0.1 and 'c' at 10.0.0.3"));
  // Two that reach each other are enough, whatever else is there.
  d.Do(WorkerJoined{At("d", "10.0.0.4", "10.0.0.4")});
  d.Do(d.Request(2, "n", 2));
  d.Stored();
  EXPECT_THAT(d.Waiting<StageListen>(), SizeIs(2));
}

TEST(WorkerAddressesTest, AFailedConnectNamesTheWorkersOfItsAddresses) {
  Driver d;
  d.Do(WorkerJoined{At("a", "10.0.0.3", "10.0.0.3")});
  d.Do(WorkerJoined{At("b", "10.9.9.9", "10.0.0.4")});
  d.incarnations = {{"a", "a-1"}, {"b", "b-1"}};
  d.Do(d.Request(1, "m", 2));
  d.Stored();
  while (d.Waiting<StageConnect>().empty()) {
    const auto [worker, stage] = d.stages.front();
    d.stages.pop_front();
    d.FinishStage(worker, stage);
  }
  for (const auto& [worker, stage] : d.stages) {
    if (worker != "a" || !std::holds_alternative<StageConnect>(stage.kind)) continue;
    d.FinishStage(worker, stage, absl::DeadlineExceededError("rank 0 at 10.0.0.3:1 did not reach rank 1 (10.9.9.9:2)"));
    break;
  }
  EXPECT_THAT(std::string(ReplyTo<SubmitReply>(d, 1).status.message()),
              AllOf(HasSubstr("did not reach"), HasSubstr("rank 0 is worker a, which advertises 10.0.0.3"),
                    HasSubstr("rank 1 is worker b, which advertises 10.9.9.9")));
}

}  // namespace
}  // namespace tp::server

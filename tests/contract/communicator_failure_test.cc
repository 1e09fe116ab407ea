// What every Communicator does when something goes wrong: abort, deadline, a rank that is gone; and how ranks connect.
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "tests/contract/communicator_contract.h"
#include "worker/collective/gloo/gloo_address.h"

extern char** environ;

namespace tp::worker {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class CommunicatorFailureTest : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorFailureTest, ::testing::ValuesIn(Kinds()), KindName);

constexpr int64_t kLarge = 3000000;  // elements of F32: more than sockets hold, so that sends block too

absl::Status AllReduce(Communicator& comm, int64_t count, absl::Time deadline) {
  NoStream stream;
  std::vector<float> data(static_cast<size_t>(count), 1);
  return comm.AllReduce(stream, Upto(comm.size()), data.data(), count, DType::kF32, ReduceOp::kSum, deadline);
}

// A new communicator of the same backend works.
void ExpectAllWellAgain(Kind kind) {
  Ranks ranks(kind, 3);
  ranks.Run([](Communicator& comm) { return AllReduce(comm, 10000, Soon()); });
}

TEST_P(CommunicatorFailureTest, AbortEndsACollectiveAtOnceAndForGood) {
  for (int64_t count : {int64_t{10}, kLarge}) {
    Ranks ranks(GetParam(), 3);  // rank 2 never comes
    std::vector<absl::Time> returned(2);
    std::vector<Outcome> outcomes;
    std::thread calls([&] {
      outcomes = ranks.RunOn({0, 1}, [&](Communicator& comm) {
        absl::Status status = AllReduce(comm, count, Soon());
        returned[comm.rank()] = absl::Now();
        return status;
      });
    });
    for (int r : {0, 1}) {
      const int64_t idle = 1000;  // hellos of connecting are fewer bytes, the payloads of one call fewer or more
      while (ranks[r].wire().bytes_sent < (count > idle ? idle : 1)) std::this_thread::yield();
    }
    const absl::Time aborted = absl::Now();
    for (int r : {0, 1}) ranks[r].Abort("epoch 1 ended");
    ranks[1].Abort("not the first reason");
    calls.join();
    for (int r : {0, 1}) {
      EXPECT_EQ(outcomes[r].code, absl::StatusCode::kAborted);
      EXPECT_THAT(outcomes[r].message, HasSubstr("epoch 1 ended"));
      EXPECT_LT(returned[r] - aborted, kFarFromTheDeadline) << "promised is 100 ms; the rest is for a busy host";
    }
    const std::vector<Outcome> later = ranks.RunOn({0, 1}, [](Communicator& comm) {
      return comm.Barrier({0, 1}, Soon());
    });
    for (int r : {0, 1}) EXPECT_EQ(later[r].code, absl::StatusCode::kAborted);
  }
  ExpectAllWellAgain(GetParam());
}

TEST_P(CommunicatorFailureTest, AbortBeforeACallEndsIt) {
  Ranks ranks(GetParam(), 2);
  ranks[0].Abort("early");
  EXPECT_EQ(ranks[0].Barrier({0, 1}, Soon()).code(), absl::StatusCode::kAborted);
  ExpectAllWellAgain(GetParam());
}

TEST_P(CommunicatorFailureTest, AnAbsentRankIsADeadlineThatNamesIt) {
  for (int64_t count : {int64_t{10}, kLarge}) {
    Ranks ranks(GetParam(), 3);
    const absl::Time deadline = absl::Now() + absl::Milliseconds(300);
    const std::vector<Outcome> outcomes =
        ranks.RunOn({0, 1}, [&](Communicator& comm) { return AllReduce(comm, count, deadline); });
    for (int r : {0, 1}) {
      EXPECT_EQ(outcomes[r].code, absl::StatusCode::kDeadlineExceeded) << outcomes[r].message;
      EXPECT_THAT(outcomes[r].message, HasSubstr("rank 2"));
    }
    const absl::Status later = ranks[0].Barrier({0}, Soon());
    EXPECT_EQ(later.code(), absl::StatusCode::kAborted) << later;
    EXPECT_THAT(std::string(later.message()), HasSubstr("dead after"));
  }
  ExpectAllWellAgain(GetParam());
}

TEST_P(CommunicatorFailureTest, ARankThatIsDestroyedInMidCollectiveIsNamed) {
  for (int64_t count : {int64_t{10}, kLarge}) {
    Ranks ranks(GetParam(), 3);
    std::vector<Outcome> outcomes;
    std::thread calls([&] {
      outcomes = ranks.RunOn({0, 1}, [&](Communicator& comm) { return AllReduce(comm, count, Soon()); });
    });
    while (ranks[0].wire().bytes_sent == 0) std::this_thread::yield();
    ranks.Destroy(2);
    calls.join();
    for (int r : {0, 1}) {
      EXPECT_EQ(outcomes[r].code, absl::StatusCode::kUnavailable) << outcomes[r].message;
      EXPECT_THAT(outcomes[r].message, HasSubstr("rank 2"));
    }
  }
  ExpectAllWellAgain(GetParam());
}

TEST_P(CommunicatorFailureTest, ARankThatLeavesInOrderHarmsNobodyElse) {
  Ranks ranks(GetParam(), 3);
  ranks.Run([](Communicator& comm) { return AllReduce(comm, 10, Soon()); });
  ranks.Destroy(2);
  const std::vector<Outcome> outcomes = ranks.RunOn({0, 1}, [](Communicator& comm) {
    absl::Status status;
    for (int i = 0; i < 20; ++i) status.Update(comm.Barrier({0, 1}, Soon()));
    return status;
  });
  for (int r : {0, 1}) EXPECT_EQ(outcomes[r].code, absl::StatusCode::kOk) << outcomes[r].message;
  const absl::Status gone = ranks[0].Barrier({0, 2}, Soon());
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("rank 2"));
}

TEST_P(CommunicatorFailureTest, ARankThatFailedEndsTheOthersAlso) {
  // Rank 2 is aborted and destroyed; rank 0 waits for rank 1, which does nothing, and still ends.
  Ranks ranks(GetParam(), 3);
  absl::Status status;
  std::thread call([&] { status = ranks[0].Barrier({0, 1}, Soon()); });
  ranks[2].Abort("broken");
  ranks.Destroy(2);
  call.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
}

TEST_P(CommunicatorFailureTest, LengthsThatDifferEndInAnErrorAlsoWithoutHeaders) {
  for (const auto& [count0, count1] : {std::pair<int64_t, int64_t>{10, 20}, {20, 10}}) {
    Ranks ranks(GetParam(), 2);
    const absl::Time deadline = absl::Now() + absl::Milliseconds(300);
    const std::vector<Outcome> outcomes = ranks.RunOn({0, 1}, [&, c0 = count0, c1 = count1](Communicator& comm) {
      return AllReduce(comm, comm.rank() == 0 ? c0 : c1, deadline);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(outcome.code, AnyOf(absl::StatusCode::kInternal, absl::StatusCode::kDeadlineExceeded,
                                      absl::StatusCode::kUnavailable));
    }
  }
  ExpectAllWellAgain(GetParam());
}

TEST_P(CommunicatorFailureTest, ConnectingWithoutAPeerNamesItAndItsAddress) {
  Backends backends(GetParam());
  auto first = *backends.Create()->Listen(0, 2);
  auto second = *backends.Create()->Listen(1, 2);
  const std::vector<std::string> addresses = {first->Address(), second->Address()};
  // Gloo's listening side waits; its connecting side gets through, as the peer listens, and waits for its hello.
  for (Connector* connector : {first.get(), second.get()}) {
    auto communicator = connector->Connect(addresses, absl::Now() + absl::Milliseconds(100));
    EXPECT_EQ(communicator.status().code(), connector == first.get() || GetParam() != Kind::kGloo
                                                ? absl::StatusCode::kDeadlineExceeded
                                                : communicator.status().code());
    EXPECT_FALSE(communicator.ok());
    const std::string text(communicator.status().message());
    const std::string address = connector->Address();
    EXPECT_THAT(text, HasSubstr(address.substr(0, address.find(' '))));  // NCCL's: the host group's
    EXPECT_THAT(text, HasSubstr(connector == first.get() ? "rank 1" : "rank 0"));
  }
  ExpectAllWellAgain(GetParam());
}

TEST_P(CommunicatorFailureTest, ConnectingCanBeAborted) {
  Backends backends(GetParam());
  auto first = *backends.Create()->Listen(0, 2);
  auto second = *backends.Create()->Listen(1, 2);
  std::thread aborter([&] { first->Abort(); });  // before, while or after Connect() has begun to wait
  auto communicator = first->Connect({first->Address(), second->Address()}, Soon());
  aborter.join();
  EXPECT_EQ(communicator.status().code(), absl::StatusCode::kAborted) << communicator.status();
}

TEST_P(CommunicatorFailureTest, ConnectingWithOtherAddressesIsRefused) {
  Backends backends(GetParam());
  auto first = *backends.Create()->Listen(0, 2);
  EXPECT_EQ(first->Connect({first->Address()}, Soon()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(first->Connect({"elsewhere", first->Address()}, Soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backends.Create()->Listen(2, 2).status().code(), absl::StatusCode::kInvalidArgument);
}

class GlooTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Kind> kinds = Kinds();
    if (std::find(kinds.begin(), kinds.end(), Kind::kGloo) == kinds.end())
      GTEST_SKIP() << "Gloo is not built for thread sanitizer";
  }
};

TEST_F(GlooTest, AHostThatCannotBeBoundOrReachedIsRefused) {
  for (const char* host : {"", "192.0.2.1", "0.0.0.0", "no.such.host.invalid"}) {
    EXPECT_EQ(CreateGlooBackend(host).status().code(), absl::StatusCode::kInvalidArgument) << host;
  }
}

// A connection that is reset before Gloo's thread has taken it (a scanner, a peer that gave up) ends itself alone.
TEST_F(GlooTest, ConnectionsThatAreResetAtOnceHarmNobody) {
  auto backend = *CreateGlooBackend("127.0.0.1");
  for (int round = 0; round < 100; ++round) {
    auto connector = *backend->Listen(0, 2);
    sockaddr_storage listener = *ParseGlooAddress(connector->Address(), 1, 0);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const linger reset{1, 0};
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&listener), sizeof(sockaddr_in)), 0);
    close(fd);
  }
  for (int i = 0; i < 3; ++i) ExpectAllWellAgain(Kind::kGloo);
}

TEST_F(GlooTest, AMalformedAddressIsRefused) {
  auto backend = *CreateGlooBackend("127.0.0.1");
  auto first = *backend->Listen(0, 2);
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1:1,2",
                              "localhost:80", ":80", "127.0.0.1:8x"}) {
    const absl::Status status = first->Connect({first->Address(), address}, Soon()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"", address, "\"")));
  }
}

TEST_F(GlooTest, ThreadsEndWithTheCommunicator) {
  auto threads = [] {
    int count = -1;
    char line[256];
    if (FILE* file = std::fopen("/proc/self/status", "r")) {
      while (std::fgets(line, sizeof line, file) != nullptr) std::sscanf(line, "Threads: %d", &count);
      std::fclose(file);
    }
    return count;
  };
  ExpectAllWellAgain(Kind::kGloo);  // whatever a first use starts
  const int before = threads();
  for (int i = 0; i < 3; ++i) ExpectAllWellAgain(Kind::kGloo);
  EXPECT_EQ(threads(), before);
}

// Rank 2 of the test below, in a process of its own: writes its address, reads all three, then takes part until killed.
TEST(GlooChild, DISABLED_TakesPartUntilKilled) {
  auto backend = *CreateGlooBackend("127.0.0.1");
  auto connector = *backend->Listen(2, 3);
  std::fprintf(stderr, "%s\n", connector->Address().c_str());
  std::vector<std::string> addresses(3);
  for (std::string& address : addresses) std::getline(std::cin, address);
  auto communicator = connector->Connect(addresses, Soon());
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  while (AllReduce(**communicator, 100000, Soon()).ok()) {
  }
}

class Child {
 public:
  Child() {
    int in[2], out[2];
    TP_CHECK(pipe(in) == 0 && pipe(out) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    for (int fd : {in[0], in[1], out[0], out[1]}) posix_spawn_file_actions_addclose(&actions, fd);
    std::string self = "/proc/self/exe", filter = "--gtest_filter=GlooChild.*", all = "--gtest_also_run_disabled_tests";
    char* arguments[] = {self.data(), filter.data(), all.data(), nullptr};
    TP_CHECK(posix_spawn(&pid_, self.c_str(), &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
  }
  ~Child() {
    Kill();
    std::fclose(to_);
    std::fclose(from_);
  }
  std::string ReadLine() {
    char line[256] = "";
    TP_CHECK(std::fgets(line, sizeof line, from_) != nullptr);
    return std::string(line, std::string(line).find('\n'));
  }
  void WriteLine(const std::string& line) {
    std::fprintf(to_, "%s\n", line.c_str());
    std::fflush(to_);
  }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

TEST_F(GlooTest, AKilledProcessIsNamedByAllOthers) {
  Child child;
  auto backend = *CreateGlooBackend("127.0.0.1");
  std::vector<std::unique_ptr<Connector>> connectors;
  for (int r : {0, 1}) connectors.push_back(*backend->Listen(r, 3));
  const std::vector<std::string> addresses = {connectors[0]->Address(), connectors[1]->Address(), child.ReadLine()};
  for (const std::string& address : addresses) child.WriteLine(address);

  std::vector<std::unique_ptr<Communicator>> communicators(2);
  std::vector<Outcome> outcomes(2);
  std::vector<absl::Time> returned(2);
  std::atomic<int> rounds = 0;
  std::vector<std::thread> threads;
  for (int r : {0, 1}) {
    threads.emplace_back([&, r] {
      auto communicator = connectors[r]->Connect(addresses, Soon());
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      communicators[r] = *std::move(communicator);
      absl::Status status;
      while ((status = AllReduce(*communicators[r], 100000, Soon())).ok()) ++rounds;
      returned[r] = absl::Now();
      outcomes[r] = OutcomeOf(status);
    });
  }
  while (rounds < 6) std::this_thread::yield();
  child.Kill();
  const absl::Time killed = absl::Now();
  for (std::thread& thread : threads) thread.join();
  for (int r : {0, 1}) {
    EXPECT_EQ(outcomes[r].code, absl::StatusCode::kUnavailable);
    EXPECT_THAT(outcomes[r].message, HasSubstr("rank 2"));
    EXPECT_LT(returned[r] - killed, kFarFromTheDeadline);
  }
  communicators.clear();
  ExpectAllWellAgain(Kind::kGloo);
}

}  // namespace
}  // namespace tp::worker

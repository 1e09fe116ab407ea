// Ranks as processes, as workers are: NCCL's Communicator over the fakes with Gloo as the host group.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tests/contract/communicator_contract.h"

extern char** environ;

namespace tp::worker {
namespace {

constexpr int kRanks = 3;

// What every rank does with its communicator.
absl::Status Work(Communicator& comm) {
  NoStream stream;
  const int me = comm.rank();
  for (const int64_t count : {int64_t{7}, int64_t{100003}}) {
    Array data(DType::kF32, count, [&](int64_t i) { return static_cast<double>((me + 1) * (i % 11)); });
    TP_RETURN_IF_ERROR(comm.AllReduce(stream, Upto(kRanks), data.data(), count, DType::kF32, ReduceOp::kSum, Soon()));
    if (FirstDifference(data, [](int64_t i) { return static_cast<double>(6 * (i % 11)); }) != -1) {
      return absl::DataLossError("all_reduce of F32");
    }
  }
  Array half(DType::kBF16, 50000, [&](int64_t) { return me == 0 ? 256 : 1; });
  TP_RETURN_IF_ERROR(comm.AllReduce(stream, Upto(kRanks), half.data(), 50000, DType::kBF16, ReduceOp::kSum, Soon()));
  if (FirstDifference(half, [](int64_t) { return 258.0; }) != -1) return absl::DataLossError("all_reduce of BF16");
  const std::vector<int64_t> counts = {5, 0, 30000};
  Array mine(DType::kI32, counts[me], [&](int64_t i) { return static_cast<double>(me * 100000 + i); });
  Array all(DType::kI32, 30005);
  TP_RETURN_IF_ERROR(comm.AllGather(stream, Upto(kRanks), mine.data(), all.data(), counts, DType::kI32, Soon()));
  const auto expected = [](int64_t i) { return static_cast<double>(i < 5 ? i : 200000 + i - 5); };
  if (FirstDifference(all, expected) != -1) return absl::DataLossError("all_gather");
  return comm.Barrier(Upto(kRanks), Soon());
}

std::unique_ptr<Connector> Listen(int rank) {
  return *CreateSyncedNcclBackend(rank, *CreateGlooBackend("127.0.0.1"))->Listen(rank, kRanks);
}

// Ranks 1 and 2: the rank and all addresses come in, the own address and "OK" go out.
TEST(NcclChild, DISABLED_IsARank) {
  std::string line;
  std::getline(std::cin, line);
  const int rank = std::stoi(line);
  auto connector = Listen(rank);
  std::fprintf(stderr, "%s\n", connector->Address().c_str());
  std::vector<std::string> addresses(kRanks);
  for (std::string& address : addresses) std::getline(std::cin, address);
  auto communicator = connector->Connect(addresses, Soon());
  absl::Status status = communicator.status();
  if (status.ok()) status = Work(**communicator);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::getline(std::cin, line);  // until the test closes the pipe
}

class Child {
 public:
  explicit Child(int rank) {
    int in[2], out[2];
    TP_CHECK(pipe(in) == 0 && pipe(out) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    for (int fd : {in[0], in[1], out[0], out[1]}) posix_spawn_file_actions_addclose(&actions, fd);
    std::string self = "/proc/self/exe", filter = "--gtest_filter=NcclChild.*", all = "--gtest_also_run_disabled_tests";
    char* arguments[] = {self.data(), filter.data(), all.data(), nullptr};
    TP_CHECK(posix_spawn(&pid_, self.c_str(), &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
    WriteLine(absl::StrCat(rank));
  }
  ~Child() {
    if (to_ != nullptr) std::fclose(to_);
    std::fclose(from_);
    waitpid(pid_, nullptr, 0);
  }
  std::string ReadLine() {
    char line[1024] = "";
    if (std::fgets(line, sizeof line, from_) == nullptr) return "nothing";
    return std::string(line, std::string(line).find('\n'));
  }
  void WriteLine(const std::string& line) {
    std::fprintf(to_, "%s\n", line.c_str());
    std::fflush(to_);
  }

 private:
  pid_t pid_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

TEST(NcclProcesses, CollectivesBetweenProcesses) {
  const std::vector<Kind> kinds = Kinds();
  if (std::find(kinds.begin(), kinds.end(), Kind::kGloo) == kinds.end()) GTEST_SKIP() << "Gloo can't run here";
  auto connector = Listen(0);
  Child one(1), two(2);
  const std::vector<std::string> addresses = {connector->Address(), one.ReadLine(), two.ReadLine()};
  for (const std::string& address : addresses) {
    one.WriteLine(address);
    two.WriteLine(address);
  }
  auto communicator = connector->Connect(addresses, Soon());
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  const absl::Status status = Work(**communicator);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(one.ReadLine(), "OK");
  EXPECT_EQ(two.ReadLine(), "OK");
}

}  // namespace
}  // namespace tp::worker

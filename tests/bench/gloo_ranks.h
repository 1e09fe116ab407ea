// Ranks as processes of this machine on loopback, each with a communicator of ours and a context of Gloo's own in the
// same process, so that both are timed in turn. Example: `return RunRanks({2, 4}, [](BenchRank& rank) { ... });`
#pragma once

#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "worker/collective/gloo/gloo_backend.h"

namespace tp::worker {

class NoStream : public Stream {};

struct BenchRank {
  int rank = 0, size = 0;
  std::vector<int> group;  // all
  std::unique_ptr<Communicator> ours;
  std::shared_ptr<gloo::Context> theirs;
};

inline double MicrosecondsOf(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

inline double MedianOf(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// Median of single calls, in microseconds.
inline double Median(int repeats, const std::function<void()>& call) {
  for (int i = 0; i < repeats / 10 + 3; ++i) call();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) times.push_back(MicrosecondsOf(call));
  return MedianOf(std::move(times));
}

// All ranks' strings, by rank, through gloo's store.
inline std::vector<std::string> Share(gloo::rendezvous::Store& store, int rank, int size, const std::string& mine) {
  store.set("address" + std::to_string(rank), std::vector<char>(mine.begin(), mine.end()));
  std::vector<std::string> all;
  for (int r = 0; r < size; ++r) {
    const std::string key = "address" + std::to_string(r);
    store.wait({key});
    const std::vector<char> value = store.get(key);
    all.emplace_back(value.begin(), value.end());
  }
  return all;
}

inline void RunRank(int rank, int size, const std::string& folder, const std::function<void(BenchRank&)>& body) {
  gloo::rendezvous::FileStore store(folder);
  auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
  auto theirs = std::make_shared<gloo::rendezvous::Context>(rank, size);
  theirs->connectFullMesh(store, device);
  auto backend = CreateGlooBackend("127.0.0.1");
  TP_CHECK(backend.ok());
  auto connector = (*backend)->Listen(rank, size);
  TP_CHECK(connector.ok());
  auto ours = (*connector)->Connect(Share(store, rank, size, (*connector)->Address()), absl::Now() + absl::Seconds(30));
  TP_CHECK(ours.ok());
  BenchRank bench{rank, size, std::vector<int>(static_cast<size_t>(size)), *std::move(ours), theirs};
  std::iota(bench.group.begin(), bench.group.end(), 0);
  body(bench);
  TP_CHECK(bench.ours->Barrier(bench.group, absl::Now() + absl::Seconds(60)).ok());
}

// The exit status of a bench: 0 where all ranks of all sizes ended well.
inline int RunRanks(const std::vector<int>& sizes, const std::function<void(BenchRank&)>& body) {
  int failures = 0;
  for (const int size : sizes) {
    std::string folder = (std::filesystem::temp_directory_path() / "gloo_ranks_XXXXXX").string();
    TP_CHECK(mkdtemp(folder.data()) != nullptr);
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      TP_CHECK(pid >= 0);
      if (pid == 0) {
        try {
          RunRank(rank, size, folder, body);
        } catch (const std::exception& e) {
          std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
          _exit(1);
        }
        _exit(0);
      }
      children.push_back(pid);
    }
    for (pid_t pid : children) {
      int status = 0;
      waitpid(pid, &status, 0);
      if (status != 0) ++failures;
    }
    std::filesystem::remove_all(folder);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace tp::worker

// Time of an all_reduce (F32, sum) by our algorithms over Gloo's transport and by gloo::allreduce, ranks as processes
// of this machine on loopback: `collective_bench`. Both run in the same processes, in turn, so that the ratio is fair.
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>
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
#include <numeric>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "worker/collective/gloo/gloo_backend.h"

namespace tp::worker {
namespace {

using Clock = std::chrono::steady_clock;

class NoStream : public Stream {};

// Median of single calls, in microseconds.
double Median(int repeats, const std::function<void()>& call) {
  for (int i = 0; i < repeats / 10 + 3; ++i) call();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const Clock::time_point start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats) / 2];
}

// All ranks' strings, by rank, through gloo's store.
std::vector<std::string> Share(gloo::rendezvous::Store& store, int rank, int size, const std::string& mine) {
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

void RunRank(int rank, int size, const std::string& folder) {
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

  std::vector<int> group(static_cast<size_t>(size));
  std::iota(group.begin(), group.end(), 0);
  for (const int64_t bytes : {int64_t{64}, int64_t{64} << 10, int64_t{4} << 20}) {
    const int repeats = bytes < 1024 ? 2000 : bytes < (1 << 20) ? 500 : 40;
    std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 0);
    const double a = Median(repeats, [&] {
      NoStream stream;
      TP_CHECK((*ours)
                   ->AllReduce(stream, group, data.data(), static_cast<int64_t>(data.size()), DType::kF32,
                               ReduceOp::kSum, absl::Now() + absl::Seconds(60))
                   .ok());
    });
    const double b = Median(repeats, [&] {
      gloo::AllreduceOptions options(theirs);
      options.setOutput(data.data(), data.size());
      options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
    });
    if (rank == 0) {
      std::printf("%2d ranks %9lld B  ours %9.1f us  gloo::allreduce %9.1f us  ratio %.2f\n", size,
                  static_cast<long long>(bytes), a, b, a / b);
      std::fflush(stdout);
    }
  }
  TP_CHECK((*ours)->Barrier(group, absl::Now() + absl::Seconds(60)).ok());
}

int Main() {
  int failures = 0;
  for (const int size : {2, 4}) {
    std::string folder = (std::filesystem::temp_directory_path() / "collective_bench_XXXXXX").string();
    TP_CHECK(mkdtemp(folder.data()) != nullptr);
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      TP_CHECK(pid >= 0);
      if (pid == 0) {
        try {
          RunRank(rank, size, folder);
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

}  // namespace
}  // namespace tp::worker

int main() { return tp::worker::Main(); }

// Prints the time of a generated token on real worker processes, tensor-parallel over 1 and 2 workers, against the
// limit of the same run: a token reads every parameter once, so it takes at least parameter bytes / memory bandwidth.
// Usage: generate_bench [TOKENS]
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

// Bytes a second that one core reads from memory: the best of several sums over 256 MiB.
double ReadBandwidth() {
  const std::vector<uint64_t> memory(size_t{32} << 20, 1);
  double best = 0;
  uint64_t sum = 0;
  for (int i = 0; i < 5; ++i) {
    const absl::Time begin = absl::Now();
    sum += std::accumulate(memory.begin(), memory.end(), uint64_t{0});
    best = std::max(best, static_cast<double>(memory.size() * 8) / absl::ToDoubleSeconds(absl::Now() - begin));
  }
  return sum == 0 ? 0 : best;
}

void Run(int tokens) {
  const double bandwidth = ReadBandwidth();
  std::printf("memory read by one core: %.1f GB/s\n%-8s %12s %12s %8s\n", bandwidth / 1e9, "workers", "us/token",
              "limit us", "ratio");
  const Cluster cluster(2);
  for (int tp : {1, 2}) {
    const std::string model = cluster.SubmitDemo(tp);
    const auto client = cluster.Connect();
    const auto description = client->GetModel(model, false);
    if (!description.ok() || description->workers.empty()) return;
    const client::GenerateOptions request{
        .model = model, .prompt = "And God said", .max_new_tokens = tokens, .ignore_eos = true};
    double best = 1e9;
    for (int i = 0; i < 4; ++i) {  // the first one warms up
      absl::Time first, last;
      int count = 0;
      const absl::Status status = client->Generate(request, [&](const client::GenerateChunk& chunk) {
        last = absl::Now();
        if (count == 0) first = last;
        count += static_cast<int>(chunk.token_ids.size());
        return true;
      });
      if (!status.ok()) {
        std::printf("%s\n", status.ToString().c_str());
        return;
      }
      if (i > 0 && count > 1) best = std::min(best, absl::ToDoubleMicroseconds(last - first) / (count - 1));
    }
    const double limit = static_cast<double>(description->workers[0].parameter_bytes) / bandwidth * 1e6;
    std::printf("%-8d %12.0f %12.0f %8.1f\n", tp, best, limit, best / limit);
  }
}

}  // namespace
}  // namespace tp::testing

int main(int argc, char** argv) {
  tp::testing::Run(argc > 1 ? std::max(2, std::atoi(argv[1])) : 256);
  return 0;
}

// Time of an all_reduce (F32, sum) by our algorithms over Gloo's transport and by gloo::allreduce, ranks as processes
// of this machine on loopback: `collective_bench`. Both run in the same processes, in turn, so that the ratio is fair.
#include <gloo/allreduce.h>
#include <gloo/math.h>

#include "tests/bench/gloo_ranks.h"

namespace tp::worker {
namespace {

void Compare(BenchRank& bench) {
  for (const int64_t bytes : {int64_t{64}, int64_t{64} << 10, int64_t{4} << 20}) {
    const int repeats = bytes < 1024 ? 2000 : bytes < (1 << 20) ? 500 : 40;
    std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 0);
    const double a = Median(repeats, [&] {
      NoStream stream;
      TP_CHECK(bench.ours
                   ->AllReduce(stream, bench.group, data.data(), static_cast<int64_t>(data.size()), DType::kF32,
                               ReduceOp::kSum, absl::Now() + absl::Seconds(60))
                   .ok());
    });
    const double b = Median(repeats, [&] {
      gloo::AllreduceOptions options(bench.theirs);
      options.setOutput(data.data(), data.size());
      options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
    });
    if (bench.rank == 0) {
      std::printf("%2d ranks %9lld B  ours %9.1f us  gloo::allreduce %9.1f us  ratio %.2f\n", bench.size,
                  static_cast<long long>(bytes), a, b, a / b);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace tp::worker

int main() { return tp::worker::RunRanks({2, 4}, tp::worker::Compare); }

// Time of redistribute steps through the executor over Gloo's transport, and of Gloo's own collectives on the same
// bytes in the same processes, call by call in turn: `redistribute_bench`. Sizes are those of the global tensor (F32).
// - all_gather: S(0) -> R against gloo::allgather; all_reduce: P(sum) -> R against gloo::allreduce, both with the copy
//   of the source that an out-of-place step makes.
// - reduce_scatter: P(sum) -> S(0) against half of gloo::allreduce: the reduction's half of what it moves.
// - all_to_all: S(0) -> S(1) against gloo::alltoall with one copy in and one out.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/math.h>

#include <cstring>

#include "tests/bench/gloo_ranks.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/tensor/redistribute_executor.h"

namespace tp::worker {
namespace {

using Floats = std::vector<float>;

// Medians of both, in microseconds.
struct Times {
  double ours = 0, bare = 0;
};
Times InTurn(int repeats, const std::function<void()>& ours, const std::function<void()>& bare) {
  std::vector<double> a, b;
  for (int i = 0; i < repeats + 3; ++i) {
    const double first = MicrosecondsOf(ours), second = MicrosecondsOf(bare);
    if (i < 3) continue;
    a.push_back(first);
    b.push_back(second);
  }
  return {MedianOf(std::move(a)), MedianOf(std::move(b))};
}

// gloo::allreduce is in place: the source is copied first, as the step does.
void BareAllReduce(const BenchRank& bench, const Floats& source, Floats& result) {
  std::memcpy(result.data(), source.data(), source.size() * sizeof(float));
  gloo::AllreduceOptions options(bench.theirs);
  options.setOutput(result.data(), result.size());
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

void BareAllGather(const BenchRank& bench, Floats& source, Floats& result) {
  gloo::AllgatherOptions options(bench.theirs);
  options.setInput(source.data(), source.size());
  options.setOutput(result.data(), result.size());
  gloo::allgather(options);
}

void BareAllToAll(const BenchRank& bench, const Floats& source, Floats& in, Floats& out, Floats& result) {
  std::memcpy(in.data(), source.data(), source.size() * sizeof(float));
  gloo::AlltoallOptions options(bench.theirs);
  options.setInput(in.data(), in.size());
  options.setOutput(out.data(), out.size());
  gloo::alltoall(options);
  std::memcpy(result.data(), out.data(), out.size() * sizeof(float));
}

void Compare(BenchRank& bench) {
  const Mesh mesh = *Mesh::Create({{"tp", bench.size}});
  const Coordinate coordinate = mesh.CoordinateOf(bench.rank);
  auto device = CreateCpuDevice({.threads = 1});
  TP_CHECK(device.ok());
  const auto stream = (*device)->CreateStream();
  const Placement whole = Placement::Replicate(), rows = Placement::Shard(0), columns = Placement::Shard(1),
                  terms = Placement::Partial();
  const RedistributeStep steps[] = {{RedistributeOp::kAllGather, {0}, {rows}, {whole}},
                                    {RedistributeOp::kAllReduce, {0}, {terms}, {whole}},
                                    {RedistributeOp::kReduceScatter, {0}, {terms}, {rows}},
                                    {RedistributeOp::kAllToAll, {0}, {rows}, {columns}}};
  for (const int64_t bytes : {int64_t{64} << 10, int64_t{4} << 20, int64_t{64} << 20}) {
    const Shape global{bytes / 4 / 128, 128};
    const int repeats = bytes < (1 << 20) ? 200 : bytes < (16 << 20) ? 30 : 7;
    for (const RedistributeStep& step : steps) {
      const Shape from = LocalShape(global, step.from, mesh, coordinate);
      const Shape to = LocalShape(global, step.to, mesh, coordinate);
      Floats source(static_cast<size_t>(ElementCount(from)), 1), result(static_cast<size_t>(ElementCount(to)));
      Floats in(source.size()), out(std::max(source.size(), result.size()));
      std::vector<char> scratch(static_cast<size_t>(StepScratchBytes(mesh, DType::kF32, global, step, coordinate)));
      const RedistributeContext context{**device, *stream, *bench.ours, mesh, coordinate, absl::InfiniteFuture()};
      const auto ours = [&] {
        TP_CHECK(ExecuteRedistributeStep(context, step, global, {DType::kF32, source.data(), from},
                                         {DType::kF32, result.data(), to},
                                         {scratch.data(), static_cast<int64_t>(scratch.size())})
                     .ok());
      };
      const auto bare = [&] {
        if (step.op == RedistributeOp::kAllGather) return BareAllGather(bench, source, result);
        if (step.op == RedistributeOp::kAllToAll) return BareAllToAll(bench, source, in, out, result);
        return BareAllReduce(bench, source, out);
      };
      Times times = InTurn(repeats, ours, bare);
      if (step.op == RedistributeOp::kReduceScatter) times.bare /= 2;
      if (bench.rank == 0) {
        std::printf("%2d ranks %9lld B  %-15s step %10.1f us  bare gloo %10.1f us  ratio %.2f\n", bench.size,
                    static_cast<long long>(bytes), std::string(RedistributeOpName(step.op)).c_str(), times.ours,
                    times.bare, times.ours / times.bare);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace tp::worker

int main() { return tp::worker::RunRanks({2, 4}, tp::worker::Compare); }

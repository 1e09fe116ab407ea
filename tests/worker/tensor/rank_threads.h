// Ranks as threads over the in-process backend, and a redistribute plan run on one of them. Example:
//   OnEveryRank(2, [&](int rank, Communicator& communicator, Device& device, Stream& stream) { ... });
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/tensor/host_tensor.h"
#include "gtest/gtest.h"
#include "worker/collective/in_process/in_process_backend.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/tensor/redistribute_executor.h"

namespace tp::worker {

// A dense row-major tensor of any dtype, held as float64.
struct SimTensor {
  Shape shape;
  std::vector<double> values;
};

// What the rank at `coordinate` holds of a global tensor, element by element; under P coordinate 0 holds the value and
// the others zeros.
inline SimTensor LocalBlock(const SimTensor& global, const Placements& placements, const Mesh& mesh,
                            absl::Span<const int> coordinate) {
  bool value = true;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    value = value && (!placements[axis].IsPartial() || coordinate[axis] == 0);
  }
  SimTensor block{LocalShape(global.shape, placements, mesh, coordinate), {}};
  for (size_t i = 0; i < global.values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    bool held = true;
    for (size_t d = global.shape.size(); d-- > 0; rest /= global.shape[d]) {
      const int64_t index = rest % global.shape[d];
      bool owned = false;
      for (const Interval& interval :
           OwnedIntervals(global.shape[d], static_cast<int>(d), placements, mesh, coordinate)) {
        owned = owned || (interval.begin <= index && index < interval.end);
      }
      held = held && owned;
    }
    if (held) block.values.push_back(value ? global.values[i] : 0);
  }
  return block;
}

// One thread a rank over a fresh in-process communicator.
inline void OnEveryRank(int ranks, const std::function<void(int rank, Communicator&, Device&, Stream&)>& body) {
  const std::shared_ptr<InProcessHub> hub = CreateInProcessHub();
  std::vector<std::unique_ptr<CollectiveBackend>> backends;
  std::vector<std::unique_ptr<Connector>> connectors;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    backends.push_back(CreateInProcessBackend(hub));
    connectors.push_back(*backends.back()->Listen(rank, ranks));
    addresses.push_back(connectors.back()->Address());
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto communicator = connectors[rank]->Connect(addresses, absl::Now() + absl::Seconds(60));
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      auto device = CreateCpuDevice({.threads = 1});
      ASSERT_TRUE(device.ok());
      const auto stream = (*device)->CreateStream();
      body(rank, **communicator, **device, *stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline HostTensor FromSim(const SimTensor& sim, DType dtype) {
  return ConvertTo(MakeHostTensor<double>(sim.shape, sim.values), dtype);
}

inline SimTensor Counting(const Shape& shape) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) tensor.values.push_back(static_cast<double>(i + 1));
  return tensor;
}

// Runs the steps from `local` and returns the last block. Scratch is exactly what the planner says.
inline absl::StatusOr<HostTensor> RunPlan(const Mesh& mesh, int rank, const Shape& global, const RedistributePlan& plan,
                                          HostTensor local, Communicator& communicator, Device& device, Stream& stream,
                                          int64_t round_bytes = kRoundBytes) {
  const Coordinate coordinate = mesh.CoordinateOf(rank);
  for (const RedistributeStep& step : plan.steps) {
    HostTensor next{local.dtype, LocalShape(global, step.to, mesh, coordinate), {}};
    next.bytes.assign(static_cast<size_t>(ElementCount(next.shape) * ItemSize(next.dtype)), '\x5a');
    const int64_t scratch_bytes = StepScratchBytes(mesh, local.dtype, global, step, coordinate, round_bytes);
    std::vector<char> scratch(static_cast<size_t>(scratch_bytes));
    const RedistributeContext context{
        device, stream, communicator, mesh, coordinate, absl::Now() + absl::Seconds(60), round_bytes};
    const absl::StatusOr<int64_t> bytes =
        ExecuteRedistributeStep(context, step, global, {local.dtype, local.bytes.data(), local.shape},
                                {next.dtype, next.bytes.data(), next.shape}, {scratch.data(), scratch_bytes});
    if (!bytes.ok()) return bytes.status();
    EXPECT_EQ(*bytes, StepBytes(mesh, local.dtype, global, step));
    local = std::move(next);
  }
  return local;
}

}  // namespace tp::worker

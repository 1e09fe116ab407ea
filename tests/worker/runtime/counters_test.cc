// What a runtime says of itself: memory by kind, collectives, epochs that ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"
#include "worker/collective/counting_communicator.h"
#include "worker/device/cpu/cpu_device.h"

namespace tp::testing {
namespace {

using worker::CollectiveKind;
using worker::CollectiveTally;

int64_t Calls(const CollectiveTally& tally, CollectiveKind kind) { return tally.calls[static_cast<size_t>(kind)]; }
int64_t Bytes(const CollectiveTally& tally, CollectiveKind kind) { return tally.bytes[static_cast<size_t>(kind)]; }

TEST(RuntimeCounters, CollectivesOfForwardsAndDecodesOnBothRanks) {
  worker::CollectiveCounters counters;
  RuntimeCluster cluster(2, nullptr, {.counters = &counters});
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(6, 10, 2)), absl::OkStatus());
  const CollectiveTally before = counters.Read();
  const std::vector<float> x(18, 1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cluster.Forward("mlp", {{"x", MakeHostTensor<float>({3, 6}, x)}}).status, absl::OkStatus());
  }
  const CollectiveTally tally = counters.Read().Since(before);
  // One all_reduce of F32[3, 6] a forward, and a header before and after; on each of two ranks.
  EXPECT_EQ(Calls(tally, CollectiveKind::kAllReduce), 6);
  EXPECT_EQ(Bytes(tally, CollectiveKind::kAllReduce), 6 * 18 * 4);
  EXPECT_EQ(Calls(tally, CollectiveKind::kHeaders), 12);
  EXPECT_EQ(Bytes(tally, CollectiveKind::kHeaders), 12 * 2 * 32);
  EXPECT_GT(tally.times[static_cast<size_t>(CollectiveKind::kAllReduce)], absl::ZeroDuration());
  EXPECT_EQ(Calls(tally, CollectiveKind::kAllGather), 0);
}

TEST(RuntimeCounters, MemoryByKindAddsUp) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  worker::RuntimeUsage usage = cluster.runtime(0).Usage();
  EXPECT_EQ(usage.meshes, 1);
  EXPECT_EQ(usage.models, 0);
  EXPECT_EQ(usage.used_bytes, 0);
  Submission submission = DecoderSubmission({.layers = 2, .vocabulary = 41}, 2);
  CompiledModel compiled;
  ASSERT_EQ(cluster.Load(submission, 12, &compiled), absl::OkStatus());
  usage = cluster.runtime(0).Usage();
  int64_t parameters = 0;  // of rank 0, at least: packed ones are padded
  for (const PlacedState& state : compiled.states) {
    parameters += ElementCount(LocalShape(state.state.shape, state.placements, compiled.mesh, {0})) * 4;
  }
  EXPECT_GE(usage.weight_bytes, parameters);
  EXPECT_LT(usage.weight_bytes, 4 * parameters);
  int64_t cache = 0;
  for (const CacheSpec& spec : compiled.step_program->caches) {
    cache += 2 * 12 * kPageSize * (spec.kv_heads / 2) * spec.head_dim * 4;
  }
  EXPECT_EQ(usage.cache_bytes, cache);
  EXPECT_EQ(usage.arena_bytes, 0);
  EXPECT_EQ(usage.tensor_bytes, 0);
  EXPECT_EQ(usage.models, 1);
  ASSERT_EQ(cluster.Forward("decoder", {{"ids", MakeHostTensor<int64_t>({1, 2}, {3, 4})}}).status, absl::OkStatus());
  usage = cluster.runtime(0).Usage();
  EXPECT_GT(usage.arena_bytes, 0);
  EXPECT_EQ(usage.weight_bytes + usage.cache_bytes + usage.arena_bytes + usage.tensor_bytes, usage.used_bytes);
  EXPECT_GT(usage.wire.bytes_received, 0);
  cluster.Send([](int) { return Release{"decoder"}; });
  ASSERT_EQ(cluster.Collect().status, absl::OkStatus());
  usage = cluster.runtime(0).Usage();
  EXPECT_EQ(usage.models, 0);
  EXPECT_EQ(usage.weight_bytes + usage.cache_bytes + usage.tensor_bytes, 0);
}

TEST(RuntimeCounters, AnEpochEndsOnce) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  const int64_t moved = cluster.runtime(1).Usage().wire.bytes_sent;
  EXPECT_EQ(cluster.runtime(1).Usage().epochs_ended, 0);
  cluster.runtime(1).AbortEpoch(7, cluster.epoch(), "why");
  cluster.runtime(1).AbortEpoch(7, cluster.epoch(), "again");
  EXPECT_EQ(cluster.runtime(1).Usage().epochs_ended, 1);
  cluster.runtime(1).Reset(2);
  EXPECT_EQ(cluster.runtime(1).Usage().epochs_ended, 1);
  EXPECT_GE(cluster.runtime(1).Usage().wire.bytes_sent, moved);  // of communicators that are gone
}

// The sink of one runtime.
class KindsSink : public RecordingSink {
 public:
  void OnCommandDone(size_t kind, absl::StatusCode code, absl::Duration took) override {
    EXPECT_GE(took, absl::ZeroDuration());
    done.emplace_back(kind, code);
  }
  std::vector<std::pair<size_t, absl::StatusCode>> done;
};

TEST(RuntimeCounters, CommandsAreToldWithKindAndCodeBeforeTheirAck) {
  auto hub = worker::CreateInProcessHub();
  RealClock clock;
  KindsSink sink;
  worker::WorkerRuntime runtime(*worker::CreateCpuDevice({}), worker::CreateInProcessBackend(hub), {}, &clock, &sink);
  runtime.Reset(1);
  Command command;
  command.term = 1;
  command.sequence = command.order = 1;
  command.kind = DropTensors{{7}};
  runtime.Enqueue(command);
  EXPECT_EQ(sink.NextAck().status, absl::OkStatus());
  command.sequence = command.order = 2;
  command.mesh_id = 9;
  command.kind = tp::Run{"m", {}};
  runtime.Enqueue(command);
  EXPECT_EQ(sink.NextAck().status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(sink.done, ::testing::ElementsAre(std::pair(size_t{8}, absl::StatusCode::kOk),
                                                std::pair(size_t{1}, absl::StatusCode::kFailedPrecondition)));
}

}  // namespace
}  // namespace tp::testing

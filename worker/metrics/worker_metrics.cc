#include "worker/metrics/worker_metrics.h"

#include <array>
#include <type_traits>
#include <variant>

#include "common/metrics/process_metrics.h"

namespace tp::worker {
namespace {

using Type = MetricType;

// By index of Command::kind.
std::vector<std::string> CommandNames() {
  static_assert(std::is_same_v<decltype(Command::kind), std::variant<Commit, Run, Decode, Release, CloseMesh, Broadcast,
                                                                     Transform, Transfer, DropTensors, ShareStates>>);
  return {"commit",    "run",       "decode",   "release",      "close_mesh",
          "broadcast", "transform", "transfer", "drop_tensors", "share_states"};
}

}  // namespace

MetricTable WorkerTable(const std::string& version) {
  const MetricLabel op{"op", CollectiveKindNames()};
  MetricTable table{
      {"tp_worker_member", Type::kGauge, "1 while the worker is a member of a cluster."},
      {"tp_worker_draining", Type::kGauge, "1 while the worker leaves and takes no new work."},
      {"tp_worker_joins_total", Type::kCounter, "Times that it became a member."},
      {"tp_worker_commands_total",
       Type::kCounter,
       "Commands of the coordinator that ended, by kind and status code.",
       {{"kind", CommandNames()}, {"code", StatusCodeNames()}},
       {},
       true},
      {"tp_worker_command_seconds",
       Type::kHistogram,
       "Time that a command ran, in seconds.",
       {{"kind", CommandNames()}},
       SecondsBuckets(),
       true},
      {"tp_worker_queue_length", Type::kGauge, "Commands that wait for the device."},
      {"tp_worker_stages_total",
       Type::kCounter,
       "Work beside the commands that ended (connecting, loading, receiving, saving), by status code.",
       {{"code", StatusCodeNames()}},
       {},
       true},
      {"tp_worker_read_bytes_total", Type::kCounter, "Bytes of weights and tensors read from files."},
      {"tp_worker_collectives_total", Type::kCounter, "Calls to exchange tensors, agree and wait among ranks.", {op}},
      {"tp_worker_collective_bytes_total", Type::kCounter, "Payload of this rank's side of them, in bytes.", {op}},
      {"tp_worker_collective_seconds_total",
       Type::kCounter,
       "Time in them, in seconds, waits for peers included; on GPUs it is only that of starting them.",
       {op}},
      {"tp_worker_wire_bytes_total",
       Type::kCounter,
       "Bytes that the connections to other workers moved.",
       {{"direction", {"sent", "received"}}}},
      {"tp_worker_epochs_ended_total", Type::kCounter, "Epochs of meshes that a failure or an abort ended here."},
      {"tp_worker_models", Type::kGauge, "Models of which it holds a rank."},
      {"tp_worker_meshes", Type::kGauge, "Meshes that it is connected in."},
      {"tp_worker_memory_bytes",
       Type::kGauge,
       "Memory of the device in use, in bytes: of models, their caches, the steps' values, named tensors.",
       {{"kind", {"weights", "cache", "arena", "tensors"}}}},
      {"tp_worker_memory_limit_bytes", Type::kGauge, "Memory that it may use, in bytes; 0 = no limit."}};
  for (MetricDeclaration& declaration : ProcessTable(version)) table.push_back(std::move(declaration));
  return table;
}

WorkerMetrics::WorkerMetrics(const std::string& version, int64_t memory_limit_bytes)
    : metrics_(WorkerTable(version)),
      commands_(metrics_.counters("tp_worker_commands_total")),
      seconds_(metrics_.histograms("tp_worker_command_seconds")),
      stages_(metrics_.counters("tp_worker_stages_total")),
      read_bytes_(metrics_.counters("tp_worker_read_bytes_total").At()),
      joins_(metrics_.counters("tp_worker_joins_total").At()) {
  metrics_.SetGauge("tp_worker_memory_limit_bytes", static_cast<double>(memory_limit_bytes));
  WatchProcess(&metrics_);
}

void WorkerMetrics::CommandDone(size_t kind, absl::StatusCode code, absl::Duration took) {
  commands_.At({static_cast<int>(kind), static_cast<int>(code)}).Increment();
  seconds_.At({static_cast<int>(kind)}).Observe(absl::ToDoubleSeconds(took));
}

void WorkerMetrics::StageDone(const StageResult& result) {
  stages_.At({static_cast<int>(result.status.code())}).Increment();
  read_bytes_.Increment(static_cast<double>(result.bytes_read));
}

void WorkerMetrics::Show(const RuntimeUsage& usage, const CollectiveTally& collectives) {
  const auto raise = [this](const std::string& name, size_t value, double total) {
    Metrics::Raise(metrics_.counters(name).At({static_cast<int>(value)}), total);
  };
  for (size_t i = 0; i < kCollectiveKinds; ++i) {
    raise("tp_worker_collectives_total", i, static_cast<double>(collectives.calls[i]));
    raise("tp_worker_collective_bytes_total", i, static_cast<double>(collectives.bytes[i]));
    raise("tp_worker_collective_seconds_total", i, absl::ToDoubleSeconds(collectives.times[i]));
  }
  raise("tp_worker_wire_bytes_total", 0, static_cast<double>(usage.wire.bytes_sent));
  raise("tp_worker_wire_bytes_total", 1, static_cast<double>(usage.wire.bytes_received));
  metrics_.SetCounter("tp_worker_epochs_ended_total", static_cast<double>(usage.epochs_ended));
  metrics_.SetGauge("tp_worker_queue_length", static_cast<double>(usage.queued));
  metrics_.SetGauge("tp_worker_models", static_cast<double>(usage.models));
  metrics_.SetGauge("tp_worker_meshes", static_cast<double>(usage.meshes));
  const std::array memory{usage.weight_bytes, usage.cache_bytes, usage.arena_bytes, usage.tensor_bytes};
  for (size_t i = 0; i < memory.size(); ++i) {
    metrics_.gauges("tp_worker_memory_bytes").At({static_cast<int>(i)}).Set(static_cast<double>(memory[i]));
  }
}

void WorkerMetrics::ShowMembership(bool member, bool draining) {
  metrics_.SetGauge("tp_worker_member", member ? 1 : 0);
  metrics_.SetGauge("tp_worker_draining", draining ? 1 : 0);
}

}  // namespace tp::worker

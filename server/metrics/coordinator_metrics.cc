#include "server/metrics/coordinator_metrics.h"

#include "absl/strings/ascii.h"
#include "common/metrics/process_metrics.h"
#include "server/coordinator/state.h"

namespace tp::server {
namespace {

using Type = MetricType;

std::vector<std::string> ModelStates() {
  std::vector<std::string> states;
  for (size_t i = 0; i < CoreNumbers().models.size(); ++i) {
    states.push_back(absl::AsciiStrToLower(std::string(ModelPhaseName(static_cast<ModelPhase>(i)))));
  }
  return states;
}

}  // namespace

MetricTable CoordinatorTable(const std::vector<std::string>& rpcs, const std::string& version) {
  MetricTable table{
      {"tp_requests_total",
       Type::kCounter,
       "Requests of clients that ended, by gRPC method and status code.",
       {{"rpc", rpcs}, {"code", StatusCodeNames()}},
       {},
       true},
      {"tp_request_seconds",
       Type::kHistogram,
       "Time from a request's arrival to its status, in seconds, streams included.",
       {{"rpc", rpcs}},
       SecondsBuckets(),
       true},
      {"tp_requests_running", Type::kGauge, "Requests of clients that are being served.", {{"rpc", rpcs}}, {}, true},
      {"tp_queue_length", Type::kGauge, "Forwards and generations that wait or run."},
      {"tp_queue_limit", Type::kGauge, "Most of them; more are refused with RESOURCE_EXHAUSTED."},
      {"tp_forwards", Type::kGauge, "Forwards under way.", {{"state", {"waiting", "running"}}}},
      {"tp_sequences", Type::kGauge, "Sequences of generations under way.", {{"state", {"waiting", "decoding"}}}},
      {"tp_tokens_total",
       Type::kCounter,
       "Tokens of generations: of prompts that were accepted, and new ones sent to clients.",
       {{"kind", {"prompt", "generated"}}}},
      {"tp_decode_steps_total", Type::kCounter,
       "Steps of generation; one step makes a token of each of its sequences."},
      {"tp_models", Type::kGauge, "Models.", {{"state", ModelStates()}}},
      {"tp_workers",
       Type::kGauge,
       "Workers that have joined since the start.",
       {{"state", {"healthy", "draining", "lost"}}}},
      {"tp_workers_joined_total", Type::kCounter, "Joins of workers."},
      {"tp_workers_lost_total", Type::kCounter, "Workers that left, were silent or hung."},
      {"tp_meshes", Type::kGauge, "Named meshes.", {{"state", {"connecting", "ready", "broken"}}}},
      {"tp_tensors", Type::kGauge, "Named tensors.", {{"state", {"creating", "ready", "lost"}}}},
      {"tp_mesh_epochs_total", Type::kCounter, "Epochs that were begun, of meshes of models, named meshes and links."},
      {"tp_mesh_epochs_broken_total", Type::kCounter, "Epochs that ended by a failure; their requests failed."},
      {"tp_cluster_memory_bytes",
       Type::kGauge,
       "Memory of all healthy workers, in bytes: their limits, what the coordinator has reserved, what they use.",
       {{"kind", {"limit", "reserved", "used"}}}},
      {"tp_bytes_relayed_total",
       Type::kCounter,
       "Bytes of tensors, inputs and outputs that passed through on data streams.",
       {{"direction", {"to_workers", "from_workers"}}}},
      {"tp_draining", Type::kGauge, "1 while the coordinator stops and takes no new requests."},
      {"tp_core_delay_seconds", Type::kGauge,
       "How long the core's thread took to answer this scrape; at 1 it did not, and its numbers are older."}};
  for (MetricDeclaration& declaration : ProcessTable(version)) table.push_back(std::move(declaration));
  return table;
}

CoordinatorMetrics::CoordinatorMetrics(const std::vector<std::string>& rpcs, const std::string& version)
    : metrics_(CoordinatorTable(rpcs, version)),
      requests_(metrics_.counters("tp_requests_total")),
      seconds_(metrics_.histograms("tp_request_seconds")),
      running_(metrics_.gauges("tp_requests_running")),
      to_workers_(metrics_.counters("tp_bytes_relayed_total").At({0})),
      from_workers_(metrics_.counters("tp_bytes_relayed_total").At({1})) {
  WatchProcess(&metrics_);
}

void CoordinatorMetrics::RequestEnded(int rpc, absl::StatusCode code, absl::Duration took) {
  running_.At({rpc}).Decrement();
  requests_.At({rpc, static_cast<int>(code)}).Increment();
  seconds_.At({rpc}).Observe(absl::ToDoubleSeconds(took));
}

void CoordinatorMetrics::Show(const CoreNumbers& numbers) {
  const auto set = [this](const std::string& name, int value, auto number) {
    metrics_.gauges(name).At({value}).Set(static_cast<double>(number));
  };
  const auto all = [&](const std::string& name, const auto& by_state) {
    for (size_t i = 0; i < by_state.size(); ++i) set(name, static_cast<int>(i), by_state[i]);
  };
  const CoreCounts& counts = numbers.counts;
  metrics_.SetGauge("tp_queue_length", numbers.forwards_waiting + numbers.forwards_running + numbers.sequences_waiting +
                                           numbers.sequences_decoding);
  metrics_.SetGauge("tp_queue_limit", numbers.queue_limit);
  all("tp_forwards", std::array{numbers.forwards_waiting, numbers.forwards_running});
  all("tp_sequences", std::array{numbers.sequences_waiting, numbers.sequences_decoding});
  Metrics::Raise(metrics_.counters("tp_tokens_total").At({0}), static_cast<double>(counts.prompt_tokens));
  Metrics::Raise(metrics_.counters("tp_tokens_total").At({1}), static_cast<double>(counts.generated_tokens));
  metrics_.SetCounter("tp_decode_steps_total", static_cast<double>(counts.decode_steps));
  all("tp_models", numbers.models);
  all("tp_workers", std::array{numbers.workers_healthy, numbers.workers_draining, numbers.workers_lost});
  metrics_.SetCounter("tp_workers_joined_total", static_cast<double>(counts.workers_joined));
  metrics_.SetCounter("tp_workers_lost_total", static_cast<double>(counts.workers_lost));
  all("tp_meshes", numbers.meshes);
  all("tp_tensors", numbers.tensors);
  metrics_.SetCounter("tp_mesh_epochs_total", static_cast<double>(counts.epochs));
  metrics_.SetCounter("tp_mesh_epochs_broken_total", static_cast<double>(counts.epochs_broken));
  all("tp_cluster_memory_bytes", std::array{numbers.memory_limit, numbers.memory_reserved, numbers.memory_used});
}

}  // namespace tp::server

#include "worker/runtime/step_graphs.h"

#include <algorithm>
#include <utility>

namespace tp::worker {
namespace {

constexpr size_t kKept = 32;

// Positions that a recorded step has room for: the least power of two >= 64 and what is needed now.
int64_t RoomFor(absl::Span<const SequenceSpan> sequences) {
  int64_t room = 64;
  for (const SequenceSpan& span : sequences) {
    while (room < span.past + span.count) room *= 2;
  }
  return room;
}

bool CanRecord(const StepContext& context) {
  return context.paged && context.graphs && context.device.HasGraphs() && context.communicator.Records() &&
         std::all_of(context.sequences.begin(), context.sequences.end(),
                     [](const SequenceSpan& span) { return span.count == 1; });
}

}  // namespace

void StepGraphs::Record(const ProgramExecutor& executor, const StepContext& context, const BoundProgram& bound,
                        Entry* entry) {
  entry->refused = true;
  if (!context.device.BeginGraph(context.stream, context.sequences, entry->key.longest).ok()) return;
  CollectiveCounters recorded;
  const std::unique_ptr<Communicator> counting = CreateCountingCommunicator(context.communicator, &recorded);
  entry->outcome = executor.Enqueue({context.device, context.stream, *counting, context.arena, context.pace,
                                     context.paged, context.sequences, context.collectives},
                                    bound);
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = context.device.EndGraph(context.stream);
  if (!graph.ok() || !entry->outcome.status().ok()) return;
  entry->calls = recorded.Read();
  entry->graph = *std::move(graph);
  entry->refused = false;
}

StepOutcome StepGraphs::Execute(const ProgramExecutor& executor, const StepContext& context, const BoundProgram& bound,
                                uint64_t epoch) {
  if (!CanRecord(context)) return executor.Execute(context, bound);
  Key key{bound.bindings, context.sequences.size(), RoomFor(context.sequences), context.arena.data(), epoch};
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&key](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) {  // the first of its kind makes what the recorded ones need
    entries_.push_front({.key = std::move(key)});
    if (entries_.size() > kKept) entries_.pop_back();
    return executor.Execute(context, bound);
  }
  entries_.splice(entries_.begin(), entries_, found);
  Entry& entry = entries_.front();
  const bool counted = entry.graph == nullptr;  // by the recording
  if (entry.graph == nullptr && !entry.refused) Record(executor, context, bound, &entry);
  if (entry.graph == nullptr) return executor.Execute(context, bound);
  StepOutcome outcome = entry.outcome;
  outcome.local = context.device.RunGraph(context.stream, *entry.graph, context.sequences);
  if (outcome.local.ok()) outcome.local = context.communicator.Launched(context.stream, context.pace.Deadline());
  context.pace.Advance();
  if (outcome.local.ok()) {
    ++runs_;
    if (!counted && context.counters != nullptr) context.counters->AddAgain(entry.calls);
    FinishStep(context, &outcome);
  } else {
    outcome.transport = outcome.local;  // this rank made none of its collective calls
  }
  return outcome;
}

}  // namespace tp::worker

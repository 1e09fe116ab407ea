#include "server/rpc/core_loop.h"

#include <utility>

namespace tp::server {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);

}  // namespace

CoreLoop::CoreLoop(CoreOptions options, const Clock* clock) : clock_(clock), core_(std::move(options)) {}

CoreLoop::~CoreLoop() { Stop(); }

void CoreLoop::Start(ActionSink* sink) {
  sink_ = sink;
  thread_ = std::thread([this] { Loop(); });
}

void CoreLoop::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void CoreLoop::Add(Entry entry) {
  absl::MutexLock lock(&mutex_);
  if (!stopped_) entries_.push_back(std::move(entry));
}

void CoreLoop::Apply(Event event) {
  for (Action& action : core_.Apply(std::move(event), clock_->Now())) sink_->Execute(std::move(action), core_);
}

void CoreLoop::Loop() {
  absl::Time next_tick = clock_->Now();
  while (true) {
    std::deque<Entry> entries;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || !entries_.empty(); };
      mutex_.AwaitWithTimeout(absl::Condition(&ready), std::max(next_tick - clock_->Now(), absl::ZeroDuration()));
      if (stopped_) return;
      entries.swap(entries_);
    }
    for (Entry& entry : entries) {
      if (auto* event = std::get_if<Event>(&entry)) {
        Apply(std::move(*event));
      } else {
        std::get<Task>(entry)(core_);
      }
    }
    if (clock_->Now() >= next_tick) {
      Apply(Tick{});
      next_tick = clock_->Now() + kTick;
    }
  }
}

}  // namespace tp::server

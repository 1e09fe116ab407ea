// Commands: appended to all their workers' streams at once, answered by every rank, and what a failed one means.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {
namespace {

// How long the other ranks' answers to a failed command are awaited, for the first cause; a worker that died is known
// to be lost before.
constexpr absl::Duration kCauseWait = absl::Seconds(2);
constexpr absl::Duration kCollectiveMargin = absl::Seconds(1);  // own deadline of collectives over the progress limit
constexpr size_t kLongestMessage = 900;                         // a status message over 1 KiB does not survive its way

// Failures that leave a collective's state unknown.
bool EndsEpoch(absl::StatusCode code) {
  return code == absl::StatusCode::kAborted || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kDeadlineExceeded;
}

bool FromPeer(absl::StatusCode code) {
  return code == absl::StatusCode::kAborted || code == absl::StatusCode::kUnavailable;
}

// It failed, and every rank that failed says so of another one.
bool OnlyHearsay(const CommandRecord& record) {
  bool failed = false;
  for (size_t i = 0; i < record.acks.size(); ++i) {
    if (!record.acks[i].has_value() || record.acks[i]->status.ok()) continue;
    if (!FromPeer(record.acks[i]->status.code()) || record.acks[i]->failed_rank == record.ranks[i]) return false;
    failed = true;
  }
  return failed;
}

}  // namespace

bool Core::Impl::Usable(uint64_t mesh_id) const {
  const auto mesh = meshes_.find(mesh_id);
  return mesh != meshes_.end() && !mesh->second.broken && !mesh_records_.at(mesh_id).aborting.has_value();
}

uint64_t Core::Impl::Append(uint64_t mesh_id, const AppendOptions& options, const KindForRank& kind,
                            std::function<void(const CommandRecord&, const absl::Status&)> done) {
  const MeshState& mesh = meshes_.at(mesh_id);
  CommandRecord record;
  record.mesh_id = mesh_id;
  record.commits = options.commits;
  record.frees = options.frees;
  record.done = std::move(done);
  std::vector<WorkerStream*> streams;
  for (int rank = 0; rank < static_cast<int>(mesh.workers.size()); ++rank) {
    if (!AliveRank(mesh_id, rank)) continue;
    if (!options.ranks.empty() && !std::binary_search(options.ranks.begin(), options.ranks.end(), rank)) continue;
    WorkerState& worker = workers_.at(mesh.workers[rank]);
    record.ranks.push_back(rank);
    record.workers.push_back(mesh.workers[rank]);
    record.sessions.push_back(worker.session);
    streams.push_back(&worker);
  }
  if (streams.empty()) return 0;
  const Numbers numbers = order_.Append(streams, options.command_class, now_, Scaled(options.allowance));
  for (size_t i = 0; i < streams.size(); ++i) {
    Command command;
    command.term = options_.term;
    command.sequence = numbers.sequences[i];
    command.order = numbers.order;
    command.mesh_id = mesh_id;
    command.epoch = mesh.epoch;
    command.timeout = numbers.limit / options_.time_scale + kCollectiveMargin;  // the worker has the same scale
    command.kind = kind(record.ranks[i]);
    Emit(SendCommand{record.workers[i], std::move(command)});
  }
  record.acks.resize(streams.size());
  record.missing = static_cast<int>(streams.size());
  commands_[numbers.order] = std::move(record);
  return numbers.order;
}

void Core::Impl::On(AckReceived event) {
  WorkerState* worker = Live(event.worker, event.incarnation);
  if (worker == nullptr) return;
  const uint64_t order = event.ack.order;
  const uint64_t session = worker->session;
  const AckVerdict verdict = Acknowledge(worker, event.ack.sequence, order, now_);
  if (verdict == AckVerdict::kStray) return;
  if (verdict == AckVerdict::kOutOfOrder) {
    return LoseWorker(event.worker, absl::StrCat("it answered command ", event.ack.sequence, " before command ",
                                                 worker->pending.front().sequence));
  }
  const auto it = commands_.find(order);
  if (it == commands_.end()) return;  // of an epoch that is over, or nobody waits for it
  CommandRecord& record = it->second;
  for (size_t i = 0; i < record.workers.size(); ++i) {
    if (record.workers[i] != event.worker || record.sessions[i] != session || record.acks[i].has_value()) continue;
    record.acks[i] = std::move(event.ack);
    --record.missing;
    const absl::Status& status = record.acks[i]->status;
    MeshRecord* mesh = mesh_records_.count(record.mesh_id) == 0 ? nullptr : &mesh_records_.at(record.mesh_id);
    if (!record.frees && EndsEpoch(status.code()) && mesh != nullptr && !mesh->aborting.has_value()) {
      // The peers may sit in a collective: all are called back, and their answers tell the first cause.
      mesh->aborting = now_ + Scaled(kCauseWait);
      mesh->cause = FirstCause(record);
      SendAborts(record.mesh_id, std::string(mesh->cause.message()));
    }
    break;
  }
  if (record.missing == 0) Complete(order);
}

absl::Status Core::Impl::FirstCause(const CommandRecord& record) const {
  // Lower is better: what a rank says of itself before what it says of others, and both before what follows from an
  // abort.
  const Ack* best = nullptr;
  int best_rank = 0, best_score = 0;
  for (size_t i = 0; i < record.acks.size(); ++i) {
    if (!record.acks[i].has_value() || record.acks[i]->status.ok()) continue;
    const Ack& ack = *record.acks[i];
    const int score = (FromPeer(ack.status.code()) ? 4 : 0) + (ack.failed_rank == record.ranks[i] ? 0 : 2) +
                      (ack.failed_rank >= 0 ? 0 : 1);
    if (best != nullptr && score >= best_score) continue;
    best = &ack;
    best_score = score;
    best_rank = ack.failed_rank >= 0 ? ack.failed_rank : record.ranks[i];
  }
  if (best == nullptr) return absl::OkStatus();
  const absl::Status status = Annotate(best->status, RankText(record.mesh_id, best_rank));
  return absl::Status(status.code(), status.message().substr(0, kLongestMessage));
}

void Core::Impl::Complete(uint64_t order) {
  const auto it = commands_.find(order);
  const auto ending = mesh_records_.find(it->second.mesh_id);
  if (!it->second.frees && ending != mesh_records_.end() && ending->second.aborting.has_value() &&
      OnlyHearsay(it->second)) {
    // Who is to blame is about to be known: a lost worker's stream breaks, or CheckAborting takes what there is.
    return;
  }
  CommandRecord record = std::move(it->second);
  commands_.erase(it);
  if (record.frees) {
    if (record.done) record.done(record, absl::OkStatus());
    return;
  }
  const auto mesh = mesh_records_.find(record.mesh_id);
  if (mesh == mesh_records_.end()) return;
  int failed = 0;
  for (const std::optional<Ack>& ack : record.acks) failed += ack->status.ok() ? 0 : 1;
  absl::Status status = FirstCause(record);
  const bool ends = mesh->second.aborting.has_value();
  const bool diverged = failed > 0 && failed < static_cast<int>(record.acks.size());
  if (ends || (diverged && !record.commits)) {
    // A rank that succeeded where another failed is not where its peers are.
    if (status.ok()) status = mesh->second.cause;
    return BreakMesh(record.mesh_id, status);
  }
  if (record.done) record.done(record, status);
}

void Core::Impl::CheckAborting() {
  std::vector<uint64_t> over;
  for (const auto& [id, mesh] : mesh_records_) {
    if (mesh.aborting.has_value() && now_ >= *mesh.aborting) over.push_back(id);
  }
  for (const uint64_t id : over) {
    if (mesh_records_.count(id) == 0) continue;
    absl::Status cause = mesh_records_.at(id).cause;
    for (const auto& [order, record] : commands_) {  // the oldest command that failed knows most
      if (record.mesh_id != id || record.frees) continue;
      const absl::Status first = FirstCause(record);
      if (first.ok()) continue;
      cause = first;
      break;
    }
    BreakMesh(id, cause);
  }
}

void Core::Impl::ForgetCommands(uint64_t mesh_id) {
  for (auto it = commands_.begin(); it != commands_.end();) {
    const bool forget = it->second.mesh_id == mesh_id && !it->second.frees;
    it = forget ? commands_.erase(it) : std::next(it);
  }
}

void Core::Impl::FreedOn(const std::string& worker) {
  std::vector<uint64_t> complete;
  for (auto& [order, record] : commands_) {
    if (!record.frees) continue;
    for (size_t i = 0; i < record.workers.size(); ++i) {
      if (record.workers[i] != worker || record.acks[i].has_value()) continue;
      record.acks[i] = Ack{};
      if (--record.missing == 0) complete.push_back(order);
    }
  }
  for (const uint64_t order : complete) Complete(order);
}

int Core::Impl::FreeRanks(uint64_t mesh_id, const std::string& model, const std::function<void()>& done) {
  AppendOptions options;
  options.frees = true;
  const auto free = [&](const KindForRank& kind) {
    const auto finished = [done](const CommandRecord&, const absl::Status&) {
      if (done) done();
    };
    return Append(mesh_id, options, kind, finished) != 0 ? 1 : 0;
  };
  const int released = model.empty() ? 0 : free([&](int) { return Release{model}; });
  return released + free([&](int) { return CloseMesh{}; });
}

}  // namespace tp::server

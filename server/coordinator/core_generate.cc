// Generations: checks, admission and the Decode commands of each model.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {
namespace {

constexpr int64_t kDefaultNewTokens = 256;

absl::Status CheckSampling(const Sampling& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.temperature: ", sampling.temperature, " must be a finite number that is not negative"));
  }
  if (sampling.top_k < 0) {
    return absl::InvalidArgumentError(absl::StrCat("sampling.top_k: ", sampling.top_k, " must not be negative"));
  }
  if (!(sampling.top_p >= 0 && sampling.top_p <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("sampling.top_p: ", sampling.top_p, " must lie in [0, 1]"));
  }
  return absl::OkStatus();
}

// Each step gives each of its sequences a token, but the first may take in pieces of prompts only.
int64_t StepsOf(const DecodeResult& result, bool pieces) {
  size_t steps = pieces ? 1 : 0;
  for (const SequenceTokens& tokens : result.sequences) steps = std::max(steps, tokens.token_ids.size());
  return static_cast<int64_t>(steps);
}

}  // namespace

absl::StatusOr<NewSequence> Core::Impl::CheckGenerate(const ModelState& model, const GenerateRequested& event) const {
  const std::optional<GenerationConfig>& config = model.submission->model.generation;
  if (!config.has_value() || work_.at(model.resident).replicas.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("model '", model.name, "' is not a language model"));
  }
  if (event.token_ids.empty()) return absl::InvalidArgumentError("the prompt is empty: it needs at least one token");
  for (size_t i = 0; i < event.token_ids.size(); ++i) {
    const int64_t id = event.token_ids[i];
    if (id >= 0 && id < config->vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("prompt position ", i, ": id ", id, " outside [0, ", config->vocab_size, ")"));
  }
  const int64_t prompt = static_cast<int64_t>(event.token_ids.size());
  const int64_t fits = config->max_positions - prompt;
  if (fits < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt of ", prompt, " tokens, at most ", config->max_positions - 1, " fit"));
  }
  if (event.max_new_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_new_tokens: ", event.max_new_tokens, " must not be negative"));
  }
  if (event.max_new_tokens > fits) {
    return absl::InvalidArgumentError(absl::StrCat("max_new_tokens: prompt of ", prompt, " tokens and ",
                                                   event.max_new_tokens, " new tokens pass the model's ",
                                                   config->max_positions, " positions"));
  }
  TP_RETURN_IF_ERROR(CheckSampling(event.sampling));
  NewSequence sequence;
  sequence.prompt = event.token_ids;
  sequence.max_new_tokens =
      event.max_new_tokens > 0 ? event.max_new_tokens : static_cast<int>(std::min(kDefaultNewTokens, fits));
  sequence.sampling = event.sampling;
  if (!event.ignore_eos) sequence.stop_ids = config->eos_token_ids;
  if (!work_.at(model.resident).replicas[0].composer.CanEverFit(sequence)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cache_pages: the request needs ", DecodeComposer::PagesFor(prompt, sequence.max_new_tokens),
                     " pages of ", kPageSize, " positions, the model's cache has ", model.cache_pages));
  }
  return sequence;
}

void Core::Impl::On(GenerateRequested event) {
  const auto refuse = [&](const absl::Status& status) {
    GenerateProgress progress;
    progress.call = event.call;
    progress.status = status;
    progress.done = true;
    Emit(std::move(progress));
  };
  absl::StatusOr<ModelState*> model = ReadyModel(event.model);
  if (!model.ok()) return refuse(model.status());
  const absl::Status room = CheckQueue();
  if (!room.ok()) return refuse(room);
  if (event.deadline <= now_) return refuse(absl::DeadlineExceededError("the deadline passed before the first token"));
  absl::StatusOr<NewSequence> sequence = CheckGenerate(**model, event);
  if (!sequence.ok()) return refuse(sequence.status());
  sequence->id = ++last_sequence_;
  counts_.prompt_tokens += static_cast<int64_t>(sequence->prompt.size());
  const std::string resident = (*model)->resident;
  ModelWork& work = work_.at(resident);
  // To the replica with the fewest sequences; of several the first.
  const auto load = [](const Replica& replica) { return replica.composer.waiting() + replica.composer.admitted(); };
  const auto chosen = std::min_element(work.replicas.begin(), work.replicas.end(),
                                       [&](const Replica& a, const Replica& b) { return load(a) < load(b); });
  const auto replica = static_cast<size_t>(chosen - work.replicas.begin());
  work.sequences[sequence->id] = event.call;
  generates_[event.call] = GenerateCall{resident, replica, sequence->id, event.deadline};
  chosen->composer.Add(*std::move(sequence));
  PumpDecode(resident, replica);
}

void Core::Impl::PumpDecode(const std::string& name, size_t replica) {
  const auto it = work_.find(name);
  if (it == work_.end() || replica >= it->second.replicas.size()) return;
  const uint64_t mesh_id = Resident(name).mesh_id;
  const bool spread = it->second.replicas.size() > 1;
  while (Usable(mesh_id)) {
    std::optional<Decode> decode = it->second.replicas[replica].composer.Next();
    if (!decode.has_value()) return;
    const CommandClass command_class = it->second.executed ? CommandClass::kWork : CommandClass::kFirstWork;
    AppendOptions options;
    options.command_class = command_class;
    if (spread) options.ranks = decode->ranks = it->second.replicas[replica].ranks;
    Append(
        mesh_id, options, [&](int) { return *decode; },
        [this, name, replica, pieces = !decode->pieces.empty()](const CommandRecord& record,
                                                                const absl::Status& status) {
          if (status.ok()) counts_.decode_steps += StepsOf(record.acks[0]->decode, pieces);
          OnDecodeDone(name, replica, record, status);
        });
  }
}

void Core::Impl::OnDecodeDone(const std::string& model, size_t replica, const CommandRecord& record,
                              const absl::Status& status) {
  const auto it = work_.find(model);
  if (it == work_.end() || replica >= it->second.replicas.size()) return;
  ModelWork& work = it->second;
  DecodeComposer& composer = work.replicas[replica].composer;
  if (!status.ok()) {
    for (const uint64_t sequence : composer.Fail()) {
      const auto call = work.sequences.find(sequence);
      if (call != work.sequences.end()) FailGenerate(call->second, status);
    }
    return PumpDecode(model, replica);
  }
  const DecodeResult& result = record.acks[0]->decode;
  for (size_t i = 1; i < record.acks.size(); ++i) {
    if (record.acks[i]->decode.sequences == result.sequences) continue;
    return BreakMesh(record.mesh_id, absl::InternalError(absl::StrCat(RankText(record.mesh_id, record.ranks[i]),
                                                                      " chose other tokens than ",
                                                                      RankText(record.mesh_id, record.ranks[0]))));
  }
  work.executed = true;
  for (const SequenceTokens& tokens : composer.Finish(result)) {
    const auto sequence = work.sequences.find(tokens.sequence_id);
    if (sequence == work.sequences.end()) continue;
    GenerateProgress progress;
    progress.call = sequence->second;
    progress.token_ids = tokens.token_ids;
    counts_.generated_tokens += static_cast<int64_t>(tokens.token_ids.size());
    progress.finish_reason = tokens.finish_reason;
    progress.done = !tokens.finish_reason.empty();
    if (progress.done) {
      generates_.erase(sequence->second);
      work.sequences.erase(sequence);
    } else if (tokens.token_ids.empty()) {
      continue;
    }
    Emit(std::move(progress));
  }
  PumpDecode(model, replica);
}

void Core::Impl::FailGenerate(CallId id, const absl::Status& status) {
  const auto it = generates_.find(id);
  if (it == generates_.end()) return;
  const GenerateCall call = it->second;
  generates_.erase(it);
  GenerateProgress progress;
  progress.call = id;
  progress.status = status;
  progress.done = true;
  Emit(std::move(progress));
  ModelWork& work = work_.at(call.model);
  work.sequences.erase(call.sequence_id);
  work.replicas[call.replica].composer.Remove(call.sequence_id);
  PumpDecode(call.model, call.replica);
}

}  // namespace tp::server

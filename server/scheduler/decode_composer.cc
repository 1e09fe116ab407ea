#include "server/scheduler/decode_composer.h"

#include <algorithm>
#include <utility>

namespace tp::server {

int64_t DecodeComposer::PagesFor(int64_t prompt_tokens, int64_t new_tokens) {
  return (prompt_tokens + new_tokens + kPageSize - 1) / kPageSize;
}

bool DecodeComposer::CanEverFit(const NewSequence& sequence) const {
  return PagesFor(static_cast<int64_t>(sequence.prompt.size()), sequence.max_new_tokens) <= options_.cache_pages;
}

void DecodeComposer::Add(NewSequence sequence) { waiting_.push_back(std::move(sequence)); }

void DecodeComposer::Remove(uint64_t id) {
  const auto waits = std::find_if(waiting_.begin(), waiting_.end(), [&](const NewSequence& s) { return s.id == id; });
  if (waits != waiting_.end()) {
    waiting_.erase(waits);
    return;
  }
  const auto it = std::find_if(admitted_.begin(), admitted_.end(), [&](const Sequence& s) { return s.what.id == id; });
  if (it == admitted_.end()) return;
  const int64_t pages = PagesFor(static_cast<int64_t>(it->what.prompt.size()), it->what.max_new_tokens);
  if (it->joined) {  // its pages are free on the workers once the command with its leave runs
    leaving_.push_back(id);
    leaving_pages_[id] = pages;
  } else {
    reserved_pages_ -= pages;
  }
  admitted_.erase(it);
}

void DecodeComposer::Admit() {
  while (!waiting_.empty() && static_cast<int>(admitted_.size()) < options_.max_sequences) {
    NewSequence& next = waiting_.front();
    const int64_t pages = PagesFor(static_cast<int64_t>(next.prompt.size()), next.max_new_tokens);
    if (reserved_pages_ + pages > options_.cache_pages) return;  // first in, first out: no one overtakes
    reserved_pages_ += pages;
    Sequence sequence;
    sequence.what = std::move(next);
    admitted_.push_back(std::move(sequence));
    waiting_.pop_front();
  }
}

void DecodeComposer::TakePieces(Decode* decode, std::map<uint64_t, int>* promised) {
  size_t budget = static_cast<size_t>(std::max(1, options_.prefill_tokens));
  for (Sequence& sequence : admitted_) {
    if (sequence.prompt_taken()) continue;
    if (budget == 0) break;
    if (!sequence.joined) {
      sequence.joined = true;
      decode->joins.push_back(
          {sequence.what.id, sequence.what.sampling, sequence.what.max_new_tokens, sequence.what.stop_ids});
    }
    const size_t count = std::min(budget, sequence.what.prompt.size() - sequence.taken);
    PrefillPiece piece;
    piece.sequence_id = sequence.what.id;
    piece.token_ids.assign(sequence.what.prompt.begin() + sequence.taken,
                           sequence.what.prompt.begin() + sequence.taken + count);
    sequence.taken += count;
    piece.last = sequence.prompt_taken();
    budget -= count;
    (*promised)[sequence.what.id] = 0;
    decode->pieces.push_back(std::move(piece));
  }
}

// One step while anyone waits for a prompt or a place, else twice as many as before, but no more than the sequence that
// ends first may still give.
int DecodeComposer::ChooseSteps(const Decode& decode) const {
  if (!decode.pieces.empty() || !waiting_.empty()) return 1;
  int steps = std::min({last_steps_ * 2, options_.max_steps, 8});
  for (const Sequence& sequence : admitted_) {
    if (!sequence.prompt_taken()) return 1;
    if (sequence.left() > 0) steps = std::min(steps, sequence.left());
  }
  return std::max(1, steps);
}

std::optional<Decode> DecodeComposer::Next() {
  if (in_flight() >= options_.max_in_flight) return std::nullopt;
  Admit();
  Decode decode;
  decode.model = options_.model;
  std::map<uint64_t, int> promised;
  decode.leaves = std::move(leaving_);
  leaving_.clear();
  TakePieces(&decode, &promised);
  decode.steps = ChooseSteps(decode);
  bool needed = !decode.leaves.empty() || !decode.pieces.empty();
  for (Sequence& sequence : admitted_) {
    if (!sequence.prompt_taken() || sequence.left() <= 0) continue;
    const int most = std::min(decode.steps, sequence.left());
    promised[sequence.what.id] = most;
    sequence.expected += most;
    needed = true;
  }
  if (!needed) return std::nullopt;
  for (const uint64_t id : decode.leaves) {
    reserved_pages_ -= leaving_pages_[id];
    leaving_pages_.erase(id);
  }
  last_steps_ = decode.steps;
  in_flight_.push_back(std::move(promised));
  return decode;
}

void DecodeComposer::Release(uint64_t id) {
  const auto it = std::find_if(admitted_.begin(), admitted_.end(), [&](const Sequence& s) { return s.what.id == id; });
  if (it == admitted_.end()) return;
  reserved_pages_ -= PagesFor(static_cast<int64_t>(it->what.prompt.size()), it->what.max_new_tokens);
  admitted_.erase(it);
}

std::vector<SequenceTokens> DecodeComposer::Finish(const DecodeResult& result) {
  std::vector<SequenceTokens> news;
  if (in_flight_.empty()) return news;
  std::map<uint64_t, int> promised = std::move(in_flight_.front());
  in_flight_.pop_front();
  for (const SequenceTokens& tokens : result.sequences) {
    const auto it = std::find_if(admitted_.begin(), admitted_.end(),
                                 [&](const Sequence& s) { return s.what.id == tokens.sequence_id; });
    if (it == admitted_.end()) {  // it was cancelled
      if (!tokens.finish_reason.empty() && leaving_pages_.count(tokens.sequence_id) != 0) {
        // It ended by itself meanwhile: nothing is left that has to leave.
        reserved_pages_ -= leaving_pages_[tokens.sequence_id];
        leaving_pages_.erase(tokens.sequence_id);
        leaving_.erase(std::remove(leaving_.begin(), leaving_.end(), tokens.sequence_id), leaving_.end());
      }
      continue;
    }
    promised[tokens.sequence_id] -= static_cast<int>(tokens.token_ids.size());
    news.push_back(tokens);
    if (!tokens.finish_reason.empty()) {
      promised.erase(tokens.sequence_id);
      Release(tokens.sequence_id);
    }
  }
  // What a command did not give is to be asked for again.
  for (const auto& [id, missing] : promised) {
    for (Sequence& sequence : admitted_) {
      if (sequence.what.id == id) sequence.expected -= missing;
    }
  }
  return news;
}

std::vector<uint64_t> DecodeComposer::Fail() {
  if (!in_flight_.empty()) in_flight_.pop_front();
  std::vector<uint64_t> ids;
  for (const Sequence& sequence : admitted_) {
    if (sequence.joined) ids.push_back(sequence.what.id);
  }
  for (const uint64_t id : ids) Remove(id);
  return ids;
}

std::vector<uint64_t> DecodeComposer::Clear() {
  std::vector<uint64_t> ids;
  for (const Sequence& sequence : admitted_) ids.push_back(sequence.what.id);
  for (const NewSequence& sequence : waiting_) ids.push_back(sequence.id);
  admitted_.clear();
  waiting_.clear();
  leaving_.clear();
  leaving_pages_.clear();
  in_flight_.clear();
  reserved_pages_ = 0;
  last_steps_ = 1;
  return ids;
}

}  // namespace tp::server

// Composes the Decode commands of one model (Foundation 6): at most two in flight, so that no token waits for a round
// trip; sequences join, leave and take in pieces of their prompts only between two. Example:
//   DecodeComposer composer({.cache_pages = 64});
//   composer.Add({.id = 1, .prompt = {5, 6}, .max_new_tokens = 3});
//   std::optional<Decode> decode = composer.Next();       // joins 1, its prompt as one piece, one step
//   composer.Finish(result_of_rank_0);                    // the oldest command in flight was answered
// Thread-compatible; pure: no clock, no input or output.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/program/command.h"

namespace tp::server {

struct ComposerOptions {
  std::string model;
  int max_sequences = 64;    // admitted at once
  int prefill_tokens = 256;  // of all pieces of one command
  int cache_pages = 0;       // of kPageSize positions
  int max_in_flight = 2;     // commands
  int max_steps = 4;         // of one command; 1 to 8
};

struct NewSequence {
  uint64_t id = 0;
  std::vector<int64_t> prompt;  // not empty
  int max_new_tokens = 1;       // at least 1
  Sampling sampling;
  std::vector<int64_t> stop_ids;
};

class DecodeComposer {
 public:
  explicit DecodeComposer(ComposerOptions options) : options_(std::move(options)) {}

  // Pages that a sequence reserves from its admission to its end: ceil((prompt + new tokens) / kPageSize).
  static int64_t PagesFor(int64_t prompt_tokens, int64_t new_tokens);
  bool CanEverFit(const NewSequence& sequence) const;

  // Waits for pages and for a place, first in first out.
  void Add(NewSequence sequence);
  // It leaves in the next command where it has joined. Does nothing for an unknown id.
  void Remove(uint64_t id);
  // The next command; nothing where no sequence needs a step or enough are in flight.
  std::optional<Decode> Next();
  // The oldest command in flight was answered with this. Returns what is for sequences that still are there.
  std::vector<SequenceTokens> Finish(const DecodeResult& result);
  // The oldest command in flight failed and all ranks say so: every sequence that joined leaves. Returns their ids.
  std::vector<uint64_t> Fail();
  // Forgets everything: the epoch is over. Returns the ids of all sequences.
  std::vector<uint64_t> Clear();

  int in_flight() const { return static_cast<int>(in_flight_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int admitted() const { return static_cast<int>(admitted_.size()); }
  int64_t reserved_pages() const { return reserved_pages_; }

 private:
  struct Sequence {
    NewSequence what;
    size_t taken = 0;  // tokens of the prompt in commands so far
    int expected = 0;  // new tokens when all commands in flight give as many as they may
    bool joined = false;
    bool prompt_taken() const { return taken == what.prompt.size(); }
    int left() const { return prompt_taken() ? what.max_new_tokens - expected : what.max_new_tokens; }
  };
  void Admit();
  void TakePieces(Decode* decode, std::map<uint64_t, int>* promised);
  int ChooseSteps(const Decode& decode) const;
  void Release(uint64_t id);

  ComposerOptions options_;
  std::deque<NewSequence> waiting_;
  std::vector<Sequence> admitted_;  // in the order of their admission
  std::vector<uint64_t> leaving_;
  std::map<uint64_t, int64_t> leaving_pages_;
  int64_t reserved_pages_ = 0;
  int last_steps_ = 1;
  std::deque<std::map<uint64_t, int>> in_flight_;  // of each command: sequence -> most new tokens that it may give
};

}  // namespace tp::server

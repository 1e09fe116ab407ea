// Pages of the paged cache and the sequences that hold them. A page is 16 positions in every attention of a model; page
// numbers follow the lowest-free rule, so that ranks which run the same commands choose the same pages. Example:
//   PagePool pool(4);  pool.Take() is 0, pool.Take() is 1;  pool.Give(0);  pool.Take() is 0 again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/command.h"

namespace tp::worker {

// Thread-compatible.
class PagePool {
 public:
  explicit PagePool(int pages);
  int free_count() const { return static_cast<int>(free_.size()); }
  int page_count() const { return pages_; }
  // The lowest free page. RESOURCE_EXHAUSTED where there is none.
  absl::StatusOr<int32_t> Take();
  void Give(int32_t page) { free_.insert(page); }

 private:
  const int pages_;
  std::set<int32_t> free_;
};

// A sequence of a generation on this rank; the same on every rank of the model.
struct Sequence {
  Sampling sampling;
  int max_new_tokens = 0;
  std::vector<int64_t> stop_ids;
  std::vector<int32_t> pages;  // cover `past` positions and those of the step under way
  int64_t past = 0;            // positions in the cache
  bool prefilled = false;      // its last piece was taken in; next_token is the next to run
  int64_t next_token = 0;
  int generated = 0;
};

// Thread-compatible.
class SequenceTable {
 public:
  explicit SequenceTable(int pages) : pool_(pages) {}

  // ALREADY_EXISTS for an id that is there.
  absl::Status Join(const JoinSequence& join);
  // Ends a sequence and frees its pages; an id that is not there is no error.
  void Leave(uint64_t id);
  // nullptr where it is not there (it left, stopped or failed).
  Sequence* Find(uint64_t id);
  // Pages for positions up to past + count. RESOURCE_EXHAUSTED where the pool has too few; what was taken stays with
  // the sequence.
  absl::Status Reserve(Sequence& sequence, int64_t count);

  std::map<uint64_t, Sequence>& sequences() { return sequences_; }
  const PagePool& pool() const { return pool_; }

 private:
  PagePool pool_;
  std::map<uint64_t, Sequence> sequences_;  // by id: the order of a step's tokens
};

}  // namespace tp::worker

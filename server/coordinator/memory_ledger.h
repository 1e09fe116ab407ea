// Bytes that models, tensors and operations hold on each worker, against the workers' limits. Example:
//   absl::StatusOr<uint64_t> key = ledger.Reserve("tensor 'x'", {{"w0", 0, 60, 100}});   // worker, rank, bytes, limit
//   ledger.Release(*key);
// Thread-compatible; pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tp::server {

struct MemoryNeed {
  std::string worker;
  int rank = 0;
  int64_t bytes = 0;
  int64_t limit = 0;  // of the worker; 0 = none
};

class MemoryLedger {
 public:
  // All or none. RESOURCE_EXHAUSTED naming the worker, what is needed, what is held and the limit.
  absl::StatusOr<uint64_t> Reserve(const std::string& what, const std::vector<MemoryNeed>& needs);
  // 0 and keys that were released are no error.
  void Release(uint64_t key);
  // A lost worker holds nothing.
  void LoseWorker(const std::string& worker);
  int64_t Held(const std::string& worker) const;

 private:
  std::map<uint64_t, std::vector<std::pair<std::string, int64_t>>> entries_;
  std::map<std::string, int64_t> held_;
  uint64_t last_ = 0;
};

}  // namespace tp::server

// Submissions on disk: SQLite with a schema version, WAL, and an fsync before an answer. Example:
//   auto store = *Store::Open("/var/lib/tensorplane/coordinator.db");  store->Put("m", blob);
// Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tp::server {

class Store {
 public:
  virtual ~Store() = default;
  // Creates the file where it is missing. FAILED_PRECONDITION for a schema newer than this program's, DATA_LOSS for a
  // file that is not ours or damaged, PERMISSION_DENIED. ":memory:" keeps nothing.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path);
  // Leadership term: one more than at the last call, stored before it returns.
  virtual absl::StatusOr<uint64_t> NextTerm() = 0;
  virtual absl::Status Put(const std::string& name, const std::string& blob) = 0;
  virtual absl::Status Erase(const std::string& name) = 0;  // OK where absent
  // (name, blob) in the order of their first Put.
  virtual absl::StatusOr<std::vector<std::pair<std::string, std::string>>> All() = 0;
};

}  // namespace tp::server

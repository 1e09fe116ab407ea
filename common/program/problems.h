// Collects everything that is wrong with a plan, so that it is reported at once. Example:
//   Problems problems;  problems.Invalid("plan.entries[0] ...");  TP_RETURN_IF_ERROR(problems.status());
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tp {

// Thread-compatible. A text that was added before is dropped.
class Problems {
 public:
  void Invalid(const std::string& text) { Add(text, &invalid_); }
  void Failed(const std::string& text) { Add(text, &failed_); }
  void Unbuilt(const std::string& text) { Add(text, &unbuilt_); }
  bool empty() const { return invalid_.empty() && failed_.empty() && unbuilt_.empty(); }

  // OK, or all texts joined by "; " up to about 900 bytes, then "... and N more" (a longer status message does not
  // survive gRPC). INVALID_ARGUMENT where anything is invalid, else FAILED_PRECONDITION where
  // anything failed, else UNIMPLEMENTED.
  absl::Status status() const {
    if (empty()) return absl::OkStatus();
    std::vector<std::string> all = invalid_;
    all.insert(all.end(), failed_.begin(), failed_.end());
    all.insert(all.end(), unbuilt_.begin(), unbuilt_.end());
    std::string text = all[0].substr(0, kMostBytes);
    size_t shown = 1;
    while (shown < all.size() && text.size() + all[shown].size() + 2 <= kMostBytes) {
      absl::StrAppend(&text, "; ", all[shown++]);
    }
    if (shown < all.size()) absl::StrAppend(&text, "; ... and ", all.size() - shown, " more");
    if (!invalid_.empty()) return absl::InvalidArgumentError(text);
    return failed_.empty() ? absl::UnimplementedError(text) : absl::FailedPreconditionError(text);
  }

 private:
  static constexpr size_t kMostBytes = 900;
  void Add(const std::string& text, std::vector<std::string>* list) {
    if (seen_.insert(text).second) list->push_back(text);
  }
  std::vector<std::string> invalid_, failed_, unbuilt_;
  std::set<std::string> seen_;
};

}  // namespace tp

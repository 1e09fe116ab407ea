// Collects everything that is wrong with a model or a plan, so that it is reported at once. Example:
//   Problems problems;  problems.Invalid("plan.entries[0] ...");  TP_RETURN_IF_ERROR(problems.status());
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tp {

// Thread-compatible. A text that was added before is dropped.
class Problems {
 public:
  void Invalid(const std::string& text) { Put(Kind::kInvalid, text, "", text); }
  void Failed(const std::string& text) { Put(Kind::kFailed, text, "", text); }
  void Unbuilt(const std::string& text) { Put(Kind::kUnbuilt, text, "", text); }
  // A status that is not OK, by its code: "<where>: <its text>". Codes of no kind here count as invalid.
  void Add(const absl::Status& status, const std::string& where);
  // One text at several places of an owner is told once: "<owner>: a.b: <text> (also at a.c, a.d and 7 more)".
  void InvalidAt(const std::string& owner, const std::string& place, const std::string& text) {
    Put(Kind::kInvalid, text, place, owner + "\n" + text, owner);
  }
  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }

  // OK, or all texts joined by "; " up to about 900 bytes, then "... and N more" (a longer status message does not
  // survive gRPC). INVALID_ARGUMENT where anything is invalid, else FAILED_PRECONDITION where
  // anything failed, else UNIMPLEMENTED.
  absl::Status status() const;

 private:
  enum class Kind { kInvalid, kFailed, kUnbuilt };  // in the order in which they are told
  struct Problem {
    Kind kind = Kind::kInvalid;
    std::string owner, text;
    std::vector<std::string> places;
  };
  void Put(Kind kind, const std::string& text, const std::string& place, const std::string& key,
           const std::string& owner = "");
  static std::string TextOf(const Problem& problem);

  std::vector<Problem> problems_;
  std::map<std::string, size_t> by_key_;
};

}  // namespace tp

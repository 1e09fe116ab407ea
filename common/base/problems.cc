#include "common/base/problems.h"

#include "absl/strings/str_cat.h"
#include "common/base/names.h"

namespace tp {
namespace {

constexpr size_t kMostBytes = 900;

}  // namespace

void Problems::Put(Kind kind, const std::string& text, const std::string& place, const std::string& key,
                   const std::string& owner) {
  const auto [found, added] = by_key_.emplace(key, problems_.size());
  if (added) problems_.push_back({kind, owner, text, {}});
  std::vector<std::string>& places = problems_[found->second].places;
  if (!place.empty() && (places.empty() || places.back() != place)) places.push_back(place);
}

void Problems::Add(const absl::Status& status, const std::string& where) {
  const std::string text =
      where.empty() ? std::string(status.message()) : absl::StrCat(where, ": ", std::string(status.message()));
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return Failed(text);
    case absl::StatusCode::kUnimplemented:
      return Unbuilt(text);
    default:
      return Invalid(text);
  }
}

std::string Problems::TextOf(const Problem& problem) {
  constexpr size_t kMostPlaces = 3;
  const std::vector<std::string>& places = problem.places;
  std::string text = problem.owner.empty() ? "" : problem.owner + ": ";
  absl::StrAppend(&text, places.empty() ? "" : places[0] + ": ", problem.text);
  for (size_t i = 1; i < places.size() && i < kMostPlaces; ++i) {
    absl::StrAppend(&text, i == 1 ? " (also at " : i + 1 == places.size() ? " and " : ", ", places[i]);
  }
  if (places.size() > kMostPlaces) absl::StrAppend(&text, " and ", places.size() - kMostPlaces, " more");
  return places.size() > 1 ? text + ")" : text;
}

absl::Status Problems::status() const {
  if (empty()) return absl::OkStatus();
  std::vector<const Problem*> ordered;
  for (Kind kind : {Kind::kInvalid, Kind::kFailed, Kind::kUnbuilt}) {
    for (const Problem& problem : problems_) {
      if (problem.kind == kind) ordered.push_back(&problem);
    }
  }
  std::string text = Cut(TextOf(*ordered[0]), kMostBytes);
  size_t shown = 1;
  for (; shown < ordered.size(); ++shown) {
    const std::string next = TextOf(*ordered[shown]);
    if (text.size() + next.size() + 2 > kMostBytes) break;
    absl::StrAppend(&text, "; ", next);
  }
  if (shown < ordered.size()) absl::StrAppend(&text, "; ... and ", ordered.size() - shown, " more");
  switch (ordered[0]->kind) {
    case Kind::kInvalid:
      return absl::InvalidArgumentError(text);
    case Kind::kFailed:
      return absl::FailedPreconditionError(text);
    case Kind::kUnbuilt:
      return absl::UnimplementedError(text);
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace tp

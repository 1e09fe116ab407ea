#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/collective/communicator.h"

namespace tp::worker {
namespace {

bool SameStep(StepHeader a, const StepHeader& b) {
  a.status = b.status;
  return a == b;
}

std::string Describe(int rank, const StepHeader& header) {
  return absl::StrCat("rank ", rank, " (epoch ", header.epoch, ", command ", header.sequence, ", step ", header.step,
                      ", fingerprint ", absl::Hex(header.fingerprint, absl::kZeroPad16),
                      (header.flags & 1) != 0 ? ", closing" : ", opening", ", flags ", header.flags, ")");
}

}  // namespace

absl::Status AgreeOn(absl::Span<const int> group, const std::vector<StepHeader>& headers) {
  TP_CHECK(group.size() == headers.size());
  for (size_t i = 1; i < headers.size(); ++i) {
    if (SameStep(headers[0], headers[i])) continue;
    return absl::AbortedError(
        absl::StrCat("collective mismatch ", Describe(group[0], headers[0]), " ", Describe(group[i], headers[i])));
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    if (headers[i].status == 0) continue;
    const auto code = static_cast<absl::StatusCode>(headers[i].status);
    const std::string name = absl::StatusCodeToString(code);
    const std::string text =
        absl::StrCat("rank ", group[i], " failed: ", name.empty() ? absl::StrCat(headers[i].status) : name);
    return name.empty() ? absl::AbortedError(text) : absl::Status(code, text);
  }
  return absl::OkStatus();
}

}  // namespace tp::worker

#include "client/tpctl/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/tpctl/render.h"

namespace tp::client {

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::Update(int64_t done, int64_t total) {
  if (!terminal_) return;
  const int64_t drawn = total > 0 ? done * 200 / total : 0;
  if (drawn_ && drawn == last_) return;
  last_ = drawn;
  std::fprintf(stderr, "\r\033[K%s", ProgressLine(label_, done, total).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

std::string ProgressLine(const std::string& label, int64_t done, int64_t total) {
  constexpr int kWidth = 30;
  if (total <= 0) return label;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int full = static_cast<int>(share * kWidth);
  return absl::StrCat(label, " [", std::string(full, '#'), std::string(kWidth - full, '.'), "] ",
                      static_cast<int>(share * 100), "% ", BytesText(done), " / ", BytesText(total));
}

}  // namespace tp::client

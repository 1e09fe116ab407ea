// A progress bar on stderr, where that is a terminal; nothing else is printed elsewhere. Example:
//   ProgressBar bar("loading");  bar.Update(done, total);   // removed by the destructor
#pragma once

#include <cstdint>
#include <string>

namespace tp::client {

// Thread-compatible.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  void Update(int64_t done, int64_t total);

 private:
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
  int64_t last_ = 0;  // half percents drawn
};

// "loading [#####.....] 50% 1.0 MiB / 2.0 MiB".
std::string ProgressLine(const std::string& label, int64_t done, int64_t total);

}  // namespace tp::client

#include "worker/device/cpu/parallel.h"

#include <omp.h>

#include <algorithm>

namespace tp::worker {
namespace {

// The thread sanitizer does not see OpenMP's barriers.
#if defined(__SANITIZE_THREAD__)
constexpr bool kSerial = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kSerial = true;
#else
constexpr bool kSerial = false;
#endif
#else
constexpr bool kSerial = false;
#endif

}  // namespace

void SetThreads(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(kSerial ? 1 : threads);
}

void ParallelFor(int threads, int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  const int64_t ranges = (count + grain - 1) / grain;
  if (kSerial || threads <= 1 || ranges <= 1) return body(0, count);
  const int team = static_cast<int>(std::min<int64_t>(threads, ranges));
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (int64_t r = 0; r < ranges; ++r) body(r * grain, std::min(count, (r + 1) * grain));
}

}  // namespace tp::worker

// The only use of OpenMP by our kernels. Example:
//   ParallelFor(threads, rows, 64, [&](int64_t begin, int64_t end) { for (int64_t r = begin; r < end; ++r) Row(r); });
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tp::worker {

// Sets the number of OpenMP threads of regions that the calling thread starts (also oneDNN's) to exactly `threads`.
// The setting belongs to the calling thread, so it is made at every entry into the device.
void SetThreads(int threads);

// Calls body on ranges of at most `grain` that cover [0, count), on up to `threads` threads; one call on the calling
// thread where there is just one range or one thread. Blocks. grain >= 1.
void ParallelFor(int threads, int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

}  // namespace tp::worker

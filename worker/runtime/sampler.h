// Chooses the next token from one row of logits. The same bits in give the same token on every rank: no state, and
// random numbers depend on (seed, position) only. Example: SampleToken({0.1, 2.0, 2.0}, {}) is 1 (greedy, ties to
// the lowest).
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/device/device.h"

namespace tp::worker {

// The index of the largest; ties to the lowest; NaN is the largest. `logits` is not empty.
int64_t GreedyToken(absl::Span<const float> logits);

// Temperature 0 (or below): greedy. Else the logits are ordered (largest first, ties by index), cut to the `top_k`
// first, divided by the temperature and turned into probabilities in float64, cut to the shortest prefix whose sum
// reaches `top_p`, and one is drawn by u = (word 0 of Philox4x32 block (position) under key seed) * 2^-32. A NaN or an
// infinite logit makes the choice greedy.
int64_t SampleToken(absl::Span<const float> logits, const SamplingRow& sampling);

}  // namespace tp::worker

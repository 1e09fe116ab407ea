#include "worker/runtime/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/model/initializer.h"

namespace tp::worker {

int64_t GreedyToken(absl::Span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return static_cast<int64_t>(i);
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<int64_t>(best);
}

int64_t SampleToken(absl::Span<const float> logits, const SamplingRow& sampling) {
  const bool finite =
      std::all_of(logits.begin(), logits.end(), [](float x) { return !std::isnan(x) && x != INFINITY; });
  if (!(sampling.temperature > 0) || !finite) return GreedyToken(logits);

  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto before = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  size_t kept = order.size();
  if (sampling.top_k > 0) kept = std::min(kept, static_cast<size_t>(sampling.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(), before);
  order.resize(kept);

  const double largest = logits[order[0]];
  std::vector<double> weights;
  double sum = 0;
  for (int32_t index : order) {
    weights.push_back(std::exp((static_cast<double>(logits[index]) - largest) / sampling.temperature));
    sum += weights.back();
  }
  if (!std::isfinite(sum)) return GreedyToken(logits);  // all logits are -inf
  if (sampling.top_p > 0 && sampling.top_p < 1) {
    double prefix = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      prefix += weights[i];
      if (prefix < sampling.top_p * sum) continue;
      weights.resize(i + 1);
      sum = prefix;
      break;
    }
  }
  const auto where = static_cast<uint64_t>(sampling.position);
  const std::array<uint32_t, 4> random =
      Philox4x32({static_cast<uint32_t>(where), static_cast<uint32_t>(where >> 32), 0, 0},
                 {static_cast<uint32_t>(sampling.seed), static_cast<uint32_t>(sampling.seed >> 32)});
  const double target = static_cast<double>(random[0]) * 0x1p-32 * sum;
  double prefix = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    prefix += weights[i];
    if (target < prefix) return order[i];
  }
  return order[weights.size() - 1];
}

}  // namespace tp::worker

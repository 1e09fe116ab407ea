#include <algorithm>
#include <cmath>

#include "worker/device/cuda/checks.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

// Up to this many kept logits are found one after the other; more are sorted.
constexpr int64_t kMostPicked = 1024;
constexpr int32_t kSegments = 1024;

// A logit with its index; index -1 is none. The larger comes first, ties by index.
struct Candidate {
  float value;
  int32_t index;
};
TP_HD bool Before(Candidate a, Candidate b) {
  if (b.index < 0) return a.index >= 0;
  if (a.index < 0) return false;
  return a.value != b.value ? a.value > b.value : a.index < b.index;
}
struct First {
  TP_HD Candidate operator()(Candidate a, Candidate b) const { return Before(b, a) ? b : a; }
};
// The same with NaN as the largest.
struct FirstNaN {
  TP_HD Candidate operator()(Candidate a, Candidate b) const {
    const bool a_nan = a.value != a.value && a.index >= 0, b_nan = b.value != b.value && b.index >= 0;
    if (a_nan && b_nan) return a.index < b.index ? a : b;
    if (a_nan) return a;
    return b_nan || Before(b, a) ? b : a;
  }
};

// Word 0 of Philox4x32-10 (Salmon et al., 2011), block `position` under key `seed`.
TP_HD uint32_t RandomWord(uint64_t seed, uint64_t position) {
  uint32_t counter[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * counter[0], second = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
                              static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter[0];
}

int64_t PowerOfTwo(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

// A block a row.
struct SampleRow {
  const float* logits;
  const SampleParameters* parameters;
  int64_t* output;
  Candidate* order;  // [rows][order_size]
  double* weights;   // [rows][order_size]
  int64_t vocabulary, order_size;

  template <class B>
  TP_DEVICE void operator()(B& block, int64_t row) const {
    const float* x = logits + row * vocabulary;
    const SampleParameters& chosen = parameters[row];
    const Candidate largest = block.template Reduce<Candidate>(
        vocabulary, Candidate{0, -1},
        [&](int64_t i) {
          return Candidate{x[i], static_cast<int32_t>(i)};
        },
        FirstNaN());
    const bool finite = largest.value == largest.value && largest.value < INFINITY;
    if (!(chosen.temperature > 0) || !finite || largest.value == -INFINITY) {
      if (block.leader()) output[row] = largest.index;
      return;
    }
    int64_t kept = chosen.top_k > 0 ? Smaller()(static_cast<int64_t>(chosen.top_k), vocabulary) : vocabulary;
    kept = Smaller()(kept, order_size);
    Candidate* sorted = order + row * order_size;
    double* weight = weights + row * order_size;
    if (kept <= kMostPicked) {
      Pick(block, x, kept, sorted);
    } else {
      Sort(block, x, sorted);
    }
    block.Each(kept, [&](int64_t i) {
      weight[i] = exp((static_cast<double>(sorted[i].value) - static_cast<double>(largest.value)) / chosen.temperature);
    });
    if (block.leader()) output[row] = Draw(chosen, sorted, weight, kept);
  }

  // The first `kept` in order: each segment of the vocabulary offers its best, the winner's segment its next.
  template <class B>
  TP_DEVICE void Pick(B& block, const float* x, int64_t kept, Candidate* sorted) const {
    Candidate* best = block.template Shared<Candidate>(kSegments);
    block.Each(kSegments, [&](int64_t segment) {
      Candidate first{0, -1};
      for (int64_t i = segment; i < vocabulary; i += kSegments) {
        first = First()(first, Candidate{x[i], static_cast<int32_t>(i)});
      }
      best[segment] = first;
    });
    for (int64_t k = 0; k < kept; ++k) {
      const Candidate winner = block.template Reduce<Candidate>(
          kSegments, Candidate{0, -1}, [&](int64_t segment) { return best[segment]; }, First());
      const int32_t segment = winner.index % kSegments;
      const int64_t size = (vocabulary - segment + kSegments - 1) / kSegments;
      const Candidate next = block.template Reduce<Candidate>(
          size, Candidate{0, -1},
          [&](int64_t i) {
            const Candidate other{x[segment + i * kSegments], static_cast<int32_t>(segment + i * kSegments)};
            return Before(winner, other) ? other : Candidate{0, -1};
          },
          First());
      if (block.leader()) {
        best[segment] = next;
        sorted[k] = winner;
      }
      block.Sync();
    }
  }

  // All in order: a bitonic sort (Batcher, 1968) of order_size, a power of two.
  template <class B>
  TP_DEVICE void Sort(B& block, const float* x, Candidate* sorted) const {
    block.Each(order_size, [&](int64_t i) {
      sorted[i] = i < vocabulary ? Candidate{x[i], static_cast<int32_t>(i)} : Candidate{0, -1};
    });
    for (int64_t size = 2; size <= order_size; size *= 2) {
      for (int64_t step = size / 2; step > 0; step /= 2) {
        block.Each(order_size / 2, [&](int64_t pair) {
          const int64_t low = pair / step * 2 * step + pair % step, high = low + step;
          const Candidate a = sorted[low], b = sorted[high];
          const bool forward = (low & size) == 0;
          if (forward ? !Before(b, a) : !Before(a, b)) return;
          sorted[low] = b;
          sorted[high] = a;
        });
      }
    }
  }

  // One thread, in the host's order of additions.
  TP_HD static int64_t Draw(const SampleParameters& chosen, const Candidate* sorted, const double* weight,
                            int64_t kept) {
    double sum = 0;
    for (int64_t i = 0; i < kept; ++i) sum += weight[i];
    if (chosen.top_p > 0 && chosen.top_p < 1) {
      double prefix = 0;
      for (int64_t i = 0; i < kept; ++i) {
        prefix += weight[i];
        if (prefix < chosen.top_p * sum) continue;
        kept = i + 1;
        sum = prefix;
        break;
      }
    }
    const uint32_t word = RandomWord(chosen.seed, static_cast<uint64_t>(chosen.position));
    const double target = static_cast<double>(word) * (1.0 / 4294967296.0) * sum;
    double prefix = 0;
    for (int64_t i = 0; i < kept; ++i) {
      prefix += weight[i];
      if (target < prefix) return sorted[i].index;
    }
    return sorted[kept - 1].index;
  }
};

int64_t OrderSize(int64_t vocabulary, int64_t most_kept) {
  const int64_t kept = most_kept > 0 ? std::min(most_kept, vocabulary) : vocabulary;
  return kept <= kMostPicked ? kept : PowerOfTwo(vocabulary);
}

}  // namespace

int64_t SampleScratchBytes(int64_t rows, int64_t vocabulary, int64_t most_kept) {
  return rows * OrderSize(vocabulary, most_kept) * static_cast<int64_t>(sizeof(Candidate) + sizeof(double));
}

absl::Status SampleTokens(cudaStream_t stream, const ConstTensorView& logits, const SampleParameters* parameters,
                          int64_t most_kept, const TensorView& output, void* scratch) {
  if (logits.dtype != DType::kF32) return Unimplemented("sampling", logits.dtype);
  if (output.dtype != DType::kI64) return Unimplemented("sampling's tokens", output.dtype);
  const int64_t rows = RowCount(logits.shape), vocabulary = RowSize(logits.shape);
  if (logits.shape.size() != 2 || vocabulary == 0 || output.shape != Shape{rows}) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling: logits ", ShapeText(logits.shape), " to ", ShapeText(output.shape)));
  }
  const int64_t size = OrderSize(vocabulary, most_kept);
  auto* weights = static_cast<double*>(scratch);
  return ForBlocks("sampling", stream, rows,
                   SampleRow{As<float>(logits), parameters, As<int64_t>(output),
                             reinterpret_cast<Candidate*>(weights + rows * size), weights, vocabulary, size},
                   kSegments * static_cast<int64_t>(sizeof(Candidate)));
}

}  // namespace tp::worker::cuda

// First values of states. They depend on the seed and the state's path only, never on the mesh: Philox4x32-10, key =
// seed and a hash of the path, counter = global row-major index; each rank generates just its shard. Source: Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/layout/spec.h"
#include "common/model/model.h"
#include "common/tensor/shape.h"

namespace tp {

// One block of Philox4x32-10. Known answer: counter 0, key 0 -> 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Inputs and outputs of one position (PyTorch's rule): dim 1 and dim 0 of the global shape, each times the sizes of the
// dims after them. At least 2 dims.
struct Fan {
  int64_t in = 0, out = 0;
};
Fan FanOf(absl::Span<const int64_t> shape);

// INVALID_ARGUMENT where the initializer needs a fan and the shape has fewer than 2 dims.
absl::Status CheckInitializer(const Initializer& initializer, absl::Span<const int64_t> shape);

// The value at global row-major `index` of a state of global `shape`, which CheckInitializer() took.
//   kUniform: low + (high - low) * u with u = (x >> 8) * 2^-24 of word index % 4 of block index / 4.
//   kNormal: Box-Muller in float64 over words (2 a value) of block index / 2.
//   kTruncatedNormal, cut at 2 standard deviations from the mean: the normal quantile of p = low + (1 - 2 low) u, where
//   low is the probability below -2 (Wichura, algorithm AS 241).
//   kKaimingUniform: U(+-sqrt(6 / fan in)); kKaimingNormal: N(0, sqrt(2 / fan in)); kXavierUniform:
//   U(+-sqrt(6 / (fan in + fan out))); kXavierNormal: N(0, sqrt(2 / (fan in + fan out))). All 0 where the fan is 0.
//   kEye: 1 on the diagonal of the first two dims; kArange: a + b * index.
double InitialValue(const Initializer& initializer, uint64_t seed, std::string_view path,
                    absl::Span<const int64_t> shape, int64_t index);

// The values at indices [begin, begin + out.size()), in float64. The state's key is made once.
void InitialValues(const Initializer& initializer, uint64_t seed, std::string_view path,
                   absl::Span<const int64_t> shape, int64_t begin, absl::Span<double> out);

// The same values for a block: a product of interval lists, one list a dim of global `shape`, ascending; written dense
// in ascending order to `out` in `dtype`. Floats are rounded to nearest even; integers truncated, and beyond the
// dtype's range the nearest that it has (NaN: 0); BOOL is value != 0. About 2 ns a uniform F32 value, 25 ns a normal
// one. INVALID_ARGUMENT as CheckInitializer(). Example, rows 0, 1, 4 and 5 of [8, 16]:
//   FillInitial(uniform, 7, "fc.weight", {8, 16}, {{{0, 2}, {4, 6}}, {{0, 16}}}, DType::kF32, data);
absl::Status FillInitial(const Initializer& initializer, uint64_t seed, std::string_view path,
                         absl::Span<const int64_t> shape, absl::Span<const std::vector<Interval>> block, DType dtype,
                         void* out);

// Philox key of (seed, path): low and high word of seed xor the first 8 bytes (little endian) of SHA-256(path).
std::array<uint32_t, 2> InitializerKey(uint64_t seed, std::string_view path);

// Defaults by kind (SEMANTICS 7): Linear and Conv U(+-1/sqrt(fan_in)) for weight and bias, Embedding N(0,1), norms 1
// and 0, others none.
// `module_config` is the state's owner. Returns false where the kind has no default for it.
bool DefaultInitializer(const ModuleConfig& module_config, std::string_view state_name, Initializer* initializer);

}  // namespace tp

// First values of states. They depend on the seed and the state's path only, never on the mesh: Philox4x32-10, key =
// seed and a hash of the path, counter = global row-major index; each rank generates just its shard. Source: Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "common/model/model.h"
#include "common/tensor/shape.h"

namespace tp {

// One block of Philox4x32-10. Known answer: counter 0, key 0 -> 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The value at global row-major `index` of a state of global `shape`. kUniform: low + (high - low) * u with
// u = (x >> 8) * 2^-24 of word index % 4 of block index / 4; kNormal: Box-Muller in float64 over words (2 a value) of
// block index / 2; kEye: 1 on the diagonal of the first two dims; kArange: a + b * index.
double InitialValue(const Initializer& initializer, uint64_t seed, std::string_view path,
                    absl::Span<const int64_t> shape, int64_t index);

// Philox key of (seed, path): low and high word of seed xor the first 8 bytes (little endian) of SHA-256(path).
std::array<uint32_t, 2> InitializerKey(uint64_t seed, std::string_view path);

// Defaults by kind (SEMANTICS 7): Linear U(+-1/sqrt(fan_in)), Embedding N(0,1), norms 1, others none.
// `module_config` is the state's owner. Returns false where the kind has no default for it.
bool DefaultInitializer(const ModuleConfig& module_config, std::string_view state_name, Initializer* initializer);

}  // namespace tp

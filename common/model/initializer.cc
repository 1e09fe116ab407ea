#include "common/model/initializer.h"

#include <cmath>
#include <numbers>
#include <string>

#include "common/base/digest.h"

namespace tp {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

// Block `block` of the stream of `key`.
std::array<uint32_t, 4> BlockAt(const std::array<uint32_t, 2>& key, uint64_t block) {
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, key);
}

// The top 24 bits of a word as a number in [0, 1).
double UnitOf(uint32_t word) { return static_cast<double>(word >> 8) * 0x1p-24; }

int HexDigit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<uint32_t, 2> InitializerKey(uint64_t seed, std::string_view path) {
  const std::string hex = Sha256Hex(path);
  uint64_t hash = 0;
  for (int byte = 0; byte < 8; ++byte) {
    const uint64_t value = static_cast<uint64_t>(HexDigit(hex[2 * byte]) * 16 + HexDigit(hex[2 * byte + 1]));
    hash |= value << (8 * byte);
  }
  const uint64_t key = seed ^ hash;
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

double InitialValue(const Initializer& initializer, uint64_t seed, std::string_view path,
                    absl::Span<const int64_t> shape, int64_t index) {
  switch (initializer.kind) {
    case Initializer::Kind::kZeros:
      return 0;
    case Initializer::Kind::kOnes:
      return 1;
    case Initializer::Kind::kConstant:
      return initializer.a;
    case Initializer::Kind::kArange:
      return initializer.a + initializer.b * static_cast<double>(index);
    case Initializer::Kind::kEye: {
      if (shape.size() < 2) return index == 0 ? 1 : 0;
      int64_t inner = 1;
      for (size_t dim = 2; dim < shape.size(); ++dim) inner *= shape[dim];
      const int64_t row_and_column = index / inner;
      return row_and_column / shape[1] == row_and_column % shape[1] ? 1 : 0;
    }
    case Initializer::Kind::kUniform: {
      const uint64_t position = static_cast<uint64_t>(index);
      const uint32_t word = BlockAt(InitializerKey(seed, path), position / 4)[position % 4];
      return initializer.a + (initializer.b - initializer.a) * UnitOf(word);
    }
    case Initializer::Kind::kNormal: {
      // Box-Muller: the cosine branch of the value's own two words; 1 - u lies in (0, 1], so the logarithm is finite.
      const uint64_t position = static_cast<uint64_t>(index);
      const std::array<uint32_t, 4> words = BlockAt(InitializerKey(seed, path), position / 2);
      const double radius = std::sqrt(-2.0 * std::log(1.0 - UnitOf(words[2 * (position % 2)])));
      const double angle = 2.0 * std::numbers::pi * UnitOf(words[2 * (position % 2) + 1]);
      return initializer.a + initializer.b * radius * std::cos(angle);
    }
  }
  return 0;
}

bool DefaultInitializer(const ModuleConfig& module_config, std::string_view state_name, Initializer* initializer) {
  if (const auto* linear = std::get_if<LinearConfig>(&module_config)) {
    if (state_name != "weight" && state_name != "bias") return false;
    const double bound = linear->in_features > 0 ? 1.0 / std::sqrt(static_cast<double>(linear->in_features)) : 0.0;
    *initializer = {Initializer::Kind::kUniform, -bound, bound};
    return true;
  }
  if (std::holds_alternative<EmbeddingConfig>(module_config) && state_name == "weight") {
    *initializer = {Initializer::Kind::kNormal, 0, 1};
    return true;
  }
  if (std::holds_alternative<RMSNormConfig>(module_config) && state_name == "weight") {
    *initializer = {Initializer::Kind::kOnes, 0, 0};
    return true;
  }
  return false;
}

}  // namespace tp

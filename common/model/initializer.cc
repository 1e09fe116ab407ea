#include "common/model/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/tensor/dtype.h"

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

constexpr int64_t kChunk = 1024;  // values generated at once

bool NeedsFan(Initializer::Kind kind) {
  return kind == Initializer::Kind::kKaimingUniform || kind == Initializer::Kind::kKaimingNormal ||
         kind == Initializer::Kind::kXavierUniform || kind == Initializer::Kind::kXavierNormal;
}

bool IsRandom(Initializer::Kind kind) {
  return kind == Initializer::Kind::kUniform || kind == Initializer::Kind::kNormal ||
         kind == Initializer::Kind::kTruncatedNormal;
}

// Kaiming and Xavier as the uniform or normal distribution that they are for this shape.
Initializer Resolve(const Initializer& initializer, absl::Span<const int64_t> shape) {
  if (!NeedsFan(initializer.kind)) return initializer;
  const Fan fan = FanOf(shape);
  const bool uniform =
      initializer.kind == Initializer::Kind::kKaimingUniform || initializer.kind == Initializer::Kind::kXavierUniform;
  const bool xavier =
      initializer.kind == Initializer::Kind::kXavierUniform || initializer.kind == Initializer::Kind::kXavierNormal;
  const double fans = static_cast<double>(fan.in) + (xavier ? static_cast<double>(fan.out) : 0.0);
  const double width = fans > 0 ? std::sqrt((uniform ? 6.0 : 2.0) / fans) : 0.0;
  if (uniform) return {Initializer::Kind::kUniform, -width, width};
  return {Initializer::Kind::kNormal, 0, width};
}

// The quantile of the standard normal distribution for 0.0227 < p < 0.9773: Wichura, "Algorithm AS 241: the percentage
// points of the normal distribution", Applied Statistics 37 (1988), PPND16, without the far tails.
double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    const double over =
        ((((((2.5090809287301226727e+3 * r + 3.3430575583588128105e+4) * r + 6.7265770927008700853e+4) * r +
            4.5921953931549871457e+4) *
               r +
           1.3731693765509461125e+4) *
              r +
          1.9715909503065514427e+3) *
             r +
         1.3314166789178437745e+2) *
            r +
        3.3871328727963666080e+0;
    const double under =
        ((((((5.2264952788528545610e+3 * r + 2.8729085735721942674e+4) * r + 3.9307895800092710610e+4) * r +
            2.1213794301586595867e+4) *
               r +
           5.3941960214247511077e+3) *
              r +
          6.8718700749205790830e+2) *
             r +
         4.2313330701600911252e+1) *
            r +
        1.0;
    return q * over / under;
  }
  const double r = std::sqrt(-std::log(q <= 0 ? p : 1.0 - p)) - 1.6;
  const double over =
      ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) * r +
          1.27045825245236838258e+0) *
             r +
         3.64784832476320460504e+0) *
            r +
        5.76949722146069140550e+0) *
           r +
       4.63033784615654529590e+0) *
          r +
      1.42343711074968357734e+0;
  const double under =
      ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) * r +
          1.48103976427480074590e-1) *
             r +
         6.89767334985100004550e-1) *
            r +
        1.67638483018380384940e+0) *
           r +
       2.05319162663775882187e+0) *
          r +
      1.0;
  return q < 0 ? -over / under : over / under;
}

// Values [begin, begin + count) of the row-major array; `initializer` is a resolved one.
void Generate(const Initializer& initializer, const std::array<uint32_t, 2>& key, absl::Span<const int64_t> shape,
              int64_t begin, int64_t count, double* out) {
  const double a = initializer.a, b = initializer.b;
  std::array<uint32_t, 4> words = {};
  switch (initializer.kind) {
    case Initializer::Kind::kOnes:
      std::fill_n(out, count, 1.0);
      return;
    case Initializer::Kind::kConstant:
      std::fill_n(out, count, a);
      return;
    case Initializer::Kind::kArange:
      for (int64_t i = 0; i < count; ++i) out[i] = a + b * static_cast<double>(begin + i);
      return;
    case Initializer::Kind::kEye: {
      int64_t inner = 1;
      for (size_t dim = 2; dim < shape.size(); ++dim) inner *= shape[dim];
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place = (begin + i) / inner;  // row-major in the first two dims
        const bool diagonal = shape.size() < 2 ? begin + i == 0 : place / shape[1] == place % shape[1];
        out[i] = diagonal ? 1 : 0;
      }
      return;
    }
    case Initializer::Kind::kUniform:
    case Initializer::Kind::kTruncatedNormal: {
      const bool uniform = initializer.kind == Initializer::Kind::kUniform;
      constexpr double kLow = 0.022750131948179208;  // the probability below -2
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t position = static_cast<uint64_t>(begin + i);
        if (i == 0 || position % 4 == 0) words = BlockAt(key, position / 4);
        const double unit = UnitOf(words[position % 4]);
        out[i] =
            uniform ? a + (b - a) * unit : a + b * std::clamp(NormalQuantile(kLow + (1 - 2 * kLow) * unit), -2.0, 2.0);
      }
      return;
    }
    case Initializer::Kind::kNormal:
      for (int64_t i = 0; i < count; ++i) {
        // Box-Muller: the cosine branch of the value's own two words; 1 - u lies in (0, 1], so the logarithm is finite.
        const uint64_t position = static_cast<uint64_t>(begin + i);
        if (i == 0 || position % 2 == 0) words = BlockAt(key, position / 2);
        const double radius = std::sqrt(-2.0 * std::log(1.0 - UnitOf(words[2 * (position % 2)])));
        const double angle = 2.0 * std::numbers::pi * UnitOf(words[2 * (position % 2) + 1]);
        out[i] = a + b * radius * std::cos(angle);
      }
      return;
    case Initializer::Kind::kZeros:
    case Initializer::Kind::kKaimingUniform:  // resolved
    case Initializer::Kind::kKaimingNormal:
    case Initializer::Kind::kXavierUniform:
    case Initializer::Kind::kXavierNormal:
      std::fill_n(out, count, 0.0);
      return;
  }
}

template <typename T>
T NearestInteger(double value) {
  if (std::isnan(value)) return 0;
  // Exact: a power of two, where the type's largest value may not be a double.
  const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (value >= limit) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

template <typename T, typename Convert>
void StoreAs(const double* values, int64_t count, char* out, Convert convert) {
  for (int64_t i = 0; i < count; ++i) {
    const T value = convert(values[i]);
    std::memcpy(out + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
}

void Store(const double* values, int64_t count, DType dtype, char* out) {
  switch (dtype) {
    case DType::kF32:
      return StoreAs<float>(values, count, out, [](double v) { return static_cast<float>(v); });
    case DType::kBF16:
      return StoreAs<uint16_t>(values, count, out, [](double v) { return BF16FromFloat(static_cast<float>(v)); });
    case DType::kF16:
      return StoreAs<uint16_t>(values, count, out, [](double v) { return F16FromFloat(static_cast<float>(v)); });
    case DType::kF64:
      return StoreAs<double>(values, count, out, [](double v) { return v; });
    case DType::kI64:
      return StoreAs<int64_t>(values, count, out, NearestInteger<int64_t>);
    case DType::kI32:
      return StoreAs<int32_t>(values, count, out, NearestInteger<int32_t>);
    case DType::kU8:
      return StoreAs<uint8_t>(values, count, out, NearestInteger<uint8_t>);
    case DType::kBool:
      return StoreAs<uint8_t>(values, count, out, [](double v) { return static_cast<uint8_t>(v != 0); });
  }
}

// Calls run(global index, elements) for each run of row-major memory of the block, in its order.
template <typename Run>
void ForEachRun(absl::Span<const int64_t> shape, absl::Span<const std::vector<Interval>> block, const Run& run) {
  // Dims from `inner` on are whole: they belong to the runs of the dim before.
  size_t inner = shape.size();
  int64_t stride = 1;
  while (inner > 0 && block[inner - 1].size() == 1 && block[inner - 1][0] == Interval{0, shape[inner - 1]}) {
    stride *= shape[--inner];
  }
  if (inner == 0) {
    if (stride > 0) run(0, stride);
    return;
  }
  const auto walk = [&](const auto& self, size_t dim, int64_t base) -> void {
    for (const Interval& interval : block[dim]) {
      if (dim + 1 == inner) {
        const int64_t elements = (interval.end - interval.begin) * stride;
        if (elements > 0) run((base * shape[dim] + interval.begin) * stride, elements);
        continue;
      }
      for (int64_t i = interval.begin; i < interval.end; ++i) self(self, dim + 1, base * shape[dim] + i);
    }
  };
  walk(walk, 0, 0);
}

// U(+-1 / sqrt(fan in)), for weight and bias.
bool UniformOfFan(double fan, std::string_view state_name, Initializer* initializer) {
  if (state_name != "weight" && state_name != "bias") return false;
  const double bound = fan > 0 ? 1.0 / std::sqrt(fan) : 0.0;
  *initializer = {Initializer::Kind::kUniform, -bound, bound};
  return true;
}

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

Fan FanOf(absl::Span<const int64_t> shape) {
  TP_CHECK(shape.size() >= 2);
  int64_t field = 1;
  for (size_t dim = 2; dim < shape.size(); ++dim) field *= shape[dim];
  return {shape[1] * field, shape[0] * field};
}

absl::Status CheckInitializer(const Initializer& initializer, absl::Span<const int64_t> shape) {
  if (!NeedsFan(initializer.kind) || shape.size() >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("kaiming and xavier initializers need at least 2 dims, the shape is ", ShapeText(shape)));
}

double InitialValue(const Initializer& initializer, uint64_t seed, std::string_view path,
                    absl::Span<const int64_t> shape, int64_t index) {
  double value = 0;
  InitialValues(initializer, seed, path, shape, index, absl::MakeSpan(&value, 1));
  return value;
}

void InitialValues(const Initializer& initializer, uint64_t seed, std::string_view path,
                   absl::Span<const int64_t> shape, int64_t begin, absl::Span<double> out) {
  const Initializer plain = Resolve(initializer, shape);
  const std::array<uint32_t, 2> key = IsRandom(plain.kind) ? InitializerKey(seed, path) : std::array<uint32_t, 2>{};
  Generate(plain, key, shape, begin, static_cast<int64_t>(out.size()), out.data());
}

absl::Status FillInitial(const Initializer& initializer, uint64_t seed, std::string_view path,
                         absl::Span<const int64_t> shape, absl::Span<const std::vector<Interval>> block, DType dtype,
                         void* out) {
  TP_CHECK(block.size() == shape.size());
  TP_RETURN_IF_ERROR(CheckInitializer(initializer, shape));
  const Initializer plain = Resolve(initializer, shape);
  const std::array<uint32_t, 2> key = IsRandom(plain.kind) ? InitializerKey(seed, path) : std::array<uint32_t, 2>{};
  char* next = static_cast<char*>(out);
  ForEachRun(shape, block, [&](int64_t index, int64_t count) {
    double values[kChunk];
    for (int64_t done = 0; done < count; done += kChunk) {
      const int64_t n = std::min(kChunk, count - done);
      Generate(plain, key, shape, index + done, n, values);
      Store(values, n, dtype, next);
      next += n * ItemSize(dtype);
    }
  });
  return absl::OkStatus();
}

bool DefaultInitializer(const ModuleConfig& module_config, std::string_view state_name, Initializer* initializer) {
  if (const auto* linear = std::get_if<LinearConfig>(&module_config)) {
    return UniformOfFan(static_cast<double>(linear->in_features), state_name, initializer);
  }
  if (const auto* conv = std::get_if<ConvConfig>(&module_config)) {
    double fan = static_cast<double>(conv->in_channels) / static_cast<double>(conv->groups);
    for (int64_t size : conv->kernel_size) fan *= static_cast<double>(size);
    return UniformOfFan(fan, state_name, initializer);
  }
  if (std::holds_alternative<EmbeddingConfig>(module_config) && state_name == "weight") {
    *initializer = {Initializer::Kind::kNormal, 0, 1};
    return true;
  }
  const bool norm =
      std::holds_alternative<RMSNormConfig>(module_config) || std::holds_alternative<LayerNormConfig>(module_config);
  if (norm && state_name == "weight") {
    *initializer = {Initializer::Kind::kOnes, 0, 0};
    return true;
  }
  if (norm && state_name == "bias") {
    *initializer = {Initializer::Kind::kZeros, 0, 0};
    return true;
  }
  return false;
}

}  // namespace tp

// A dim of a shape as an integer polynomial in symbols, in canonical form: batch and time stay symbols through
// compiling, so one program serves every size. Example:
//   Dim t = Dim::Symbol("time"); Dim n = Dim::Symbol("batch") * t * 32;   // prints "32*batch*time"
//   n.DividedBy(Dim::Symbol("batch") * 8) is 4*time;  n.Evaluate({{"batch", 2}, {"time", 3}}) is 192.
// Immutable value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/shape.h"

namespace tp {

// Values of symbols, each >= 0.
using Bindings = std::map<std::string, int64_t>;

class Dim {
 public:
  Dim() = default;     // 0
  Dim(int64_t value);  // NOLINT: a number is a dim
  static Dim Symbol(const std::string& name);

  bool IsConstant() const;
  // The value of a constant dim; TP_CHECKs IsConstant().
  int64_t constant() const;
  std::vector<std::string> Symbols() const;

  Dim operator+(const Dim& other) const;
  Dim operator-(const Dim& other) const;
  Dim operator*(const Dim& other) const;
  // The exact quotient by a divisor of one term; nullopt where it is not a polynomial with integer coefficients.
  std::optional<Dim> DividedBy(const Dim& divisor) const;
  bool operator==(const Dim& other) const { return terms_ == other.terms_; }
  bool operator!=(const Dim& other) const { return !(*this == other); }

  // INVALID_ARGUMENT for a symbol without a value, a negative result or an overflow.
  absl::StatusOr<int64_t> Evaluate(const Bindings& bindings) const;
  // Canonical text, as "32*batch*time + 1"; ParseDim reads it back.
  std::string ToString() const;

 private:
  // Monomial (sorted symbol names, repeated for powers) -> coefficient, never 0.
  std::map<std::vector<std::string>, int64_t> terms_;
};

// Sums of products of integers and symbols ([A-Za-z_][A-Za-z0-9_]*). INVALID_ARGUMENT with the text otherwise.
absl::StatusOr<Dim> ParseDim(std::string_view text);

using SymShape = std::vector<Dim>;

absl::StatusOr<Shape> EvaluateShape(absl::Span<const Dim> shape, const Bindings& bindings);
SymShape ToSymShape(absl::Span<const int64_t> shape);
// "[batch, time, 256]".
std::string SymShapeText(absl::Span<const Dim> shape);
Dim ProductOf(absl::Span<const Dim> shape);

}  // namespace tp

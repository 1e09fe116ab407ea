#include "common/tensor/dim.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace tp {
namespace {

using Monomial = std::vector<std::string>;
using Terms = std::map<Monomial, int64_t>;

// A polynomial whose coefficients left int64 is this one symbol, which no text can name and no binding can give a
// value: it stays through all arithmetic and Evaluate refuses it.
const char kOverflow[] = "<overflow>";

Terms OverflowTerms() { return {{Monomial{kOverflow}, 1}}; }

bool Overflowed(const Terms& terms) {
  return terms.size() == 1 && terms.begin()->first.size() == 1 && terms.begin()->first[0] == kOverflow;
}

// Adds `coefficient` times `monomial`; false where the sum leaves int64.
bool AddTerm(Terms& terms, const Monomial& monomial, int64_t coefficient) {
  int64_t& sum = terms[monomial];
  if (__builtin_add_overflow(sum, coefficient, &sum)) return false;
  if (sum == 0) terms.erase(monomial);
  return true;
}

// The sorted symbols of a times b.
Monomial Merge(const Monomial& a, const Monomial& b) {
  Monomial merged;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(merged));
  return merged;
}

}  // namespace

Dim::Dim(int64_t value) {
  if (value != 0) terms_[{}] = value;
}

Dim Dim::Symbol(const std::string& name) {
  Dim dim;
  dim.terms_[{name}] = 1;
  return dim;
}

bool Dim::IsConstant() const { return terms_.empty() || (terms_.size() == 1 && terms_.begin()->first.empty()); }

int64_t Dim::constant() const {
  TP_CHECK(IsConstant());
  return terms_.empty() ? 0 : terms_.begin()->second;
}

std::vector<std::string> Dim::Symbols() const {
  std::vector<std::string> symbols;
  for (const auto& [monomial, coefficient] : terms_) symbols.insert(symbols.end(), monomial.begin(), monomial.end());
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  return symbols;
}

Dim Dim::operator+(const Dim& other) const {
  if (Overflowed(terms_)) return *this;
  if (Overflowed(other.terms_)) return other;
  Dim sum = *this;
  for (const auto& [monomial, coefficient] : other.terms_) {
    if (!AddTerm(sum.terms_, monomial, coefficient)) {
      sum.terms_ = OverflowTerms();
      break;
    }
  }
  return sum;
}

Dim Dim::operator-(const Dim& other) const { return *this + other * Dim(-1); }

Dim Dim::operator*(const Dim& other) const {
  if (Overflowed(terms_)) return *this;
  if (Overflowed(other.terms_)) return other;
  Dim product;
  for (const auto& [monomial, coefficient] : terms_) {
    for (const auto& [other_monomial, other_coefficient] : other.terms_) {
      int64_t value = 0;
      if (__builtin_mul_overflow(coefficient, other_coefficient, &value) ||
          !AddTerm(product.terms_, Merge(monomial, other_monomial), value)) {
        product.terms_ = OverflowTerms();
        return product;
      }
    }
  }
  return product;
}

std::optional<Dim> Dim::DividedBy(const Dim& divisor) const {
  if (divisor.terms_.size() != 1 || Overflowed(divisor.terms_) || Overflowed(terms_)) return std::nullopt;
  const auto& [by, by_coefficient] = *divisor.terms_.begin();
  Dim quotient;
  for (const auto& [monomial, coefficient] : terms_) {
    // int64's least value over -1 is the one quotient that does not fit.
    if (by_coefficient == -1 && coefficient == INT64_MIN) return std::nullopt;
    if (coefficient % by_coefficient != 0) return std::nullopt;
    if (!std::includes(monomial.begin(), monomial.end(), by.begin(), by.end())) return std::nullopt;
    Monomial rest;
    std::set_difference(monomial.begin(), monomial.end(), by.begin(), by.end(), std::back_inserter(rest));
    quotient.terms_[rest] = coefficient / by_coefficient;
  }
  return quotient;
}

absl::StatusOr<int64_t> Dim::Evaluate(const Bindings& bindings) const {
  const auto overflow = [this] { return absl::InvalidArgumentError(absl::StrCat("dim ", ToString(), " overflows")); };
  if (Overflowed(terms_)) return overflow();
  int64_t sum = 0;
  for (const auto& [monomial, coefficient] : terms_) {
    int64_t value = coefficient;
    for (const std::string& symbol : monomial) {
      const auto found = bindings.find(symbol);
      if (found == bindings.end()) {
        return absl::InvalidArgumentError(absl::StrCat("no value for symbol ", symbol, " of dim ", ToString()));
      }
      if (found->second < 0) {
        return absl::InvalidArgumentError(absl::StrCat("symbol ", symbol, " is negative: ", found->second));
      }
      if (__builtin_mul_overflow(value, found->second, &value)) return overflow();
    }
    if (__builtin_add_overflow(sum, value, &sum)) return overflow();
  }
  if (sum < 0) return absl::InvalidArgumentError(absl::StrCat("dim ", ToString(), " is negative: ", sum));
  return sum;
}

std::string Dim::ToString() const {
  // Highest degree first, the constant last.
  std::vector<std::pair<Monomial, int64_t>> ordered(terms_.begin(), terms_.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  std::string text;
  for (const auto& [monomial, coefficient] : ordered) {
    const bool negative = coefficient < 0;
    if (text.empty()) {
      if (negative) text.push_back('-');
    } else {
      absl::StrAppend(&text, negative ? " - " : " + ");
    }
    const uint64_t magnitude = negative ? uint64_t{0} - static_cast<uint64_t>(coefficient) : coefficient;
    if (monomial.empty() || magnitude != 1) absl::StrAppend(&text, magnitude, monomial.empty() ? "" : "*");
    absl::StrAppend(&text, absl::StrJoin(monomial, "*"));
  }
  return text.empty() ? "0" : text;
}

absl::StatusOr<Shape> EvaluateShape(absl::Span<const Dim> shape, const Bindings& bindings) {
  Shape values;
  for (const Dim& dim : shape) {
    TP_ASSIGN_OR_RETURN(const int64_t value, dim.Evaluate(bindings));
    values.push_back(value);
  }
  return values;
}

SymShape ToSymShape(absl::Span<const int64_t> shape) { return SymShape(shape.begin(), shape.end()); }

std::string SymShapeText(absl::Span<const Dim> shape) {
  return absl::StrCat(
      "[", absl::StrJoin(shape, ", ", [](std::string* out, const Dim& dim) { out->append(dim.ToString()); }), "]");
}

Dim ProductOf(absl::Span<const Dim> shape) {
  Dim product(1);
  for (const Dim& dim : shape) product = product * dim;
  return product;
}

}  // namespace tp

// ParseDim: reads Dim::ToString's form back.
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/dim.h"

namespace tp {
namespace {

// sum = ["-"] product {("+" | "-") product};  product = factor {"*" factor};  factor = integer | symbol.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Dim> Sum() {
    Dim sum;
    bool negative = Take('-');
    while (true) {
      std::optional<Dim> product = Product();
      if (!product.has_value()) return std::nullopt;
      sum = negative ? sum - *product : sum + *product;
      if (AtEnd()) return sum;
      if (Take('+')) {
        negative = false;
      } else if (Take('-')) {
        negative = true;
      } else {
        return std::nullopt;
      }
    }
  }

 private:
  std::optional<Dim> Product() {
    Dim product(1);
    do {
      std::optional<Dim> factor = Factor();
      if (!factor.has_value()) return std::nullopt;
      product = product * *factor;
    } while (Take('*'));
    return product;
  }

  std::optional<Dim> Factor() {
    SkipSpaces();
    const size_t begin = at_;
    while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) || text_[at_] == '_')) ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (word.empty()) return std::nullopt;
    if (!absl::ascii_isdigit(word[0])) return Dim::Symbol(word);
    int64_t value = 0;
    if (!absl::SimpleAtoi(word, &value)) return std::nullopt;
    return Dim(value);
  }

  void SkipSpaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool AtEnd() {
    SkipSpaces();
    return at_ == text_.size();
  }
  bool Take(char c) {
    SkipSpaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<Dim> ParseDim(std::string_view text) {
  // Bounds the work: a product of many sums can't be written, but a long list of terms can.
  constexpr size_t kMaxLength = 4096;
  std::optional<Dim> dim;
  if (text.size() <= kMaxLength) dim = Parser(text).Sum();
  if (dim.has_value()) return *std::move(dim);
  return absl::InvalidArgumentError(absl::StrCat("bad dim \"", std::string(text.substr(0, 64)),
                                                 "\"; expected sums of products such as 32*batch*time + 1"));
}

}  // namespace tp

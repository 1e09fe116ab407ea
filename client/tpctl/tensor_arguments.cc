#include "client/tpctl/tensor_arguments.h"

#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace tp::client {
namespace {

struct InitializerForm {
  const char* name;
  Initializer::Kind kind;
  int required, allowed;  // numbers in the parentheses
  double a, b;            // where they are left out
  const char* form;
};
constexpr InitializerForm kInitializers[] = {
    {"zeros", Initializer::Kind::kZeros, 0, 0, 0, 0, "zeros"},
    {"ones", Initializer::Kind::kOnes, 0, 0, 0, 0, "ones"},
    {"constant", Initializer::Kind::kConstant, 1, 1, 0, 0, "constant(V)"},
    {"arange", Initializer::Kind::kArange, 0, 2, 0, 1, "arange(start,step)"},
    {"eye", Initializer::Kind::kEye, 0, 0, 0, 0, "eye"},
    {"uniform", Initializer::Kind::kUniform, 0, 2, 0, 1, "uniform(low,high)"},
    {"normal", Initializer::Kind::kNormal, 0, 2, 0, 1, "normal(mean,std)"},
    {"truncated_normal", Initializer::Kind::kTruncatedNormal, 0, 2, 0, 1, "truncated_normal(mean,std)"},
    {"kaiming_uniform", Initializer::Kind::kKaimingUniform, 0, 0, 0, 0, "kaiming_uniform"},
    {"kaiming_normal", Initializer::Kind::kKaimingNormal, 0, 0, 0, 0, "kaiming_normal"},
    {"xavier_uniform", Initializer::Kind::kXavierUniform, 0, 0, 0, 0, "xavier_uniform"},
    {"xavier_normal", Initializer::Kind::kXavierNormal, 0, 0, 0, 0, "xavier_normal"},
};

absl::Status BadInitializer(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("--init '", text.substr(0, 64), "' is none of ", InitializerForms()));
}

}  // namespace

std::string InitializerForms() {
  std::vector<std::string> forms;
  for (const InitializerForm& form : kInitializers) forms.push_back(form.form);
  return absl::StrJoin(forms, ", ");
}

absl::StatusOr<Shape> ParseShapeText(const std::string& text) {
  Shape shape;
  const std::string stripped(absl::StripAsciiWhitespace(text));
  if (stripped.empty() || stripped == "[]") return shape;
  for (absl::string_view word : absl::StrSplit(stripped, absl::ByAnyChar("xX"))) {
    int64_t size = 0;
    word = absl::StripAsciiWhitespace(word);
    if (!absl::SimpleAtoi(word, &size))
      return absl::InvalidArgumentError(
          absl::StrCat("bad shape '", text.substr(0, 64), "'; expected sizes joined by x, as in 5x3"));
    if (size < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("bad shape '", text.substr(0, 64), "': size ", size, " is negative"));
    shape.push_back(size);
  }
  return shape;
}

absl::StatusOr<NamedPlacements> ParsePlacementsOption(const std::string& text) {
  auto named = ParseNamedPlacements(text);
  if (!named.ok()) return Annotate(named.status(), "--placements");
  return NamedPlacements(named->begin(), named->end());
}

absl::StatusOr<double> ParseFinite(const std::string& text) {
  double value = 0;
  const absl::string_view word = absl::StripAsciiWhitespace(text);
  if (!absl::SimpleAtod(word, &value)) return absl::InvalidArgumentError(absl::StrCat("'", word, "' is not a number"));
  if (!std::isfinite(value))
    return absl::InvalidArgumentError(absl::StrCat("'", word, "' is not a finite number of type F64"));
  return value;
}

absl::StatusOr<Initializer> ParseInitializer(const std::string& text) {
  const std::string whole(absl::StripAsciiWhitespace(text));
  const size_t open = whole.find('(');
  const std::string name = whole.substr(0, open);
  std::vector<double> numbers;
  if (open != std::string::npos) {
    if (whole.back() != ')') return BadInitializer(text);
    const std::string inside = whole.substr(open + 1, whole.size() - open - 2);
    if (!absl::StripAsciiWhitespace(inside).empty()) {
      const std::vector<std::string> words = absl::StrSplit(inside, ',');
      for (const std::string& word : words) {
        absl::StatusOr<double> number = ParseFinite(word);
        if (!number.ok()) return Annotate(number.status(), absl::StrCat("--init ", name));
        numbers.push_back(*number);
      }
    }
  }
  for (const InitializerForm& form : kInitializers) {
    if (name != form.name) continue;
    const int count = static_cast<int>(numbers.size());
    if (count < form.required || count > form.allowed) return BadInitializer(text);
    Initializer initializer{form.kind, count > 0 ? numbers[0] : form.a, count > 1 ? numbers[1] : form.b};
    // On the wire 0 stands for the default of 1.
    if (form.kind == Initializer::Kind::kArange && initializer.b == 0)
      return absl::InvalidArgumentError("--init arange: a step of 0 gives a constant; use constant(V)");
    const bool normal = form.kind == Initializer::Kind::kNormal || form.kind == Initializer::Kind::kTruncatedNormal;
    if (normal && initializer.b <= 0)
      return absl::InvalidArgumentError(absl::StrCat("--init ", name, ": the standard deviation must be over 0"));
    return initializer;
  }
  return BadInitializer(text);
}

absl::Status ParseSourceRank(const std::string& text, PutTensorOptions* options) {
  int rank = 0;
  if (text == "none") {
    options->no_src_data_rank = true;
  } else if (absl::SimpleAtoi(text, &rank) && rank >= 0) {
    options->src_data_rank = rank;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("--src-data-rank '", text, "' is neither a coordinate nor none"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RankFile> ParseRankFile(const std::string& text) {
  const size_t equals = text.find('=');
  RankFile result;
  if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(0, equals), &result.rank) || result.rank < 0 ||
      equals + 1 == text.size())
    return absl::InvalidArgumentError(absl::StrCat("--local '", text, "' is not RANK=FILE"));
  result.file = text.substr(equals + 1);
  return result;
}

}  // namespace tp::client

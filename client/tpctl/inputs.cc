#include "client/tpctl/inputs.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/checkpoint/npy.h"
#include "common/checkpoint/safetensors.h"

namespace tp::client {
namespace {

absl::StatusOr<HostTensor> ReadFile(const std::string& name, const std::string& path) {
  if (absl::EndsWith(path, ".npy")) return ReadNpy(path);
  TP_ASSIGN_OR_RETURN(auto tensors, ReadSafetensors(path));
  auto it = tensors.find(name);
  if (it == tensors.end() && tensors.size() == 1) it = tensors.begin();
  if (it == tensors.end()) {
    std::vector<std::string> names;
    for (const auto& [key, tensor] : tensors) names.push_back(key);
    return absl::NotFoundError(
        absl::StrCat(path, " has no tensor '", name, "'; it has ", JoinNames(NearestNames(name, names, 8))));
  }
  return it->second;
}

std::string DTypeText(DType dtype) { return std::string(DTypeName(dtype)); }

absl::Status NoNumber(absl::string_view word, DType dtype) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", word, "' is neither a number of type ", DTypeText(dtype), " nor a .npy or .safetensors file"));
}

// Digits, and not the words inf and nan: 1e400 is read as infinity, but does not mean it.
bool IsWrittenFinite(absl::string_view word) { return word.find_first_of("0123456789") != absl::string_view::npos; }

bool IsWhole(absl::string_view word) {
  if (!word.empty() && (word[0] == '-' || word[0] == '+')) word.remove_prefix(1);
  return !word.empty() && word.find_first_not_of("0123456789") == absl::string_view::npos;
}

// `value` rounded to the type.
double AsDType(double value, DType dtype) {
  return ConvertTo(ConvertTo(MakeHostTensor<double>({}, {value}), dtype), DType::kF64).data<double>()[0];
}

// Of an integer type, or BOOL, which takes any number as true or false.
bool InRange(int64_t value, DType dtype) {
  if (dtype == DType::kI32) return value >= INT32_MIN && value <= INT32_MAX;
  if (dtype == DType::kU8) return value >= 0 && value <= UINT8_MAX;
  return true;
}

absl::StatusOr<HostTensor> ParseNumbers(const std::string& text, const InputType& type) {
  if (absl::StripAsciiWhitespace(text).empty()) return absl::InvalidArgumentError("no values are given");
  std::vector<double> reals;
  std::vector<int64_t> integers;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    word = absl::StripAsciiWhitespace(word);
    double real = 0;
    int64_t integer = 0;
    const absl::Status outside =
        absl::InvalidArgumentError(absl::StrCat("'", word, "' is outside of the range of ", DTypeText(type.dtype)));
    if (IsFloating(type.dtype)) {
      if (!absl::SimpleAtod(word, &real)) return NoNumber(word, type.dtype);
      if (IsWrittenFinite(word) && !std::isfinite(AsDType(real, type.dtype))) return outside;
    } else {
      if (!IsWhole(word)) return NoNumber(word, type.dtype);
      if (!absl::SimpleAtoi(word, &integer) || !InRange(integer, type.dtype)) return outside;
    }
    reals.push_back(real);
    integers.push_back(integer);
  }
  Shape shape(type.shape.size(), 1);
  if (shape.empty() && reals.size() != 1)
    return absl::InvalidArgumentError(absl::StrCat("one number is needed for a scalar, ", reals.size(), " given"));
  if (!shape.empty()) shape.back() = static_cast<int64_t>(reals.size());
  return ConvertTo(
      IsFloating(type.dtype) ? MakeHostTensor<double>(shape, reals) : MakeHostTensor<int64_t>(shape, integers),
      type.dtype);
}

absl::StatusOr<HostTensor> ParseOne(const std::string& value, const InputType& type) {
  if (absl::StartsWith(value, "@"))
    return absl::UnimplementedError("named tensors as inputs (NAME=@TENSOR) are not built yet");
  if (!absl::EndsWith(value, ".npy") && !absl::EndsWith(value, ".safetensors")) return ParseNumbers(value, type);
  TP_ASSIGN_OR_RETURN(HostTensor tensor, ReadFile(type.name, value));
  if (tensor.dtype == type.dtype) return tensor;
  if (IsFloating(tensor.dtype) != IsFloating(type.dtype))
    return absl::InvalidArgumentError(absl::StrCat("the model takes ", std::string(DTypeName(type.dtype)), ", ", value,
                                                   " holds ", std::string(DTypeName(tensor.dtype))));
  return ConvertTo(tensor, type.dtype);
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ParseInputs(const std::vector<std::string>& arguments,
                                                     const std::vector<InputType>& types) {
  std::vector<std::string> names;
  for (const InputType& type : types) names.push_back(type.name);
  std::vector<NamedTensor> inputs;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos)
      return absl::InvalidArgumentError(absl::StrCat("--input '", argument, "' is not NAME=FILE or NAME=1,2,3"));
    const std::string name = argument.substr(0, equals);
    const InputType* type = nullptr;
    for (const InputType& candidate : types)
      if (candidate.name == name) type = &candidate;
    if (type == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("the model has no input '", name, "'; it has ", JoinNames(NearestNames(name, names, 8))));
    absl::StatusOr<HostTensor> tensor = ParseOne(argument.substr(equals + 1), *type);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("--input ", name));
    inputs.push_back({name, *std::move(tensor)});
  }
  return inputs;
}

absl::StatusOr<std::vector<int64_t>> ParseIntegers(const std::string& text) {
  std::vector<int64_t> numbers;
  if (absl::StripAsciiWhitespace(text).empty()) return numbers;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(word, &number))
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' is not a whole number"));
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace tp::client

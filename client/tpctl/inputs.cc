#include "client/tpctl/inputs.h"

#include <cmath>

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

absl::StatusOr<HostTensor> ParseNumbers(const std::string& text, const InputType& type) {
  if (absl::StripAsciiWhitespace(text).empty()) return absl::InvalidArgumentError("no values are given");
  std::vector<double> reals;
  std::vector<int64_t> integers;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    word = absl::StripAsciiWhitespace(word);
    double real = 0;
    int64_t integer = 0;
    if (IsFloating(type.dtype) ? !absl::SimpleAtod(word, &real) : !absl::SimpleAtoi(word, &integer))
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' is neither a number of type ",
                                                     std::string(DTypeName(type.dtype)),
                                                     " nor a .npy or .safetensors file"));
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

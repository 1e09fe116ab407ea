#include "client/tpctl/inputs.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

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

// Of a file, in the input's type where that is exact in kind.
absl::StatusOr<HostTensor> ReadAs(const std::string& path, const InputType& type) {
  TP_ASSIGN_OR_RETURN(HostTensor tensor, ReadFile(type.name, path));
  if (tensor.dtype == type.dtype) return tensor;
  if (IsFloating(tensor.dtype) != IsFloating(type.dtype))
    return absl::InvalidArgumentError(absl::StrCat("the model takes ", std::string(DTypeName(type.dtype)), ", ", path,
                                                   " holds ", std::string(DTypeName(tensor.dtype))));
  return ConvertTo(tensor, type.dtype);
}

absl::StatusOr<HostTensor> ParseOne(const std::string& value, const InputType& type) {
  if (absl::StartsWith(value, "@")) return absl::InvalidArgumentError("only forward takes a named tensor (@TENSOR)");
  if (!absl::EndsWith(value, ".npy") && !absl::EndsWith(value, ".safetensors")) return ParseNumbers(value, type);
  return ReadAs(value, type);
}

absl::StatusOr<const InputType*> TypeOf(const std::string& name, const std::vector<InputType>& types) {
  std::vector<std::string> names;
  for (const InputType& type : types) {
    if (type.name == name) return &type;
    names.push_back(type.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the model has no input '", name, "'; it has ", JoinNames(NearestNames(name, names, 8))));
}

// `forms`: what may stand there.
absl::Status Split(const std::string& argument, const char* forms, std::string* name, std::string* value) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat("--input '", argument, "' is not ", forms));
  *name = argument.substr(0, equals);
  *value = argument.substr(equals + 1);
  return absl::OkStatus();
}

// "NAME:RANK=FILE".
absl::Status AddShard(const std::string& word, const std::vector<InputType>& types,
                      std::map<std::string, ForwardInput>* inputs) {
  const size_t equals = word.find('='), colon = word.rfind(':', equals);
  int rank = -1;
  if (equals == std::string::npos || colon == std::string::npos || colon == 0 || equals + 1 == word.size() ||
      !absl::SimpleAtoi(word.substr(colon + 1, equals - colon - 1), &rank) || rank < 0)
    return absl::InvalidArgumentError(absl::StrCat("--input-shard '", word, "' is not NAME:RANK=FILE"));
  const std::string name = word.substr(0, colon);
  TP_ASSIGN_OR_RETURN(const InputType* type, TypeOf(name, types));
  absl::StatusOr<HostTensor> tensor = ReadAs(word.substr(equals + 1), *type);
  if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("--input-shard ", name, ":", rank));
  ForwardInput& input = (*inputs)[name];
  input.name = name;
  for (const InputShard& shard : input.shards)
    if (shard.rank == rank)
      return absl::InvalidArgumentError(absl::StrCat("--input-shard ", name, ": rank ", rank, " is given twice"));
  input.shards.push_back({rank, *std::move(tensor)});
  return absl::OkStatus();
}

// "NAME:tp=S(1)".
absl::Status AddPlacements(const std::string& word, std::map<std::string, ForwardInput>* inputs) {
  const size_t colon = word.find(':');
  if (colon == std::string::npos || colon == 0)
    return absl::InvalidArgumentError(absl::StrCat("--input-placements '", word, "' is not NAME:tp=S(1)"));
  const std::string name = word.substr(0, colon), option = absl::StrCat("--input-placements ", name);
  const auto it = inputs->find(name);
  if (it == inputs->end()) return absl::InvalidArgumentError(absl::StrCat(option, ": it has no --input-shard"));
  if (!it->second.placements.empty()) return absl::InvalidArgumentError(absl::StrCat(option, " is given twice"));
  auto named = ParseNamedPlacements(word.substr(colon + 1));
  if (!named.ok()) return Annotate(named.status(), option);
  it->second.placements = NamedPlacements(named->begin(), named->end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ParseInputs(const std::vector<std::string>& arguments,
                                                     const std::vector<InputType>& types) {
  std::vector<NamedTensor> inputs;
  for (const std::string& argument : arguments) {
    std::string name, value;
    TP_RETURN_IF_ERROR(Split(argument, "NAME=1,2,3 or NAME=FILE", &name, &value));
    TP_ASSIGN_OR_RETURN(const InputType* type, TypeOf(name, types));
    absl::StatusOr<HostTensor> tensor = ParseOne(value, *type);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("--input ", name));
    inputs.push_back({name, *std::move(tensor)});
  }
  return inputs;
}

std::optional<Shape> ShapeOfShards(const std::vector<InputShard>& shards, const NamedPlacements& placements,
                                   const Mesh& mesh) {
  if (shards.empty()) return std::nullopt;
  const int dims = static_cast<int>(shards[0].tensor.shape.size());
  // By axis the dim that it cuts, -1 for none, and how many neighbours hold the same chunk.
  std::vector<int> cuts(mesh.axis_count(), -1), neighbours(mesh.axis_count(), 1);
  for (const auto& [name, placement] : placements) {
    const absl::StatusOr<int> axis = mesh.AxisIndex(name);
    if (!axis.ok()) return std::nullopt;
    if (!placement.IsSharding()) continue;
    if (placement.dim < -dims || placement.dim >= dims) return std::nullopt;
    cuts[*axis] = placement.dim < 0 ? placement.dim + dims : placement.dim;
    if (placement.kind != PlacementKind::kGroupShard) continue;
    if (placement.groups < 1 || mesh.axis_size(*axis) % placement.groups != 0) return std::nullopt;
    neighbours[*axis] = mesh.axis_size(*axis) / placement.groups;
  }
  Shape shape(dims, 0);
  for (const InputShard& shard : shards) {
    if (shard.rank < 0 || shard.rank >= mesh.rank_count() || static_cast<int>(shard.tensor.shape.size()) != dims)
      return std::nullopt;
    const Coordinate coordinate = mesh.CoordinateOf(shard.rank);
    for (int dim = 0; dim < dims; ++dim) {
      bool counts = true;
      for (int axis = 0; axis < mesh.axis_count(); ++axis) {
        counts = counts && (cuts[axis] == dim ? coordinate[axis] % neighbours[axis] == 0 : coordinate[axis] == 0);
      }
      if (counts) shape[dim] += shard.tensor.shape[dim];
    }
  }
  return shape;
}

absl::StatusOr<std::vector<ForwardInput>> ParseForwardInputs(const InputWords& words,
                                                             const std::vector<InputType>& types, const Mesh& mesh) {
  std::vector<ForwardInput> inputs;
  for (const std::string& argument : words.inputs) {
    std::string name, value;
    TP_RETURN_IF_ERROR(Split(argument, "NAME=1,2,3, NAME=FILE or NAME=@TENSOR", &name, &value));
    TP_ASSIGN_OR_RETURN(const InputType* type, TypeOf(name, types));
    ForwardInput input{.name = name};
    if (absl::StartsWith(value, "@")) {
      input.ref = value.substr(1);
      if (input.ref.empty()) return absl::InvalidArgumentError(absl::StrCat("--input ", name, ": no tensor after @"));
    } else {
      absl::StatusOr<HostTensor> tensor = ParseOne(value, *type);
      if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("--input ", name));
      input.full = *std::move(tensor);
    }
    inputs.push_back(std::move(input));
  }
  std::map<std::string, ForwardInput> sharded;
  for (const std::string& word : words.shards) TP_RETURN_IF_ERROR(AddShard(word, types, &sharded));
  for (const std::string& word : words.placements) TP_RETURN_IF_ERROR(AddPlacements(word, &sharded));
  for (auto& [name, input] : sharded) {
    for (const ForwardInput& other : inputs)
      if (other.name == name)
        return absl::InvalidArgumentError(absl::StrCat("'", name, "' is given by --input and by --input-shard"));
  }
  for (auto& [name, input] : sharded) {
    input.global_shape = ShapeOfShards(input.shards, input.placements, mesh);
    inputs.push_back(std::move(input));
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

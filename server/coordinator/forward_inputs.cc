#include "server/coordinator/forward_inputs.h"

#include <algorithm>
#include <vector>

#include "common/base/names.h"
#include "common/base/status.h"

namespace tp::server {
namespace {

// The index of flat element `index`.
Shape PositionOf(absl::Span<const int64_t> shape, int64_t index) {
  Shape position(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = index % shape[d];
    index /= shape[d];
  }
  return position;
}

template <typename T>
absl::Status CheckRange(const std::string& name, const HostTensor& tensor, int64_t limit) {
  const T* values = tensor.data<T>();
  const int64_t count = ElementCount(tensor.shape);
  for (int64_t i = 0; i < count; ++i) {
    T value;  // the bytes may lie at any address
    std::memcpy(&value, values + i, sizeof(T));
    if (static_cast<int64_t>(value) < 0 || static_cast<int64_t>(value) >= limit) {
      return absl::InvalidArgumentError(absl::StrCat("input '", name, "' position ",
                                                     ShapeText(PositionOf(tensor.shape, i)), ": id ", value,
                                                     " outside [0, ", limit, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Bindings> CheckForwardInputs(const ModelDef& model, const ForwardProgram& program,
                                            const std::map<std::string, HostTensor>& inputs) {
  std::vector<std::string> names;
  for (const ModelInput& input : model.inputs) names.push_back(input.name);
  for (const auto& [name, tensor] : inputs) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", name, "': the model has no such input; nearest: ", JoinNames(NearestNames(name, names))));
    }
  }
  std::map<std::string, Shape> shapes;
  for (const ModelInput& input : model.inputs) {
    const auto it = inputs.find(input.name);
    const std::string declared = absl::StrCat(std::string(DTypeName(input.dtype)), SymShapeText(input.shape));
    if (it == inputs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "' (", declared, ") is missing"));
    }
    if (it->second.dtype != input.dtype) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", input.name, "': is ", std::string(DTypeName(it->second.dtype)), ", expected ", declared));
    }
    TP_RETURN_IF_ERROR(Annotate(ValidateHostTensor(it->second), absl::StrCat("input '", input.name, "'")));
    const bool used = std::any_of(program.operands.begin(), program.operands.end(), [&](const Operand& operand) {
      return operand.kind == OperandKind::kInput && operand.name == input.name;
    });
    if (used) shapes[input.name] = it->second.shape;
  }
  TP_ASSIGN_OR_RETURN(Bindings bindings, BindInputs(program, shapes));
  for (const InputCheck& check : program.input_checks) {
    const auto it = inputs.find(check.input);
    if (it == inputs.end()) continue;
    if (it->second.dtype == DType::kI64) TP_RETURN_IF_ERROR(CheckRange<int64_t>(check.input, it->second, check.limit));
    if (it->second.dtype == DType::kI32) TP_RETURN_IF_ERROR(CheckRange<int32_t>(check.input, it->second, check.limit));
  }
  return bindings;
}

absl::StatusOr<std::string> CutBlock(const HostTensor& tensor, const Placements& placements, const Mesh& mesh,
                                     absl::Span<const int> coordinate) {
  for (const Placement& placement : placements) {
    if (placement.IsPartial())
      return absl::UnimplementedError("inputs that are delivered as a Partial are not built yet");
  }
  const Shape local = LocalShape(tensor.shape, placements, mesh, coordinate);
  if (local == tensor.shape) return tensor.bytes;
  const int64_t item_size = ItemSize(tensor.dtype);
  std::string block(static_cast<size_t>(ElementCount(local) * item_size), '\0');
  if (block.empty()) return block;
  const size_t rank = tensor.shape.size();
  std::vector<std::vector<Interval>> intervals(rank);
  for (size_t d = 0; d < rank; ++d) {
    intervals[d] = OwnedIntervals(tensor.shape[d], static_cast<int>(d), placements, mesh, coordinate);
  }
  // Every combination of one interval a dim is a box: at `from` in the tensor and at `to` in the block.
  std::vector<size_t> index(rank, 0);
  while (true) {
    Shape from(rank), to(rank, 0), sizes(rank);
    for (size_t d = 0; d < rank; ++d) {
      from[d] = intervals[d][index[d]].begin;
      sizes[d] = intervals[d][index[d]].end - from[d];
      for (size_t i = 0; i < index[d]; ++i) to[d] += intervals[d][i].end - intervals[d][i].begin;
    }
    CopyBox(tensor.bytes.data(), tensor.shape, from, block.data(), local, to, sizes, item_size);
    size_t d = rank;
    while (d > 0 && ++index[d - 1] == intervals[d - 1].size()) index[--d] = 0;
    if (d == 0) return block;
  }
}

}  // namespace tp::server

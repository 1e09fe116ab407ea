#include "server/coordinator/forward_inputs.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "common/base/names.h"
#include "common/base/status.h"
#include "common/layout/boxes.h"
#include "server/coordinator/tensor_plan.h"

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

struct BadId {
  int64_t at = 0;  // row-major in the global tensor
  int64_t id = 0;
};

// The first id of a box of a row-major array that is outside [0, limit), at its place in the global tensor; `first`
// where that one is before it.
template <typename T>
void FindBad(const std::string& bytes, const Shape& shape, const Box& box, const Shape& global, const InputCheck& check,
             std::optional<BadId>* first) {
  const Shape strides = RowMajorStrides(shape), global_strides = RowMajorStrides(global);
  const int64_t count = ElementCount(box.shape);
  const bool whole = box.shape == global;
  for (int64_t i = 0; i < count; ++i) {
    int64_t from = whole ? i : 0, at = from, rest = i;
    for (size_t d = whole ? 0 : box.shape.size(); d-- > 0;) {
      const int64_t index = rest % box.shape[d];
      rest /= box.shape[d];
      from += (box.local[d] + index) * strides[d];
      at += (box.offset[d] + index) * global_strides[d];
    }
    T value;  // the bytes may lie at any address
    std::memcpy(&value, bytes.data() + from * static_cast<int64_t>(sizeof(T)), sizeof(T));
    const int64_t id = static_cast<int64_t>(value);
    if ((id >= 0 && id < check.limit) || check.allowed == id) continue;
    if (!first->has_value() || at < (*first)->at) *first = {at, id};
    return;  // within a box the order is that of the tensor
  }
}

template <typename T>
absl::Status CheckRange(const InputCheck& check, const GivenInput& input, const Mesh& mesh) {
  std::optional<BadId> bad;
  if (input.full != nullptr) {
    const Shape origin(input.shape.size(), 0);
    FindBad<T>(input.full->bytes, input.shape, {origin, input.shape, origin}, input.shape, check, &bad);
  }
  for (int rank = 0; input.shards != nullptr && rank < mesh.rank_count(); ++rank) {
    const PlacedShards& shards = *input.shards;
    if (shards.copy_of[rank] != rank || HasPartial(shards.placements)) continue;
    const Coordinate coordinate = mesh.CoordinateOf(rank);
    const Shape local = LocalShape(shards.shape, shards.placements, mesh, coordinate);
    for (const Box& box : LocalBoxes(shards.shape, shards.placements, mesh, coordinate)) {
      FindBad<T>(shards.data[rank], local, box, shards.shape, check, &bad);
    }
  }
  if (!bad.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input '", check.input, "' position ", ShapeText(PositionOf(input.shape, bad->at)), ": id ", bad->id,
                   " outside [0, ", check.limit, ")",
                   check.allowed.has_value() ? absl::StrCat(" and not ", *check.allowed, ", the ignored one") : ""));
}

}  // namespace

absl::StatusOr<Bindings> CheckForwardInputs(const ModelDef& model, const ForwardProgram& program,
                                            const GivenInputs& inputs) {
  std::vector<std::string> names;
  for (const ModelInput& input : model.inputs) names.push_back(input.name);
  for (const auto& [name, given] : inputs) {
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
    if (it->second.full != nullptr) {
      TP_RETURN_IF_ERROR(Annotate(ValidateHostTensor(*it->second.full), absl::StrCat("input '", input.name, "'")));
    }
    const bool used = std::any_of(program.operands.begin(), program.operands.end(), [&](const Operand& operand) {
      return operand.kind == OperandKind::kInput && operand.name == input.name;
    });
    if (used) shapes[input.name] = it->second.shape;
  }
  TP_ASSIGN_OR_RETURN(Bindings bindings, BindInputs(program, shapes));
  for (const InputCheck& check : program.input_checks) {
    const auto it = inputs.find(check.input);
    if (it == inputs.end()) continue;
    const Mesh& mesh = program.mesh;
    absl::Status status = absl::OkStatus();
    if (it->second.dtype == DType::kI64) status = CheckRange<int64_t>(check, it->second, mesh);
    if (it->second.dtype == DType::kI32) status = CheckRange<int32_t>(check, it->second, mesh);
    TP_RETURN_IF_ERROR(status);
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

#include "client/tpctl/tensor_render.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/tpctl/layout_picture.h"
#include "client/tpctl/render.h"

namespace tp::client {
namespace {

using List = JsonNode::List;
using Members = JsonNode::Members;

JsonNode Text(std::string_view text) { return {std::string(text)}; }
JsonNode Integer(int64_t value) { return {value}; }
JsonNode Integers(const Shape& shape) {
  List list;
  for (const int64_t size : shape) list.push_back(Integer(size));
  return {std::move(list)};
}
JsonNode Texts(const std::vector<std::string>& texts) {
  List list;
  for (const std::string& text : texts) list.push_back(Text(text));
  return {std::move(list)};
}

int64_t Bytes(const TensorInfo& tensor) { return ElementCount(tensor.shape) * ItemSize(tensor.dtype); }
std::string TypeText(const TensorInfo& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype)), ShapeText(tensor.shape));
}
// "on every rank" for a mesh without axes.
std::string LayoutText(const TensorInfo& tensor) {
  return tensor.placements.empty() ? "one rank" : PlacementsText(tensor.mesh, tensor.placements);
}

JsonNode MeshNode(const MeshInfo& mesh) {
  Members axes;
  for (const MeshAxis& axis : mesh.mesh.axes()) axes.emplace_back(axis.name, Integer(axis.size));
  return {Members{{"name", Text(mesh.name)},
                  {"mesh", {std::move(axes)}},
                  {"workers", Texts(mesh.workers)},
                  {"state", Text(mesh.state)},
                  {"epoch", Integer(mesh.epoch)},
                  {"error", Text(mesh.error)},
                  {"tensors", Texts(mesh.tensors)}}};
}

Members TypeMembers(const TensorInfo& tensor) {
  return {{"shape", Integers(tensor.shape)},
          {"dtype", Text(DTypeName(tensor.dtype))},
          {"placements", Text(PlacementsText(tensor.mesh, tensor.placements))}};
}

Members TensorMembers(const TensorInfo& tensor) {
  Members members = {{"name", Text(tensor.name)}, {"mesh", Text(tensor.mesh_name)}};
  for (auto& member : TypeMembers(tensor)) members.push_back(std::move(member));
  members.emplace_back("bytes", Integer(Bytes(tensor)));
  members.emplace_back("state", Text(tensor.state));
  members.emplace_back("error", Text(tensor.error));
  return members;
}

JsonNode StepsNode(const std::vector<RedistributeStepCount>& steps) {
  List list;
  for (const RedistributeStepCount& step : steps)
    list.push_back({Members{{"op", Text(step.op)}, {"axis", Text(step.axis)}, {"bytes", Integer(step.bytes)}}});
  return {std::move(list)};
}

int64_t TotalBytes(const std::vector<RedistributeStepCount>& steps) {
  int64_t bytes = 0;
  for (const RedistributeStepCount& step : steps) bytes += step.bytes;
  return bytes;
}

template <typename Number>
std::string Shortest(Number value) {
  if (std::isnan(value)) return "nan";
  char buffer[40];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// Calls `leaf` for each element and puts its results together as the shape says; a list of more than kMostEmpty lists
// without elements is one without any.
constexpr int64_t kMostEmpty = 1024;
template <typename Result, typename Leaf, typename Join>
Result Nest(const Shape& shape, const Leaf& leaf, const Join& join, size_t dim, int64_t* index) {
  if (dim == shape.size()) return leaf((*index)++);
  std::vector<Result> parts;
  const bool empty = std::find(shape.begin() + static_cast<ptrdiff_t>(dim), shape.end(), 0) != shape.end();
  if (empty && shape[dim] > kMostEmpty) return join(std::move(parts), dim);
  for (int64_t i = 0; i < shape[dim]; ++i) parts.push_back(Nest<Result>(shape, leaf, join, dim + 1, index));
  return join(std::move(parts), dim);
}

JsonNode NestedNode(const HostTensor& tensor) {
  const bool floating = IsFloating(tensor.dtype);
  const HostTensor wide = ConvertTo(tensor, floating ? DType::kF64 : DType::kI64);
  int64_t index = 0;
  return Nest<JsonNode>(
      tensor.shape,
      [&](int64_t i) -> JsonNode {
        if (floating) return {wide.data<double>()[i]};
        return {wide.data<int64_t>()[i]};
      },
      [](List list, size_t) -> JsonNode { return {std::move(list)}; }, 0, &index);
}

}  // namespace

std::string MeshText(const MeshInfo& mesh, bool json) {
  if (json) return JsonText(MeshNode(mesh));
  return absl::StrCat("mesh ", mesh.name, " (", mesh.mesh.ToString(), ") is ", mesh.state, " on ",
                      absl::StrJoin(mesh.workers, ", "), "\n");
}

std::string MeshesText(const std::vector<MeshInfo>& meshes, bool json) {
  if (json) {
    List list;
    for (const MeshInfo& mesh : meshes) list.push_back(MeshNode(mesh));
    return JsonText({Members{{"meshes", {std::move(list)}}}});
  }
  std::vector<std::vector<std::string>> rows = {{"MESH", "AXES", "STATE", "WORKERS BY RANK", "TENSORS", "ERROR"}};
  for (const MeshInfo& mesh : meshes)
    rows.push_back({mesh.name, mesh.mesh.ToString(), mesh.state, absl::StrJoin(mesh.workers, ", "),
                    absl::StrJoin(mesh.tensors, ", "), mesh.error});
  return Table(rows);
}

std::string TensorLine(const TensorInfo& tensor) {
  return absl::StrCat(tensor.name, ": ", TypeText(tensor), " ", LayoutText(tensor), " on ", tensor.mesh_name);
}

std::string TensorText(const TensorInfo& tensor, const std::string& verb, bool json) {
  if (json) return JsonText({TensorMembers(tensor)});
  return absl::StrCat(TensorLine(tensor), " ", verb, ", ", BytesText(Bytes(tensor)), "\n");
}

std::string TensorsText(const std::vector<TensorInfo>& tensors, bool json) {
  if (json) {
    List list;
    for (const TensorInfo& tensor : tensors) list.push_back({TensorMembers(tensor)});
    return JsonText({Members{{"tensors", {std::move(list)}}}});
  }
  std::vector<std::vector<std::string>> rows = {{"TENSOR", "TYPE", "PLACEMENTS", "MESH", "BYTES", "STATE", "ERROR"}};
  for (const TensorInfo& tensor : tensors)
    rows.push_back({tensor.name, TypeText(tensor), LayoutText(tensor), tensor.mesh_name, BytesText(Bytes(tensor)),
                    tensor.state, tensor.error});
  return Table(rows);
}

std::string RedistributeText(const RedistributeResult& result, bool json) {
  if (json)
    return JsonText({Members{{"steps", StepsNode(result.steps)},
                             {"counted",
                              {Members{{"bytes", Integer(TotalBytes(result.counted))},
                                       {"wire_bytes", Integer(result.wire_bytes)},
                                       {"duration_us", Integer(result.duration_us)},
                                       {"steps", StepsNode(result.counted)}}}}}});
  std::vector<std::vector<std::string>> rows = {{"STEP", "AXIS", "BYTES PREDICTED", "BYTES COUNTED"}};
  // Steps that move nothing are not counted; the counted ones come in the order of the plan.
  size_t counted = 0;
  const auto matches = [&](const RedistributeStepCount& step) {
    return counted < result.counted.size() && result.counted[counted].op == step.op &&
           result.counted[counted].axis == step.axis;
  };
  for (const RedistributeStepCount& step : result.steps)
    rows.push_back({step.op, step.axis, absl::StrCat(step.bytes),
                    matches(step) ? absl::StrCat(result.counted[counted++].bytes) : "-"});
  for (; counted < result.counted.size(); ++counted)
    rows.push_back(
        {result.counted[counted].op, result.counted[counted].axis, "-", absl::StrCat(result.counted[counted].bytes)});
  return absl::StrCat(TensorLine(result.tensor), "\n", rows.size() > 1 ? Table(rows) : "nothing to move\n",
                      absl::StrFormat("received by the busiest rank: %d bytes predicted, %d counted, %d on the wire; "
                                      "%.1f ms\n",
                                      TotalBytes(result.steps), TotalBytes(result.counted), result.wire_bytes,
                                      static_cast<double>(result.duration_us) / 1000));
}

std::string ShardsText(const TensorDescription& description, const std::vector<HostTensor>* values, bool json) {
  const TensorInfo& tensor = description.tensor;
  const auto value_of = [&](int rank) -> const HostTensor* {
    return values != nullptr && rank >= 0 && rank < static_cast<int>(values->size()) ? &(*values)[rank] : nullptr;
  };
  if (json) {
    List shards;
    for (const TensorShard& shard : description.shards) {
      Members members = {{"rank", Integer(shard.rank)},
                         {"worker", Text(shard.worker)},
                         {"offset", Integers(shard.offset)},
                         {"shape", Integers(shard.shape)},
                         {"bytes", Integer(shard.bytes)}};
      if (const HostTensor* value = value_of(shard.rank)) members.emplace_back("values", NestedNode(*value));
      shards.push_back({std::move(members)});
    }
    Members members = TypeMembers(tensor);
    members.emplace_back("shards", JsonNode{std::move(shards)});
    return JsonText({std::move(members)});
  }
  std::string text = TensorLine(tensor) + (tensor.state == "READY" ? "\n" : absl::StrCat(" is ", tensor.state, "\n"));
  if (!tensor.error.empty()) absl::StrAppend(&text, "error: ", tensor.error, "\n");
  std::vector<std::vector<std::string>> rows = {{"RANK", "WORKER", "OFFSET", "SHAPE", "BYTES"}};
  for (const TensorShard& shard : description.shards)
    rows.push_back({absl::StrCat(shard.rank), shard.worker, ShapeText(shard.offset), ShapeText(shard.shape),
                    absl::StrCat(shard.bytes)});
  absl::StrAppend(&text, Table(rows));
  const std::string picture = LayoutPicture(tensor);
  if (!picture.empty()) absl::StrAppend(&text, "\n", picture);
  for (const TensorShard& shard : description.shards)
    if (const HostTensor* value = value_of(shard.rank))
      absl::StrAppend(&text, "\nrank ", shard.rank, ":\n", NestedText(*value), "\n");
  return text;
}

std::string SaveText(const SaveResult& result, const std::string& directory, bool json) {
  if (json) return JsonText({Members{{"files", Texts(result.files)}, {"bytes", Integer(result.bytes)}}});
  return absl::StrCat(BytesText(result.bytes), " saved to ", directory, ": ", absl::StrJoin(result.files, ", "), "\n");
}

std::string LoadText(const LoadResult& result, bool json) {
  if (json) {
    List list;
    for (const TensorInfo& tensor : result.tensors) list.push_back({TensorMembers(tensor)});
    return JsonText({Members{{"tensors", {std::move(list)}}, {"bytes_read", Integer(result.bytes_read)}}});
  }
  return absl::StrCat(TensorsText(result.tensors, false), BytesText(result.bytes_read), " read by the workers\n");
}

std::string ValueText(const TensorInfo& tensor, const HostTensor& value, bool json) {
  if (!json) return absl::StrCat(TensorLine(tensor), "\n", NestedText(value), "\n");
  Members members = TensorMembers(tensor);
  members.emplace_back("values", NestedNode(value));
  return JsonText({std::move(members)});
}

std::string OutputText(const TensorInfo& tensor, const std::string& path, int64_t bytes, bool json) {
  if (!json) return absl::StrCat(TensorLine(tensor), ": ", BytesText(bytes), " written to ", path, "\n");
  Members members = TensorMembers(tensor);
  members.emplace_back("output", Text(path));
  return JsonText({std::move(members)});
}

std::string SummaryText(const TensorInfo& tensor, const ValueSummary& summary, bool json) {
  if (json) {
    Members members = TensorMembers(tensor);
    members.emplace_back("min", JsonNode{summary.least});
    members.emplace_back("max", JsonNode{summary.largest});
    members.emplace_back("mean", JsonNode{summary.mean});
    members.emplace_back("nans", Integer(summary.nans));
    return JsonText({std::move(members)});
  }
  return absl::StrFormat("%s\n%d elements: least %g, largest %g, mean %g%s; --output FILE writes them\n",
                         TensorLine(tensor), ElementCount(tensor.shape), summary.least, summary.largest, summary.mean,
                         summary.nans == 0 ? "" : absl::StrCat(", ", summary.nans, " NaN"));
}

std::string NestedText(const HostTensor& tensor) {
  const HostTensor wide = ConvertTo(tensor, tensor.dtype == DType::kF64 ? DType::kF64
                                            : IsFloating(tensor.dtype)  ? DType::kF32
                                                                        : DType::kI64);
  int64_t index = 0;
  const size_t dims = tensor.shape.size();
  return Nest<std::string>(
      tensor.shape,
      [&](int64_t i) {
        if (wide.dtype == DType::kF64) return Shortest(wide.data<double>()[i]);
        if (wide.dtype == DType::kF32) return Shortest(wide.data<float>()[i]);
        return absl::StrCat(wide.data<int64_t>()[i]);
      },
      [dims](const std::vector<std::string>& parts, size_t dim) {
        const std::string between =
            dim + 1 == dims ? ", " : absl::StrCat(",", std::string(dims - dim - 1, '\n'), std::string(dim + 1, ' '));
        return absl::StrCat("[", absl::StrJoin(parts, between), "]");
      },
      0, &index);
}

}  // namespace tp::client

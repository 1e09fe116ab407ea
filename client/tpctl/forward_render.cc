#include "client/tpctl/forward_render.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tpctl/render.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/count.h"
#include "common/layout/placement.h"

namespace tp::client {
namespace {

using Members = JsonNode::Members;
using List = JsonNode::List;

JsonNode Integers(const Shape& shape) {
  List list(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) list[i].value = shape[i];
  return {std::move(list)};
}

std::string Json(const ForwardResult& result) {
  List outputs;
  for (const OutputShards& output : result.output_shards) {
    List shards;
    for (const OutputShard& shard : output.shards) {
      shards.push_back({Members{{"rank", {int64_t{shard.rank}}},
                                {"offset", Integers(shard.offset)},
                                {"shape", Integers(shard.tensor.shape)}}});
    }
    outputs.push_back({Members{{"name", {output.name}},
                               {"shape", Integers(output.shape)},
                               {"dtype", {std::string(DTypeName(output.dtype))}},
                               {"placements", {PlacementsText(result.mesh, output.placements)}},
                               {"shards", {std::move(shards)}}}});
  }
  List collectives;
  for (const CollectiveRecord& record : result.collectives) {
    collectives.push_back({Members{
        {"module", {record.module}}, {"op", {record.op}}, {"axis", {record.axis}}, {"bytes", {record.bytes}}}});
  }
  return JsonText({Members{{"outputs", {std::move(outputs)}},
                           {"collectives", {std::move(collectives)}},
                           {"wire_bytes", {result.wire_bytes}},
                           {"duration_us", {result.duration_us}}}});
}

}  // namespace

std::string OutputShardsText(const ForwardResult& result, bool json) {
  if (json) return Json(result);
  std::string text;
  for (const OutputShards& output : result.output_shards) {
    absl::StrAppend(&text, output.name, ": ", std::string(DTypeName(output.dtype)), ShapeText(output.shape), " ",
                    PlacementsText(result.mesh, output.placements), "\n");
    std::vector<std::vector<std::string>> rows = {{"RANK", "OFFSET", "SHAPE", "VALUES"}};
    for (const OutputShard& shard : output.shards)
      rows.push_back(
          {absl::StrCat(shard.rank), ShapeText(shard.offset), ShapeText(shard.tensor.shape), ValuesText(shard.tensor)});
    absl::StrAppend(&text, Table(rows));
  }
  int64_t bytes = 0;
  for (const CollectiveRecord& record : result.collectives) bytes += record.bytes;
  return absl::StrCat(text, CountText(result.collectives.size(), "collective"), ", ", BytesText(bytes), ", ",
                      absl::StrFormat("%.1f ms\n", static_cast<double>(result.duration_us) / 1000));
}

}  // namespace tp::client

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/model.h"

namespace tp {
namespace {

using PlacementsByName = std::map<std::string, NamedPlacements>;
using ProtoPlacementsByName = google::protobuf::Map<std::string, v1::NamedPlacement>;

absl::StatusOr<PlacementsByName> ByNameFromProto(const ProtoPlacementsByName& proto, const std::string& field) {
  PlacementsByName result;
  for (const auto& [name, placements] : proto) {
    NamedPlacements& named = result[name];
    const std::string at = absl::StrCat(field, "['", name, "']");
    for (const auto& [axis, placement] : placements.axes()) {
      TP_ASSIGN_OR_RETURN(named[axis], PlacementFromProto(placement, absl::StrCat(at, ".axes['", axis, "']")));
    }
  }
  return result;
}

void ByNameToProto(const PlacementsByName& placements, ProtoPlacementsByName* proto) {
  for (const auto& [name, named] : placements) {
    v1::NamedPlacement& added = (*proto)[name];
    for (const auto& [axis, placement] : named) PlacementToProto(placement, &(*added.mutable_axes())[axis]);
  }
}

}  // namespace

absl::StatusOr<ShardingConfig> ShardingFromProto(const v1::ShardingConfig& proto, const std::string& field) {
  ShardingConfig config;
  TP_ASSIGN_OR_RETURN(config.state_shardings, ByNameFromProto(proto.state_shardings(), field + ".state_shardings"));
  TP_ASSIGN_OR_RETURN(config.in_src_shardings, ByNameFromProto(proto.in_src_shardings(), field + ".in_src_shardings"));
  TP_ASSIGN_OR_RETURN(config.in_dst_shardings, ByNameFromProto(proto.in_dst_shardings(), field + ".in_dst_shardings"));
  TP_ASSIGN_OR_RETURN(config.out_src_shardings,
                      ByNameFromProto(proto.out_src_shardings(), field + ".out_src_shardings"));
  TP_ASSIGN_OR_RETURN(config.out_dst_shardings,
                      ByNameFromProto(proto.out_dst_shardings(), field + ".out_dst_shardings"));
  config.local_map = proto.local_map();
  return config;
}

void ShardingToProto(const ShardingConfig& config, v1::ShardingConfig* proto) {
  ByNameToProto(config.state_shardings, proto->mutable_state_shardings());
  ByNameToProto(config.in_src_shardings, proto->mutable_in_src_shardings());
  ByNameToProto(config.in_dst_shardings, proto->mutable_in_dst_shardings());
  ByNameToProto(config.out_src_shardings, proto->mutable_out_src_shardings());
  ByNameToProto(config.out_dst_shardings, proto->mutable_out_dst_shardings());
  proto->set_local_map(config.local_map);
}

}  // namespace tp

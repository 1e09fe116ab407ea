#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/checks.h"
#include "common/proto_convert/model.h"

namespace tp {
namespace {

absl::Status CheckSourceRank(bool given, int rank, const std::string& field) {
  if (!given || rank >= 0) return absl::OkStatus();
  return FieldError(field + ".src_data_rank", absl::StrCat("is ", rank, "; must not be negative"));
}

// The oneof of a Layout has the kinds of a Placement, under the same numbers.
v1::Placement PlacementOf(const v1::Layout& layout) {
  v1::Placement placement;
  switch (layout.kind_case()) {
    case v1::Layout::kReplicate:
      *placement.mutable_replicate() = layout.replicate();
      break;
    case v1::Layout::kShard:
      *placement.mutable_shard() = layout.shard();
      break;
    case v1::Layout::kPartial:
      *placement.mutable_partial() = layout.partial();
      break;
    case v1::Layout::kStridedShard:
      *placement.mutable_strided_shard() = layout.strided_shard();
      break;
    case v1::Layout::kInterleavedShard:
      *placement.mutable_interleaved_shard() = layout.interleaved_shard();
      break;
    case v1::Layout::kGroupShard:
      *placement.mutable_group_shard() = layout.group_shard();
      break;
    case v1::Layout::KIND_NOT_SET:
      break;
  }
  return placement;
}

absl::StatusOr<Layout> LayoutFromProto(const v1::Layout& proto, const std::string& field) {
  const bool on_axis = proto.kind_case() != v1::Layout::KIND_NOT_SET;
  if ((on_axis ? 1 : 0) + (proto.list().empty() ? 0 : 1) + (proto.axes().empty() ? 0 : 1) > 1) {
    return FieldError(field, "one placement, list and axes exclude each other");
  }
  if (on_axis) {
    TP_ASSIGN_OR_RETURN(Placement placement, PlacementFromProto(PlacementOf(proto), field));
    return Layout(std::move(placement));
  }
  if (!proto.list().empty()) {
    TP_ASSIGN_OR_RETURN(Placements placements, PlacementsFromProto(proto.list(), field + ".list"));
    return Layout::List(std::move(placements));
  }
  if (proto.axes().empty()) return Layout();
  std::map<std::string, Placement> axes;
  for (const auto& [name, placement] : proto.axes()) {
    TP_ASSIGN_OR_RETURN(axes[name], PlacementFromProto(placement, absl::StrCat(field, ".axes['", name, "']")));
  }
  return Layout::Map(std::move(axes));
}

void LayoutToProto(const Layout& layout, v1::Layout* proto) {
  switch (layout.form) {
    case Layout::Form::kNone:
      break;
    case Layout::Form::kAxis: {
      v1::Placement placement;
      PlacementToProto(layout.placements[0], &placement);
      if (placement.has_replicate()) *proto->mutable_replicate() = placement.replicate();
      if (placement.has_shard()) *proto->mutable_shard() = placement.shard();
      if (placement.has_partial()) *proto->mutable_partial() = placement.partial();
      if (placement.has_strided_shard()) *proto->mutable_strided_shard() = placement.strided_shard();
      if (placement.has_interleaved_shard()) *proto->mutable_interleaved_shard() = placement.interleaved_shard();
      if (placement.has_group_shard()) *proto->mutable_group_shard() = placement.group_shard();
      break;
    }
    case Layout::Form::kList:
      PlacementsToProto(layout.placements, proto->mutable_list());
      break;
    case Layout::Form::kMap:
      for (const auto& [name, placement] : layout.axes) PlacementToProto(placement, &(*proto->mutable_axes())[name]);
      break;
  }
}

using LayoutList = google::protobuf::RepeatedPtrField<v1::Layout>;
using LayoutMap = google::protobuf::Map<std::string, v1::Layout>;

absl::StatusOr<std::vector<Layout>> LayoutsFromProto(const LayoutList& proto, const std::string& field) {
  std::vector<Layout> layouts;
  for (int i = 0; i < proto.size(); ++i) {
    TP_ASSIGN_OR_RETURN(Layout layout, LayoutFromProto(proto[i], Indexed(field, i)));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

absl::StatusOr<std::map<std::string, Layout>> LayoutsFromProto(const LayoutMap& proto, const std::string& field) {
  std::map<std::string, Layout> layouts;
  for (const auto& [name, layout] : proto) {
    TP_ASSIGN_OR_RETURN(layouts[name], LayoutFromProto(layout, absl::StrCat(field, "['", name, "']")));
  }
  return layouts;
}

void LayoutsToProto(const std::vector<Layout>& layouts, LayoutList* proto) {
  for (const Layout& layout : layouts) LayoutToProto(layout, proto->Add());
}
void LayoutsToProto(const std::map<std::string, Layout>& layouts, LayoutMap* proto) {
  for (const auto& [name, layout] : layouts) LayoutToProto(layout, &(*proto)[name]);
}

// What every style has.
template <typename StyleT, typename ProtoT>
absl::Status CommonFromProto(const ProtoT& proto, const std::string& field, StyleT* style) {
  if (proto.has_use_local_output()) style->use_local_output = proto.use_local_output();
  style->src_data_rank = proto.src_data_rank();
  return CheckSourceRank(proto.has_src_data_rank(), proto.src_data_rank(), field);
}
template <typename StyleT, typename ProtoT>
void CommonToProto(const StyleT& style, ProtoT* proto) {
  if (style.use_local_output != StyleT().use_local_output) proto->set_use_local_output(style.use_local_output);
  if (style.src_data_rank != 0) proto->set_src_data_rank(style.src_data_rank);
}

// Colwise and Rowwise have the same fields; they differ in defaults.
template <typename StyleT, typename ProtoT>
absl::StatusOr<Style> WeightStyleFromProto(const ProtoT& proto, const std::string& field) {
  StyleT style;
  if (proto.has_input_layouts()) {
    TP_ASSIGN_OR_RETURN(style.input_layouts, LayoutFromProto(proto.input_layouts(), field + ".input_layouts"));
  }
  if (proto.has_output_layouts()) {
    TP_ASSIGN_OR_RETURN(style.output_layouts, LayoutFromProto(proto.output_layouts(), field + ".output_layouts"));
  }
  TP_RETURN_IF_ERROR(CommonFromProto(proto, field, &style));
  return Style(std::move(style));
}
template <typename StyleT, typename ProtoT>
void WeightStyleToProto(const StyleT& style, bool input_layouts_written, ProtoT* proto) {
  if (input_layouts_written) LayoutToProto(style.input_layouts, proto->mutable_input_layouts());
  if (style.output_layouts != StyleT().output_layouts) {
    LayoutToProto(style.output_layouts, proto->mutable_output_layouts());
  }
  CommonToProto(style, proto);
}

// PrepareModuleInput, PrepareModuleOutput and PrepareModuleInputOutput share the names of their fields.
template <typename StyleT, typename ProtoT>
absl::Status InputsFromProto(const ProtoT& proto, const std::string& field, StyleT* style) {
  TP_ASSIGN_OR_RETURN(style->input_layouts, LayoutsFromProto(proto.input_layouts(), field + ".input_layouts"));
  TP_ASSIGN_OR_RETURN(style->desired_input_layouts,
                      LayoutsFromProto(proto.desired_input_layouts(), field + ".desired_input_layouts"));
  TP_ASSIGN_OR_RETURN(style->input_kwarg_layouts,
                      LayoutsFromProto(proto.input_kwarg_layouts(), field + ".input_kwarg_layouts"));
  TP_ASSIGN_OR_RETURN(style->desired_input_kwarg_layouts,
                      LayoutsFromProto(proto.desired_input_kwarg_layouts(), field + ".desired_input_kwarg_layouts"));
  return absl::OkStatus();
}
template <typename StyleT, typename ProtoT>
void InputsToProto(const StyleT& style, ProtoT* proto) {
  LayoutsToProto(style.input_layouts, proto->mutable_input_layouts());
  LayoutsToProto(style.desired_input_layouts, proto->mutable_desired_input_layouts());
  LayoutsToProto(style.input_kwarg_layouts, proto->mutable_input_kwarg_layouts());
  LayoutsToProto(style.desired_input_kwarg_layouts, proto->mutable_desired_input_kwarg_layouts());
}
template <typename StyleT, typename ProtoT>
absl::Status OutputsFromProto(const ProtoT& proto, const std::string& field, StyleT* style) {
  TP_ASSIGN_OR_RETURN(style->output_layouts, LayoutsFromProto(proto.output_layouts(), field + ".output_layouts"));
  TP_ASSIGN_OR_RETURN(style->desired_output_layouts,
                      LayoutsFromProto(proto.desired_output_layouts(), field + ".desired_output_layouts"));
  return absl::OkStatus();
}
template <typename StyleT, typename ProtoT>
void OutputsToProto(const StyleT& style, ProtoT* proto) {
  LayoutsToProto(style.output_layouts, proto->mutable_output_layouts());
  LayoutsToProto(style.desired_output_layouts, proto->mutable_desired_output_layouts());
}

absl::StatusOr<Style> StyleFromProto(const v1::SequenceParallel& proto, const std::string& field) {
  SequenceParallel style;
  if (proto.has_sequence_dim()) style.sequence_dim = proto.sequence_dim();
  TP_RETURN_IF_ERROR(CommonFromProto(proto, field, &style));
  return Style(style);
}
absl::StatusOr<Style> StyleFromProto(const v1::PrepareModuleInput& proto, const std::string& field) {
  PrepareModuleInput style;
  TP_RETURN_IF_ERROR(InputsFromProto(proto, field, &style));
  TP_RETURN_IF_ERROR(CommonFromProto(proto, field, &style));
  return Style(std::move(style));
}
absl::StatusOr<Style> StyleFromProto(const v1::PrepareModuleOutput& proto, const std::string& field) {
  PrepareModuleOutput style;
  TP_RETURN_IF_ERROR(OutputsFromProto(proto, field, &style));
  TP_RETURN_IF_ERROR(CommonFromProto(proto, field, &style));
  return Style(std::move(style));
}
absl::StatusOr<Style> StyleFromProto(const v1::PrepareModuleInputOutput& proto, const std::string& field) {
  PrepareModuleInputOutput style;
  TP_RETURN_IF_ERROR(InputsFromProto(proto, field, &style));
  TP_RETURN_IF_ERROR(OutputsFromProto(proto, field, &style));
  if (proto.has_use_local_input()) style.use_local_input = proto.use_local_input();
  TP_RETURN_IF_ERROR(CommonFromProto(proto, field, &style));
  return Style(std::move(style));
}

absl::StatusOr<PlanEntry> PlanEntryFromProto(const v1::PlanEntry& proto, const std::string& field) {
  PlanEntry entry;
  entry.pattern = proto.pattern();
  switch (proto.style_case()) {
    case v1::PlanEntry::kColwiseParallel: {
      TP_ASSIGN_OR_RETURN(entry.style,
                          WeightStyleFromProto<ColwiseParallel>(proto.colwise_parallel(), field + ".colwise_parallel"));
      entry.input_layouts_written = proto.colwise_parallel().has_input_layouts();
      return entry;
    }
    case v1::PlanEntry::kRowwiseParallel: {
      TP_ASSIGN_OR_RETURN(entry.style,
                          WeightStyleFromProto<RowwiseParallel>(proto.rowwise_parallel(), field + ".rowwise_parallel"));
      entry.input_layouts_written = proto.rowwise_parallel().has_input_layouts();
      return entry;
    }
    case v1::PlanEntry::kSequenceParallel: {
      TP_ASSIGN_OR_RETURN(entry.style, StyleFromProto(proto.sequence_parallel(), field + ".sequence_parallel"));
      return entry;
    }
    case v1::PlanEntry::kPrepareModuleInput: {
      TP_ASSIGN_OR_RETURN(entry.style, StyleFromProto(proto.prepare_module_input(), field + ".prepare_module_input"));
      return entry;
    }
    case v1::PlanEntry::kPrepareModuleOutput: {
      TP_ASSIGN_OR_RETURN(entry.style, StyleFromProto(proto.prepare_module_output(), field + ".prepare_module_output"));
      return entry;
    }
    case v1::PlanEntry::kPrepareModuleInputOutput: {
      TP_ASSIGN_OR_RETURN(entry.style,
                          StyleFromProto(proto.prepare_module_input_output(), field + ".prepare_module_input_output"));
      return entry;
    }
    case v1::PlanEntry::kSharding: {
      TP_ASSIGN_OR_RETURN(entry.style, ShardingFromProto(proto.sharding(), field + ".sharding"));
      return entry;
    }
    case v1::PlanEntry::STYLE_NOT_SET:
      break;
  }
  return FieldError(field, absl::StrCat("entry '", proto.pattern(), "' has no style: exactly one of colwise_parallel, ",
                                        "rowwise_parallel, sequence_parallel, prepare_module_input, ",
                                        "prepare_module_output, prepare_module_input_output and sharding must be set"));
}

// Writes what differs from the defaults.
struct StyleWriter {
  bool input_layouts_written;
  v1::PlanEntry* entry;

  void operator()(const ColwiseParallel& style) const {
    WeightStyleToProto(style, input_layouts_written, entry->mutable_colwise_parallel());
  }
  void operator()(const RowwiseParallel& style) const {
    WeightStyleToProto(style, input_layouts_written, entry->mutable_rowwise_parallel());
  }
  void operator()(const SequenceParallel& style) const {
    v1::SequenceParallel* proto = entry->mutable_sequence_parallel();
    if (style.sequence_dim != SequenceParallel().sequence_dim) proto->set_sequence_dim(style.sequence_dim);
    CommonToProto(style, proto);
  }
  void operator()(const PrepareModuleInput& style) const {
    InputsToProto(style, entry->mutable_prepare_module_input());
    CommonToProto(style, entry->mutable_prepare_module_input());
  }
  void operator()(const PrepareModuleOutput& style) const {
    OutputsToProto(style, entry->mutable_prepare_module_output());
    CommonToProto(style, entry->mutable_prepare_module_output());
  }
  void operator()(const PrepareModuleInputOutput& style) const {
    v1::PrepareModuleInputOutput* proto = entry->mutable_prepare_module_input_output();
    InputsToProto(style, proto);
    OutputsToProto(style, proto);
    if (style.use_local_input) proto->set_use_local_input(true);
    CommonToProto(style, proto);
  }
  void operator()(const ShardingConfig& sharding) const { ShardingToProto(sharding, entry->mutable_sharding()); }
};

}  // namespace

absl::StatusOr<ParallelPlan> PlanFromProto(const v1::ParallelPlan& plan, const std::string& field) {
  ParallelPlan result;
  Problems problems;
  Mesh mesh;
  Keep(MeshFromProto(plan.mesh(), field + ".mesh"), &mesh, &problems);
  result.mesh = mesh.axes();
  result.axis = plan.axis();
  for (int i = 0; i < plan.entries_size(); ++i) {
    result.entries.emplace_back();
    Keep(PlanEntryFromProto(plan.entries(i), Indexed(field + ".entries", i)), &result.entries.back(), &problems);
  }
  TP_RETURN_IF_ERROR(problems.status());
  result.allow_unmatched = plan.allow_unmatched();
  result.batch_axes.assign(plan.batch_axes().begin(), plan.batch_axes().end());
  return result;
}

void PlanToProto(const ParallelPlan& plan, v1::ParallelPlan* proto) {
  if (!plan.mesh.empty()) MeshToProto(plan.mesh, proto->mutable_mesh());
  proto->set_axis(plan.axis);
  for (const PlanEntry& entry : plan.entries) {
    v1::PlanEntry* added = proto->add_entries();
    added->set_pattern(entry.pattern);
    std::visit(StyleWriter{entry.input_layouts_written, added}, entry.style);
  }
  proto->set_allow_unmatched(plan.allow_unmatched);
  for (const std::string& axis : plan.batch_axes) proto->add_batch_axes(axis);
}

}  // namespace tp

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/model.h"

namespace tp {
namespace {

absl::Status CheckSourceRank(bool given, int rank, const std::string& field) {
  if (!given || rank >= 0) return absl::OkStatus();
  return FieldError(field + ".src_data_rank", absl::StrCat("is ", rank, "; must not be negative"));
}

// Colwise and Rowwise have the same fields; they differ in defaults.
template <typename StyleT, typename ProtoT>
absl::StatusOr<StyleT> LinearStyleFromProto(const ProtoT& proto, const std::string& field) {
  StyleT style;
  if (proto.has_input_layouts()) {
    TP_ASSIGN_OR_RETURN(style.input_layouts, PlacementFromProto(proto.input_layouts(), field + ".input_layouts"));
  }
  if (proto.has_output_layouts()) {
    TP_ASSIGN_OR_RETURN(style.output_layouts, PlacementFromProto(proto.output_layouts(), field + ".output_layouts"));
  }
  if (proto.has_use_local_output()) style.use_local_output = proto.use_local_output();
  TP_RETURN_IF_ERROR(CheckSourceRank(proto.has_src_data_rank(), proto.src_data_rank(), field));
  return style;
}

template <typename StyleT, typename ProtoT>
void LinearStyleToProto(const StyleT& style, bool input_layouts_written, ProtoT* proto) {
  if (input_layouts_written) PlacementToProto(style.input_layouts, proto->mutable_input_layouts());
  if (style.output_layouts != StyleT().output_layouts) {
    PlacementToProto(style.output_layouts, proto->mutable_output_layouts());
  }
  if (style.use_local_output != StyleT().use_local_output) proto->set_use_local_output(style.use_local_output);
}

absl::StatusOr<PlanEntry> PlanEntryFromProto(const v1::PlanEntry& proto, const std::string& field) {
  PlanEntry entry;
  entry.pattern = proto.pattern();
  switch (proto.style_case()) {
    case v1::PlanEntry::kColwiseParallel: {
      TP_ASSIGN_OR_RETURN(entry.style,
                          LinearStyleFromProto<ColwiseParallel>(proto.colwise_parallel(), field + ".colwise_parallel"));
      entry.input_layouts_written = proto.colwise_parallel().has_input_layouts();
      return entry;
    }
    case v1::PlanEntry::kRowwiseParallel: {
      TP_ASSIGN_OR_RETURN(entry.style,
                          LinearStyleFromProto<RowwiseParallel>(proto.rowwise_parallel(), field + ".rowwise_parallel"));
      entry.input_layouts_written = proto.rowwise_parallel().has_input_layouts();
      return entry;
    }
    case v1::PlanEntry::kSequenceParallel:
      entry.style = UnbuiltStyle{"SequenceParallel"};
      return entry;
    case v1::PlanEntry::kPrepareModuleInput:
      entry.style = UnbuiltStyle{"PrepareModuleInput"};
      return entry;
    case v1::PlanEntry::kPrepareModuleOutput:
      entry.style = UnbuiltStyle{"PrepareModuleOutput"};
      return entry;
    case v1::PlanEntry::kPrepareModuleInputOutput:
      entry.style = UnbuiltStyle{"PrepareModuleInputOutput"};
      return entry;
    case v1::PlanEntry::STYLE_NOT_SET:
      break;
  }
  return FieldError(field, absl::StrCat("entry '", proto.pattern(), "' has no style: exactly one of colwise_parallel, ",
                                        "rowwise_parallel, sequence_parallel, prepare_module_input, ",
                                        "prepare_module_output and prepare_module_input_output must be set"));
}

}  // namespace

absl::StatusOr<ParallelPlan> PlanFromProto(const v1::ParallelPlan& plan, const std::string& field) {
  ParallelPlan result;
  TP_ASSIGN_OR_RETURN(Mesh mesh, MeshFromProto(plan.mesh(), field + ".mesh"));
  result.mesh = mesh.axes();
  result.axis = plan.axis();
  for (int i = 0; i < plan.entries_size(); ++i) {
    TP_ASSIGN_OR_RETURN(PlanEntry entry, PlanEntryFromProto(plan.entries(i), Indexed(field + ".entries", i)));
    result.entries.push_back(std::move(entry));
  }
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
    if (const auto* colwise = std::get_if<ColwiseParallel>(&entry.style)) {
      LinearStyleToProto(*colwise, entry.input_layouts_written, added->mutable_colwise_parallel());
    } else if (const auto* rowwise = std::get_if<RowwiseParallel>(&entry.style)) {
      LinearStyleToProto(*rowwise, entry.input_layouts_written, added->mutable_rowwise_parallel());
    } else {
      const std::string& name = std::get<UnbuiltStyle>(entry.style).name;
      if (name == "SequenceParallel") added->mutable_sequence_parallel();
      if (name == "PrepareModuleInput") added->mutable_prepare_module_input();
      if (name == "PrepareModuleOutput") added->mutable_prepare_module_output();
      if (name == "PrepareModuleInputOutput") added->mutable_prepare_module_input_output();
    }
  }
  proto->set_allow_unmatched(plan.allow_unmatched);
  for (const std::string& axis : plan.batch_axes) proto->add_batch_axes(axis);
}

}  // namespace tp

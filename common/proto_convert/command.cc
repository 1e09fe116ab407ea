#include "common/proto_convert/command.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/layout.h"
#include "common/proto_convert/program.h"

namespace tp {
namespace {

absl::StatusOr<Run> RunFromProto(const v1::Run& proto, const std::string& field) {
  Run run;
  run.model = proto.model();
  for (int i = 0; i < proto.inputs_size(); ++i) {
    const v1::RunInput& input = proto.inputs(i);
    RunInput added;
    added.name = input.name();
    TP_ASSIGN_OR_RETURN(added.global_shape,
                        ShapeFromProto(input.global_shape(), Indexed(field + ".inputs", i) + ".global_shape"));
    added.data = input.data();
    added.stage_id = input.stage_id();
    added.tensor_id = input.tensor_id();
    run.inputs.push_back(std::move(added));
  }
  run.transfer_id = proto.transfer_id();
  run.local_blocks = proto.local_blocks();
  if (proto.has_program()) {
    TP_ASSIGN_OR_RETURN(ForwardProgram program, ProgramFromProto(proto.program(), field + ".program"));
    run.program = std::make_shared<const ForwardProgram>(std::move(program));
  }
  return run;
}

absl::StatusOr<Decode> DecodeFromProto(const v1::Decode& proto, const std::string& field) {
  Decode decode;
  decode.model = proto.model();
  decode.steps = proto.steps();
  if (decode.steps < 1 || decode.steps > 8) {
    return FieldError(field + ".steps", absl::StrCat("is ", decode.steps, "; must be 1 to 8"));
  }
  for (int i = 0; i < proto.joins_size(); ++i) {
    const v1::JoinSequence& join = proto.joins(i);
    JoinSequence added;
    added.sequence_id = join.sequence_id();
    TP_ASSIGN_OR_RETURN(added.sampling, SamplingFromProto(join.sampling(), Indexed(field + ".joins", i) + ".sampling"));
    added.max_new_tokens = join.max_new_tokens();
    added.stop_ids.assign(join.stop_ids().begin(), join.stop_ids().end());
    decode.joins.push_back(std::move(added));
  }
  for (const v1::PrefillPiece& piece : proto.pieces()) {
    decode.pieces.push_back({piece.sequence_id(), {piece.token_ids().begin(), piece.token_ids().end()}, piece.last()});
  }
  decode.leaves.assign(proto.leaves().begin(), proto.leaves().end());
  decode.ranks.assign(proto.ranks().begin(), proto.ranks().end());
  return decode;
}

void RunToProto(const Run& run, v1::Run* proto) {
  proto->set_model(run.model);
  for (const RunInput& input : run.inputs) {
    v1::RunInput* added = proto->add_inputs();
    added->set_name(input.name);
    ShapeToProto(input.global_shape, added->mutable_global_shape());
    if (input.stage_id != 0) {
      added->set_stage_id(input.stage_id);
    } else if (input.tensor_id != 0) {
      added->set_tensor_id(input.tensor_id);
    } else {
      added->set_data(input.data);
    }
  }
  proto->set_transfer_id(run.transfer_id);
  proto->set_local_blocks(run.local_blocks);
  if (run.program != nullptr) ProgramToProto(*run.program, proto->mutable_program());
}

void DecodeToProto(const Decode& decode, v1::Decode* proto) {
  proto->set_model(decode.model);
  proto->set_steps(decode.steps);
  for (const JoinSequence& join : decode.joins) {
    v1::JoinSequence* added = proto->add_joins();
    added->set_sequence_id(join.sequence_id);
    SamplingToProto(join.sampling, added->mutable_sampling());
    added->set_max_new_tokens(join.max_new_tokens);
    added->mutable_stop_ids()->Assign(join.stop_ids.begin(), join.stop_ids.end());
  }
  for (const PrefillPiece& piece : decode.pieces) {
    v1::PrefillPiece* added = proto->add_pieces();
    added->set_sequence_id(piece.sequence_id);
    added->mutable_token_ids()->Assign(piece.token_ids.begin(), piece.token_ids.end());
    added->set_last(piece.last);
  }
  proto->mutable_leaves()->Assign(decode.leaves.begin(), decode.leaves.end());
  proto->mutable_ranks()->Assign(decode.ranks.begin(), decode.ranks.end());
}

std::vector<uint64_t> Ids(const google::protobuf::RepeatedField<uint64_t>& ids) { return {ids.begin(), ids.end()}; }
void SetIds(const std::vector<uint64_t>& ids, google::protobuf::RepeatedField<uint64_t>* proto) {
  proto->Assign(ids.begin(), ids.end());
}

absl::StatusOr<Transform> TransformFromProto(const v1::Transform& proto, const std::string& field) {
  Transform transform;
  TP_ASSIGN_OR_RETURN(ForwardProgram program, ProgramFromProto(proto.program(), field + ".program"));
  transform.inputs = Ids(proto.inputs());
  transform.outputs = Ids(proto.outputs());
  for (const Operand& operand : program.operands) {
    if (operand.kind != OperandKind::kTensor) return FieldError(field + ".program", "its operands must be tensors");
  }
  if (transform.inputs.size() != program.operands.size() || transform.outputs.size() != program.outputs.size()) {
    return FieldError(
        field, absl::StrCat("the program has ", program.operands.size(), " operands and ", program.outputs.size(),
                            " outputs; given are ", transform.inputs.size(), " and ", transform.outputs.size()));
  }
  transform.program = std::make_shared<const ForwardProgram>(std::move(program));
  return transform;
}

absl::Status CheckRanks(const std::vector<int>& ranks, const Mesh& mesh, const std::string& field) {
  if (static_cast<int>(ranks.size()) != mesh.rank_count()) {
    return FieldError(field, absl::StrCat("has ", ranks.size(), " ranks; the mesh has ", mesh.rank_count()));
  }
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0 || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return FieldError(field, "ranks must be distinct and not negative");
  }
  return absl::OkStatus();
}

absl::StatusOr<Transfer> TransferFromProto(const v1::Transfer& proto, const std::string& field) {
  Transfer transfer;
  transfer.input = proto.input();
  transfer.output = proto.output();
  TP_ASSIGN_OR_RETURN(transfer.source_mesh, MeshFromProto(proto.source_mesh(), field + ".source_mesh"));
  TP_ASSIGN_OR_RETURN(transfer.target_mesh, MeshFromProto(proto.target_mesh(), field + ".target_mesh"));
  TP_ASSIGN_OR_RETURN(transfer.dtype, DTypeFromProto(proto.spec().type().dtype(), field + ".spec.type.dtype"));
  TP_ASSIGN_OR_RETURN(const SymShape shape, SymShapeFromProto(proto.spec().type().shape(), field + ".spec.type.shape"));
  TP_ASSIGN_OR_RETURN(transfer.shape, EvaluateShape(shape, {}));
  absl::StatusOr<int64_t> bytes = CheckedBytes(transfer.shape, transfer.dtype);
  if (!bytes.ok()) return AtField(bytes.status(), field + ".spec.type.shape");
  TP_ASSIGN_OR_RETURN(transfer.source,
                      CheckedPlacementsFromProto(proto.spec().placements(), transfer.shape, transfer.dtype,
                                                 transfer.source_mesh, field + ".spec"));
  TP_ASSIGN_OR_RETURN(transfer.target,
                      CheckedPlacementsFromProto(proto.target_placements(), transfer.shape, transfer.dtype,
                                                 transfer.target_mesh, field + ".target"));
  for (const Placements* placements : {&transfer.source, &transfer.target}) {
    for (const Placement& placement : *placements) {
      if (placement.IsPartial()) return FieldError(field, "a partial tensor can't move to another mesh");
    }
  }
  transfer.source_ranks.assign(proto.source_ranks().begin(), proto.source_ranks().end());
  transfer.target_ranks.assign(proto.target_ranks().begin(), proto.target_ranks().end());
  TP_RETURN_IF_ERROR(CheckRanks(transfer.source_ranks, transfer.source_mesh, field + ".source_ranks"));
  TP_RETURN_IF_ERROR(CheckRanks(transfer.target_ranks, transfer.target_mesh, field + ".target_ranks"));
  transfer.target_mesh_id = proto.target_mesh_id();
  return transfer;
}

absl::StatusOr<ShareStates> ShareFromProto(const v1::ShareStates& proto, const std::string& field) {
  ShareStates share;
  share.model = proto.model();
  TP_ASSIGN_OR_RETURN(share.mesh, MeshFromProto(proto.mesh(), field + ".mesh"));
  for (int i = 0; i < proto.states_size(); ++i) {
    const std::string at = Indexed(field + ".states", i);
    TP_ASSIGN_OR_RETURN(LoadState added, LoadStateFromProto(proto.states(i), share.mesh, at));
    if (added.tensor_id == 0) return FieldError(at + ".tensor_id", "must not be 0");
    share.states.push_back(std::move(added));
  }
  return share;
}

void ShareToProto(const ShareStates& share, v1::ShareStates* proto) {
  proto->set_model(share.model);
  MeshToProto(share.mesh.axes(), proto->mutable_mesh());
  for (const LoadState& state : share.states) LoadStateToProto(state, proto->add_states());
}

void TransferToProto(const Transfer& transfer, v1::Transfer* proto) {
  proto->set_input(transfer.input);
  proto->set_output(transfer.output);
  DTensorSpec spec;
  spec.dtype = transfer.dtype;
  for (const int64_t size : transfer.shape) spec.shape.push_back(Dim(size));
  spec.placements = transfer.source;
  SpecToProto(spec, proto->mutable_spec());
  MeshToProto(transfer.source_mesh.axes(), proto->mutable_source_mesh());
  proto->mutable_source_ranks()->Assign(transfer.source_ranks.begin(), transfer.source_ranks.end());
  MeshToProto(transfer.target_mesh.axes(), proto->mutable_target_mesh());
  proto->mutable_target_ranks()->Assign(transfer.target_ranks.begin(), transfer.target_ranks.end());
  PlacementsToProto(transfer.target, proto->mutable_target_placements());
  proto->set_target_mesh_id(transfer.target_mesh_id);
}

}  // namespace

uint32_t TimeoutToProto(absl::Duration timeout) {
  return static_cast<uint32_t>(std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 1, 1 << 30));
}

absl::StatusOr<Sampling> SamplingFromProto(const v1::Sampling& sampling, const std::string& field) {
  if (!std::isfinite(sampling.temperature()) || sampling.temperature() < 0) {
    return FieldError(field + ".temperature", absl::StrCat("is ", sampling.temperature(), "; must be 0 or above"));
  }
  if (sampling.top_k() < 0) {
    return FieldError(field + ".top_k", absl::StrCat("is ", sampling.top_k(), "; must be 0 or above"));
  }
  if (!std::isfinite(sampling.top_p()) || sampling.top_p() < 0 || sampling.top_p() > 1) {
    return FieldError(field + ".top_p", absl::StrCat("is ", sampling.top_p(), "; must be 0 to 1"));
  }
  return Sampling{sampling.temperature(), sampling.top_k(), sampling.top_p(), sampling.seed()};
}

void SamplingToProto(const Sampling& sampling, v1::Sampling* proto) {
  proto->set_temperature(sampling.temperature);
  proto->set_top_k(sampling.top_k);
  proto->set_top_p(sampling.top_p);
  proto->set_seed(sampling.seed);
}

absl::StatusOr<Command> CommandFromProto(const v1::Command& command) {
  Command result;
  result.term = command.term();
  result.sequence = command.sequence();
  result.order = command.order();
  result.mesh_id = command.mesh_id();
  result.epoch = command.epoch();
  result.timeout = absl::Milliseconds(command.timeout_ms());
  switch (command.kind_case()) {
    case v1::Command::kCommit:
      result.kind = Commit{{command.commit().stage_ids().begin(), command.commit().stage_ids().end()}};
      return result;
    case v1::Command::kRun: {
      TP_ASSIGN_OR_RETURN(result.kind, RunFromProto(command.run(), "command.run"));
      return result;
    }
    case v1::Command::kDecode: {
      TP_ASSIGN_OR_RETURN(result.kind, DecodeFromProto(command.decode(), "command.decode"));
      return result;
    }
    case v1::Command::kRelease:
      result.kind = Release{command.release().model()};
      return result;
    case v1::Command::kCloseMesh:
      result.kind = CloseMesh{};
      return result;
    case v1::Command::kBroadcast:
      result.kind = Broadcast{Ids(command.broadcast().tensor_ids()), command.broadcast().src_data_rank()};
      return result;
    case v1::Command::kTransform: {
      TP_ASSIGN_OR_RETURN(result.kind, TransformFromProto(command.transform(), "command.transform"));
      return result;
    }
    case v1::Command::kTransfer: {
      TP_ASSIGN_OR_RETURN(result.kind, TransferFromProto(command.transfer(), "command.transfer"));
      return result;
    }
    case v1::Command::kDropTensors:
      result.kind = DropTensors{Ids(command.drop_tensors().tensor_ids())};
      return result;
    case v1::Command::kShareStates: {
      TP_ASSIGN_OR_RETURN(result.kind, ShareFromProto(command.share_states(), "command.share_states"));
      return result;
    }
    case v1::Command::KIND_NOT_SET:
      break;
  }
  return FieldError("command", "exactly one kind must be set");
}

void CommandToProto(const Command& command, v1::Command* proto) {
  proto->set_term(command.term);
  proto->set_sequence(command.sequence);
  proto->set_order(command.order);
  proto->set_mesh_id(command.mesh_id);
  proto->set_epoch(command.epoch);
  proto->set_timeout_ms(TimeoutToProto(command.timeout));
  if (const auto* commit = std::get_if<Commit>(&command.kind)) {
    proto->mutable_commit()->mutable_stage_ids()->Assign(commit->stage_ids.begin(), commit->stage_ids.end());
  } else if (const auto* run = std::get_if<Run>(&command.kind)) {
    RunToProto(*run, proto->mutable_run());
  } else if (const auto* decode = std::get_if<Decode>(&command.kind)) {
    DecodeToProto(*decode, proto->mutable_decode());
  } else if (const auto* release = std::get_if<Release>(&command.kind)) {
    proto->mutable_release()->set_model(release->model);
  } else if (const auto* broadcast = std::get_if<Broadcast>(&command.kind)) {
    SetIds(broadcast->tensor_ids, proto->mutable_broadcast()->mutable_tensor_ids());
    proto->mutable_broadcast()->set_src_data_rank(broadcast->src_data_rank);
  } else if (const auto* transform = std::get_if<Transform>(&command.kind)) {
    ProgramToProto(*transform->program, proto->mutable_transform()->mutable_program());
    SetIds(transform->inputs, proto->mutable_transform()->mutable_inputs());
    SetIds(transform->outputs, proto->mutable_transform()->mutable_outputs());
  } else if (const auto* transfer = std::get_if<Transfer>(&command.kind)) {
    TransferToProto(*transfer, proto->mutable_transfer());
  } else if (const auto* drop = std::get_if<DropTensors>(&command.kind)) {
    SetIds(drop->tensor_ids, proto->mutable_drop_tensors()->mutable_tensor_ids());
  } else if (const auto* share = std::get_if<ShareStates>(&command.kind)) {
    ShareToProto(*share, proto->mutable_share_states());
  } else {
    proto->mutable_close_mesh();
  }
}

}  // namespace tp

#include "common/proto_convert/command.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/model.h"
#include "common/proto_convert/program.h"

namespace tp {
namespace {

absl::Duration TimeoutFromProto(uint32_t timeout_ms) { return absl::Milliseconds(timeout_ms); }
uint32_t TimeoutToProto(absl::Duration timeout) {
  return static_cast<uint32_t>(std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 1, 1 << 30));
}

absl::Status CheckRank(int rank, int size, const std::string& field) {
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return FieldError(field, absl::StrCat("rank ", rank, " is not in a mesh of ", size, " ranks"));
}

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
    run.inputs.push_back(std::move(added));
  }
  run.transfer_id = proto.transfer_id();
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
  return decode;
}

absl::StatusOr<StageLoad> LoadFromProto(const v1::StageLoad& proto, const std::string& field) {
  StageLoad load;
  load.model = proto.model();
  load.mesh_id = proto.mesh_id();
  load.epoch = proto.epoch();
  load.rank = proto.rank();
  TP_ASSIGN_OR_RETURN(ForwardProgram program, ProgramFromProto(proto.program(), field + ".program"));
  TP_RETURN_IF_ERROR(CheckRank(load.rank, program.mesh.rank_count(), field + ".rank"));
  load.program = std::make_shared<const ForwardProgram>(std::move(program));
  if (proto.has_step_program()) {
    TP_ASSIGN_OR_RETURN(ForwardProgram step, ProgramFromProto(proto.step_program(), field + ".step_program"));
    load.step_program = std::make_shared<const ForwardProgram>(std::move(step));
  }
  load.fingerprint = proto.fingerprint();
  for (int i = 0; i < proto.states_size(); ++i) {
    const v1::LoadState& state = proto.states(i);
    const std::string at = Indexed(field + ".states", i);
    LoadState added;
    added.path = state.path();
    TP_ASSIGN_OR_RETURN(added.shape, ShapeFromProto(state.shape(), at + ".shape"));
    TP_ASSIGN_OR_RETURN(added.dtype, DTypeFromProto(state.dtype(), at + ".dtype"));
    absl::StatusOr<int64_t> bytes = CheckedBytes(added.shape, added.dtype);
    if (!bytes.ok()) return AtField(bytes.status(), at + ".shape");
    TP_ASSIGN_OR_RETURN(added.placements, PlacementsFromProto(state.placements(), at + ".placements"));
    TP_ASSIGN_OR_RETURN(added.placements, NormalizePlacements(added.placements, static_cast<int>(added.shape.size()),
                                                              added.dtype, load.program->mesh));
    TP_RETURN_IF_ERROR(AtField(ValidateForShape(added.shape, added.placements, load.program->mesh), at));
    TP_ASSIGN_OR_RETURN(added.source, WeightSourceFromProto(state.source(), at + ".source"));
    added.buffer = state.buffer();
    added.packed = state.packed();
    load.states.push_back(std::move(added));
  }
  load.seed = proto.seed();
  load.cache_pages = proto.cache_pages();
  if (load.cache_pages < 0) return FieldError(field + ".cache_pages", "must not be negative");
  return load;
}

void RunToProto(const Run& run, v1::Run* proto) {
  proto->set_model(run.model);
  for (const RunInput& input : run.inputs) {
    v1::RunInput* added = proto->add_inputs();
    added->set_name(input.name);
    ShapeToProto(input.global_shape, added->mutable_global_shape());
    if (input.stage_id != 0) {
      added->set_stage_id(input.stage_id);
    } else {
      added->set_data(input.data);
    }
  }
  proto->set_transfer_id(run.transfer_id);
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
}

void LoadToProto(const StageLoad& load, v1::StageLoad* proto) {
  proto->set_model(load.model);
  proto->set_mesh_id(load.mesh_id);
  proto->set_epoch(load.epoch);
  proto->set_rank(load.rank);
  if (load.program != nullptr) ProgramToProto(*load.program, proto->mutable_program());
  if (load.step_program != nullptr) ProgramToProto(*load.step_program, proto->mutable_step_program());
  proto->set_fingerprint(load.fingerprint);
  for (const LoadState& state : load.states) {
    v1::LoadState* added = proto->add_states();
    added->set_path(state.path);
    ShapeToProto(state.shape, added->mutable_shape());
    added->set_dtype(DTypeToProto(state.dtype));
    PlacementsToProto(state.placements, added->mutable_placements());
    WeightSourceToProto(state.source, added->mutable_source());
    added->set_buffer(state.buffer);
    added->set_packed(state.packed);
  }
  proto->set_seed(load.seed);
  proto->set_cache_pages(load.cache_pages);
}

}  // namespace

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
  result.timeout = TimeoutFromProto(command.timeout_ms());
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
    case v1::Command::KIND_NOT_SET:
      break;
  }
  return FieldError("command", "exactly one of commit, run, decode, release and close_mesh must be set");
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
  } else {
    proto->mutable_close_mesh();
  }
}

absl::StatusOr<Stage> StageFromProto(const v1::Stage& stage) {
  Stage result;
  result.stage_id = stage.stage_id();
  result.term = stage.term();
  switch (stage.kind_case()) {
    case v1::Stage::kListen:
      TP_RETURN_IF_ERROR(CheckRank(stage.listen().rank(), stage.listen().size(), "stage.listen.rank"));
      result.kind =
          StageListen{stage.listen().mesh_id(), stage.listen().epoch(), stage.listen().rank(), stage.listen().size()};
      return result;
    case v1::Stage::kConnect:
      result.kind = StageConnect{stage.connect().mesh_id(),
                                 stage.connect().epoch(),
                                 {stage.connect().addresses().begin(), stage.connect().addresses().end()},
                                 TimeoutFromProto(stage.connect().timeout_ms())};
      return result;
    case v1::Stage::kLoad: {
      TP_ASSIGN_OR_RETURN(result.kind, LoadFromProto(stage.load(), "stage.load"));
      return result;
    }
    case v1::Stage::kReceive:
      if (stage.receive().size_bytes() > uint64_t{1} << 62)
        return FieldError("stage.receive.size_bytes", "is too large");
      result.kind = StageReceive{stage.receive().transfer_id(), static_cast<int64_t>(stage.receive().size_bytes())};
      return result;
    case v1::Stage::KIND_NOT_SET:
      break;
  }
  return FieldError("stage", "exactly one of listen, connect, load and receive must be set");
}

void StageToProto(const Stage& stage, v1::Stage* proto) {
  proto->set_stage_id(stage.stage_id);
  proto->set_term(stage.term);
  if (const auto* listen = std::get_if<StageListen>(&stage.kind)) {
    proto->mutable_listen()->set_mesh_id(listen->mesh_id);
    proto->mutable_listen()->set_epoch(listen->epoch);
    proto->mutable_listen()->set_rank(listen->rank);
    proto->mutable_listen()->set_size(listen->size);
  } else if (const auto* connect = std::get_if<StageConnect>(&stage.kind)) {
    proto->mutable_connect()->set_mesh_id(connect->mesh_id);
    proto->mutable_connect()->set_epoch(connect->epoch);
    for (const std::string& address : connect->addresses) proto->mutable_connect()->add_addresses(address);
    proto->mutable_connect()->set_timeout_ms(TimeoutToProto(connect->timeout));
  } else if (const auto* load = std::get_if<StageLoad>(&stage.kind)) {
    LoadToProto(*load, proto->mutable_load());
  } else {
    const auto& receive = std::get<StageReceive>(stage.kind);
    proto->mutable_receive()->set_transfer_id(receive.transfer_id);
    proto->mutable_receive()->set_size_bytes(static_cast<uint64_t>(receive.size_bytes));
  }
}

}  // namespace tp

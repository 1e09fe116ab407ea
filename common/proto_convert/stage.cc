// Work beside the command stream.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/command.h"
#include "common/proto_convert/layout.h"
#include "common/proto_convert/model.h"
#include "common/proto_convert/program.h"

namespace tp {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 62;
// Both enums stand in the same order, the message's one with an unspecified value in front.
constexpr int kOrigins = static_cast<int>(NewTensor::Origin::kBroadcast) + 1;
static_assert(kOrigins == v1::NewTensor::ORIGIN_BROADCAST);

absl::Status CheckRank(int rank, int size, const std::string& field) {
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return FieldError(field, absl::StrCat("rank ", rank, " is not in a mesh of ", size, " ranks"));
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
    TP_ASSIGN_OR_RETURN(LoadState added,
                        LoadStateFromProto(proto.states(i), load.program->mesh, Indexed(field + ".states", i)));
    load.states.push_back(std::move(added));
  }
  load.seed = proto.seed();
  load.cache_pages = proto.cache_pages();
  if (load.cache_pages < 0) return FieldError(field + ".cache_pages", "must not be negative");
  return load;
}

void LoadToProto(const StageLoad& load, v1::StageLoad* proto) {
  proto->set_model(load.model);
  proto->set_mesh_id(load.mesh_id);
  proto->set_epoch(load.epoch);
  proto->set_rank(load.rank);
  if (load.program != nullptr) ProgramToProto(*load.program, proto->mutable_program());
  if (load.step_program != nullptr) ProgramToProto(*load.step_program, proto->mutable_step_program());
  proto->set_fingerprint(load.fingerprint);
  for (const LoadState& state : load.states) LoadStateToProto(state, proto->add_states());
  proto->set_seed(load.seed);
  proto->set_cache_pages(load.cache_pages);
}

absl::StatusOr<StageTensors> TensorsFromProto(const v1::StageTensors& proto, const std::string& field) {
  StageTensors tensors;
  tensors.mesh_id = proto.mesh_id();
  TP_ASSIGN_OR_RETURN(tensors.mesh, MeshFromProto(proto.mesh(), field + ".mesh"));
  tensors.rank = proto.rank();
  TP_RETURN_IF_ERROR(CheckRank(tensors.rank, tensors.mesh.rank_count(), field + ".rank"));
  tensors.seed = proto.seed();
  for (int i = 0; i < proto.tensors_size(); ++i) {
    const v1::NewTensor& tensor = proto.tensors(i);
    const std::string at = Indexed(field + ".tensors", i);
    NewTensor added;
    added.tensor_id = tensor.tensor_id();
    TP_ASSIGN_OR_RETURN(added.state, LoadStateFromProto(tensor.state(), tensors.mesh, at + ".state"));
    if (tensor.origin() < 1 || tensor.origin() > kOrigins) {
      return FieldError(at + ".origin", absl::StrCat("unknown origin ", static_cast<int>(tensor.origin())));
    }
    added.origin = static_cast<NewTensor::Origin>(tensor.origin() - 1);
    added.transfer_id = tensor.transfer_id();
    tensors.tensors.push_back(std::move(added));
  }
  return tensors;
}

void TensorsToProto(const StageTensors& tensors, v1::StageTensors* proto) {
  proto->set_mesh_id(tensors.mesh_id);
  MeshToProto(tensors.mesh.axes(), proto->mutable_mesh());
  proto->set_rank(tensors.rank);
  proto->set_seed(tensors.seed);
  for (const NewTensor& tensor : tensors.tensors) {
    v1::NewTensor* added = proto->add_tensors();
    added->set_tensor_id(tensor.tensor_id);
    LoadStateToProto(tensor.state, added->mutable_state());
    added->set_origin(static_cast<v1::NewTensor::Origin>(static_cast<int>(tensor.origin) + 1));
    added->set_transfer_id(tensor.transfer_id);
  }
}

// Names are of one part: what a worker writes stays in the folder.
absl::StatusOr<std::vector<SavedFile>> FilesFromProto(const google::protobuf::RepeatedPtrField<v1::SavedFile>& files,
                                                      const std::string& field) {
  std::vector<SavedFile> result;
  for (const v1::SavedFile& file : files) {
    if (file.name().empty() || file.name()[0] == '.' || file.name().find('/') != std::string::npos) {
      return FieldError(field, absl::StrCat("'", file.name(), "' is no file name"));
    }
    if (file.size_bytes() > kMostBytes || file.header().size() > file.size_bytes()) {
      return FieldError(field, absl::StrCat("'", file.name(), "': a size of ", file.size_bytes(), " bytes"));
    }
    result.push_back({file.name(), file.header(), static_cast<int64_t>(file.size_bytes())});
  }
  return result;
}

void FilesToProto(const std::vector<SavedFile>& files, google::protobuf::RepeatedPtrField<v1::SavedFile>* proto) {
  for (const SavedFile& file : files) {
    v1::SavedFile* added = proto->Add();
    added->set_name(file.name);
    added->set_header(file.header);
    added->set_size_bytes(static_cast<uint64_t>(file.size_bytes));
  }
}

absl::StatusOr<StageSave> SaveFromProto(const v1::StageSave& proto, const std::string& field) {
  StageSave save;
  save.directory = proto.directory();
  save.tag = proto.tag();
  TP_ASSIGN_OR_RETURN(save.files, FilesFromProto(proto.files(), field + ".files"));
  for (int i = 0; i < proto.tensors_size(); ++i) {
    const v1::SavedTensor& tensor = proto.tensors(i);
    if (tensor.file() < 0 || tensor.file() >= static_cast<int>(save.files.size()) || tensor.begin() > kMostBytes) {
      return FieldError(Indexed(field + ".tensors", i), "file or begin out of range");
    }
    save.tensors.push_back({tensor.tensor_id(), tensor.file(), static_cast<int64_t>(tensor.begin()), tensor.owner()});
  }
  save.create = proto.create();
  return save;
}

void SaveToProto(const StageSave& save, v1::StageSave* proto) {
  proto->set_directory(save.directory);
  proto->set_tag(save.tag);
  FilesToProto(save.files, proto->mutable_files());
  for (const SavedTensor& tensor : save.tensors) {
    v1::SavedTensor* added = proto->add_tensors();
    added->set_tensor_id(tensor.tensor_id);
    added->set_file(tensor.file);
    added->set_begin(static_cast<uint64_t>(tensor.begin));
    added->set_owner(tensor.owner);
  }
  proto->set_create(save.create);
}

}  // namespace

absl::StatusOr<LoadState> LoadStateFromProto(const v1::LoadState& state, const Mesh& mesh, const std::string& field) {
  LoadState result;
  result.path = state.path();
  TP_ASSIGN_OR_RETURN(result.shape, ShapeFromProto(state.shape(), field + ".shape"));
  TP_ASSIGN_OR_RETURN(result.dtype, DTypeFromProto(state.dtype(), field + ".dtype"));
  absl::StatusOr<int64_t> bytes = CheckedBytes(result.shape, result.dtype);
  if (!bytes.ok()) return AtField(bytes.status(), field + ".shape");
  TP_ASSIGN_OR_RETURN(result.placements,
                      CheckedPlacementsFromProto(state.placements(), result.shape, result.dtype, mesh, field));
  if (state.has_source()) {
    TP_ASSIGN_OR_RETURN(result.source, WeightSourceFromProto(state.source(), field + ".source"));
  }
  result.buffer = state.buffer();
  result.packed = state.packed();
  result.tensor_id = state.tensor_id();
  return result;
}

void LoadStateToProto(const LoadState& state, v1::LoadState* proto) {
  proto->set_path(state.path);
  ShapeToProto(state.shape, proto->mutable_shape());
  proto->set_dtype(DTypeToProto(state.dtype));
  PlacementsToProto(state.placements, proto->mutable_placements());
  WeightSourceToProto(state.source, proto->mutable_source());
  proto->set_buffer(state.buffer);
  proto->set_packed(state.packed);
  proto->set_tensor_id(state.tensor_id);
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
                                 absl::Milliseconds(stage.connect().timeout_ms())};
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
    case v1::Stage::kTensors: {
      TP_ASSIGN_OR_RETURN(result.kind, TensorsFromProto(stage.tensors(), "stage.tensors"));
      return result;
    }
    case v1::Stage::kSend:
      result.kind = StageSend{stage.send().tensor_id(), stage.send().transfer_id()};
      return result;
    case v1::Stage::kInspect:
      result.kind = StageInspect{stage.inspect().path()};
      return result;
    case v1::Stage::kSave: {
      TP_ASSIGN_OR_RETURN(result.kind, SaveFromProto(stage.save(), "stage.save"));
      return result;
    }
    case v1::Stage::kSeal: {
      StageSeal seal{stage.seal().directory(), stage.seal().tag(), {}, stage.seal().index()};
      TP_ASSIGN_OR_RETURN(seal.files, FilesFromProto(stage.seal().files(), "stage.seal.files"));
      result.kind = std::move(seal);
      return result;
    }
    case v1::Stage::KIND_NOT_SET:
      break;
  }
  return FieldError("stage", "exactly one kind must be set");
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
  } else if (const auto* receive = std::get_if<StageReceive>(&stage.kind)) {
    proto->mutable_receive()->set_transfer_id(receive->transfer_id);
    proto->mutable_receive()->set_size_bytes(static_cast<uint64_t>(receive->size_bytes));
  } else if (const auto* tensors = std::get_if<StageTensors>(&stage.kind)) {
    TensorsToProto(*tensors, proto->mutable_tensors());
  } else if (const auto* send = std::get_if<StageSend>(&stage.kind)) {
    proto->mutable_send()->set_tensor_id(send->tensor_id);
    proto->mutable_send()->set_transfer_id(send->transfer_id);
  } else if (const auto* inspect = std::get_if<StageInspect>(&stage.kind)) {
    proto->mutable_inspect()->set_path(inspect->path);
  } else if (const auto* save = std::get_if<StageSave>(&stage.kind)) {
    SaveToProto(*save, proto->mutable_save());
  } else {
    const auto& seal = std::get<StageSeal>(stage.kind);
    proto->mutable_seal()->set_directory(seal.directory);
    proto->mutable_seal()->set_tag(seal.tag);
    FilesToProto(seal.files, proto->mutable_seal()->mutable_files());
    proto->mutable_seal()->set_index(seal.index);
  }
}

}  // namespace tp

// Commands and staged work of named tensors keep every field over the wire, and bad ones are refused by field.
#include <gmock/gmock.h>

#include "common/program/redistribute_program.h"
#include "common/proto_convert/command.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Kind>
Kind RoundTripCommand(Kind kind) {
  Command command;
  command.kind = std::move(kind);
  v1::Command proto;
  CommandToProto(command, &proto);
  absl::StatusOr<Command> back = CommandFromProto(proto);
  EXPECT_TRUE(back.ok()) << back.status();
  return std::get<Kind>(back->kind);
}

template <typename Kind>
Kind RoundTripStage(Kind kind) {
  Stage stage;
  stage.kind = std::move(kind);
  v1::Stage proto;
  StageToProto(stage, &proto);
  absl::StatusOr<Stage> back = StageFromProto(proto);
  EXPECT_TRUE(back.ok()) << back.status();
  return std::get<Kind>(back->kind);
}

Transfer ATransfer() {
  Transfer transfer;
  transfer.input = 3;
  transfer.output = 4;
  transfer.dtype = DType::kBF16;
  transfer.shape = {5, 3};
  transfer.source_mesh = *Mesh::Parse("tp=2");
  transfer.target_mesh = *Mesh::Parse("dp=1,tp=3");
  transfer.source = {Placement::Shard(0)};
  transfer.target = {Placement::Replicate(), Placement::Shard(1)};
  transfer.source_ranks = {0, 1};
  transfer.target_ranks = {1, 2, 3};
  transfer.target_mesh_id = 9;
  return transfer;
}

TEST(TensorCommandConvert, KeepsATransform) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  const Placements from = {Placement::Shard(0)};
  const RedistributePlan plan = *PlanRedistribute(mesh, DType::kF32, {5, 10}, from, {Placement::Replicate()});
  const ForwardProgram program = RedistributeProgram(mesh, DType::kF32, {5, 10}, plan, from);
  const Transform back = RoundTripCommand(Transform{std::make_shared<const ForwardProgram>(program), {7}, {8}});
  EXPECT_EQ(ProgramText(*back.program), ProgramText(program));
  EXPECT_THAT(back.inputs, ElementsAre(7));
  EXPECT_THAT(back.outputs, ElementsAre(8));
}

TEST(TensorCommandConvert, KeepsTransferBroadcastAndDrop) {
  const Transfer transfer = RoundTripCommand(ATransfer());
  EXPECT_EQ(transfer.input, 3u);
  EXPECT_EQ(transfer.output, 4u);
  EXPECT_EQ(transfer.dtype, DType::kBF16);
  EXPECT_THAT(transfer.shape, ElementsAre(5, 3));
  EXPECT_EQ(transfer.source_mesh.ToString(), "tp=2");
  EXPECT_EQ(transfer.target_mesh.ToString(), "dp=1,tp=3");
  EXPECT_THAT(transfer.source, ElementsAre(Placement::Shard(0)));
  EXPECT_THAT(transfer.target, ElementsAre(Placement::Replicate(), Placement::Shard(1)));
  EXPECT_THAT(transfer.source_ranks, ElementsAre(0, 1));
  EXPECT_THAT(transfer.target_ranks, ElementsAre(1, 2, 3));
  EXPECT_EQ(transfer.target_mesh_id, 9u);
  const Broadcast broadcast = RoundTripCommand(Broadcast{{1, 2}, 1});
  EXPECT_THAT(broadcast.tensor_ids, ElementsAre(1, 2));
  EXPECT_EQ(broadcast.src_data_rank, 1);
  EXPECT_THAT(RoundTripCommand(DropTensors{{5, 6}}).tensor_ids, ElementsAre(5, 6));
}

TEST(TensorCommandConvert, KeepsAShare) {
  ShareStates share{"m#2", *Mesh::Parse("tp=2"), {}};
  LoadState state;
  state.path = "w";
  state.shape = {5, 3};
  state.dtype = DType::kBF16;
  state.placements = {Placement::Shard(1)};
  state.tensor_id = 9;
  share.states = {state};
  const ShareStates back = RoundTripCommand(share);
  EXPECT_EQ(back.model, "m#2");
  EXPECT_EQ(back.mesh.ToString(), "tp=2");
  ASSERT_EQ(back.states.size(), 1u);
  EXPECT_EQ(back.states[0].path, "w");
  EXPECT_THAT(back.states[0].shape, ElementsAre(5, 3));
  EXPECT_EQ(back.states[0].dtype, DType::kBF16);
  EXPECT_THAT(back.states[0].placements, ElementsAre(Placement::Shard(1)));
  EXPECT_EQ(back.states[0].tensor_id, 9u);

  share.states[0].tensor_id = 0;
  Command command;
  command.kind = share;
  v1::Command proto;
  CommandToProto(command, &proto);
  EXPECT_THAT(std::string(CommandFromProto(proto).status().message()),
              HasSubstr("command.share_states.states[0].tensor_id"));
}

TEST(TensorCommandConvert, RefusesBadTransfersAndTransforms) {
  const auto refuse = [](const std::function<void(v1::Transfer*)>& spoil, const std::string& text) {
    Command command;
    command.kind = ATransfer();
    v1::Command proto;
    CommandToProto(command, &proto);
    spoil(proto.mutable_transfer());
    const absl::Status status = CommandFromProto(proto).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refuse([](v1::Transfer* t) { t->clear_source_ranks(); }, "command.transfer.source_ranks");
  refuse([](v1::Transfer* t) { t->set_target_ranks(0, 2); }, "must be distinct");
  refuse([](v1::Transfer* t) { t->set_target_ranks(0, -1); }, "not negative");
  refuse([](v1::Transfer* t) { t->mutable_spec()->mutable_placements(0)->mutable_shard()->set_dim(2); },
         "command.transfer.spec");
  refuse(
      [](v1::Transfer* t) {
        t->mutable_spec()->mutable_placements(0)->mutable_partial()->set_op(v1::Placement::Partial::OP_SUM);
      },
      "a partial tensor");
  refuse([](v1::Transfer* t) { t->mutable_spec()->mutable_type()->set_shape(0, "n"); }, "n");

  v1::Command transform;
  transform.mutable_transform()->mutable_program()->set_compute_dtype(v1::F32);
  transform.mutable_transform()->add_inputs(1);
  EXPECT_THAT(std::string(CommandFromProto(transform).status().message()), HasSubstr("0 operands and 0 outputs"));
}

TEST(TensorStageConvert, KeepsNewTensors) {
  StageTensors stage;
  stage.mesh_id = 2;
  stage.mesh = *Mesh::Parse("dp=2,tp=2");
  stage.rank = 3;
  stage.seed = 11;
  NewTensor made;
  made.tensor_id = 5;
  made.state.path = "w";
  made.state.shape = {8, 3};
  made.state.dtype = DType::kI64;
  made.state.placements = {Placement::Replicate(), Placement::Shard(1)};
  made.state.source.kind = WeightSource::Kind::kInitializer;
  made.state.source.initializer = {Initializer::Kind::kArange, 1, 2};
  NewTensor received = made;
  received.tensor_id = 6;
  received.origin = NewTensor::Origin::kTransfer;
  received.transfer_id = 77;
  NewTensor broadcast = made;
  broadcast.origin = NewTensor::Origin::kBroadcast;
  stage.tensors = {made, received, broadcast};
  const StageTensors back = RoundTripStage(stage);
  EXPECT_EQ(back.mesh_id, 2u);
  EXPECT_EQ(back.mesh, stage.mesh);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.seed, 11u);
  ASSERT_EQ(back.tensors.size(), 3u);
  EXPECT_EQ(back.tensors[0].state.source, made.state.source);
  EXPECT_EQ(back.tensors[0].state.placements, made.state.placements);
  EXPECT_EQ(back.tensors[0].state.path, "w");
  EXPECT_EQ(back.tensors[0].state.dtype, DType::kI64);
  EXPECT_THAT(back.tensors[0].state.shape, ElementsAre(8, 3));
  EXPECT_EQ(back.tensors[0].origin, NewTensor::Origin::kSource);
  EXPECT_EQ(back.tensors[1].origin, NewTensor::Origin::kTransfer);
  EXPECT_EQ(back.tensors[1].transfer_id, 77u);
  EXPECT_EQ(back.tensors[2].origin, NewTensor::Origin::kBroadcast);
}

TEST(TensorStageConvert, KeepsSendInspectSaveAndSeal) {
  const StageSend send = RoundTripStage(StageSend{4, 5});
  EXPECT_EQ(send.tensor_id, 4u);
  EXPECT_EQ(send.transfer_id, 5u);
  EXPECT_EQ(RoundTripStage(StageInspect{"/d"}).path, "/d");
  const StageSave save = RoundTripStage(
      StageSave{"/d", "7", {{"a.safetensors", "head", 100}, {"b.safetensors", "h", 8}}, {{3, 1, 64, true}}, true});
  EXPECT_EQ(save.directory, "/d");
  EXPECT_EQ(save.tag, "7");
  ASSERT_EQ(save.files.size(), 2u);
  EXPECT_EQ(save.files[0].header, "head");
  EXPECT_EQ(save.files[0].size_bytes, 100);
  EXPECT_EQ(save.tensors[0].tensor_id, 3u);
  EXPECT_EQ(save.tensors[0].file, 1);
  EXPECT_EQ(save.tensors[0].begin, 64);
  EXPECT_TRUE(save.tensors[0].owner);
  EXPECT_TRUE(save.create);
  const StageSeal seal = RoundTripStage(StageSeal{"/d", "7", {{"a.safetensors", "", 100}}, "{}"});
  EXPECT_EQ(seal.files[0].name, "a.safetensors");
  EXPECT_EQ(seal.index, "{}");
}

TEST(TensorStageConvert, RefusesFileNamesThatLeaveTheFolderAndUnknownOrigins) {
  for (const char* name : {"", "../x", "a/b", ".hidden"}) {
    v1::Stage stage;
    stage.mutable_save()->add_files()->set_name(name);
    EXPECT_THAT(std::string(StageFromProto(stage).status().message()), HasSubstr("is no file name")) << name;
  }
  v1::Stage tensors;
  v1::NewTensor* tensor = tensors.mutable_tensors()->add_tensors();
  tensor->mutable_state()->set_dtype(v1::F32);
  EXPECT_THAT(std::string(StageFromProto(tensors).status().message()), HasSubstr("stage.tensors.tensors[0].origin"));
  v1::Stage save;
  save.mutable_save()->add_tensors()->set_file(0);
  EXPECT_THAT(std::string(StageFromProto(save).status().message()), HasSubstr("stage.save.tensors[0]"));
}

TEST(TensorStageConvert, KeepsFoundTensorsOfAResult) {
  StageResult result;
  result.stage_id = 4;
  result.found = {{"w", "/d/a.safetensors", DType::kF16, {2, 0}}};
  v1::StageResult proto;
  StageResultToProto(result, &proto);
  EXPECT_EQ(StageResultFromProto(proto)->found, result.found);
  proto.mutable_found(0)->set_shape(0, -1);
  EXPECT_THAT(std::string(StageResultFromProto(proto).status().message()), HasSubstr("stage_result.found[0].shape"));
}

}  // namespace
}  // namespace tp

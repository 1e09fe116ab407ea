#include "common/proto_convert/command.h"

#include <gmock/gmock.h>

#include "common/proto_convert/program.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Command RoundTrip(const Command& command) {
  v1::Command proto;
  CommandToProto(command, &proto);
  absl::StatusOr<Command> back = CommandFromProto(proto);
  EXPECT_TRUE(back.ok()) << back.status();
  return back.ok() ? *back : Command();
}

Command Header() {
  Command command;
  command.term = 2;
  command.sequence = 3;
  command.order = 4;
  command.mesh_id = 5;
  command.epoch = 6;
  command.timeout = absl::Milliseconds(1500);
  return command;
}

TEST(CommandConvert, KeepsTheHeader) {
  Command command = Header();
  command.kind = Commit{{7, 8}};
  Command back = RoundTrip(command);
  EXPECT_EQ(back.term, 2u);
  EXPECT_EQ(back.sequence, 3u);
  EXPECT_EQ(back.order, 4u);
  EXPECT_EQ(back.mesh_id, 5u);
  EXPECT_EQ(back.epoch, 6u);
  EXPECT_EQ(back.timeout, absl::Milliseconds(1500));
  EXPECT_THAT(std::get<Commit>(back.kind).stage_ids, ElementsAre(7, 8));
}

TEST(CommandConvert, KeepsARun) {
  Command command = Header();
  command.kind = tp::Run{"m", {{"x", {2, 3}, "bytes", 0}, {"y", {}, "", 9}}, 10};
  tp::Run run = std::get<tp::Run>(RoundTrip(command).kind);
  EXPECT_EQ(run.model, "m");
  EXPECT_EQ(run.transfer_id, 10u);
  ASSERT_EQ(run.inputs.size(), 2u);
  EXPECT_EQ(run.inputs[0].data, "bytes");
  EXPECT_THAT(run.inputs[0].global_shape, ElementsAre(2, 3));
  EXPECT_EQ(run.inputs[1].stage_id, 9u);
}

TEST(CommandConvert, KeepsTheProgramOfARun) {
  ForwardProgram program;
  program.mesh = *Mesh::Create({{"tp", 2}});
  const DTensorSpec spec{DType::kF32, {Dim(4)}, {Placement::Replicate()}};
  program.values = {{"x", spec}, {"y", spec}};
  program.operands = {{OperandKind::kInput, "x", 0}};
  program.instructions = {{"relu", {0}, {1}, {}, "act", "", std::nullopt}};
  program.outputs = {{"y", 1}, {"act:output", 1}};
  Command command = Header();
  tp::Run run;
  run.program = std::make_shared<const ForwardProgram>(program);
  command.kind = run;
  const tp::Run back = std::get<tp::Run>(RoundTrip(command).kind);
  ASSERT_NE(back.program, nullptr);
  EXPECT_EQ(ProgramText(*back.program), ProgramText(program));
  command.kind = tp::Run();
  EXPECT_EQ(std::get<tp::Run>(RoundTrip(command).kind).program, nullptr);
}

TEST(CommandConvert, KeepsADecode) {
  Command command = Header();
  command.kind = Decode{"m", 4, {2, 3}, {{1, {0.5, 3, 0.9, 11}, 20, {256}}}, {{1, {1, 2, 3}, true}}, {5}};
  Decode decode = std::get<Decode>(RoundTrip(command).kind);
  EXPECT_EQ(decode.steps, 4);
  EXPECT_THAT(decode.ranks, ElementsAre(2, 3));
  EXPECT_EQ(decode.joins[0].sampling.temperature, 0.5);
  EXPECT_EQ(decode.joins[0].sampling.top_k, 3);
  EXPECT_EQ(decode.joins[0].sampling.top_p, 0.9);
  EXPECT_EQ(decode.joins[0].sampling.seed, 11u);
  EXPECT_EQ(decode.joins[0].max_new_tokens, 20);
  EXPECT_THAT(decode.joins[0].stop_ids, ElementsAre(256));
  EXPECT_THAT(decode.pieces[0].token_ids, ElementsAre(1, 2, 3));
  EXPECT_TRUE(decode.pieces[0].last);
  EXPECT_THAT(decode.leaves, ElementsAre(5));
}

TEST(CommandConvert, RefusesBadCommands) {
  v1::Command none;
  EXPECT_EQ(CommandFromProto(none).status().code(), absl::StatusCode::kInvalidArgument);
  v1::Command decode;
  decode.mutable_decode()->set_steps(9);
  EXPECT_THAT(std::string(CommandFromProto(decode).status().message()), HasSubstr("command.decode.steps: is 9"));
}

TEST(StageConvert, KeepsListenConnectAndReceive) {
  for (Stage stage :
       {Stage{1, 2, StageListen{3, 4, 1, 2}}, Stage{1, 2, StageConnect{3, 4, {"a", "b"}, absl::Seconds(2)}},
        Stage{1, 2, StageReceive{9, 1 << 20}}}) {
    v1::Stage proto;
    StageToProto(stage, &proto);
    absl::StatusOr<Stage> back = StageFromProto(proto);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->stage_id, 1u);
    EXPECT_EQ(back->term, 2u);
    EXPECT_EQ(back->kind.index(), stage.kind.index());
    if (auto* connect = std::get_if<StageConnect>(&back->kind)) {
      EXPECT_THAT(connect->addresses, ElementsAre("a", "b"));
      EXPECT_EQ(connect->timeout, absl::Seconds(2));
    }
    if (auto* receive = std::get_if<StageReceive>(&back->kind)) {
      EXPECT_EQ(receive->transfer_id, 9u);
      EXPECT_EQ(receive->size_bytes, 1 << 20);
    }
  }
  v1::Stage outside;
  outside.mutable_listen()->set_rank(2);
  outside.mutable_listen()->set_size(2);
  EXPECT_EQ(StageFromProto(outside).status().code(), absl::StatusCode::kInvalidArgument);
}

// y = relu(fc(x)) on tp=2 with a gathered output, by hand.
ForwardProgram SmallProgram() {
  ForwardProgram program;
  program.mesh = *Mesh::Parse("tp=2");
  const Dim batch = Dim::Symbol("batch");
  auto value = [](const std::string& name, SymShape shape, Placement placement) {
    return ProgramValue{name, {DType::kF32, std::move(shape), {std::move(placement)}}};
  };
  program.values = {value("fc.weight", {8, 3}, Placement::Shard(0)), value("x", {batch, 3}, Placement::Replicate()),
                    value("h", {batch, 8}, Placement::Shard(1)), value("y", {batch, 8}, Placement::Replicate())};
  program.operands = {{OperandKind::kParameter, "fc.weight", 0}, {OperandKind::kInput, "x", 1}};
  Instruction linear;
  linear.function = "linear";
  linear.inputs = {1, 0, -1};
  linear.outputs = {2};
  linear.attributes = {{"output_dtype", std::string("F32")}};
  linear.module_path = "fc";
  Instruction gather;
  gather.function = "redistribute";
  gather.inputs = {2};
  gather.outputs = {3};
  gather.module_path = "fc";
  gather.reason = "output of fc";
  gather.step = RedistributeStep{RedistributeOp::kAllGather, {0}, {Placement::Shard(1)}, {Placement::Replicate()}};
  program.instructions = {linear, gather};
  program.outputs = {{"y", 3}};
  program.input_checks = {{"x", 5}};
  program.symbol_limits = {{"batch", 64}};
  return program;
}

TEST(ProgramConvert, KeepsEverything) {
  ForwardProgram program = SmallProgram();
  v1::Program proto;
  ProgramToProto(program, &proto);
  absl::StatusOr<ForwardProgram> back = ProgramFromProto(proto, "p");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->mesh.ToString(), "tp=2");
  EXPECT_EQ(back->values.size(), 4u);
  EXPECT_EQ(back->values[2].spec, program.values[2].spec);
  EXPECT_EQ(back->operands[1].kind, OperandKind::kInput);
  EXPECT_THAT(back->instructions[0].inputs, ElementsAre(1, 0, -1));
  EXPECT_EQ(std::get<std::string>(back->instructions[0].attributes.at("output_dtype")), "F32");
  EXPECT_EQ(back->instructions[1].step, program.instructions[1].step);
  EXPECT_EQ(back->outputs[0].value, 3);
  EXPECT_EQ(back->input_checks[0].limit, 5);
  EXPECT_EQ(back->symbol_limits.at("batch"), 64);
  EXPECT_EQ(FingerprintOf(*back), FingerprintOf(program));
}

TEST(ProgramConvert, RefusesIndicesThatAreNotThere) {
  v1::Program proto;
  ProgramToProto(SmallProgram(), &proto);
  proto.mutable_instructions(1)->set_outputs(0, 4);
  EXPECT_EQ(ProgramFromProto(proto, "p").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AckConvert, KeepsResultsAndStatus) {
  Ack ack;
  ack.sequence = 3;
  ack.order = 4;
  ack.status = absl::AbortedError("rank 1 failed");
  ack.failed_rank = 1;
  ack.run.blocks = {{"y", DType::kF32, {2, 2}, {0, 1}, {2, 1}, "12345678", false},
                    {"z", DType::kF32, {4}, {0}, {4}, "", true}};
  ack.run.collectives = {{"fc", "all_reduce", "tp", 64, ""}};
  ack.run.wire_bytes = 100;
  ack.decode.sequences = {{1, {5, 6}, "stop"}};
  v1::Ack proto;
  AckToProto(ack, &proto);
  absl::StatusOr<Ack> back = AckFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->status, ack.status);
  EXPECT_EQ(back->failed_rank, 1);
  EXPECT_EQ(back->run.blocks[0].data, "12345678");
  EXPECT_TRUE(back->run.blocks[1].streamed);
  EXPECT_EQ(back->run.collectives, ack.run.collectives);
  EXPECT_EQ(back->decode.sequences, ack.decode.sequences);
}

TEST(AckConvert, RefusesABlockOutsideItsTensor) {
  Ack ack;
  ack.run.blocks = {{"y", DType::kF32, {2, 2}, {0, 1}, {2, 2}, std::string(16, 'x'), false}};
  v1::Ack proto;
  AckToProto(ack, &proto);
  EXPECT_THAT(std::string(AckFromProto(proto).status().message()), HasSubstr("is not inside [2, 2]"));
  proto.mutable_run()->mutable_blocks(0)->set_shape(1, 1);
  EXPECT_THAT(std::string(AckFromProto(proto).status().message()), HasSubstr("expected 8 bytes, got 16"));
}

TEST(StatusConvert, CutsLongTextAtACharacter) {
  std::string text(999, 'a');
  EXPECT_EQ(CutStatusText(text), text);
  std::string umlauts;
  for (int i = 0; i < 600; ++i) umlauts += "\xc3\xa4";
  std::string cut = CutStatusText(umlauts);
  EXPECT_LE(cut.size(), kMaxStatusText);
  EXPECT_EQ(cut.substr(cut.size() - 3), "...");
  EXPECT_EQ((cut.size() - 3) % 2, 0u);
  v1::StatusProto proto;
  proto.set_code(99);
  EXPECT_EQ(StatusFromProto(proto).code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace tp

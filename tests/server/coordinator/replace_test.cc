// Replacing a READY model: when it switches, what serves meanwhile, and what is left where it fails.
#include "server/coordinator/replace_plan.h"
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CoreReplaceTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(2); }
  // Workers a to d, model m on the first `degree`.
  void Start(int degree, bool language = false, int64_t memory_limit = 0) {
    d = std::make_unique<Driver>();
    for (const char* id : {"a", "b", "c", "e"}) d->Join(id, memory_limit);
    d->Deploy("m", degree, language);
    d->all.clear();
  }
  SubmitRequested Request(CallId call, int degree, bool language = false) {
    SubmitRequested request = d->Request(call, "m", degree, language);
    request.replace = true;
    request.blob = absl::StrCat("blob on ", degree);
    return request;
  }
  int Served() { return d->core.models().at("m").compiled->mesh.rank_count(); }
  absl::Status Reply(CallId call) { return ReplyTo<SubmitReply>(*d, call).status; }
  template <typename Kind>
  int Sent(const std::string& worker) {
    int count = 0;
    for (const Command& command : d->history[worker]) count += std::holds_alternative<Kind>(command.kind) ? 1 : 0;
    return count;
  }
  // To where the new ranks have loaded and their Commit is in the streams.
  void UpToCommit() {
    d->FinishStages();  // the link
    d->AckAll();        // and the values over it
    d->FinishStages();  // the loads
  }
  void Finish() {
    UpToCommit();
    d->AckAll();
    d->Stored();
    d->AckAll();
  }
  std::vector<int64_t> AllReserved() {
    return {d->Reserved("a"), d->Reserved("b"), d->Reserved("c"), d->Reserved("e")};
  }
  // Serves as before, and can be replaced again.
  void ExpectUntouched(const std::vector<int64_t>& reserved, int degree = 4) {
    d->stages.clear();
    d->AckAll();
    EXPECT_EQ(d->Phase("m"), "READY");
    EXPECT_EQ(Served(), 2);
    EXPECT_EQ(AllReserved(), reserved);
    d->Forward(900, "m");
    ASSERT_NE(d->LastCommand<tp::Run>("a"), nullptr);
    EXPECT_EQ(d->LastCommand<tp::Run>("a")->model, "m");
    d->AckAll();
    d->Do(Request(901, degree));
    Finish();
    EXPECT_EQ(Text(Reply(901)), "OK");
    EXPECT_EQ(Served(), degree);
  }
  std::unique_ptr<Driver> d;
};

TEST_F(CoreReplaceTest, ValuesMoveAndTheSwitchComesOnceAllRanksHoldThem) {
  d->Do(Request(1, 4));
  EXPECT_THAT(d->Waiting<StageLoad>(), IsEmpty());
  UpToCommit();
  const auto* share = d->LastCommand<ShareStates>("b");
  ASSERT_NE(share, nullptr);
  EXPECT_EQ(share->model, "m");
  EXPECT_EQ(share->mesh.ToString(), "tp=2");
  ASSERT_THAT(share->states, SizeIs(1));
  EXPECT_EQ(share->states[0].path, "w");
  EXPECT_EQ(Sent<ShareStates>("c"), 0);
  const auto* transfer = d->LastCommand<Transfer>("e");
  ASSERT_NE(transfer, nullptr);
  EXPECT_EQ(transfer->input, share->states[0].tensor_id);
  EXPECT_EQ(transfer->shape, (Shape{257, 4}));
  EXPECT_EQ(transfer->source_mesh.ToString(), "tp=2");
  EXPECT_EQ(transfer->target_mesh.ToString(), "tp=4");
  EXPECT_THAT(transfer->source_ranks, ElementsAre(0, 1));
  EXPECT_THAT(transfer->target_ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(d->LastCommand<DropTensors>("a")->tensor_ids, ElementsAre(transfer->input));

  // Three of four ranks hold it: the old one serves.
  for (const char* id : {"a", "b", "c"}) {
    while (!d->commands[id].empty()) d->AckOne(id);
  }
  EXPECT_THAT(d->Of<StoreSubmission>(d->all), IsEmpty());
  EXPECT_EQ(Served(), 2);
  while (!d->commands["e"].empty()) d->AckOne("e");
  ASSERT_THAT(d->Of<StoreSubmission>(d->all), SizeIs(1));
  EXPECT_EQ(d->Of<StoreSubmission>(d->all)[0].blob, "blob on 4");
  EXPECT_EQ(Served(), 2);
  EXPECT_EQ(Replies<SubmitReply>(*d, 1), 0);
  EXPECT_EQ(Sent<Release>("a"), 0);
  d->Stored();
  EXPECT_EQ(Text(Reply(1)), "OK");
  EXPECT_EQ(ReplyTo<SubmitReply>(*d, 1).name, "m");
  EXPECT_EQ(Served(), 4);
  ASSERT_EQ(Sent<Release>("a"), 1);
  EXPECT_EQ(d->LastCommand<Release>("b")->model, "m");
  EXPECT_EQ(Sent<Release>("c"), 0);
  d->AckAll();

  const TakenOver& taken = d->core.models().at("m").taken_over;
  EXPECT_EQ(taken.states, 1);
  EXPECT_EQ(taken.bytes, 257 * 4 * 4);
  EXPECT_THAT(d->core.models(), SizeIs(1));
  EXPECT_THAT(d->core.meshes(), SizeIs(1));
  EXPECT_THAT(d->Of<EraseSubmission>(d->all), IsEmpty());
  const std::vector<int64_t> reserved = AllReserved();
  Start(4);
  EXPECT_EQ(AllReserved(), reserved);
}

TEST_F(CoreReplaceTest, LoadsTakeTheMovedBlocks) {
  d->Do(Request(1, 4));
  d->FinishStages();
  d->AckAll();
  const auto loads = d->Waiting<StageLoad>();
  ASSERT_THAT(loads, SizeIs(4));
  for (const auto& [worker, load] : loads) {
    EXPECT_EQ(load.model, "m#2");
    ASSERT_THAT(load.states, SizeIs(1));
    EXPECT_EQ(load.states[0].tensor_id, d->LastCommand<Transfer>(worker)->output);
  }
}

TEST_F(CoreReplaceTest, WhereTheLayoutIsTheSameNothingTravels) {
  d->Do(Request(1, 2));
  d->AckAll();
  EXPECT_EQ(Sent<Transfer>("a"), 0);
  const auto loads = d->Waiting<StageLoad>();
  ASSERT_THAT(loads, SizeIs(2));
  EXPECT_EQ(loads[0].first, "a");  // where it is already, though c and e are idle
  EXPECT_EQ(loads[0].second.states[0].tensor_id, d->LastCommand<ShareStates>("a")->states[0].tensor_id);
  EXPECT_EQ(Sent<DropTensors>("a"), 0);
  Finish();
  EXPECT_EQ(Text(Reply(1)), "OK");
  EXPECT_EQ(d->LastCommand<Release>("a")->model, "m");
}

TEST_F(CoreReplaceTest, OtherWeightsAreLoaded) {
  SubmitRequested request = Request(1, 4);
  auto submission = std::make_shared<Submission>(*request.submission);
  submission->seed = 5;
  request.submission = submission;
  d->Do(request);
  const auto loads = d->Waiting<StageLoad>();
  ASSERT_THAT(loads, SizeIs(4));
  EXPECT_EQ(loads[0].second.states[0].tensor_id, 0u);
  EXPECT_EQ(loads[0].second.seed, 5u);
  Finish();
  EXPECT_EQ(Text(Reply(1)), "OK");
  EXPECT_EQ(Sent<ShareStates>("a"), 0);
  EXPECT_EQ(Served(), 4);
  EXPECT_EQ(d->core.models().at("m").taken_over.states, 0);
}

TEST_F(CoreReplaceTest, WhatRunsOnTheOldOneEndsThere) {
  d->Do(Request(1, 4));
  UpToCommit();
  for (CallId call = 10; call < 16; ++call) d->Forward(call, "m");  // four in flight, two wait
  for (const char* id : {"a", "b", "c", "e"}) d->AckOne(id);        // the commit
  d->Stored();
  EXPECT_EQ(Text(Reply(1)), "OK");
  d->Forward(20, "m");
  EXPECT_EQ(Sent<Release>("a"), 0);
  EXPECT_EQ(d->LastCommand<tp::Run>("e")->model, "m#2");
  d->AckAll();
  for (CallId call = 10; call < 16; ++call) EXPECT_EQ(Replies<ForwardReply>(*d, call), 1);
  EXPECT_EQ(Replies<ForwardReply>(*d, 20), 1);
  std::vector<std::string> order;
  for (const Command& command : d->history["a"]) {
    if (const auto* run = std::get_if<tp::Run>(&command.kind)) order.push_back(run->model);
    if (const auto* release = std::get_if<Release>(&command.kind)) order.push_back("release " + release->model);
  }
  EXPECT_THAT(order, ElementsAre("m", "m", "m", "m", "m#2", "m", "m", "release m"));
  EXPECT_THAT(d->core.meshes(), SizeIs(1));
}

TEST_F(CoreReplaceTest, SequencesEndOnTheOldOne) {
  Start(2, true);
  d->Do(Request(1, 4, true));
  UpToCommit();
  d->Generate(10, "m", 3, 1);
  for (const char* id : {"a", "b", "c", "e"}) d->AckOne(id);
  d->Stored();
  EXPECT_EQ(Text(Reply(1)), "OK");
  EXPECT_EQ(Sent<Release>("a"), 0);
  const uint64_t sequence = d->LastCommand<Decode>("a")->joins.at(0).sequence_id;
  EXPECT_EQ(d->LastCommand<Decode>("a")->model, "m");
  d->Generate(11, "m", 3, 1);
  EXPECT_EQ(d->LastCommand<Decode>("e")->model, "m#2");
  const auto answer = [&](const std::string&, const Command& command, Ack* ack) {
    const auto* decode = std::get_if<Decode>(&command.kind);
    if (decode == nullptr) return;
    const bool old = decode->model == "m";
    ack->decode.sequences = {{old ? sequence : sequence + 1, {old ? 7 : 8}, "length"}};
  };
  d->AckAll(answer);
  const auto progress = ReplyTo<GenerateProgress>(*d, 10);
  EXPECT_TRUE(progress.done);
  EXPECT_THAT(progress.token_ids, ElementsAre(7));
  EXPECT_THAT(ReplyTo<GenerateProgress>(*d, 11).token_ids, ElementsAre(8));
  EXPECT_EQ(d->LastCommand<Release>("a")->model, "m");
}

TEST_F(CoreReplaceTest, AReplaceOfAReplacement) {
  for (const int degree : {4, 1, 2}) {
    d->Do(Request(static_cast<CallId>(degree), degree));
    Finish();
    EXPECT_EQ(Text(Reply(static_cast<CallId>(degree))), "OK");
    EXPECT_EQ(Served(), degree);
  }
  EXPECT_EQ(d->core.models().at("m").resident, "m#4");
  EXPECT_THAT(d->core.meshes(), SizeIs(1));
  DeleteRequested deletion;
  deletion.call = 50;
  deletion.name = "m";
  d->Do(deletion);
  d->Stored();
  d->AckAll();
  EXPECT_EQ(d->LastCommand<Release>("a")->model, "m#4");
  EXPECT_EQ(d->Phase("m"), "absent");
  EXPECT_THAT(AllReserved(), ElementsAre(0, 0, 0, 0));
}

TEST_F(CoreReplaceTest, ARefusedOneChangesNothing) {
  const std::vector<int64_t> reserved = AllReserved();
  SubmitRequested other = Request(1, 4);
  auto named = std::make_shared<Submission>(*other.submission);
  named->name = "n";
  other.submission = named;
  d->Do(other);
  EXPECT_EQ(Text(Reply(1)), "NOT_FOUND: no model 'n'; nearest: m");
  d->Do(Request(2, 5));
  EXPECT_EQ(Text(Reply(2)), "FAILED_PRECONDITION: mesh tp=5 needs 5 workers, 4 are healthy");
  SubmitRequested dry = Request(3, 4);
  dry.dry_run = true;
  d->Do(dry);
  EXPECT_EQ(Text(Reply(3)), "OK");
  other.call = 4;
  other.dry_run = true;
  d->Do(other);
  EXPECT_EQ(Reply(4).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Sent<ShareStates>("a"), 0);

  d->Do(Request(5, 4));
  d->Do(Request(6, 1));
  EXPECT_EQ(Text(Reply(6)), "FAILED_PRECONDITION: model 'm' is being replaced");
  d->Do(CallCancelled{5});
  EXPECT_EQ(Reply(5).code(), absl::StatusCode::kCancelled);

  d->Do(d->Request(7, "loading", 1));
  other = Request(8, 1);
  named = std::make_shared<Submission>(*other.submission);
  named->name = "loading";
  other.submission = named;
  d->Do(other);
  EXPECT_EQ(Text(Reply(8)), "FAILED_PRECONDITION: model 'loading' is CREATED; only a READY one can be replaced");
  d->Do(CallCancelled{7});
  ExpectUntouched(reserved);
}

TEST_F(CoreReplaceTest, OneThatIsCancelledLeavesTheOldOne) {
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE(step);
    Start(2);
    const std::vector<int64_t> reserved = AllReserved();
    d->Do(Request(1, 4));
    if (step >= 1) d->FinishStages();
    if (step >= 2) d->AckAll();
    if (step >= 3) d->FinishStages();
    d->Do(CallCancelled{1});
    EXPECT_EQ(Reply(1).code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(d->Of<StoreSubmission>(d->all), IsEmpty());
    EXPECT_THAT(d->Of<EraseSubmission>(d->all), IsEmpty());
    if (step >= 3) {
      EXPECT_EQ(d->LastCommand<Release>("a")->model, "m#2");
    }
    ExpectUntouched(reserved);
  }
}

TEST_F(CoreReplaceTest, FailuresOfRanksLeaveTheOldOne) {
  const auto fail = [](absl::StatusCode code, auto kind) {
    return [code, kind](const std::string& worker, const Command& command, Ack* ack) {
      if (worker == "b" && std::holds_alternative<decltype(kind)>(command.kind))
        ack->status = absl::Status(code, "why");
    };
  };
  const std::vector<int64_t> reserved = AllReserved();
  d->Do(Request(1, 4));
  d->FinishStages();
  d->AckAll(fail(absl::StatusCode::kResourceExhausted, ShareStates{}));
  EXPECT_EQ(Text(Reply(1)), "RESOURCE_EXHAUSTED: rank 1 (worker b): why");
  ExpectUntouched(reserved);

  for (const absl::StatusCode code : {absl::StatusCode::kAborted, absl::StatusCode::kInternal}) {
    Start(2);
    d->Do(Request(1, 4));
    d->FinishStages();
    d->AckAll(fail(code, Transfer{}));
    d->Pass(absl::Seconds(3));
    EXPECT_EQ(Reply(1).code(), code);
    ExpectUntouched(reserved);
  }

  Start(2);
  d->Do(Request(1, 4));
  d->FinishStages();
  d->AckAll();
  while (!d->stages.empty()) {
    const auto [worker, stage] = d->stages.front();
    d->stages.pop_front();
    const bool bad = worker == "e" && std::holds_alternative<StageLoad>(stage.kind);
    d->FinishStage(worker, stage, bad ? absl::DataLossError("short file") : absl::OkStatus());
  }
  EXPECT_EQ(Text(Reply(1)), "DATA_LOSS: rank 3 (worker e): short file");
  ExpectUntouched(reserved);

  Start(2);
  d->Do(Request(1, 4));
  UpToCommit();
  d->AckAll();
  d->Stored(absl::UnknownError("disk"));
  EXPECT_EQ(Text(Reply(1)), "UNKNOWN: storing the submission: disk");
  ASSERT_THAT(d->Of<StoreSubmission>(d->all), SizeIs(2));
  EXPECT_EQ(d->Of<StoreSubmission>(d->all)[1].blob, "blob of m");  // as it was
  ExpectUntouched(reserved);
}

TEST_F(CoreReplaceTest, ALostWorkerOfTheNewRanksLeavesTheOldOne) {
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    Start(2);
    const std::vector<int64_t> reserved = AllReserved();
    d->Do(Request(1, 3));
    if (step >= 1) d->FinishStages();
    if (step >= 2) d->AckAll();
    if (step >= 3) d->FinishStages();
    if (step >= 4) d->AckAll();
    d->Lose("c");
    EXPECT_EQ(Reply(1).code(), absl::StatusCode::kUnavailable) << Reply(1);
    EXPECT_THAT(Text(Reply(1)), HasSubstr("worker c"));
    ExpectUntouched(reserved, 3);
  }
}

TEST_F(CoreReplaceTest, ALostWorkerOfTheOldRanksEndsBothUntilTheValuesHaveMoved) {
  d->Do(Request(1, 1));  // on a
  d->FinishStages();
  d->Lose("b");
  EXPECT_EQ(Reply(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(d->Phase("m"), "FAILED");

  Start(2);
  d->Do(Request(1, 1));
  d->FinishStages();
  d->AckAll();
  d->Lose("b");
  EXPECT_EQ(d->Phase("m"), "FAILED");
  d->FinishStages();
  d->AckAll();
  d->Stored();
  d->AckAll();
  EXPECT_EQ(Text(Reply(1)), "OK");
  EXPECT_EQ(d->Phase("m"), "READY");
  EXPECT_EQ(Served(), 1);
  EXPECT_THAT(d->core.meshes(), SizeIs(1));
}

TEST_F(CoreReplaceTest, ADeletionEndsBoth) {
  d->Do(Request(1, 4));
  UpToCommit();
  DeleteRequested deletion;
  deletion.call = 2;
  deletion.name = "m";
  d->Do(deletion);
  EXPECT_EQ(Text(Reply(1)), "CANCELLED: model 'm' was deleted");
  d->Stored();
  d->AckAll();
  EXPECT_EQ(Text(ReplyTo<DeleteReply>(*d, 2).status), "OK");
  EXPECT_EQ(d->Phase("m"), "absent");
  EXPECT_THAT(d->core.meshes(), IsEmpty());
  EXPECT_THAT(AllReserved(), ElementsAre(0, 0, 0, 0));
}

TEST_F(CoreReplaceTest, ItGoesOnOnceItIsBeingStored) {
  d->Do(Request(1, 4));
  UpToCommit();
  d->AckAll();
  d->Do(CallCancelled{1});
  EXPECT_EQ(Reply(1).code(), absl::StatusCode::kCancelled);
  d->Stored();
  EXPECT_EQ(Served(), 4);
}

TEST_F(CoreReplaceTest, RequestIdsJoinAndRepeat) {
  SubmitRequested request = Request(1, 4);
  request.request_id = "r";
  d->Do(request);
  request.call = 2;
  d->Do(request);
  Finish();
  EXPECT_EQ(Text(Reply(1)), "OK");
  EXPECT_EQ(Text(Reply(2)), "OK");
  request.call = 3;
  d->Do(request);
  EXPECT_EQ(Text(Reply(3)), "OK");
  EXPECT_EQ(ReplyTo<SubmitReply>(*d, 3).name, "m");
  EXPECT_EQ(d->core.models().at("m").resident, "m#2");
}

TEST_F(CoreReplaceTest, MemoryIsNeededForBothAndOtherWorkersHelp) {
  Start(1);
  const int64_t one = d->Reserved("a");
  Start(1, false, one + one / 2);
  d->Do(Request(1, 1));  // not beside the old one on a: on b
  Finish();
  EXPECT_EQ(Text(Reply(1)), "OK");
  EXPECT_EQ(d->core.models().at("m").ranks.at(0).worker, "b");
  EXPECT_THAT(AllReserved(), ElementsAre(0, one, 0, 0));
}

TEST(BatchEndTest, CutsByBytesAndTakesOneAtLeast) {
  const auto state = [](int64_t mib, bool moves, bool packed) {
    TakenState taken;
    taken.from_bytes = {mib << 20, 0};
    taken.to_bytes = {mib << 19, mib << 19};
    taken.from.packed = packed;
    if (moves) taken.hop.emplace();
    return taken;
  };
  const std::vector<TakenState> taken = {state(100, true, true), state(30, true, true), state(30, true, false),
                                         state(30, true, true), state(1, false, true)};
  EXPECT_EQ(BatchEnd(taken, 0), 1u);
  EXPECT_EQ(BatchEnd(taken, 1), 3u);
  EXPECT_EQ(BatchEnd(taken, 3), 5u);
  EXPECT_EQ(BatchEnd(taken, 5), 5u);
  const MoveBytes bytes = BytesToMove(taken, 2, 2);
  EXPECT_THAT(bytes.served, ElementsAre(int64_t{100} << 20, 0));
  EXPECT_THAT(bytes.replacement, ElementsAre(int64_t{50} << 20, int64_t{50} << 20));
}

}  // namespace
}  // namespace tp::server

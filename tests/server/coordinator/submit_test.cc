#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(CoreSubmitTest, HappyPathStoresStagesCommitsAndAnswers) {
  Driver d;
  d.Join("a");
  d.Join("b");
  const auto stored = d.Of<StoreSubmission>(d.Do(d.Request(1, "m", 2)));
  ASSERT_THAT(stored, SizeIs(1));
  EXPECT_EQ(stored[0].blob, "blob of m");
  EXPECT_THAT(d.stages, IsEmpty());
  EXPECT_EQ(d.Phase("m"), "CREATED");
  d.Stored();
  EXPECT_EQ(d.Phase("m"), "LOADING");
  ASSERT_THAT(d.stages, SizeIs(4));
  std::map<std::string, int> kinds;
  for (const auto& [worker, stage] : d.stages) {
    kinds[worker + (std::holds_alternative<StageListen>(stage.kind) ? " listens" : " loads")]++;
    if (const auto* load = std::get_if<StageLoad>(&stage.kind)) {
      EXPECT_EQ(load->rank, worker == "a" ? 0 : 1);
      ASSERT_THAT(load->states, SizeIs(1));
      EXPECT_EQ(load->states[0].shape, (Shape{257, 4}));
      EXPECT_EQ(load->fingerprint, "f");
    }
  }
  EXPECT_THAT(kinds, SizeIs(4));
  d.FinishStages();
  for (const auto& action : d.Of<SendStage>(d.all)) {
    if (const auto* connect = std::get_if<StageConnect>(&action.stage.kind)) {
      EXPECT_THAT(connect->addresses, ElementsAre("at a", "at b"));
    }
  }
  ASSERT_THAT(d.commands["a"], SizeIs(1));
  ASSERT_THAT(d.commands["b"], SizeIs(1));
  EXPECT_EQ(d.commands["a"][0].order, d.commands["b"][0].order);
  EXPECT_THAT(std::get<Commit>(d.commands["a"][0].kind).stage_ids, SizeIs(3));
  d.AckOne("a");
  EXPECT_EQ(Replies<SubmitReply>(d, 1), 0);
  d.AckOne("b");
  EXPECT_TRUE(ReplyTo<SubmitReply>(d, 1).status.ok());
  EXPECT_EQ(d.Phase("m"), "READY");
  EXPECT_EQ(d.core.models().at("m").ranks[1].bytes_read, 100);
}

TEST(CoreSubmitTest, NamesAreCheckedAndUnique) {
  Driver d;
  d.Join("a");
  CallId call = 0;
  for (const char* name : {"", "-x", "a b", "a/b", "..", "\xc3\xa4"}) {
    d.Do(d.Request(++call, name, 1));
    EXPECT_EQ(ReplyTo<SubmitReply>(d, call).status.code(), absl::StatusCode::kInvalidArgument) << name;
  }
  d.Deploy("m", 1);
  d.Do(d.Request(100, "m", 1));
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 100).status.code(), absl::StatusCode::kAlreadyExists);
  d.Lose("a");
  d.Join("a");
  EXPECT_EQ(d.Phase("m"), "FAILED");
  d.Do(d.Request(101, "m", 1));
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 101).status.code(), absl::StatusCode::kAlreadyExists);
  d.Do(DeleteRequested{102, "", "m"});
  d.Stored();
  EXPECT_TRUE(ReplyTo<DeleteReply>(d, 102).status.ok());
  d.Deploy("m", 1);
}

TEST(CoreSubmitTest, TooFewWorkersAreRefusedWithBothNumbers) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Do(d.Request(1, "m", 4));
  EXPECT_EQ(Text(ReplyTo<SubmitReply>(d, 1).status), "FAILED_PRECONDITION: mesh tp=4 needs 4 workers, 2 are healthy");
  EXPECT_EQ(d.Phase("m"), "absent");
  EXPECT_THAT(d.Of<StoreSubmission>(d.all), IsEmpty());
}

TEST(CoreSubmitTest, MemoryLimitIsCheckedAgainstAllModelsOfAWorker) {
  Driver d;
  d.Join("a", 6000);  // a model of one rank holds 257 * 4 * 4 = 4112 bytes and its activations
  d.Deploy("m", 1);
  d.Do(d.Request(1, "n", 1));
  const absl::Status status = ReplyTo<SubmitReply>(d, 1).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status), HasSubstr("worker 'a' (rank 0)"));
  EXPECT_THAT(Text(status), HasSubstr("6000"));
  d.Do(DeleteRequested{2, "", "m"});
  d.Stored();
  d.AckAll();
  d.Deploy("n", 1);
}

TEST(CoreSubmitTest, CachePagesAreSixteenSequencesOrWhatFits) {
  CoreOptions options;
  options.cache_bytes = 2048 * 100;
  Driver small(options), large;
  for (Driver* d : {&small, &large}) {
    d->Join("a");
    d->Join("b");
    d->Deploy("m", 2, true);
    d->Deploy("plain", 2);
    EXPECT_EQ(d->core.models().at("plain").cache_pages, 0);
  }
  EXPECT_EQ(small.core.models().at("m").cache_pages, 100);
  EXPECT_EQ(large.core.models().at("m").cache_pages, 16 * 512 / 16);
}

TEST(CoreSubmitTest, FailedLoadIsUndoneEverywhereAndTheFirstCauseIsKept) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Do(d.Request(1, "m", 2));
  d.Stored();
  const auto stages = d.stages;
  for (const auto& [worker, stage] : stages) {
    if (worker == "b" && std::holds_alternative<StageLoad>(stage.kind)) {
      d.FinishStage(worker, stage, absl::DataLossError("file m.safetensors: tensor 'w': too short"));
    }
  }
  EXPECT_EQ(Text(ReplyTo<SubmitReply>(d, 1).status),
            "DATA_LOSS: rank 1 (worker b): file m.safetensors: tensor 'w': too short");
  EXPECT_THAT(d.Of<SendDrop>(d.all), SizeIs(4));
  EXPECT_THAT(d.Of<EraseSubmission>(d.all), SizeIs(1));
  EXPECT_EQ(d.Phase("m"), "absent");
  EXPECT_THAT(d.core.meshes(), IsEmpty());
  d.FinishStages();  // what comes late changes nothing
  EXPECT_EQ(Replies<SubmitReply>(d, 1), 1);
  d.Deploy("m", 2);
}

TEST(CoreSubmitTest, FailedCommitIsReleasedOnAllRanks) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Do(d.Request(1, "m", 2));
  d.Stored();
  d.FinishStages();
  d.AckOne("a");
  d.AckOne("b",
           [](const std::string&, const Command&, Ack* ack) { ack->status = absl::ResourceExhaustedError("full"); });
  EXPECT_EQ(Text(ReplyTo<SubmitReply>(d, 1).status), "RESOURCE_EXHAUSTED: rank 1 (worker b): full");
  for (const char* id : {"a", "b"}) {
    ASSERT_THAT(d.commands[id], SizeIs(2));
    EXPECT_EQ(std::get<Release>(d.commands[id][0].kind).model, "m");
    EXPECT_TRUE(std::holds_alternative<CloseMesh>(d.commands[id][1].kind));
  }
  EXPECT_EQ(d.Phase("m"), "absent");
}

TEST(CoreSubmitTest, StoreThatFailsFailsTheSubmission) {
  Driver d;
  d.Join("a");
  d.Do(d.Request(1, "m", 1));
  d.Stored(absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(Text(ReplyTo<SubmitReply>(d, 1).status), "RESOURCE_EXHAUSTED: storing the submission: disk full");
  EXPECT_EQ(d.Phase("m"), "absent");
}

TEST(CoreSubmitTest, WorkerLostInAnyStepUndoesTheSubmission) {
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    Driver d;
    d.Join("a");
    d.Join("b");
    d.Do(d.Request(1, "m", 2));
    if (step > 0) d.Stored();
    if (step > 1) d.FinishStages();
    d.Lose("a", "killed");
    EXPECT_EQ(Text(ReplyTo<SubmitReply>(d, 1).status), "UNAVAILABLE: rank 0 (worker a) was lost: killed");
    EXPECT_EQ(d.Phase("m"), "absent");
    EXPECT_THAT(d.Of<EraseSubmission>(d.all), SizeIs(1));
    EXPECT_THAT(d.Of<SendDrop>(d.all), SizeIs(step == 0 ? 0 : step == 1 ? 2 : 3));  // on b only
    d.AckAll();
    d.Join("a");
    d.stages.clear();
    d.Deploy("m", 2);
  }
}

TEST(CoreSubmitTest, LoadThatStandsStillFails) {
  Driver d;
  d.Join("a");
  d.Do(d.Request(1, "m", 1));
  d.Stored();
  d.FinishStage("a", d.stages[0].second);  // listens
  const auto load = d.stages[1];
  for (int i = 0; i < 3; ++i) {
    d.Pass(absl::Seconds(20));
    if (i < 2) {
      d.Do(StageProgressed{"a", d.incarnations["a"], load.second.stage_id, 1000 + i, 9000});
      d.FinishStage("a", d.stages[2].second);  // connects; again is ignored
    }
  }
  EXPECT_EQ(Replies<SubmitReply>(d, 1), 0);
  EXPECT_EQ(d.core.models().at("m").ranks[0].done_bytes, 1001);
  d.Pass(absl::Seconds(11));
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 1).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(CoreSubmitTest, RequestIdGivesTheSameResultWhileItRunsAndAfter) {
  Driver d;
  d.Join("a");
  SubmitRequested request = d.Request(1, "m", 1);
  request.request_id = "r";
  d.Do(request);
  request.call = 2;
  d.Do(request);
  SubmitRequested other = d.Request(3, "n", 1);
  other.request_id = "r";
  d.Do(other);
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 3).status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(d.Of<StoreSubmission>(d.all), SizeIs(1));
  d.Do(CallCancelled{1});  // the other still waits
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 1).status.code(), absl::StatusCode::kCancelled);
  d.Stored();
  d.FinishStages();
  d.AckAll();
  EXPECT_TRUE(ReplyTo<SubmitReply>(d, 2).status.ok());
  request.call = 4;
  d.Do(request);
  EXPECT_TRUE(ReplyTo<SubmitReply>(d, 4).status.ok());
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 4).name, "m");
}

TEST(CoreSubmitTest, CancelWhileItLoadsUndoesIt) {
  Driver d;
  d.Join("a");
  d.Do(d.Request(1, "m", 1));
  d.Stored();
  d.Do(CallCancelled{1});
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 1).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(d.Phase("m"), "absent");
  EXPECT_THAT(d.Of<EraseSubmission>(d.all), SizeIs(1));
}

TEST(CoreSubmitTest, RestoredSubmissionWaitsForWorkersAndKeepsItsPlaceInTheStore) {
  Driver d;
  d.Do(d.Request(0, "m", 2));
  EXPECT_EQ(d.Phase("m"), "CREATED");
  d.Join("a");
  EXPECT_EQ(d.Phase("m"), "CREATED");
  d.Join("b");
  EXPECT_EQ(d.Phase("m"), "LOADING");
  d.FinishStages();
  d.AckAll();
  EXPECT_EQ(d.Phase("m"), "READY");
  EXPECT_THAT(d.Of<StoreSubmission>(d.all), IsEmpty());
  d.Do(d.Request(0, "n", 1));
  d.FinishStage(d.stages[1].first, d.stages[1].second, absl::NotFoundError("no such file"));
  EXPECT_EQ(d.Phase("n"), "FAILED");
  EXPECT_THAT(Text(d.core.models().at("n").error), HasSubstr("no such file"));
  EXPECT_THAT(d.Of<EraseSubmission>(d.all), IsEmpty());
  d.Do(DeleteRequested{5, "", "n"});
  d.Stored();
  EXPECT_TRUE(ReplyTo<DeleteReply>(d, 5).status.ok());
  EXPECT_EQ(d.Phase("n"), "absent");
}

TEST(CoreDeleteTest, ReadyModelIsFreedOnAllRanksAndItsCallsAreCancelled) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Forward(1, "m");
  d.Do(DeleteRequested{2, "r", "m"});
  d.Do(DeleteRequested{3, "r", "m"});
  d.Do(DeleteRequested{4, "", "m"});
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(d, 1).status), "CANCELLED: model 'm' was deleted");
  EXPECT_EQ(d.Phase("m"), "DELETING");
  d.Forward(9, "m");
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 9).status.code(), absl::StatusCode::kFailedPrecondition);
  d.Stored();
  for (int i = 0; i < 3; ++i) d.AckOne("a");
  for (int i = 0; i < 2; ++i) d.AckOne("b");
  EXPECT_EQ(Replies<DeleteReply>(d, 2), 0);
  d.AckOne("b");
  for (const CallId call : {2, 3, 4}) EXPECT_TRUE(ReplyTo<DeleteReply>(d, call).status.ok());
  EXPECT_EQ(d.Phase("m"), "absent");
  EXPECT_THAT(d.core.meshes(), IsEmpty());
  d.Do(DeleteRequested{5, "r", "m"});
  EXPECT_TRUE(ReplyTo<DeleteReply>(d, 5).status.ok());  // the same request
  d.Do(DeleteRequested{6, "", "m"});
  EXPECT_EQ(ReplyTo<DeleteReply>(d, 6).status.code(), absl::StatusCode::kNotFound);
}

TEST(CoreDeleteTest, NotFoundNamesTheNearest) {
  Driver d;
  d.Join("a");
  d.Deploy("model", 1);
  d.Do(DeleteRequested{1, "", "modle"});
  EXPECT_EQ(Text(ReplyTo<DeleteReply>(d, 1).status), "NOT_FOUND: no model 'modle'; nearest: model");
}

TEST(CoreDeleteTest, WorksInEveryStepOfALoad) {
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    Driver d;
    d.Join("a");
    d.Do(d.Request(1, "m", 1));
    if (step > 0) d.Stored();
    if (step > 1) d.FinishStages();
    d.Do(DeleteRequested{2, "", "m"});
    EXPECT_EQ(Text(ReplyTo<SubmitReply>(d, 1).status), "CANCELLED: model 'm' was deleted");
    d.Stored();
    d.AckAll();
    EXPECT_TRUE(ReplyTo<DeleteReply>(d, 2).status.ok());
    EXPECT_EQ(d.Phase("m"), "absent");
    EXPECT_EQ(d.history["a"].size(), step == 2 ? 3u : 0u);  // commit, release, close
  }
}

TEST(CoreDeleteTest, WorkerLostMeanwhileHasFreedAll) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Do(DeleteRequested{1, "", "m"});
  d.Stored();
  d.AckOne("a");
  d.AckOne("a");
  EXPECT_EQ(Replies<DeleteReply>(d, 1), 0);
  d.Lose("b");
  EXPECT_TRUE(ReplyTo<DeleteReply>(d, 1).status.ok());
}

TEST(CoreDeleteTest, FailedModelIsFreedOnItsSurvivorsOnly) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Lose("b");
  d.Join("b");  // another process: it never held the model
  d.Do(DeleteRequested{1, "", "m"});
  d.Stored();
  EXPECT_THAT(d.commands["a"], SizeIs(2));
  EXPECT_THAT(d.commands["b"], IsEmpty());
  d.AckAll();
  EXPECT_TRUE(ReplyTo<DeleteReply>(d, 1).status.ok());
}

}  // namespace
}  // namespace tp::server

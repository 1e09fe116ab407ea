// CreateModel, InitStates and Parallelize: a submit step by step.
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Steps : public ::testing::Test {
 protected:
  Steps() {
    d.Join("a");
    d.Join("b");
  }
  absl::Status Create(CallId call, const std::string& name, const std::string& request_id = "") {
    d.Do(CreateModelRequested{call, request_id, "create", SubmissionOf(name)});
    return ReplyTo<SubmitReply>(d, call).status;
  }
  void Init(CallId call, const std::string& request_id = "") {
    d.Do(InitStatesRequested{call, request_id, "init", "m"});
  }
  void Parallelize(CallId call, int degree, const std::string& request_id = "") {
    ParallelizeRequested event;
    event.call = call;
    event.request_id = request_id;
    event.digest = "parallelize";
    event.name = "m";
    const auto it = d.core.models().find("m");
    if (it != d.core.models().end()) event.base = it->second.submission;
    event.submission = SubmissionOf("m");
    event.compiled = std::make_shared<CompiledModel>(SmallModel(degree));
    event.blob = "blob of m";
    d.Do(event);
  }
  void Load() {
    d.Stored();
    d.FinishStages();
    d.AckAll();
  }
  std::string Answer(CallId call) { return Text(ReplyTo<SubmitReply>(d, call).status); }

  Driver d;
};

TEST_F(Steps, InitThenParallelize) {
  EXPECT_TRUE(Create(1, "m").ok());
  EXPECT_EQ(d.Phase("m"), "CREATED");
  EXPECT_THAT(d.Of<StoreSubmission>(d.all), IsEmpty());
  Init(2);
  EXPECT_EQ(Answer(2), "OK");
  EXPECT_EQ(d.Phase("m"), "INITIALISED");
  Parallelize(3, 2);
  EXPECT_EQ(Replies<SubmitReply>(d, 3), 0);
  ASSERT_EQ(d.Of<StoreSubmission>(d.all).size(), 1u);
  EXPECT_EQ(d.Of<StoreSubmission>(d.all)[0].blob, "blob of m");
  Load();
  EXPECT_EQ(Answer(3), "OK");
  EXPECT_EQ(d.Phase("m"), "READY");
  d.Forward(4, "m");
  d.AckAll();
}

TEST_F(Steps, ParallelizeThenInit) {
  EXPECT_TRUE(Create(1, "m").ok());
  Parallelize(2, 2);
  EXPECT_EQ(Answer(2), "OK");
  EXPECT_EQ(d.Phase("m"), "PARALLELIZED");
  EXPECT_EQ(d.Reserved("a"), 0);  // storage comes with the load
  Init(3);
  Init(4);
  EXPECT_EQ(Answer(4), "FAILED_PRECONDITION: model 'm' is LOADING");
  Load();
  EXPECT_EQ(Answer(3), "OK");
  EXPECT_EQ(d.Phase("m"), "READY");
}

TEST_F(Steps, EachAtMostOnce) {
  EXPECT_TRUE(Create(1, "m").ok());
  EXPECT_THAT(Text(Create(2, "m")), HasSubstr("ALREADY_EXISTS: model 'm' exists and is CREATED"));
  Init(3);
  Init(4);
  EXPECT_EQ(Answer(4), "FAILED_PRECONDITION: the states of model 'm' have already been initialised");
  Parallelize(5, 2);
  Init(6);  // while it loads
  EXPECT_THAT(Answer(6), HasSubstr("FAILED_PRECONDITION"));
  Load();
  const char* const kTwice =
      "FAILED_PRECONDITION: model 'm' has already been parallelized. Module.parallelize() must be called at most once "
      "per instance.";
  Parallelize(7, 2);
  EXPECT_EQ(Answer(7), kTwice);
  d.Deploy("n", 1);
  EXPECT_EQ(d.Phase("m"), "READY");
}

TEST_F(Steps, ASecondParallelizeBeforeInit) {
  EXPECT_TRUE(Create(1, "m").ok());
  Parallelize(2, 2);
  Parallelize(3, 1);
  EXPECT_THAT(Answer(3), HasSubstr("must be called at most once per instance"));
  EXPECT_EQ(d.core.models().at("m").compiled->mesh.rank_count(), 2);
}

TEST_F(Steps, AFailedParallelizeLeavesTheModelAndMayBeRepeated) {
  EXPECT_TRUE(Create(1, "m").ok());
  Init(2);
  Parallelize(3, 4);
  EXPECT_EQ(Answer(3), "FAILED_PRECONDITION: mesh tp=4 needs 4 workers, 2 are healthy");
  EXPECT_EQ(d.Phase("m"), "INITIALISED");
  EXPECT_EQ(d.core.models().at("m").compiled, nullptr);

  Parallelize(4, 2);
  d.Stored();
  const auto [worker, stage] = d.stages.back();
  d.FinishStage(worker, stage, absl::NotFoundError("no file w"));
  EXPECT_THAT(Answer(4), HasSubstr("no file w"));
  EXPECT_EQ(d.Phase("m"), "INITIALISED");
  EXPECT_EQ(d.core.models().at("m").compiled, nullptr);
  EXPECT_EQ(d.Reserved("a"), 0);
  d.stages.clear();
  d.commands.clear();

  Parallelize(5, 1);
  Load();
  EXPECT_EQ(Answer(5), "OK");
  EXPECT_EQ(d.Phase("m"), "READY");
}

TEST_F(Steps, AWorkerLostInTheLoadUndoesTheStepOnly) {
  EXPECT_TRUE(Create(1, "m").ok());
  Parallelize(2, 2);
  Init(3);
  d.Stored();
  d.Lose("b");
  EXPECT_THAT(Answer(3), HasSubstr("UNAVAILABLE"));
  EXPECT_EQ(d.Phase("m"), "PARALLELIZED");
  d.Join("b");
  d.stages.clear();
  Init(4);
  Load();
  EXPECT_EQ(Answer(4), "OK");
}

TEST_F(Steps, ACancelledStepIsUndone) {
  EXPECT_TRUE(Create(1, "m").ok());
  Parallelize(2, 2);
  Init(3);
  d.Do(CallCancelled{3});
  EXPECT_EQ(d.Phase("m"), "PARALLELIZED");
  EXPECT_EQ(d.Reserved("a"), 0);
}

TEST_F(Steps, UnknownModelsAndModelsMadeAnew) {
  Init(1);
  EXPECT_THAT(Answer(1), HasSubstr("NOT_FOUND: no model 'm'"));
  Parallelize(2, 1);
  EXPECT_THAT(Answer(2), HasSubstr("NOT_FOUND"));
  EXPECT_TRUE(Create(3, "m").ok());
  ParallelizeRequested event;
  event.call = 4;
  event.name = "m";
  event.base = SubmissionOf("m");  // of a model that was deleted
  event.submission = event.base;
  event.compiled = std::make_shared<CompiledModel>(SmallModel(1));
  d.Do(event);
  EXPECT_THAT(Answer(4), HasSubstr("ABORTED"));
  EXPECT_EQ(d.Phase("m"), "CREATED");
}

TEST_F(Steps, RequestIdsGiveTheSameAnswer) {
  EXPECT_TRUE(Create(1, "m", "c").ok());
  EXPECT_TRUE(Create(2, "m", "c").ok());
  Init(3, "i");
  Init(4, "i");
  EXPECT_EQ(Answer(4), "OK");
  Parallelize(5, 2, "p");
  Parallelize(6, 2, "p");  // waits with the first
  Load();
  EXPECT_EQ(Answer(5), "OK");
  EXPECT_EQ(Answer(6), "OK");
}

TEST_F(Steps, ACreatedModelAnswersNothingAndCanBeDeleted) {
  EXPECT_TRUE(Create(1, "m").ok());
  d.Forward(2, "m");
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(d, 2).status), "FAILED_PRECONDITION: model 'm' is CREATED, not READY");
  d.Do(DeleteRequested{3, "", "m"});
  d.Stored();
  EXPECT_TRUE(ReplyTo<DeleteReply>(d, 3).status.ok());
  EXPECT_EQ(d.Phase("m"), "absent");
}

}  // namespace
}  // namespace tp::server

#include "common/rpc/write_queue.h"

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A stream that checks what gRPC checks: one write at a time, nothing after finish.
struct FakeStream {
  std::vector<std::string> started;
  std::optional<absl::Status> finished;
  bool writing = false;
  bool answer_at_once = false;  // OnWriteDone within StartWrite
  WriteQueue<std::string> queue{[this](const std::string* message) {
                                  EXPECT_FALSE(writing);
                                  EXPECT_FALSE(finished.has_value());
                                  writing = true;
                                  started.push_back(*message);
                                  if (answer_at_once) Done(true);
                                },
                                [this](const absl::Status& status) {
                                  EXPECT_FALSE(writing);
                                  EXPECT_FALSE(finished.has_value());
                                  finished = status;
                                }};
  void Done(bool ok) {
    writing = false;
    queue.OnWriteDone(ok);
  }
};

TEST(WriteQueue, StartsTheNextWriteWhenTheLastIsDone) {
  FakeStream stream;
  EXPECT_TRUE(stream.queue.Push("a"));
  EXPECT_TRUE(stream.queue.Push("b"));
  EXPECT_THAT(stream.started, ElementsAre("a"));
  EXPECT_EQ(stream.queue.pending(), 2u);
  stream.Done(true);
  EXPECT_THAT(stream.started, ElementsAre("a", "b"));
  stream.Done(true);
  EXPECT_EQ(stream.queue.pending(), 0u);
  EXPECT_TRUE(stream.queue.Push("c"));
  EXPECT_THAT(stream.started, ElementsAre("a", "b", "c"));
}

TEST(WriteQueue, CloseFinishesAfterWhatIsQueued) {
  FakeStream stream;
  stream.queue.Push("a");
  stream.queue.Push("b");
  stream.queue.Close(absl::OkStatus());
  EXPECT_FALSE(stream.queue.Push("c"));
  stream.Done(true);
  EXPECT_FALSE(stream.finished.has_value());
  stream.Done(true);
  ASSERT_TRUE(stream.finished.has_value());
  EXPECT_TRUE(stream.finished->ok());
  EXPECT_THAT(stream.started, ElementsAre("a", "b"));
}

TEST(WriteQueue, CloseOfAnIdleQueueFinishesOnce) {
  FakeStream stream;
  stream.queue.Close(absl::CancelledError("x"));
  stream.queue.Close(absl::OkStatus());
  stream.queue.Abort(absl::OkStatus());
  EXPECT_EQ(stream.finished, absl::CancelledError("x"));
}

TEST(WriteQueue, AbortDropsWhatHasNotStarted) {
  FakeStream stream;
  std::vector<std::string> log;
  auto note = [&log](std::string name) { return [&log, name](bool ok) { log.push_back(name + (ok ? "+" : "-")); }; };
  stream.queue.Push("a", note("a"));
  stream.queue.Push("b", note("b"));
  stream.queue.Abort(absl::AbortedError("x"));
  EXPECT_THAT(log, ElementsAre("b-"));
  EXPECT_FALSE(stream.finished.has_value());
  stream.Done(true);
  EXPECT_THAT(log, ElementsAre("b-", "a+"));
  EXPECT_EQ(stream.finished, absl::AbortedError("x"));
  stream.queue.Push("c", note("c"));
  EXPECT_THAT(log, ElementsAre("b-", "a+", "c-"));
  EXPECT_THAT(stream.started, ElementsAre("a"));
}

TEST(WriteQueue, AbortAfterCloseKeepsTheFirstStatus) {
  FakeStream stream;
  stream.queue.Push("a");
  stream.queue.Push("b");
  stream.queue.Close(absl::AbortedError("first"));
  stream.queue.Abort(absl::CancelledError("second"));
  stream.Done(false);
  EXPECT_EQ(stream.finished, absl::AbortedError("first"));
  EXPECT_THAT(stream.started, ElementsAre("a"));
}

TEST(WriteQueue, AFailedWriteDropsTheRest) {
  FakeStream stream;
  std::vector<bool> written;
  stream.queue.Push("a", [&](bool ok) { written.push_back(ok); });
  stream.queue.Push("b", [&](bool ok) { written.push_back(ok); });
  stream.Done(false);
  EXPECT_THAT(written, ElementsAre(false, false));
  EXPECT_THAT(stream.started, ElementsAre("a"));
}

TEST(WriteQueue, AnAnswerWithinStartIsLegal) {
  FakeStream stream;
  stream.answer_at_once = true;
  stream.queue.Push("a");
  stream.queue.Push("b");
  stream.queue.Close(absl::OkStatus());
  EXPECT_THAT(stream.started, ElementsAre("a", "b"));
  EXPECT_TRUE(stream.finished.has_value());
}

TEST(WriteQueue, WrittenMayPushTheNext) {
  FakeStream stream;
  stream.queue.Push("a", [&](bool) { stream.queue.Push("b"); });
  stream.Done(true);
  EXPECT_THAT(stream.started, ElementsAre("a", "b"));
}

TEST(WriteQueue, FinishesAfterTheLastWrittenCall) {
  FakeStream stream;
  bool finished_before = true;
  stream.queue.Push("a", [&](bool) { finished_before = stream.finished.has_value(); });
  stream.queue.Close(absl::OkStatus());
  stream.Done(true);
  EXPECT_FALSE(finished_before);
  EXPECT_TRUE(stream.finished.has_value());
}

}  // namespace
}  // namespace tp

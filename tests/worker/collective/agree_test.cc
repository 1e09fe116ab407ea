#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/communicator.h"

namespace tp::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(AgreeOnTest, EqualHeadersAreOk) {
  EXPECT_TRUE(AgreeOn({4, 2}, {StepHeader{.epoch = 1}, StepHeader{.epoch = 1}}).ok());
}

TEST(AgreeOnTest, AFailureNamesTheFirstRankThatFailed) {
  const absl::Status status = AgreeOn({0, 2, 3}, {{.epoch = 1}, {.epoch = 1, .status = 8}, {.epoch = 1, .status = 13}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()), "rank 2 failed: RESOURCE_EXHAUSTED");
}

TEST(AgreeOnTest, AMismatchComesBeforeAFailure) {
  const absl::Status status = AgreeOn({0, 1}, {{.sequence = 5, .status = 13}, {.sequence = 6}});
  EXPECT_THAT(std::string(status.message()), HasSubstr("collective mismatch rank 0 (epoch 0, command 5"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (epoch 0, command 6"));
}

TEST(AgreeOnTest, AnyFieldButStatusIsAMismatch) {
  const StepHeader one;
  for (const StepHeader& other : {StepHeader{.epoch = 1}, StepHeader{.flags = 1}, StepHeader{.sequence = 1},
                                  StepHeader{.fingerprint = 1}, StepHeader{.step = 1}}) {
    EXPECT_THAT(std::string(AgreeOn({0, 1}, {one, other}).message()), HasSubstr("collective mismatch"));
  }
  EXPECT_THAT(std::string(AgreeOn({0, 1}, {one, StepHeader{.status = 1}}).message()), Not(HasSubstr("mismatch")));
}

}  // namespace
}  // namespace tp::worker

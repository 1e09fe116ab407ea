#include "server/scheduler/choose_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ChooseWorkersTest, IdleWorkersOfOneHostStayTogether) {
  EXPECT_THAT(ChooseWorkers({{"d", "h2", 0}, {"a", "h1", 0}, {"c", "h2", 0}, {"b", "h1", 0}}, 2),
              ElementsAre("a", "b"));
}

TEST(ChooseWorkersTest, IdleOnesComeBeforeThoseWithRanksAndRanksAreOrderedByHostAndId) {
  EXPECT_THAT(ChooseWorkers({{"a", "h1", 1}, {"b", "h1", 2}, {"c", "h2", 0}, {"d", "h2", 1}}, 3),
              ElementsAre("a", "c", "d"));
}

TEST(ChooseWorkersTest, TooFewGiveNone) {
  EXPECT_THAT(ChooseWorkers({{"a", "h", 0}}, 2), IsEmpty());
  EXPECT_THAT(ChooseWorkers({}, 1), IsEmpty());
}

TEST(ChooseWorkersTest, LoopbackIsNotMixedWithOtherHostsWhereEitherAreEnough) {
  const WorkerCandidate local{"a", "127.0.0.1", 0}, twin{"b", "127.0.0.1", 0}, far{"c", "10.0.0.3", 1},
      further{"d", "10.0.0.4", 1};
  EXPECT_THAT(ChooseWorkers({local, twin, far, further}, 2), ElementsAre("c", "d"));
  EXPECT_THAT(ChooseWorkers({local, twin, far}, 2), ElementsAre("a", "b"));
  EXPECT_THAT(ChooseWorkers({local, far}, 2), ElementsAre("c", "a"));
  EXPECT_THAT(ChooseWorkers({local, far}, 1), ElementsAre("a"));
}

}  // namespace
}  // namespace tp::server

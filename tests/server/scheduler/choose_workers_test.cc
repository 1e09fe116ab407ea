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

}  // namespace
}  // namespace tp::server

#include "worker/weights/byte_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ByteRunsOf, RowsAreOneRunAndColumnsOneEach) {
  EXPECT_THAT(ByteRunsOf({6, 4}, 4, 100, std::vector<std::vector<Interval>>{{{2, 5}}, {{0, 4}}}),
              ElementsAre(ByteRun{132, 48, 0}));
  EXPECT_THAT(ByteRunsOf({3, 4}, 4, 100, std::vector<std::vector<Interval>>{{{0, 3}}, {{0, 2}}}),
              ElementsAre(ByteRun{100, 8, 0}, ByteRun{116, 8, 8}, ByteRun{132, 8, 16}));
}

TEST(ByteRunsOf, SeveralIntervalsAndInnerDims) {
  EXPECT_THAT(
      ByteRunsOf({4, 3, 2}, 1, 0, std::vector<std::vector<Interval>>{{{0, 1}, {3, 4}}, {{0, 1}, {2, 3}}, {{0, 2}}}),
      ElementsAre(ByteRun{0, 2, 0}, ByteRun{4, 2, 2}, ByteRun{18, 2, 4}, ByteRun{22, 2, 6}));
}

TEST(ByteRunsOf, ScalarsAndEmptyBlocks) {
  EXPECT_THAT(ByteRunsOf({}, 8, 40, std::vector<std::vector<Interval>>{}), ElementsAre(ByteRun{40, 8, 0}));
  EXPECT_THAT(ByteRunsOf({5, 2}, 8, 0, std::vector<std::vector<Interval>>{{{5, 5}}, {{0, 2}}}), IsEmpty());
  EXPECT_THAT(ByteRunsOf({0, 2}, 8, 0, std::vector<std::vector<Interval>>{{{0, 0}}, {{0, 2}}}), IsEmpty());
}

TEST(ReadsOf, ShortRunsThatAreCloseMakeOneSpan) {
  const std::vector<ByteRun> runs{
      {0, 100, 0}, {200, 100, 100}, {400, 100, 200}, {100000, 100, 300}, {100200, 5000, 400}};
  const std::vector<Read> reads = ReadsOf(runs);
  ASSERT_EQ(reads.size(), 3u);
  EXPECT_EQ(reads[0].offset, 0);
  EXPECT_EQ(reads[0].size, 500);
  EXPECT_EQ(reads[0].run_count, 3u);
  EXPECT_EQ(reads[1].size, 100);
  EXPECT_EQ(reads[2].offset, 100200);
  EXPECT_EQ(reads[2].size, 5000);
}

TEST(ReadsOf, LongRunsAreReadInPieces) {
  const std::vector<Read> reads = ReadsOf(std::vector<ByteRun>{{8, kMaxRead * 2 + 1, 0}});
  ASSERT_EQ(reads.size(), 3u);
  EXPECT_EQ(reads[2].offset, 8 + 2 * kMaxRead);
  EXPECT_EQ(reads[2].size, 1);
}

TEST(BoxRuns, ColumnsAreOneRunARow) {
  // Columns [2, 4) of an F32 [3, 4] that is columns 1 to 4 of a [3, 9].
  const BoxRuns runs(Shape{3, 2}, Shape{0, 2}, Shape{3, 4}, Shape{0, 3}, Shape{3, 9}, 4);
  ASSERT_EQ(runs.count(), 3);
  EXPECT_EQ(runs.run_bytes(), 8);
  EXPECT_EQ(runs.At(0).in_array, 8);
  EXPECT_EQ(runs.At(0).in_outer, 12);
  EXPECT_EQ(runs.At(2).in_array, 8 + 2 * 16);
  EXPECT_EQ(runs.At(2).in_outer, 12 + 2 * 36);
}

TEST(BoxRuns, WhatIsWholeInBothArraysIsOneRun) {
  const BoxRuns rows(Shape{2, 3, 4}, Shape{1, 0, 0}, Shape{4, 3, 4}, Shape{5, 0, 0}, Shape{9, 3, 4}, 2);
  EXPECT_EQ(rows.count(), 1);
  EXPECT_EQ(rows.run_bytes(), 48);
  EXPECT_EQ(rows.At(0).in_array, 24);
  EXPECT_EQ(rows.At(0).in_outer, 120);
  // Whole in the array, but not in the larger one.
  const BoxRuns middle(Shape{2, 3, 4}, Shape{0, 0, 0}, Shape{2, 3, 4}, Shape{0, 1, 0}, Shape{2, 5, 4}, 1);
  EXPECT_EQ(middle.count(), 2);
  EXPECT_EQ(middle.run_bytes(), 12);
  EXPECT_EQ(middle.At(1).in_array, 12);
  EXPECT_EQ(middle.At(1).in_outer, 24);
}

TEST(BoxRuns, ScalarsAndEmptyBoxes) {
  const BoxRuns scalar(Shape{}, Shape{}, Shape{}, Shape{}, Shape{}, 8);
  EXPECT_EQ(scalar.count(), 1);
  EXPECT_EQ(scalar.run_bytes(), 8);
  EXPECT_EQ(BoxRuns(Shape{0, 3}, Shape{0, 0}, Shape{0, 3}, Shape{4, 0}, Shape{4, 3}, 8).count(), 0);
}

}  // namespace
}  // namespace tp::worker

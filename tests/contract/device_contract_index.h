// Gathers, strided copies, ranges.
#pragma once

#include "tests/contract/device_contract.h"

namespace tp::testing {

struct GatherCase {
  Shape input, index, output;
  int dim;
};

TEST_P(DeviceContract, GatherTakesElementsAlongADim) {
  const std::vector<GatherCase> cases = {
      {{7, 3}, {4, 1}, {4, 3}, 0},                                        // rows
      {{2, 7, 3}, {1, 5, 1}, {2, 5, 3}, 1}, {{5, 7}, {5, 1}, {5, 1}, 1},  // one of each row
      {{2, 7, 3}, {2, 1, 3}, {2, 1, 3}, 1}, {{5, 7}, {3, 9}, {3, 9}, 1},  // fewer rows than the input's
      {{7, 5}, {9, 2}, {9, 2}, 0},          {{7}, {0}, {0}, 0},
      {{0, 7}, {1, 2}, {0, 2}, 1},          {{70, 7, 33}, {1, 300, 1}, {70, 300, 33}, 1}};
  for (const GatherCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kBool}) {
      for (const DType index_dtype : {DType::kI64, DType::kI32}) {
        const auto x = Integers(dtype, ElementCount(c.input), 61);
        auto at = Integers(DType::kU8, ElementCount(c.index), 62);
        for (double& value : at) value = std::fmod(value, 7);
        const DeviceTensor input = Put(dtype, c.input, x), index = Put(index_dtype, c.index, at);
        const DeviceTensor output = Empty(dtype, c.output);
        ASSERT_EQ(Done(device_->Gather(*stream_, input.view, index.view, c.dim, 0, 7, std::nullopt, output.view)),
                  absl::OkStatus());
        std::vector<double> want;
        ForIndices(c.output, [&](const Shape& to, size_t) {
          Shape from = to;
          from[static_cast<size_t>(c.dim)] = static_cast<int64_t>(at[At(c.index, to)]);
          want.push_back(x[At(c.input, from)]);
        });
        EXPECT_EQ(Values(output), want) << ShapeText(c.input) << " by " << ShapeText(c.index);
      }
    }
  }
}

TEST_P(DeviceContract, GatherOfABlockGivesZerosForOtherBlocks) {
  // Columns 3 and 4 of 6; the index of the third row is ignored.
  const DeviceTensor input = Put(DType::kF32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), output = Empty(DType::kF32, {4, 1});
  const DeviceTensor index = PutIds({4, 1}, {4, 5, -100, 3});
  ASSERT_EQ(Done(device_->Gather(*stream_, input.view, index.view, 1, 3, 6, -100, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(2, 0, 0, 7));
  const DeviceTensor none = Put(DType::kF32, {4, 0}, {});  // a rank without columns
  ASSERT_EQ(Done(device_->Gather(*stream_, none.view, index.view, 1, 6, 6, -100, output.view)), absl::OkStatus());
  EXPECT_THAT(Values(output), ::testing::ElementsAre(0, 0, 0, 0));
  const DeviceTensor rows = Put(DType::kF32, {1, 40}, std::vector<double>(40, 1)), two = Empty(DType::kF32, {2, 40});
  const DeviceTensor at = PutIds({2, 1}, {5, 2});
  ASSERT_EQ(Done(device_->Gather(*stream_, rows.view, at.view, 0, 2, 6, std::nullopt, two.view)), absl::OkStatus());
  std::vector<double> want(80, 0);
  std::fill(want.begin() + 40, want.end(), 1);
  EXPECT_EQ(Values(two), want);
}

TEST_P(DeviceContract, GatherRefusesIndicesOutside) {
  const DeviceTensor input = Put(DType::kF32, {3}, {1, 2, 3}), output = Empty(DType::kF32, {3});
  for (const int64_t bad : {int64_t{6}, int64_t{-1}, int64_t{1} << 40, INT64_MIN}) {
    const DeviceTensor index = PutIds({3}, {0, bad, 1});
    const absl::Status status =
        Done(device_->Gather(*stream_, input.view, index.view, 0, 0, 6, std::nullopt, output.view));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("index " + std::to_string(bad) + " at position 1 outside [0, 6)"));
  }
  const DeviceTensor floats = Put(DType::kF32, {3}, {0, 1, 2});
  EXPECT_EQ(Done(device_->Gather(*stream_, input.view, floats.view, 0, 0, 3, std::nullopt, output.view)).code(),
            absl::StatusCode::kUnimplemented);
}

TEST_P(DeviceContract, CopyStridedReadsAndWritesByStrides) {
  std::vector<double> x(24);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  struct Case {
    int64_t from_offset;
    Shape from_strides, to_strides, sizes;
    int64_t to_count;
  };
  const std::vector<Case> cases = {{0, {}, {}, {}, 1},
                                   {5, {1}, {1}, {7}, 7},
                                   {1, {8, 3}, {3, 1}, {3, 3}, 9},   // every third
                                   {2, {0, 1}, {4, 1}, {3, 4}, 12},  // expanded
                                   {23, {-1}, {1}, {24}, 24},        // backwards
                                   {0, {4, 1}, {1, 6}, {6, 4}, 24},  // transposed on the way out
                                   {0, {12, 4, 0, 1}, {24, 8, 4, 1}, {2, 3, 2, 4}, 48},
                                   {0, {1, 1}, {0, 1}, {0, 5}, 0}};
  for (const Case& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8}) {
      const DeviceTensor from = Put(dtype, {24}, x);
      const DeviceTensor to = Put(dtype, {c.to_count}, std::vector<double>(static_cast<size_t>(c.to_count), 99));
      std::vector<double> want(static_cast<size_t>(c.to_count), 99);
      ForIndices(c.sizes, [&](const Shape& index, size_t) {
        int64_t source = c.from_offset, target = 0;
        for (size_t d = 0; d < index.size(); ++d) {
          source += index[d] * c.from_strides[d];
          target += index[d] * c.to_strides[d];
        }
        want[static_cast<size_t>(target)] = x[static_cast<size_t>(source)];
      });
      const ConstTensorView shifted(dtype, static_cast<const char*>(from.view.data) + c.from_offset * ItemSize(dtype),
                                    {});
      ASSERT_EQ(Done(device_->CopyStrided(*stream_, shifted, c.from_strides, to.view, c.to_strides, c.sizes)),
                absl::OkStatus());
      EXPECT_EQ(Values(to), want) << ShapeText(c.sizes);
    }
  }
}

TEST_P(DeviceContract, ArangeCounts) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kI32}) {
    const DeviceTensor output = Empty(dtype, {5});
    ASSERT_EQ(Done(device_->Arange(*stream_, 7, -3, output.view)), absl::OkStatus());
    EXPECT_THAT(Values(output), ::testing::ElementsAre(7, 4, 1, -2, -5));
    const DeviceTensor none = Empty(dtype, {0});
    EXPECT_EQ(Done(device_->Arange(*stream_, 7, 1, none.view)), absl::OkStatus());
  }
  const DeviceTensor large = Empty(DType::kI64, {2}), flags = Empty(DType::kBool, {2});
  ASSERT_EQ(Done(device_->Arange(*stream_, (int64_t{1} << 60) + 1, 2, large.view)), absl::OkStatus());
  EXPECT_THAT(Ids(large), ::testing::ElementsAre((int64_t{1} << 60) + 1, (int64_t{1} << 60) + 3));
  EXPECT_EQ(Done(device_->Arange(*stream_, 0, 1, flags.view)).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace tp::testing

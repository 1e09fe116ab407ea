// A StridedLoop as kernels read it: from the position in the index space to the operands' offsets. Example:
//   TP_ASSIGN_OR_RETURN(const auto index, StridedIndex<2>::Create("where", loop));   // then, in a kernel:
//   int64_t at[2]; index.Locate(i, at); out[i] = a[at[0]] + b[at[1]];
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/device/cuda/launch.h"
#include "worker/device/strided.h"

namespace tp::worker::cuda {

template <int kOperands>
struct StridedIndex {
  static constexpr int kMaxDims = 8;

  int32_t rank;
  bool narrow;  // all positions fit 32 bits, in which the GPU divides faster
  int64_t sizes[kMaxDims];
  int64_t strides[kOperands][kMaxDims];

  // UNIMPLEMENTED for more dims than kMaxDims that cannot be joined.
  static absl::StatusOr<StridedIndex> Create(std::string_view kernel, const StridedLoop<kOperands>& loop) {
    StridedIndex index{};
    if (loop.sizes.size() > static_cast<size_t>(kMaxDims)) {
      return absl::UnimplementedError(absl::StrCat(std::string(kernel), " over ", loop.sizes.size(),
                                                   " dims that cannot be joined, at most ", kMaxDims,
                                                   " on the CUDA device"));
    }
    index.rank = static_cast<int32_t>(loop.sizes.size());
    index.narrow = ElementCount(loop.sizes) < (int64_t{1} << 31);
    for (size_t d = 0; d < loop.sizes.size(); ++d) {
      index.sizes[d] = loop.sizes[d];
      for (size_t o = 0; o < static_cast<size_t>(kOperands); ++o) index.strides[o][d] = loop.strides[o][d];
    }
    return index;
  }

  TP_HD void Locate(int64_t position, int64_t* offsets) const {
    if (narrow) {
      LocateAs(static_cast<uint32_t>(position), offsets);
    } else {
      LocateAs(static_cast<uint64_t>(position), offsets);
    }
  }

 private:
  template <class Position>
  TP_HD void LocateAs(Position position, int64_t* offsets) const {
    for (int o = 0; o < kOperands; ++o) offsets[o] = 0;
    for (int d = rank - 1; d > 0; --d) {
      const Position size = static_cast<Position>(sizes[d]);
      const Position rest = position / size;
      const int64_t at = static_cast<int64_t>(position - rest * size);
      for (int o = 0; o < kOperands; ++o) offsets[o] += at * strides[o][d];
      position = rest;
    }
    for (int o = 0; o < kOperands; ++o) offsets[o] += static_cast<int64_t>(position) * strides[o][0];
  }
};

}  // namespace tp::worker::cuda

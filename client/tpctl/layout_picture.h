// A picture in letters of which rank holds which part of a tensor, for 1-D and 2-D ones. Pure. 5x4 with S(0) on tp=2:
//   +---------------+
//   | 0   0   0   0 |
//   | 0   0   0   0 |
//   | 0   0   0   0 |
//   +---------------+
//   | 1   1   1   1 |
//   | 1   1   1   1 |
//   +---------------+
#pragma once

#include <string>

#include "client/tp_client/tensors.h"

namespace tp::client {

// A cell names its ranks ("0", "0-3", "1,3"); where that gets too wide it is a letter, explained below the picture. Big
// tensors are scaled down: a cell then stands for its first element. "" for other ranks, and without elements.
std::string LayoutPicture(const TensorInfo& tensor);

}  // namespace tp::client

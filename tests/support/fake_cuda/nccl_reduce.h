// NCCL's reductions, term by term in rank order. Example: `ReduceInto(ncclFloat32, ncclSum, terms, count, out)`.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace tp_fake {

size_t ElementBytes(ncclDataType_t type);
// 16-bit floats are rounded after each term, min and max lose a NaN where the other term is none, an average of
// integers is cut: as NCCL does. `out` is none of the terms.
void ReduceInto(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& terms, size_t count, void* out);

}  // namespace tp_fake

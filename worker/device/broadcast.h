// numpy broadcasting of operands to the shape of an output, and numbers as elements; shared by all devices. Example:
// strides of [4, 1] along [3, 4, 5] are {0, 1, 0}.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "worker/device/device.h"
#include "worker/device/strided.h"

namespace tp::worker {

// Row-major strides of `shape` along the dims of `whole`, 0 where it is broadcast. INVALID_ARGUMENT where it does not
// broadcast to it; the message names the kernel.
absl::StatusOr<Shape> BroadcastStrides(std::string_view kernel, absl::Span<const int64_t> shape,
                                       absl::Span<const int64_t> whole);
// INVALID_ARGUMENT where `output` is not what the shapes (each of which broadcasts to it) give together.
absl::Status CheckBroadcast(std::string_view kernel, absl::Span<const Shape* const> shapes, const Shape& output);

inline bool WritesBool(BinaryOp op) { return op >= BinaryOp::kEqual; }
inline bool IsLogical(BinaryOp op) { return op == BinaryOp::kAnd || op == BinaryOp::kOr; }
// The walk of Device::Binary over a and b. INVALID_ARGUMENT for the output's dtype and for shapes.
absl::StatusOr<StridedLoop<2>> BinaryLoop(BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                                          const TensorView& output);
// The walk of Device::Where over condition, a and b, whose dtypes are right but for a's, b's and the output's being
// one, which is checked here.
absl::StatusOr<StridedLoop<3>> WhereLoop(const ConstTensorView& condition, const ConstTensorView& a,
                                         const ConstTensorView& b, const TensorView& output);

// One element of `dtype` in `bytes`, rounded once. INVALID_ARGUMENT where an integer or BOOL dtype does not hold the
// value.
struct Element {
  alignas(8) char bytes[8] = {};
};
absl::StatusOr<Element> EncodeElement(std::string_view kernel, DType dtype, double value);

}  // namespace tp::worker

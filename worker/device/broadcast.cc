#include "worker/device/broadcast.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/tensor/host_tensor.h"

namespace tp::worker {

absl::StatusOr<Shape> BroadcastStrides(std::string_view kernel, absl::Span<const int64_t> shape,
                                       absl::Span<const int64_t> whole) {
  const size_t skip = whole.size() - std::min(whole.size(), shape.size());
  bool fits = shape.size() <= whole.size();
  for (size_t d = 0; d < shape.size() && fits; ++d) fits = shape[d] == 1 || shape[d] == whole[skip + d];
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(kernel), ": ", ShapeText(shape), " does not broadcast to ", ShapeText(whole)));
  }
  const Shape strides = RowMajorStrides(shape);
  Shape result(whole.size(), 0);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) result[skip + d] = strides[d];
  }
  return result;
}

absl::Status CheckBroadcast(std::string_view kernel, absl::Span<const Shape* const> shapes, const Shape& output) {
  for (size_t i = 0; i < output.size(); ++i) {
    const size_t from_end = output.size() - i;
    const bool made = output[i] == 1 || std::any_of(shapes.begin(), shapes.end(), [&](const Shape* shape) {
                        return shape->size() >= from_end && (*shape)[shape->size() - from_end] == output[i];
                      });
    if (made) continue;
    const auto text = [](std::string* out, const Shape* shape) { absl::StrAppend(out, ShapeText(*shape)); };
    return absl::InvalidArgumentError(absl::StrCat(std::string(kernel), ": ", absl::StrJoin(shapes, " and ", text),
                                                   " do not give ", ShapeText(output)));
  }
  return absl::OkStatus();
}

absl::StatusOr<StridedLoop<2>> BinaryLoop(BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                                          const TensorView& output) {
  if (output.dtype != (WritesBool(op) ? DType::kBool : a.dtype)) {
    return absl::InvalidArgumentError("binary: the output must have the operands' dtype, or BOOL");
  }
  TP_ASSIGN_OR_RETURN(const Shape a_strides, BroadcastStrides("binary", a.shape, output.shape));
  TP_ASSIGN_OR_RETURN(const Shape b_strides, BroadcastStrides("binary", b.shape, output.shape));
  TP_RETURN_IF_ERROR(CheckBroadcast("binary", {&a.shape, &b.shape}, output.shape));
  return StridedLoop<2>::Create(output.shape, {a_strides, b_strides});
}

absl::StatusOr<StridedLoop<3>> WhereLoop(const ConstTensorView& condition, const ConstTensorView& a,
                                         const ConstTensorView& b, const TensorView& output) {
  if (a.dtype != b.dtype || a.dtype != output.dtype) {
    return absl::InvalidArgumentError("where: operands and output must have one dtype");
  }
  TP_ASSIGN_OR_RETURN(const Shape condition_strides, BroadcastStrides("where", condition.shape, output.shape));
  TP_ASSIGN_OR_RETURN(const Shape a_strides, BroadcastStrides("where", a.shape, output.shape));
  TP_ASSIGN_OR_RETURN(const Shape b_strides, BroadcastStrides("where", b.shape, output.shape));
  TP_RETURN_IF_ERROR(CheckBroadcast("where", {&condition.shape, &a.shape, &b.shape}, output.shape));
  return StridedLoop<3>::Create(output.shape, {condition_strides, a_strides, b_strides});
}

absl::StatusOr<Element> EncodeElement(std::string_view kernel, DType dtype, double value) {
  const HostTensor number = ConvertTo(MakeHostTensor<double>({}, {value}), dtype);
  if (!IsFloating(dtype)) {
    const HostTensor back = ConvertTo(number, DType::kF64);
    // 2^63 is cut to the largest integer, which reads back as 2^63.
    if (*back.data<double>() != value || value >= 0x1p63) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(kernel), ": ", std::string(DTypeName(dtype)), " does not hold ", value));
    }
  }
  Element element;
  std::memcpy(element.bytes, number.bytes.data(), number.bytes.size());
  return element;
}

}  // namespace tp::worker

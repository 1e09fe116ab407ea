// What the families of operations share: one file a family (operations_*.cc), a table each. Included by those only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker/runtime/operations.h"

namespace tp::worker::operations {

using Context = OperationContext;
using Values = absl::Span<const ValueView>;

struct NamedOperation {
  std::string_view function;
  Operation operation;
};
absl::Span<const NamedOperation> LinearOperations();
absl::Span<const NamedOperation> AttentionOperations();
absl::Span<const NamedOperation> NormOperations();
absl::Span<const NamedOperation> ElementwiseOperations();
absl::Span<const NamedOperation> ShapeOperations();
absl::Span<const NamedOperation> IndexOperations();
absl::Span<const NamedOperation> ReduceOperations();

// A number attribute; an integer is one too.
double Number(const Context& context, const std::string& name, double fallback);
int64_t Integer(const Context& context, const std::string& name, int64_t fallback);
// The attribute as a dim of `rank` dims, negative ones from the end.
int DimOf(const Context& context, const std::string& name, int64_t fallback, size_t rank);
bool Present(Values values, size_t index);
// Same elements in the same order. INTERNAL where the local blocks differ in size.
absl::Status CopyElements(const Context& context, Values in, Values out);

// [a, b, rest..] -> [a * b, rest..].
template <typename View>
View TokenRows(View view) {
  Shape shape{view.shape[0] * view.shape[1]};
  shape.insert(shape.end(), view.shape.begin() + 2, view.shape.end());
  view.shape = std::move(shape);
  return view;
}

}  // namespace tp::worker::operations

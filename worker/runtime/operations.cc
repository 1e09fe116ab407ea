#include "worker/runtime/operations.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "worker/runtime/operation_families.h"

namespace tp::worker {
namespace operations {

double Number(const Context& context, const std::string& name, double fallback) {
  const auto it = context.instruction.attributes.find(name);
  if (it == context.instruction.attributes.end()) return fallback;
  if (const auto* integer = std::get_if<int64_t>(&it->second)) return static_cast<double>(*integer);
  return std::get<double>(it->second);
}

int64_t Integer(const Context& context, const std::string& name, int64_t fallback) {
  return AttributeOr<int64_t>(context.instruction.attributes, name, fallback);
}

int DimOf(const Context& context, const std::string& name, int64_t fallback, size_t rank) {
  const int64_t dim = Integer(context, name, fallback);
  return static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
}

bool Present(Values values, size_t index) { return index < values.size() && values[index].present; }

absl::Status CopyElements(const Context& context, Values in, Values out) {
  const auto bytes_of = [](const TensorView& view) { return ElementCount(view.shape) * ItemSize(view.dtype); };
  const int64_t bytes = bytes_of(out[0].view);
  if (bytes_of(in[0].view) != bytes) {
    return absl::InternalError(absl::StrCat(context.instruction.function, ": local blocks ",
                                            ShapeText(in[0].view.shape), " -> ", ShapeText(out[0].view.shape)));
  }
  if (bytes == 0) return absl::OkStatus();
  return context.device.CopyOnDevice(context.stream, in[0].view.data, out[0].view.data, bytes);
}

}  // namespace operations

Operation FindOperation(std::string_view function) {
  static const auto* const table = [] {
    auto* all = new std::map<std::string_view, Operation>;
    for (const auto& family :
         {operations::LinearOperations(), operations::AttentionOperations(), operations::NormOperations(),
          operations::ElementwiseOperations(), operations::ShapeOperations(), operations::IndexOperations(),
          operations::ReduceOperations()}) {
      for (const auto& [name, operation] : family) all->emplace(name, operation);
    }
    return all;
  }();
  const auto it = table->find(function);
  return it == table->end() ? nullptr : it->second;
}

}  // namespace tp::worker

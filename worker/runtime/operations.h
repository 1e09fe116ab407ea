// The functions of program instructions as Device calls on local views. Example: "softmax" -> Device::Softmax.
// Everything that follows from shapes was proved when the program was compiled.
#pragma once

#include <string_view>

#include "common/program/program.h"
#include "worker/device/device.h"

namespace tp::worker {

// A value of the program on this rank.
struct ValueView {
  TensorView view;                       // local; data is nullptr for a state that is only packed
  const PackedWeight* packed = nullptr;  // a weight of linear
  const DTensorSpec* spec = nullptr;
  const Shape* global = nullptr;
  bool present = false;  // false: an omitted input
};

struct OperationContext {
  Device& device;
  Stream& stream;
  const Mesh& mesh;
  absl::Span<const int> coordinate;
  const Instruction& instruction;
  absl::Span<const PagedCache> caches;
  absl::Span<const SequenceSpan> sequences;  // of an attention
  bool paged = false;                        // attention reads and writes its cache
};

using Operation = absl::Status (*)(const OperationContext& context, absl::Span<const ValueView> inputs,
                                   absl::Span<const ValueView> outputs);

// nullptr for a function that has none (redistribute is the executor's).
Operation FindOperation(std::string_view function);

}  // namespace tp::worker

// The same elements in another shape or order, and lookups by index.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/support/simulator_kernels.h"

namespace tp::testing {
namespace {

// output[p] = input[from(p)].
template <typename From>
void Pull(const SimTensor& input, SimTensor& output, From from) {
  for (size_t i = 0; i < output.values.size(); ++i) {
    output.values[i] = input.values[IndexOf(input.shape, from(PositionOf(output.shape, static_cast<int64_t>(i))))];
  }
}

void Cat(const KernelCall& call, SimTensor& output) {
  const int64_t dim = SimDim(call);
  int64_t begin = 0;
  for (const SimTensor* input : call.inputs) {
    for (size_t i = 0; i < input->values.size(); ++i) {
      Shape at = PositionOf(input->shape, static_cast<int64_t>(i));
      at[dim] += begin;
      output.values[IndexOf(output.shape, at)] = input->values[i];
    }
    begin += input->shape[dim];
  }
}

void Split(const KernelCall& call, SimTensors& outputs) {
  const int64_t dim = SimDim(call);
  int64_t begin = 0;
  for (SimTensor& output : outputs) {
    Pull(*call.inputs[0], output, [&](Shape at) {
      at[dim] += begin;
      return at;
    });
    begin += output.shape[dim];
  }
}

void Slice(const KernelCall& call, SimTensor& output) {
  const SimTensor& input = *call.inputs[0];
  const int64_t dim = SimDim(call), size = input.shape[dim];
  int64_t start = AttributeOr<int64_t>(*call.attributes, "start", 0);
  const int64_t step = AttributeOr<int64_t>(*call.attributes, "step", 1);
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  const bool all = output.shape[dim] == size;  // then a shard is taken whole, too
  Pull(input, output, [&](Shape at) {
    if (!all) at[dim] = start + at[dim] * step;
    return at;
  });
}

void SelectRows(const KernelCall& call, SimTensor& output) {
  const SimTensor& x = *call.inputs[0];
  const SimTensor& rows = *call.inputs[1];
  int64_t width = 1;
  for (size_t i = 2; i < x.shape.size(); ++i) width *= x.shape[i];
  for (size_t i = 0; i < rows.values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(rows.values[i]);
    std::copy_n(x.values.begin() + row * width, width, output.values.begin() + static_cast<int64_t>(i) * width);
  }
}

absl::Status OutOfRange(const KernelCall& call, double index, int64_t size) {
  return absl::InvalidArgumentError(absl::StrCat(call.function, ": ", index, " outside [0, ", size, ")"));
}

// The local place of a global index; -1 where another rank has it.
int64_t LocalOf(const KernelCall& call, double index) {
  const auto own = std::find(call.owned.begin(), call.owned.end(), static_cast<int64_t>(index));
  return own == call.owned.end() ? -1 : own - call.owned.begin();
}

absl::Status Embedding(const KernelCall& call, SimTensor& output) {
  const SimTensor& ids = *call.inputs[0];
  const SimTensor& weight = *call.inputs[1];
  const int64_t width = weight.shape[1];
  for (size_t i = 0; i < ids.values.size(); ++i) {
    if (ids.values[i] < 0 || ids.values[i] >= call.total) return OutOfRange(call, ids.values[i], call.total);
    const int64_t row = LocalOf(call, ids.values[i]);
    if (row < 0) continue;
    for (int64_t d = 0; d < width; ++d) output.values[i * width + d] = weight.values[row * width + d];
  }
  return absl::OkStatus();
}

absl::Status Pick(const KernelCall& call, SimTensor& output) {
  const SimTensor& input = *call.inputs[0];
  const SimTensor& index = *call.inputs[1];
  const int64_t dim = SimDim(call);
  const double ignored = SimNumber(call, "ignore_index");
  for (size_t i = 0; i < index.values.size(); ++i) {
    const double wanted = index.values[i];
    if (wanted == ignored) continue;
    if (wanted < 0 || wanted >= call.total) return OutOfRange(call, wanted, call.total);
    Shape at = PositionOf(index.shape, static_cast<int64_t>(i));
    at.insert(at.begin() + dim, LocalOf(call, wanted));
    if (at[dim] >= 0) output.values[i] = input.values[IndexOf(input.shape, at)];
  }
  return absl::OkStatus();
}

absl::Status Lookup(const KernelCall& call, SimTensor& output) {
  const SimTensor& input = *call.inputs[0];
  const SimTensor& index = *call.inputs[1];
  const int64_t dim = SimDim(call);
  for (double wanted : index.values) {
    if (wanted < 0 || wanted >= input.shape[dim]) return OutOfRange(call, wanted, input.shape[dim]);
  }
  Pull(input, output, [&](Shape at) {
    const int64_t entry = call.function == "gather" ? IndexOf(index.shape, at) : at[dim];
    at[dim] = static_cast<int64_t>(index.values[entry]);
    return at;
  });
  return absl::OkStatus();
}

}  // namespace

bool ShapeKernels(const KernelCall& call, SimTensors& outputs) {
  const std::string& name = call.function;
  SimTensor& output = outputs[0];
  if (name == "reshape") {
    output.values = call.inputs[0]->values;
  } else if (name == "transpose") {
    const int64_t a = SimDim(call, "dim0"), b = SimDim(call, "dim1");
    Pull(*call.inputs[0], output, [&](Shape at) {
      std::swap(at[a], at[b]);
      return at;
    });
  } else if (name == "permute") {
    const auto dims = std::get<std::vector<int64_t>>(call.attributes->at("dims"));
    Pull(*call.inputs[0], output, [&](const Shape& at) {
      Shape from(at.size());
      for (size_t d = 0; d < at.size(); ++d) from[dims[d] < 0 ? dims[d] + at.size() : dims[d]] = at[d];
      return from;
    });
  } else if (name == "expand") {
    for (size_t i = 0; i < output.values.size(); ++i) {
      output.values[i] =
          call.inputs[0]->values[BroadcastIndex(output.shape, call.inputs[0]->shape, static_cast<int64_t>(i))];
    }
  } else if (name == "cat") {
    Cat(call, output);
  } else if (name == "split") {
    Split(call, outputs);
  } else if (name == "slice") {
    Slice(call, output);
  } else if (name == "select") {
    const int64_t dim = SimDim(call);
    const int64_t index = std::get<int64_t>(call.attributes->at("index"));
    Pull(*call.inputs[0], output, [&](Shape at) {
      at.insert(at.begin() + dim, index < 0 ? index + call.inputs[0]->shape[dim] : index);
      return at;
    });
  } else if (name == "arange") {
    for (size_t i = 0; i < output.values.size(); ++i) {
      output.values[i] = SimNumber(call, "start") + SimNumber(call, "step") * static_cast<double>(i);
    }
  } else if (name == "select_rows") {
    SelectRows(call, output);
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<bool> IndexKernels(const KernelCall& call, SimTensors& outputs) {
  absl::Status status;
  if (call.function == "embedding") {
    status = Embedding(call, outputs[0]);
  } else if (call.function == "pick") {
    status = Pick(call, outputs[0]);
  } else if (call.function == "index_select" || call.function == "gather") {
    status = Lookup(call, outputs[0]);
  } else {
    return false;
  }
  if (!status.ok()) return status;
  return true;
}

}  // namespace tp::testing

#include "tests/support/simulator_kernels.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace tp::testing {
namespace {

SimTensor Zeros(const Shape& shape) {
  return {shape, std::vector<double>(static_cast<size_t>(ElementCount(shape)), 0.0)};
}

SimTensor Linear(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  const SimTensor& x = *call.inputs[0];
  const SimTensor& w = *call.inputs[1];
  const int64_t n = w.shape[0], k = w.shape[1];
  if (output.values.empty()) return output;
  const int64_t rows = static_cast<int64_t>(output.values.size()) / n;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = call.inputs[2] == nullptr ? 0.0 : call.inputs[2]->values[column];
      for (int64_t i = 0; i < k; ++i) sum += x.values[row * k + i] * w.values[column * k + i];
      output.values[row * n + column] = sum;
    }
  }
  return output;
}

SimTensor Embedding(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  const SimTensor& ids = *call.inputs[0];
  const SimTensor& weight = *call.inputs[1];
  const int64_t width = weight.shape[1];
  for (size_t i = 0; i < ids.values.size(); ++i) {
    for (size_t row = 0; row < call.owned_rows.size(); ++row) {
      if (call.owned_rows[row] != static_cast<int64_t>(ids.values[i])) continue;
      for (int64_t d = 0; d < width; ++d) output.values[i * width + d] = weight.values[row * width + d];
    }
  }
  return output;
}

SimTensor RmsNorm(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  const SimTensor& x = *call.inputs[0];
  const int64_t width = x.shape.back();
  const double eps = AttributeOr<double>(*call.attributes, "eps", 0);
  for (size_t start = 0; start < x.values.size(); start += width) {
    double squares = 0;
    for (int64_t d = 0; d < width; ++d) squares += x.values[start + d] * x.values[start + d];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (int64_t d = 0; d < width; ++d)
      output.values[start + d] = x.values[start + d] * scale * call.inputs[1]->values[d];
  }
  return output;
}

SimTensor Rotary(const KernelCall& call) {
  SimTensor output = *call.inputs[0];
  const SimTensor& positions = *call.inputs[1];
  const int64_t heads = output.shape[2], width = output.shape[3], half = width / 2;
  const double theta = AttributeOr<double>(*call.attributes, "theta", 0);
  for (size_t token = 0; token < positions.values.size(); ++token) {
    for (int64_t head = 0; head < heads; ++head) {
      double* v = output.values.data() + (token * heads + head) * width;
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            positions.values[token] * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        const double a = v[i], b = v[i + half];
        v[i] = a * std::cos(angle) - b * std::sin(angle);
        v[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return output;
}

// Each row of the batch is one sequence. The local query head i reads local key head i * kv / q.
SimTensor Attention(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  const SimTensor& q = *call.inputs[0];
  const SimTensor& k = *call.inputs[1];
  const SimTensor& v = *call.inputs[2];
  const int64_t batch = q.shape[0], time = q.shape[1], heads = q.shape[2], width = q.shape[3], kv = k.shape[2];
  double scale = AttributeOr<double>(*call.attributes, "scale", 0);
  if (scale == 0) scale = 1.0 / std::sqrt(static_cast<double>(width));
  const bool causal = AttributeOr<bool>(*call.attributes, "causal", true);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < time; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t last = causal ? t : time - 1;
        const int64_t kv_head = h * kv / heads;
        auto at = [&](int64_t s) { return ((b * time + s) * kv + kv_head) * width; };
        const int64_t own = ((b * time + t) * heads + h) * width;
        std::vector<double> scores(last + 1, 0.0);
        for (int64_t s = 0; s <= last; ++s) {
          for (int64_t d = 0; d < width; ++d) scores[s] += q.values[own + d] * k.values[at(s) + d] * scale;
        }
        const double most = *std::max_element(scores.begin(), scores.end());
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - most);
        for (int64_t s = 0; s <= last; ++s) {
          for (int64_t d = 0; d < width; ++d) output.values[own + d] += scores[s] / total * v.values[at(s) + d];
        }
      }
    }
  }
  return output;
}

double Activation(const std::string& function, const Attributes& attributes, double x) {
  if (function == "relu") return std::max(x, 0.0);
  if (function == "silu") return x / (1.0 + std::exp(-x));
  if (AttributeOr<std::string>(attributes, "approximate", "none") == "none") {
    return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
  }
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// Index into an operand of shape `shape` for element `index` of the broadcast `output`.
int64_t BroadcastIndex(const Shape& output, const Shape& shape, int64_t index) {
  int64_t stride = 1, result = 0;
  for (size_t back = 1; back <= output.size(); ++back) {
    const int64_t coordinate = index % output[output.size() - back];
    index /= output[output.size() - back];
    if (back > shape.size()) continue;
    const int64_t size = shape[shape.size() - back];
    if (size != 1) result += coordinate * stride;
    stride *= size;
  }
  return result;
}

SimTensor Binary(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  for (size_t i = 0; i < output.values.size(); ++i) {
    const double a = call.inputs[0]->values[BroadcastIndex(output.shape, call.inputs[0]->shape, i)];
    const double b = call.inputs[1]->values[BroadcastIndex(output.shape, call.inputs[1]->shape, i)];
    output.values[i] = call.function == "add" ? a + b : call.function == "sub" ? a - b : a * b;
  }
  return output;
}

// Calls visit(first element, stride, size) for each run along `dim`.
template <typename Visit>
void ForEachRun(const Shape& shape, int64_t dim, Visit visit) {
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < dim; ++i) outer *= shape[i];
  for (size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) visit(o * shape[dim] * inner + i, inner, o * inner + i);
  }
}

int64_t DimOf(const KernelCall& call, const char* name) {
  const int64_t dim = AttributeOr<int64_t>(*call.attributes, name, -1);
  return dim < 0 ? dim + static_cast<int64_t>(call.inputs[0]->shape.size()) : dim;
}

SimTensor Softmax(const KernelCall& call) {
  SimTensor output = *call.inputs[0];
  const int64_t dim = DimOf(call, "dim"), size = output.shape[dim];
  ForEachRun(output.shape, dim, [&](int64_t first, int64_t stride, int64_t) {
    double most = -INFINITY, total = 0;
    for (int64_t i = 0; i < size; ++i) most = std::max(most, output.values[first + i * stride]);
    for (int64_t i = 0; i < size; ++i) {
      double& value = output.values[first + i * stride];
      total += value = std::exp(value - most);
    }
    for (int64_t i = 0; i < size; ++i) output.values[first + i * stride] /= total;
  });
  return output;
}

SimTensor Argmax(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  const SimTensor& x = *call.inputs[0];
  const int64_t dim = DimOf(call, "dim");
  ForEachRun(x.shape, dim, [&](int64_t first, int64_t stride, int64_t run) {
    int64_t best = 0;
    for (int64_t i = 1; i < x.shape[dim]; ++i) {
      if (x.values[first + i * stride] > x.values[first + best * stride]) best = i;
    }
    output.values[run] = static_cast<double>(best);
  });
  return output;
}

SimTensor Transpose(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  const SimTensor& x = *call.inputs[0];
  Shape strides = RowMajorStrides(x.shape);
  std::swap(strides[DimOf(call, "dim0")], strides[DimOf(call, "dim1")]);
  for (size_t i = 0; i < output.values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), from = 0;
    for (size_t back = output.shape.size(); back-- > 0;) {
      from += rest % output.shape[back] * strides[back];
      rest /= output.shape[back];
    }
    output.values[i] = x.values[from];
  }
  return output;
}

SimTensor SelectRows(const KernelCall& call) {
  SimTensor output = Zeros(call.output_shape);
  const SimTensor& x = *call.inputs[0];
  const SimTensor& rows = *call.inputs[1];
  int64_t width = 1;
  for (size_t i = 2; i < x.shape.size(); ++i) width *= x.shape[i];
  for (size_t i = 0; i < rows.values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(rows.values[i]);
    std::copy_n(x.values.begin() + row * width, width, output.values.begin() + static_cast<int64_t>(i) * width);
  }
  return output;
}

}  // namespace

absl::StatusOr<SimTensor> RunKernel(const KernelCall& call) {
  const std::string& name = call.function;
  SimTensor output;
  if (name == "linear") {
    output = Linear(call);
  } else if (name == "embedding") {
    output = Embedding(call);
  } else if (name == "rms_norm") {
    output = RmsNorm(call);
  } else if (name == "rotary") {
    output = Rotary(call);
  } else if (name == "attention") {
    output = Attention(call);
  } else if (name == "silu" || name == "relu" || name == "gelu") {
    output = *call.inputs[0];
    for (double& value : output.values) value = Activation(name, *call.attributes, value);
  } else if (name == "add" || name == "sub" || name == "mul") {
    output = Binary(call);
  } else if (name == "softmax") {
    output = Softmax(call);
  } else if (name == "argmax") {
    output = Argmax(call);
  } else if (name == "reshape") {
    output = {call.output_shape, call.inputs[0]->values};
  } else if (name == "transpose") {
    output = Transpose(call);
  } else if (name == "cast") {
    output = *call.inputs[0];
  } else if (name == "select_rows") {
    output = SelectRows(call);
  } else {
    return absl::UnimplementedError(absl::StrCat("the simulator has no '", name, "'"));
  }
  if (output.shape != call.output_shape ||
      static_cast<int64_t>(output.values.size()) != ElementCount(call.output_shape)) {
    return absl::InternalError(absl::StrCat(name, " makes ", ShapeText(output.shape), " with ", output.values.size(),
                                            " elements, its spec says ", ShapeText(call.output_shape)));
  }
  return output;
}

}  // namespace tp::testing

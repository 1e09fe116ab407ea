// Products, norms and attention.
#include <algorithm>

#include "tests/support/simulator_kernels.h"

namespace tp::testing {
namespace {

void Linear(const KernelCall& call, SimTensor& output) {
  const SimTensor& x = *call.inputs[0];
  const SimTensor& w = *call.inputs[1];
  const int64_t n = w.shape[0], k = w.shape[1];
  if (output.values.empty()) return;
  const int64_t rows = static_cast<int64_t>(output.values.size()) / n;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = call.inputs[2] == nullptr ? 0.0 : call.inputs[2]->values[column];
      for (int64_t i = 0; i < k; ++i) sum += x.values[row * k + i] * w.values[column * k + i];
      output.values[row * n + column] = sum;
    }
  }
}

// One list entry a spatial dim; one for all of them where the list has one.
int64_t Spatial(const KernelCall& call, const char* name, size_t i, int64_t fallback) {
  const auto list = AttributeOr<std::vector<int64_t>>(*call.attributes, name, {});
  return list.empty() ? fallback : list.size() == 1 ? list[0] : list[i];
}

// Groups are told from the local channels: a rank holds whole groups.
void Convolution(const KernelCall& call, SimTensor& output) {
  const SimTensor& x = *call.inputs[0];
  const SimTensor& w = *call.inputs[1];
  const size_t spatial = x.shape.size() - 2;
  const int64_t in_per_group = w.shape[1];
  const int64_t groups = in_per_group == 0 ? 1 : std::max<int64_t>(x.shape[1] / in_per_group, 1);
  const int64_t out_per_group = std::max<int64_t>(w.shape[0] / groups, 1);
  const Shape kernel(w.shape.begin() + 1, w.shape.end());  // [in / groups, kernel..]
  for (size_t i = 0; i < output.values.size(); ++i) {
    const Shape at = PositionOf(output.shape, static_cast<int64_t>(i));
    double sum = call.inputs[2] == nullptr ? 0.0 : call.inputs[2]->values[at[1]];
    for (int64_t k = 0; k < ElementCount(kernel); ++k) {
      const Shape tap = PositionOf(kernel, k);
      Shape from{at[0], at[1] / out_per_group * in_per_group + tap[0]};
      bool inside = true;
      for (size_t d = 0; d < spatial; ++d) {
        const int64_t position = at[d + 2] * Spatial(call, "stride", d, 1) - Spatial(call, "padding", d, 0) +
                                 tap[d + 1] * Spatial(call, "dilation", d, 1);
        inside = inside && position >= 0 && position < x.shape[d + 2];
        from.push_back(position);
      }
      if (inside) sum += x.values[IndexOf(x.shape, from)] * w.values[at[1] * ElementCount(kernel) + k];
    }
    output.values[i] = sum;
  }
}

void MatMul(const KernelCall& call, SimTensor& output) {
  SimTensor a = *call.inputs[0], b = *call.inputs[1];
  Shape wide = output.shape;
  if (a.shape.size() == 1) {
    a.shape.insert(a.shape.begin(), 1);
    wide.insert(wide.end() - (b.shape.size() > 1 ? 1 : 0), 1);
  }
  if (b.shape.size() == 1) {
    b.shape.push_back(1);
    wide.push_back(1);
  }
  const int64_t inner = a.shape.back();
  const size_t rank = wide.size();
  Shape a_batch(a.shape.begin(), a.shape.end() - 2), b_batch(b.shape.begin(), b.shape.end() - 2);
  const Shape batch(wide.begin(), wide.end() - 2);
  for (size_t i = 0; i < output.values.size(); ++i) {
    const Shape at = PositionOf(wide, static_cast<int64_t>(i));
    const int64_t which = IndexOf(batch, Shape(at.begin(), at.end() - 2));
    const int64_t a_start = BroadcastIndex(batch, a_batch, which) * a.shape[a.shape.size() - 2] * inner;
    const int64_t columns = b.shape.back();
    const int64_t b_start = BroadcastIndex(batch, b_batch, which) * inner * columns;
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k) {
      sum += a.values[a_start + at[rank - 2] * inner + k] * b.values[b_start + k * columns + at[rank - 1]];
    }
    output.values[i] = sum;
  }
}

void RmsNorm(const KernelCall& call, SimTensor& output) {
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
}

void LayerNorm(const KernelCall& call, SimTensor& output) {
  const SimTensor& x = *call.inputs[0];
  const int64_t dims = AttributeOr<int64_t>(*call.attributes, "dims", 1);
  int64_t width = 1;
  for (size_t d = x.shape.size() - static_cast<size_t>(dims); d < x.shape.size(); ++d) width *= x.shape[d];
  const double eps = AttributeOr<double>(*call.attributes, "eps", 0);
  for (size_t start = 0; start < x.values.size(); start += width) {
    double mean = 0, variance = 0;
    for (int64_t d = 0; d < width; ++d) mean += x.values[start + d] / static_cast<double>(width);
    for (int64_t d = 0; d < width; ++d) variance += std::pow(x.values[start + d] - mean, 2);
    const double scale = 1.0 / std::sqrt(variance / static_cast<double>(width) + eps);
    for (int64_t d = 0; d < width; ++d) {
      const double weight = call.inputs[1] == nullptr ? 1.0 : call.inputs[1]->values[d];
      const double bias = call.inputs[2] == nullptr ? 0.0 : call.inputs[2]->values[d];
      output.values[start + d] = (x.values[start + d] - mean) * scale * weight + bias;
    }
  }
}

void Softmax(const KernelCall& call, SimTensor& output, bool log) {
  output = *call.inputs[0];
  const int64_t dim = SimDim(call), size = output.shape[dim];
  ForEachRun(output.shape, dim, [&](int64_t first, int64_t stride, int64_t) {
    double most = -INFINITY, total = 0;
    for (int64_t i = 0; i < size; ++i) most = std::max(most, output.values[first + i * stride]);
    for (int64_t i = 0; i < size; ++i) total += std::exp(output.values[first + i * stride] - most);
    for (int64_t i = 0; i < size; ++i) {
      double& value = output.values[first + i * stride];
      value = log ? value - most - std::log(total) : std::exp(value - most) / total;
    }
  });
}

void Rotary(const KernelCall& call, SimTensor& output) {
  output = *call.inputs[0];
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
}

// Each row of the batch is one sequence. The local query head i reads local key head i * kv / q.
void Attention(const KernelCall& call, SimTensor& output) {
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
}

}  // namespace

bool ProductKernels(const KernelCall& call, SimTensors& outputs) {
  const std::string& name = call.function;
  if (name == "linear") {
    Linear(call, outputs[0]);
  } else if (name == "conv1d" || name == "conv2d") {
    Convolution(call, outputs[0]);
  } else if (name == "matmul" || name == "bmm") {
    MatMul(call, outputs[0]);
  } else if (name == "rms_norm") {
    RmsNorm(call, outputs[0]);
  } else if (name == "layer_norm") {
    LayerNorm(call, outputs[0]);
  } else if (name == "softmax" || name == "log_softmax") {
    Softmax(call, outputs[0], name == "log_softmax");
  } else if (name == "rotary") {
    Rotary(call, outputs[0]);
  } else if (name == "attention") {
    Attention(call, outputs[0]);
  } else {
    return false;
  }
  return true;
}

}  // namespace tp::testing

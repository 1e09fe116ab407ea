// What the tests of worked cases and field cases share: submissions from a few words, weights that a test gives, and
// models run through tpctl. Example, y = fc(x) with W cut by rows:
//   Submit("m", "tp=2", Model(Graph({"x"}, {Child("y", "fc", {"x"})}, {"y"}), {Linear("fc", 8, 4)},
//                             {Input("x", "F32", {"batch", "8"})}) + Plan({Entry("fc", "colwise_parallel {}")}),
//          {{"fc.weight", Arange({4, 8})}});
//   EXPECT_EQ(Forward("m", {{"x", x}}).Numbers("y"), ...);
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/integration/tensors_fixture.h"

namespace tp::testing {

using NamedTensors = std::map<std::string, HostTensor>;
using Doubles = std::vector<double>;

inline std::string Arguments(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) absl::StrAppend(&text, " arguments { value: \"", value, "\" }");
  return text;
}
// Calls in a graph: of a child, and of a function with attributes such as Attribute("dim", "integer: 0").
inline std::string Child(const std::string& name, const std::string& child, const std::vector<std::string>& values) {
  return absl::StrCat("nodes { name: \"", name, "\" child: \"", child, "\"", Arguments(values), " }\n");
}
inline std::string Attribute(const std::string& key, const std::string& value) {
  return absl::StrCat(" attributes { key: \"", key, "\" value { ", value, " } }");
}
inline std::string Function(const std::string& name, const std::string& function,
                            const std::vector<std::string>& values, const std::string& more = "") {
  return absl::StrCat("nodes { name: \"", name, "\" function: \"", function, "\"", Arguments(values), more, " }\n");
}
// The configuration of a composite; outputs are called like their values. `more`: states.
inline std::string Graph(const std::vector<std::string>& inputs, const std::vector<std::string>& nodes,
                         const std::vector<std::string>& outputs, const std::string& more = "") {
  std::string text = "composite {\ntype_name: \"Case\"\n";
  for (const std::string& name : inputs) absl::StrAppend(&text, "inputs { name: \"", name, "\" }\n");
  absl::StrAppend(&text, absl::StrJoin(nodes, ""));
  for (const std::string& name : outputs)
    absl::StrAppend(&text, "outputs { name: \"", name, "\" value: \"", name, "\" }\n");
  return absl::StrCat(text, more, "}\n");
}
// A child; `config` is a kind's field or a Graph, `more` its children, sharding, ...
inline std::string Module(const std::string& name, const std::string& config, const std::string& more = "") {
  return absl::StrCat("children { name: \"", name, "\" ", config, more, " }\n");
}
inline std::string Linear(const std::string& name, int in, int out, bool bias = false, const std::string& more = "") {
  return Module(name,
                absl::StrCat("linear { in_features: ", in, " out_features: ", out, bias ? "" : " no_bias: true", " }"),
                more);
}
inline std::string Input(const std::string& name, const std::string& dtype, const std::vector<std::string>& shape) {
  std::string text = absl::StrCat("inputs { name: \"", name, "\" type { dtype: ", dtype);
  for (const std::string& size : shape) absl::StrAppend(&text, " shape: \"", size, "\"");
  return absl::StrCat(text, " } }\n");
}
// `root`: the root's Graph, `more`: its children and sharding.
inline std::string Model(const std::string& root, const std::vector<std::string>& more,
                         const std::vector<std::string>& inputs) {
  return absl::StrCat("model {\nroot {\n", root, absl::StrJoin(more, ""), "}\n", absl::StrJoin(inputs, ""), "}\n");
}
inline std::string Entry(const std::string& pattern, const std::string& style) {
  return absl::StrCat("entries { pattern: \"", pattern, "\" ", style, " }\n");
}
inline std::string Plan(const std::vector<std::string>& entries) {
  return absl::StrCat("plan {\n", absl::StrJoin(entries, ""), "}\n");
}
// Of a sharding: which("in_dst", "x", "tp", "shard { dim: 0 }").
inline std::string Where(const std::string& which, const std::string& key, const std::string& axis,
                         const std::string& placement) {
  return absl::StrCat(which, "_shardings { key: \"", key, "\" value { axes { key: \"", axis, "\" value { ", placement,
                      " } } } }\n");
}
inline std::string Sharding(const std::vector<std::string>& parts) {
  return absl::StrCat("sharding {\n", absl::StrJoin(parts, ""), "}\n");
}

// y = fc(x), x [batch, in].
inline std::string OneLinear(int in, int out, bool bias, const std::string& style) {
  return Model(Graph({"x"}, {Child("y", "fc", {"x"})}, {"y"}), {Linear("fc", in, out, bias)},
               {Input("x", "F32", {"batch", absl::StrCat(in)})}) +
         (style.empty() ? "" : Plan({Entry("fc", style)}));
}

// What a forward gave.
struct Answer {
  NamedTensors values;  // of shards "y.rank0", ...
  nlohmann::json json;

  Doubles Numbers(const std::string& name) const {
    if (!values.contains(name)) return {NAN};
    const HostTensor wide = ConvertTo(values.at(name), DType::kF64);
    return {wide.data<double>(), wide.data<double>() + ElementCount(wide.shape)};
  }
  Shape ShapeOf(const std::string& name) const { return values.contains(name) ? values.at(name).shape : Shape{-1}; }
  // Names of the operations that were counted, in order.
  std::vector<std::string> Collectives() const {
    std::vector<std::string> ops;
    for (const auto& collective : json["collectives"]) ops.push_back(collective["op"]);
    return ops;
  }
};

// y = x W^T + b over rows in float64, with the sizes of W [out, in]; b may be empty.
inline Doubles LinearOf(const Doubles& x, const Doubles& w, const Doubles& b, size_t in) {
  const size_t out = w.size() / in, rows = x.size() / in;
  Doubles y(rows * out);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      y[r * out + o] = b.empty() ? 0 : b[o];
      for (size_t i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * w[o * in + i];
    }
  }
  return y;
}
// x / rms(x) * weight over rows.
inline Doubles RmsNormOf(const Doubles& x, const Doubles& weight, double eps) {
  const size_t dim = weight.size();
  Doubles y(x.size());
  for (size_t row = 0; row < x.size(); row += dim) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += x[row + i] * x[row + i];
    for (size_t i = 0; i < dim; ++i)
      y[row + i] = x[row + i] / std::sqrt(squares / static_cast<double>(dim) + eps) * weight[i];
  }
  return y;
}
// Causal attention of one sequence: q [time, heads x size], k and v [time, kv_heads x size]; without positions.
inline Doubles AttentionOf(const Doubles& q, const Doubles& k, const Doubles& v, size_t heads, size_t kv_heads,
                           size_t size) {
  const size_t time = q.size() / (heads * size);
  Doubles y(q.size());
  for (size_t t = 0; t < time; ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv = h / (heads / kv_heads);
      double sum = 0;
      for (size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (size_t i = 0; i < size; ++i) score += q[(t * heads + h) * size + i] * k[(s * kv_heads + kv) * size + i];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(size)));
        sum += weight;
        for (size_t i = 0; i < size; ++i) y[(t * heads + h) * size + i] += weight * v[(s * kv_heads + kv) * size + i];
      }
      for (size_t i = 0; i < size; ++i) y[(t * heads + h) * size + i] /= sum;
    }
  }
  return y;
}
// Numbers without a pattern, in [-1, 1], that F32 holds exactly.
inline Doubles Waves(size_t count, int seed) {
  Doubles values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(std::sin(1.0 + 7.3 * static_cast<double>(i) + 31.7 * seed));
  return values;
}
inline HostTensor F32(const Shape& shape, const Doubles& values) {
  return MakeHostTensor<float>(shape, std::vector<float>(values.begin(), values.end()));
}
inline HostTensor I64(const Shape& shape, const std::vector<int64_t>& values) {
  return MakeHostTensor<int64_t>(shape, values);
}
inline ::testing::Matcher<Doubles> Near(const Doubles& values, double within = 1e-5) {
  std::vector<::testing::Matcher<double>> each;
  for (double value : values) each.push_back(::testing::DoubleNear(value, within));
  return ::testing::ElementsAreArray(each);
}

// One cluster of 8 workers for all cases.
class Cases : public TensorSuite<8> {
 protected:
  static void SetUpTestSuite() { tensors_ = new TensorCluster(8); }
  static void TearDownTestSuite() {  // the workers keep the memory of steps
    delete tensors_;
    tensors_ = nullptr;
  }
  void TearDown() override {
    const nlohmann::json model_list = t().Json({"models"});
    for (const auto& model : model_list["models"]) t().Ok({"delete", model["name"]});
    TensorSuite::TearDown();
  }
  TensorCluster& t() { return *tensors_; }

  // A submission file; `weights`, where there are any, from a file beside it.
  std::string Write(const std::string& name, const std::string& text, const NamedTensors& weights = {}) {
    const std::string path = t().Path(name + ".textproto"), file = t().Path(name + ".weights.safetensors");
    std::ofstream out(path);
    out << text;
    if (!weights.empty()) {
      EXPECT_TRUE(WriteSafetensors(file, weights).ok());
      out << "weights_file: \"" << file << "\"\n";
    }
    return path;
  }
  std::string Submit(const std::string& name, const std::string& mesh, const std::string& text,
                     const NamedTensors& weights = {}) {
    const std::string path = Write(name, text, weights);
    t().Ok({"submit", path, "--name", name, "--mesh", mesh});
    return path;
  }
  // The plan is refused by explain and by submit, with `parts` in the text; nothing is left of it.
  void RefusedPlan(const std::string& mesh, const std::string& text, const std::string& code,
                   const std::vector<std::string>& parts) {
    const std::string path = Write("refused", text);
    t().Refused({"explain", path, "--mesh", mesh}, code, parts);
    t().Refused({"submit", path, "--name", "refused", "--mesh", mesh}, code, parts);
    const nlohmann::json model_list = t().Json({"models"});
    for (const auto& model : model_list["models"]) EXPECT_NE(model["name"], "refused");
  }

  // Runs a model: `words` are its inputs, or more options.
  Answer Run(const std::string& model, std::vector<std::string> words, bool shards = false) {
    Answer answer;
    const std::string out = t().Path("answer.safetensors");
    words.insert(words.begin(), {"forward", model, "--output", out, "--output-form", shards ? "shards" : "full"});
    answer.json = t().Json(words);
    auto values = ReadSafetensors(out);
    EXPECT_TRUE(values.ok()) << values.status();
    if (values.ok()) answer.values = *values;
    return answer;
  }
  std::vector<std::string> Files(const NamedTensors& inputs) {
    std::vector<std::string> words = {"--input"};
    for (const auto& [name, tensor] : inputs) words.push_back(absl::StrCat(name, "=", t().Npy(name, tensor)));
    return words;
  }
  Answer Forward(const std::string& model, const NamedTensors& inputs) { return Run(model, Files(inputs)); }
  // Each rank's block.
  Answer Shards(const std::string& model, const NamedTensors& inputs) { return Run(model, Files(inputs), true); }

  // What explain counts for a forward of these inputs.
  nlohmann::json Predicted(const std::string& file, const std::string& mesh, const NamedTensors& inputs) {
    std::vector<std::string> words = {"explain", file, "--mesh", mesh, "--shape"};
    for (const auto& [name, tensor] : inputs) {
      words.push_back(absl::StrCat(name, "=", absl::StrJoin(tensor.shape, "x")));
    }
    return t().Json(words)["collectives"];
  }
  // A state of a model, as describe shows it: {name, placements, shape, local: [{rank, shape, offset}]}.
  nlohmann::json State(const std::string& model, const std::string& name) {
    const nlohmann::json described = t().Json({"describe", model});
    for (const auto& state : described["parameters"])
      if (state["name"] == name) return state;
    return nlohmann::json();
  }
  template <typename Value>
  std::vector<Value> Local(const nlohmann::json& state, const std::string& field) {
    std::vector<Value> values;
    if (state.contains("local"))
      for (const auto& block : state["local"]) values.push_back(block[field]);
    return values;
  }
};

}  // namespace tp::testing

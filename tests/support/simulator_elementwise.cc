// Functions of each element alone, with broadcasting. BOOL is 0 and 1.
#include <algorithm>
#include <functional>
#include <map>

#include "tests/support/simulator_kernels.h"

namespace tp::testing {
namespace {

using UnaryFn = double (*)(double);
using BinaryFn = double (*)(double, double);

const std::map<std::string, UnaryFn>& UnaryTable() {
  static const auto* table = new std::map<std::string, UnaryFn>{
      {"neg", [](double x) { return -x; }},
      {"abs", [](double x) { return std::fabs(x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1.0 / std::sqrt(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"sigmoid", [](double x) { return 1.0 / (1.0 + std::exp(-x)); }},
      {"silu", [](double x) { return x / (1.0 + std::exp(-x)); }},
      {"relu", [](double x) { return x < 0 ? 0.0 : x; }},
      {"logical_not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
  };
  return *table;
}

// Python's: the remainder has the sign of the divisor.
double Remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

const std::map<std::string, BinaryFn>& BinaryTable() {
  static const auto* table = new std::map<std::string, BinaryFn>{
      {"add", [](double a, double b) { return a + b; }},
      {"sub", [](double a, double b) { return a - b; }},
      {"mul", [](double a, double b) { return a * b; }},
      {"div", [](double a, double b) { return a / b; }},
      {"pow", [](double a, double b) { return std::pow(a, b); }},
      {"maximum", [](double a, double b) { return std::isnan(a) || a > b ? a : b; }},
      {"minimum", [](double a, double b) { return std::isnan(a) || a < b ? a : b; }},
      {"floor_div", [](double a, double b) { return std::round((a - Remainder(a, b)) / b); }},
      {"remainder", Remainder},
      {"eq", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {"ne", [](double a, double b) { return a != b ? 1.0 : 0.0; }},
      {"lt", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {"le", [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
      {"gt", [](double a, double b) { return a > b ? 1.0 : 0.0; }},
      {"ge", [](double a, double b) { return a >= b ? 1.0 : 0.0; }},
      {"logical_and", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
      {"logical_or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
  };
  return *table;
}

double Gelu(double x, bool tanh) {
  if (!tanh) return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// Values stay float64 in a cast to a floating dtype.
double Cast(double x, DType to) {
  if (to == DType::kBool) return x != 0 ? 1.0 : 0.0;
  return IsFloating(to) ? x : std::trunc(x);
}

}  // namespace

bool ElementwiseKernels(const KernelCall& call, SimTensors& outputs) {
  const std::string& name = call.function;
  SimTensor& output = outputs[0];
  auto at = [&](size_t input, size_t i) {
    return call.inputs[input]->values[BroadcastIndex(output.shape, call.inputs[input]->shape, static_cast<int64_t>(i))];
  };
  std::function<double(size_t)> make;
  if (auto unary = UnaryTable().find(name); unary != UnaryTable().end()) {
    make = [&at, f = unary->second](size_t i) { return f(at(0, i)); };
  } else if (auto binary = BinaryTable().find(name); binary != BinaryTable().end()) {
    const bool scalar = call.inputs.size() < 2 || call.inputs[1] == nullptr;
    const double other = scalar ? SimNumber(call, "scalar") : 0;
    make = [&at, f = binary->second, scalar, other](size_t i) { return f(at(0, i), scalar ? other : at(1, i)); };
  } else if (name == "gelu") {
    const bool tanh = AttributeOr<std::string>(*call.attributes, "approximate", "none") == "tanh";
    make = [&at, tanh](size_t i) { return Gelu(at(0, i), tanh); };
  } else if (name == "cast") {
    make = [&at, &call](size_t i) { return Cast(at(0, i), call.dtype); };
  } else if (name == "where") {
    make = [&at](size_t i) { return at(0, i) != 0 ? at(1, i) : at(2, i); };
  } else if (name == "masked_fill") {
    make = [&at, value = SimNumber(call, "value")](size_t i) { return at(1, i) != 0 ? value : at(0, i); };
  } else {
    return false;
  }
  for (size_t i = 0; i < output.values.size(); ++i) output.values[i] = make(i);
  return true;
}

}  // namespace tp::testing

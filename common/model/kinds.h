// Leaf kinds and containers by name, as from_nn_module names them. Example:
//   ConfigOfKind("Module(Linear)", {{"in_features", int64_t{4}}, {"out_features", int64_t{8}}}, false)
// gives a LinearConfig that is `wrapped`. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/attribute.h"
#include "common/model/model.h"

namespace tp {

struct NamedConfig {
  ModuleConfig config;
  bool wrapped = false;  // "Module(K)"
};
// `fields` are those of the kind's configuration. INVALID_ARGUMENT for unknown kinds ("Unknown container kind: X" for
// one with children, else with the nearest names), unknown or missing fields and those of a wrong type.
absl::StatusOr<NamedConfig> ConfigOfKind(const std::string& kind, const Attributes& fields, bool has_children);

// "Linear", "ReLU", "Sequential", ...
std::vector<std::string> KindNames();

// One number for each spatial dim in kernel_size, stride, padding and dilation: a single one stands for all, none for 1
// (padding: 0). INVALID_ARGUMENT for other counts and for numbers that are too small.
absl::Status CompleteConv(ConvConfig* config);

// What an ActivationConfig may name: "gelu", "log_softmax", "relu", "sigmoid", "silu", "softmax", "tanh".
const std::vector<std::string>& ActivationNames();

}  // namespace tp

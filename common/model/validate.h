// Checks of a model definition that need no graph: names, sizes, initializers, and what the model says of its inputs
// and of generation. Flattening (flatten.h) calls them and checks the graphs itself. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/flatten.h"
#include "common/model/model.h"

namespace tp {

// "root" or "root.layers.0", for messages.
std::string FieldOf(const std::string& path);
// `name` below `path`.
std::string JoinPath(const std::string& path, const std::string& name);
// "Linear", "Conv2d", ..., or a composite's own type name.
std::string KindOf(const Module& module);
// The same, as "Module(Linear)" where it is wrapped.
std::string TypeNameOf(const Module& module);
// The names of a module's arguments; a composite's are its graph's inputs. Empty for ModuleList and ModuleDict.
std::vector<GraphInput> ArgumentsOf(const Module& module);
// The states of one module in their order, with full paths and resolved dtypes and initializers. INVALID_ARGUMENT for
// sizes below 1, bad or repeated names, and initializers of states that are not there.
absl::StatusOr<std::vector<FlatState>> StatesOf(const Module& module, const std::string& path, DType compute_dtype);
// Names of children: there, without dots, unique; leaves have none.
absl::Status ValidateChildren(const Module& module, const std::string& path);
// Inputs and symbol limits against the root's arguments.
absl::Status ValidateInputs(const ModelDef& model);
// The generation section against the flattened inputs and outputs.
absl::Status ValidateGeneration(const ModelDef& model, const FlatModel& flat);

}  // namespace tp

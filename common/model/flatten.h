// A model definition flattened to one graph of function calls with symbolic types, before any placement: what plan
// matching and compiling walk. Module boundaries stay visible as markers, since styles act on them. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/function.h"
#include "common/model/model.h"

namespace tp {

// A parameter or buffer of the model by its full path ("layers.0.fc.weight").
struct FlatState {
  std::string path;
  std::string module_path;
  std::string name;  // within the module
  Shape shape;
  DType dtype = DType::kF32;  // resolved
  bool buffer = false;
  bool persistent = true;
  bool requires_grad = true;
  bool has_initializer = false;
  Initializer initializer;  // param_init, else the kind's default
};

struct FlatModule {
  std::string path;                // "" for the root
  std::string type_name;           // "Linear", "Module(Linear)", ..., or a composite's type name
  const Module* module = nullptr;  // points into the definition that was flattened
  std::vector<std::string> argument_names;
  std::string kind;  // the type name without "Module()": what styles ask for
  // Of the module's calls; empty where it is never called. Names: "output" for one tensor, "0", "1", ... or keys.
  std::vector<std::string> output_names;
  OutputStructure structure = OutputStructure::kSingle;
};

struct FlatValue {
  std::string name;  // "layers.0.fc:input" and alike, for messages
  TensorType type;
};

struct FlatNode {
  enum class Kind {
    kFunction,
    kModuleInput,   // inputs[i] -> outputs[i] is argument i of module `module_path`; -1 = omitted or a literal
    kModuleOutput,  // inputs[i] -> outputs[i] is output i of module `module_path`
  };
  Kind kind = Kind::kFunction;
  std::string function;
  std::string module_path;
  std::vector<int> inputs;  // value indices, -1 = omitted
  std::vector<int> outputs;
  Attributes attributes;                   // complete (defaults filled)
  int positional = 0;                      // kModuleInput: how many arguments the call passes by position
  std::map<int, Attribute> literals = {};  // kModuleInput: argument -> value that is no tensor
};

struct FlatModel {
  std::vector<FlatModule> modules;  // parents before children, definition order
  std::vector<FlatState> states;    // in the same order
  std::vector<FlatValue> values;
  std::map<std::string, int> state_values;           // path -> value index
  std::vector<std::pair<std::string, int>> inputs;   // root inputs, in order
  std::vector<std::pair<std::string, int>> outputs;  // root outputs, in order
  std::vector<FlatNode> nodes;                       // topological order
};

// Checks the whole definition (unknown children, functions, values, attributes; wrong counts; cycles; repeated names;
// sizes) and flattens it. INVALID_ARGUMENT with every problem that is no consequence of another one, each with its
// field's path ("root.layers.0: node 'h': ...") and the nearest names. `model` must outlive the result.
absl::StatusOr<FlatModel> FlattenModel(const ModelDef& model, DType compute_dtype);

}  // namespace tp

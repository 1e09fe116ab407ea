// What two runs of one model answered, compared output by output, and how that is printed. Pure. Example:
//   VerifySummary summary = Compare(one_rank, parallel, {{"fc", "Linear"}}, DefaultTolerance(DType::kF32));
//   summary.first_exceeding is "fc" where its output is the first that differs by too much.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/tp_client/client.h"

namespace tp::client {

// A difference up to `value` * max(`floor`, largest magnitude of the reference) is allowed; integers must be equal.
struct Tolerance {
  double value = 1e-4;
  double floor = 1;
};
// F32 and F64: 1e-4, absolute for values up to 1, relative above. BF16 and F16: 2e-2, relative down to 0.01.
Tolerance DefaultTolerance(DType compute);

// One output of a module, or of the model.
struct VerifyRow {
  std::string path;           // of the module; "" for an output of the model
  std::string kind;           // of the module: "Linear"
  std::string output;         // "output", "0", "output:call2"; name of the model's output
  double max_difference = 0;  // infinity: other shapes, missing, or no number where the reference has one
  double max_value = 0;       // largest finite magnitude of the reference
  double allowed = 0;
  bool exceeds() const { return !(max_difference <= allowed); }
};
struct VerifySummary {
  std::string model;
  double tolerance = 0;
  std::vector<VerifyRow> modules;  // in the order in which they ran
  std::vector<VerifyRow> outputs;  // of the model
  const VerifyRow* first() const;  // that exceeds what is allowed, modules first; nullptr: none
  bool equal() const { return first() == nullptr; }
};

// `kinds`: module path -> type name. Outputs are matched by name, in the reference's order; "PATH:NAME" is one of a
// module. `model` is left empty.
VerifySummary Compare(const std::vector<NamedTensor>& reference, const std::vector<NamedTensor>& parallel,
                      const std::map<std::string, std::string>& kinds, const Tolerance& tolerance);

// "layers.0.fc (Linear): output differs by 0.5, allowed are 0.0001".
std::string ExceedingText(const VerifyRow& row);
// A table and a verdict, or {model, tolerance, equal, first_exceeding, modules, outputs}.
std::string VerifyText(const VerifySummary& summary, bool json);

}  // namespace tp::client

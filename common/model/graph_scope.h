// The named values of one graph, and how a call's arguments find their places. Values are tensors, literals (what is no
// tensor) or omitted optionals; "h" also stands for the list, tuple or map of "h.0", "h.1", ... Internal to
// common/model. Example:
//   TP_RETURN_IF_ERROR(scope.Add("h.0", {.value = 7}));
//   scope.Group("h");  // {{"0", {.value = 7}}}
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"

namespace tp {

struct Bound {
  int value = -1;  // of the flat model
  std::optional<Attribute> literal = {};
  bool unknown = false;  // made by a call that is wrong, which was told
  bool IsOmitted() const { return value < 0 && !literal.has_value() && !unknown; }
};

class GraphScope {
 public:
  // INVALID_ARGUMENT where the name, or one that it is part of, is taken.
  absl::Status Add(const std::string& name, Bound bound);
  // What a wrong call would have made: `name`, or values below it.
  void AddUnknown(const std::string& name) { unknown_.insert(name); }
  const Bound* Find(const std::string& name) const;
  // What lies below `name`, by the rest of its name, in the order of Add.
  std::vector<std::pair<std::string, Bound>> Group(const std::string& name) const;
  // The same for a group, and for a single value under "", an unknown one too. INVALID_ARGUMENT with the nearest names
  // where there is none; `nodes`: those that may make it later.
  absl::StatusOr<std::vector<std::pair<std::string, Bound>>> Get(const std::string& name,
                                                                 const std::vector<GraphNode>& nodes) const;

 private:
  struct Entry {
    Bound bound;
    int order = 0;
  };
  bool IsUnknown(const std::string& name) const;

  std::map<std::string, Entry> entries_;
  std::set<std::string> unknown_;
};

// What a callee takes, in order.
struct Parameter {
  std::string name;
  bool optional = false;
  bool variadic = false;  // the last one
};
struct BoundArguments {
  std::vector<Bound> bound;  // one for each parameter; of a variadic one, for each value
  int positional = 0;        // how many of them the call passes by position
};
// Puts a call's arguments in the order of the callee's parameters. A list or map goes to a variadic parameter, to the
// parameters "xs.0", "xs.1" where the argument is "xs", or, of one value, anywhere. Adds to `wrong` what is unknown,
// given twice, or required and omitted; the result is usable where nothing was added.
BoundArguments OrderArguments(const std::string& callee, const std::vector<Argument>& given,
                              const std::vector<Parameter>& parameters, const GraphScope& scope,
                              const std::vector<GraphNode>& nodes, std::vector<absl::Status>* wrong);

}  // namespace tp

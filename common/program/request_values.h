// Which values of a flat model are a request's input unchanged, and what calls demand of their elements: checked before
// anything is dispatched. Example: ids that reach an embedding of 257 rows give InputCheck{"ids", 257}. Internal to
// common/program.
#pragma once

#include <optional>
#include <vector>

#include "common/model/flatten.h"
#include "common/program/program.h"

namespace tp {

// Thread-compatible; the model must outlive it.
class RequestValues {
 public:
  explicit RequestValues(const FlatModel& model) : model_(model), inputs_(model.values.size(), -1) {}

  // `value` is input `index` of the model.
  void SetInput(int value, int index) { inputs_[value] = index; }
  // `to` has the elements of `from`, in its order.
  void SetSame(int from, int to) { inputs_[to] = inputs_[from]; }
  bool Has(int value) const { return inputs_[value] >= 0; }
  // Ids of an embedding, targets of a pick; a reshape keeps its elements.
  void Call(const FlatNode& node, std::vector<InputCheck>* checks);

 private:
  void Add(int value, int64_t limit, std::optional<int64_t> allowed, std::vector<InputCheck>* checks) const;

  const FlatModel& model_;
  std::vector<int> inputs_;  // by value: index of the model input; -1 = none
};

}  // namespace tp

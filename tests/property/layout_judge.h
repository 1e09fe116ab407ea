// The judge of redistribute plans: which elements each rank holds, worked out element by element from SEMANTICS 2 apart
// from common/layout, and what every step does to the values of all ranks at once. Several shapes are judged together:
// their elements stand one after the other in one array ("positions"), so that one run of a plan covers all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "common/redistribute/plan.h"

namespace tp::testing {

// Values are taken modulo a prime, so that division by a group's size and products of any length are exact.
constexpr uint64_t kPrime = (uint64_t{1} << 31) - 1;

using Mask = std::vector<uint64_t>;  // one bit for each position

// What each rank holds under one layout.
struct JudgedLayout {
  Placements placements;
  std::vector<Mask> held;     // by rank
  std::vector<bool> defined;  // by shape: false where an interleaved cut does not divide; `held` is empty there
};

// Values of all ranks in one layout.
struct JudgedValues {
  const JudgedLayout* layout = nullptr;
  std::vector<std::vector<uint32_t>> value;  // by rank and position; only held positions count
};

class LayoutJudge {
 public:
  LayoutJudge(const Mesh& mesh, std::vector<Shape> shapes);

  const std::vector<Shape>& shapes() const { return shapes_; }
  const JudgedLayout& Layout(const Placements& placements);
  // Positions of the shapes where all of `layouts` are defined.
  Mask DefinedIn(const std::vector<const JudgedLayout*>& layouts) const;
  // Random terms; equal copies get equal values. *global becomes the reduced tensor at every position.
  JudgedValues Fill(const JudgedLayout& layout, std::mt19937& random, std::vector<uint32_t>* global);
  // The result of a step; *error says what it can't do ("" while nothing is wrong). Only `judged` positions count.
  JudgedValues Run(const JudgedValues& from, const RedistributeStep& step, const Mask& judged, std::string* error);
  // "" where every rank holds what slicing `global` gives, terms reduced.
  std::string Compare(const JudgedValues& values, const std::vector<uint32_t>& global, const Mask& judged) const;
  // Bytes of a step by the definition of SEMANTICS 3 for one of the shapes, 4 bytes an element.
  int64_t CountBytes(const RedistributeStep& step, size_t shape);

 private:
  void Reduce(ReduceOp op, const std::vector<int>& group, const std::vector<std::vector<uint32_t>>& terms,
              std::vector<uint32_t>* result) const;

  const Mesh& mesh_;
  const std::vector<Shape> shapes_;
  std::vector<int64_t> begin_;  // first position of each shape, and the number of all
  size_t words_ = 0;
  std::vector<Coordinate> at_;  // by rank
  absl::flat_hash_map<absl::InlinedVector<uint64_t, 4>, std::unique_ptr<JudgedLayout>> layouts_;
};

}  // namespace tp::testing

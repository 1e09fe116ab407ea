#include "tests/property/layout_judge.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace tp::testing {
namespace {

using Indices = std::vector<int64_t>;

uint64_t Code(const Placement& p) {
  uint64_t code = 1;
  for (const int64_t part : p.parts) code = code * 64 + static_cast<uint64_t>(part);
  for (const int field : {static_cast<int>(p.kind), p.dim, static_cast<int>(p.op), p.split_factor, p.groups}) {
    code = code * 8 + static_cast<uint64_t>(field);
  }
  return code;
}

// Appends the elements of held[begin, end) for which the offset / ceil(length / k) is r.
void Chunk(const Indices& held, int64_t begin, int64_t end, int64_t k, int64_t r, Indices* kept) {
  const int64_t length = end - begin;
  for (int64_t i = begin; i < end; ++i) {
    if ((i - begin) / ((length + k - 1) / k) == r) kept->push_back(held[static_cast<size_t>(i)]);
  }
}

// The elements of `held` that the rank at `index` of an axis of `size` keeps; false where they are not defined.
bool Cut(const Placement& p, int size, int index, const Indices& held, Indices* kept) {
  const int64_t n = static_cast<int64_t>(held.size());
  if (p.kind == PlacementKind::kShard) Chunk(held, 0, n, size, index, kept);
  if (p.kind == PlacementKind::kGroupShard) Chunk(held, 0, n, p.groups, index / (size / p.groups), kept);
  if (p.kind == PlacementKind::kStridedShard && n > 0) {
    const int64_t chunk = (n + p.split_factor - 1) / p.split_factor;
    for (int64_t begin = 0; begin < n; begin += chunk)
      Chunk(held, begin, std::min(n, begin + chunk), size, index, kept);
  }
  if (p.kind == PlacementKind::kInterleavedShard) {
    int64_t sum = 0, begin = 0;
    for (const int64_t part : p.parts) sum += part;
    if (n % sum != 0) return false;
    for (const int64_t part : p.parts) {
      Chunk(held, begin, begin + n / sum * part, size, index, kept);
      begin += n / sum * part;
    }
  }
  return true;
}

// Row-major positions of `shape` that a rank holds; false where they are not defined.
bool BlockOf(const Shape& shape, const Placements& placements, const Mesh& mesh, const Coordinate& at, Indices* block) {
  *block = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    Indices held;
    for (int64_t i = 0; i < shape[d]; ++i) held.push_back(i);
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (!placements[axis].IsSharding() || placements[axis].dim != static_cast<int>(d)) continue;
      Indices kept;
      if (!Cut(placements[axis], mesh.axis_size(static_cast<int>(axis)), at[axis], held, &kept)) return false;
      held = std::move(kept);
    }
    Indices longer;
    for (const int64_t base : *block) {
      for (const int64_t i : held) longer.push_back(base * shape[d] + i);
    }
    *block = std::move(longer);
  }
  return true;
}

template <typename Do>
void ForEach(const Mask& mask, const Do& act) {
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint64_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      act(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
}

uint32_t Inverse(uint64_t n) {
  uint64_t result = 1;
  for (uint64_t power = kPrime - 2; power > 0; power /= 2) {
    if (power % 2 == 1) result = result * n % kPrime;
    n = n * n % kPrime;
  }
  return static_cast<uint32_t>(result);
}

Mask And(const Mask& a, const Mask& b) {
  Mask both = a;
  for (size_t i = 0; i < both.size(); ++i) both[i] &= b[i];
  return both;
}

// True where `part` is inside of `whole` at the positions `judged`.
bool IsInside(const Mask& part, const Mask& whole, const Mask& judged) {
  for (size_t i = 0; i < part.size(); ++i) {
    if ((part[i] & ~whole[i] & judged[i]) != 0) return false;
  }
  return true;
}

}  // namespace

LayoutJudge::LayoutJudge(const Mesh& mesh, std::vector<Shape> shapes) : mesh_(mesh), shapes_(std::move(shapes)) {
  begin_ = {0};
  for (const Shape& shape : shapes_) begin_.push_back(begin_.back() + ElementCount(shape));
  words_ = static_cast<size_t>(begin_.back() + 63) / 64;
  for (int rank = 0; rank < mesh_.rank_count(); ++rank) at_.push_back(mesh_.CoordinateOf(rank));
}

const JudgedLayout& LayoutJudge::Layout(const Placements& placements) {
  absl::InlinedVector<uint64_t, 4> key;
  for (const Placement& placement : placements) key.push_back(Code(placement));
  std::unique_ptr<JudgedLayout>& layout = layouts_[key];
  if (layout != nullptr) return *layout;
  layout = std::make_unique<JudgedLayout>();
  layout->placements = placements;
  layout->held.assign(static_cast<size_t>(mesh_.rank_count()), Mask(words_, 0));
  layout->defined.assign(shapes_.size(), true);
  for (size_t s = 0; s < shapes_.size(); ++s) {
    std::vector<Indices> blocks(layout->held.size());
    for (size_t rank = 0; rank < blocks.size() && layout->defined[s]; ++rank) {
      layout->defined[s] =
          BlockOf(shapes_[s], placements, mesh_, mesh_.CoordinateOf(static_cast<int>(rank)), &blocks[rank]);
    }
    for (size_t rank = 0; rank < blocks.size() && layout->defined[s]; ++rank) {
      for (const int64_t i : blocks[rank]) {
        const size_t position = static_cast<size_t>(begin_[s] + i);
        layout->held[rank][position / 64] |= uint64_t{1} << (position % 64);
      }
    }
  }
  return *layout;
}

Mask LayoutJudge::DefinedIn(const std::vector<const JudgedLayout*>& layouts) const {
  Mask mask(words_, 0);
  for (size_t s = 0; s < shapes_.size(); ++s) {
    const bool all =
        std::all_of(layouts.begin(), layouts.end(), [&](const auto* layout) { return layout->defined[s]; });
    for (int64_t i = begin_[s]; all && i < begin_[s + 1]; ++i)
      mask[static_cast<size_t>(i) / 64] |= uint64_t{1} << i % 64;
  }
  return mask;
}

void LayoutJudge::Reduce(ReduceOp op, const std::vector<int>& group, const std::vector<std::vector<uint32_t>>& terms,
                         std::vector<uint32_t>* result) const {
  *result = terms[static_cast<size_t>(group[0])];
  for (size_t member = 1; member < group.size(); ++member) {
    const std::vector<uint32_t>& term = terms[static_cast<size_t>(group[member])];
    for (size_t i = 0; i < term.size(); ++i) {
      uint32_t& value = (*result)[i];
      if (op == ReduceOp::kSum || op == ReduceOp::kAvg) {
        value = value + term[i] >= kPrime ? static_cast<uint32_t>(value + term[i] - kPrime) : value + term[i];
      } else if (op == ReduceOp::kProduct) {
        value = static_cast<uint32_t>(uint64_t{value} * term[i] % kPrime);
      } else {
        value = op == ReduceOp::kMin ? std::min(value, term[i]) : std::max(value, term[i]);
      }
    }
  }
  if (op != ReduceOp::kAvg) return;
  const uint64_t inverse = Inverse(group.size());
  for (uint32_t& value : *result) value = static_cast<uint32_t>(value * inverse % kPrime);
}

JudgedValues LayoutJudge::Fill(const JudgedLayout& layout, std::mt19937& random, std::vector<uint32_t>* global) {
  JudgedValues values{&layout, {}};
  const Placements& placements = layout.placements;
  for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
    Coordinate first = mesh_.CoordinateOf(rank);
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (!placements[axis].IsPartial()) first[axis] = 0;
    }
    if (const int same = mesh_.RankAt(first); same < rank) {
      values.value.push_back(values.value[static_cast<size_t>(same)]);
      continue;
    }
    values.value.emplace_back();
    for (int64_t i = 0; i < begin_.back(); ++i) values.value.back().push_back(static_cast<uint32_t>(random() % kPrime));
  }
  std::vector<std::vector<uint32_t>> terms = values.value;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].IsPartial()) continue;
    const auto before = terms;
    for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
      Reduce(placements[axis].op, mesh_.GroupAlong(static_cast<int>(axis), rank), before,
             &terms[static_cast<size_t>(rank)]);
    }
  }
  *global = terms[0];
  // What a rank does not hold must not matter.
  for (size_t rank = 0; rank < values.value.size(); ++rank) {
    Mask lost = DefinedIn({&layout});
    for (size_t word = 0; word < words_; ++word) lost[word] &= ~layout.held[rank][word];
    ForEach(lost, [&](size_t i) { values.value[rank][i] = 7; });
  }
  return values;
}

JudgedValues LayoutJudge::Run(const JudgedValues& from, const RedistributeStep& step, const Mask& judged,
                              std::string* error) {
  const JudgedLayout& to = Layout(step.to);
  JudgedValues after{&to, from.value};
  const auto fail = [&](int rank, const char* what) {
    if (error->empty()) *error = absl::StrCat(std::string(RedistributeOpName(step.op)), " on rank ", rank, ": ", what);
  };
  for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
    const size_t self = static_cast<size_t>(rank);
    const Mask& held = from.layout->held[self];
    const Mask wanted = And(to.held[self], judged);
    const std::vector<int> group = mesh_.GroupAlong(absl::MakeConstSpan(step.axes), rank);
    switch (step.op) {
      case RedistributeOp::kNone:
        if (!IsInside(held, to.held[self], judged)) fail(rank, "the element map changes");
        [[fallthrough]];
      case RedistributeOp::kSlice:
        if (!IsInside(wanted, held, judged)) fail(rank, "elements are lacking");
        break;
      case RedistributeOp::kAllGather:
      case RedistributeOp::kAllToAll:
      case RedistributeOp::kPermute: {
        Mask open = wanted;
        for (const int peer : group) {
          if (!SuppliesBlock(mesh_, step, at_[static_cast<size_t>(peer)], at_[self])) continue;
          const Mask part = And(from.layout->held[static_cast<size_t>(peer)], wanted);
          if (!IsInside(part, open, judged)) fail(rank, "an element has two suppliers");
          for (size_t word = 0; word < words_; ++word) open[word] &= ~part[word];
          const std::vector<uint32_t>& source = from.value[static_cast<size_t>(peer)];
          ForEach(part, [&](size_t i) { after.value[self][i] = source[i]; });
        }
        if (!IsInside(open, Mask(words_, 0), judged)) fail(rank, "an element has no supplier");
        if (!SuppliesBlock(mesh_, step, at_[self], at_[self])) fail(rank, "no own copy");
        break;
      }
      case RedistributeOp::kAllReduce:
      case RedistributeOp::kReduceScatter:
        for (const int peer : group) {
          if (!IsInside(wanted, from.layout->held[static_cast<size_t>(peer)], judged)) fail(rank, "a term is lacking");
        }
        for (const int axis : step.axes) {
          const Placement& placement = step.from[static_cast<size_t>(axis)];
          if (!placement.IsPartial() || placement.op != step.from[static_cast<size_t>(step.axes[0])].op) {
            fail(rank, "terms of two ops");
          }
        }
        Reduce(step.from[static_cast<size_t>(step.axes[0])].op, group, from.value, &after.value[self]);
        break;
      case RedistributeOp::kDivide: {
        if (!IsInside(wanted, held, judged)) fail(rank, "elements are lacking");
        const uint64_t inverse = Inverse(group.size());
        for (uint32_t& value : after.value[self]) value = static_cast<uint32_t>(value * inverse % kPrime);
        break;
      }
      case RedistributeOp::kFill: {
        Mask zeros = wanted;
        for (size_t word = 0; word < words_; ++word) zeros[word] &= ~held[word];
        ForEach(zeros, [&](size_t i) { after.value[self][i] = 0; });
        break;
      }
    }
  }
  return after;
}

std::string LayoutJudge::Compare(const JudgedValues& values, const std::vector<uint32_t>& global,
                                 const Mask& judged) const {
  std::vector<std::vector<uint32_t>> terms = values.value;
  const Placements& placements = values.layout->placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].IsPartial()) continue;
    const auto before = terms;
    for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
      Reduce(placements[axis].op, mesh_.GroupAlong(static_cast<int>(axis), rank), before,
             &terms[static_cast<size_t>(rank)]);
    }
  }
  std::string error;
  for (size_t rank = 0; rank < terms.size(); ++rank) {
    ForEach(And(values.layout->held[rank], judged), [&](size_t i) {
      if (terms[rank][i] != global[i] && error.empty()) {
        error = absl::StrCat("rank ", rank, " position ", i, ": ", terms[rank][i], ", expected ", global[i]);
      }
    });
  }
  return error;
}

int64_t LayoutJudge::CountBytes(const RedistributeStep& step, size_t shape) {
  const JudgedLayout& from = Layout(step.from);
  const JudgedLayout& to = Layout(step.to);
  Mask mask(words_, 0);
  for (int64_t i = begin_[shape]; i < begin_[shape + 1]; ++i)
    mask[static_cast<size_t>(i) / 64] |= uint64_t{1} << i % 64;
  int64_t group = 1, most = 0;
  for (const int axis : step.axes) group *= mesh_.axis_size(axis);
  for (size_t rank = 0; rank < from.held.size(); ++rank) {
    int64_t source = 0, result = 0, lacking = 0;
    for (size_t word = 0; word < words_; ++word) {
      source += std::popcount(from.held[rank][word] & mask[word]);
      result += std::popcount(to.held[rank][word] & mask[word]);
      lacking += std::popcount(to.held[rank][word] & ~from.held[rank][word] & mask[word]);
    }
    switch (step.op) {
      case RedistributeOp::kAllGather:
      case RedistributeOp::kAllToAll:
      case RedistributeOp::kPermute:
        most = std::max(most, 4 * lacking);
        break;
      case RedistributeOp::kAllReduce:
        most = std::max(most, 2 * (group - 1) * 4 * source / group);
        break;
      case RedistributeOp::kReduceScatter:
        most = std::max(most, (group - 1) * 4 * result);
        break;
      default:
        break;
    }
  }
  return most;
}

}  // namespace tp::testing

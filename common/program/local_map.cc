#include "common/program/local_map.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/sharding/rules.h"

namespace tp {
namespace {

enum class Family { kElementwise, kNorm, kLinear, kMatmul, kReduction, kTranspose, kPermute, kReshape };

const Family* FamilyOf(const std::string& function) {
  static const auto* families = [] {
    auto* made = new std::map<std::string, Family>;
    auto add = [&](Family family, std::initializer_list<const char*> names) {
      for (const char* name : names) made->emplace(name, family);
    };
    add(Family::kElementwise,
        {"neg",   "abs",         "exp",         "log",       "sqrt", "rsqrt",   "sin",         "cos",
         "tanh",  "sigmoid",     "silu",        "relu",      "gelu", "cast",    "logical_not", "softmax",
         "add",   "sub",         "mul",         "div",       "pow",  "maximum", "minimum",     "floor_div",
         "eq",    "ne",          "lt",          "le",        "gt",   "ge",      "remainder",   "log_softmax",
         "where", "masked_fill", "logical_and", "logical_or"});
    add(Family::kNorm, {"rms_norm", "layer_norm"});
    add(Family::kLinear, {"linear"});
    add(Family::kMatmul, {"matmul", "bmm"});
    add(Family::kReduction, {"sum", "mean", "max", "min"});
    add(Family::kTranspose, {"transpose"});
    add(Family::kPermute, {"permute"});
    add(Family::kReshape, {"reshape", "view", "flatten", "squeeze", "unsqueeze"});
    return made;
  }();
  auto it = families->find(function);
  return it == families->end() ? nullptr : &it->second;
}

// How a dim is cut: for each mesh axis the placement that cuts it, on dim 0, or R.
using Cut = Placements;

Cut CutOf(const DTensorSpec& spec, int dim) {
  Cut cut(spec.placements.size());
  for (size_t axis = 0; axis < cut.size(); ++axis) {
    if (!spec.placements[axis].Cuts(dim)) continue;
    cut[axis] = spec.placements[axis];
    cut[axis].dim = 0;
  }
  return cut;
}

std::vector<Cut> CutsOf(const DTensorSpec& spec) {
  std::vector<Cut> cuts;
  for (size_t dim = 0; dim < spec.shape.size(); ++dim) cuts.push_back(CutOf(spec, static_cast<int>(dim)));
  return cuts;
}

bool IsWhole(const Cut& cut) {
  return std::all_of(cut.begin(), cut.end(), [](const Placement& placement) { return placement.IsReplicate(); });
}

// What is cut: R on axes of one rank, where all placements agree, and where a rank holds a term, which is whole in
// shape.
Placements Cuts(Placements placements, const Mesh& mesh) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (mesh.axis_size(static_cast<int>(axis)) == 1 || !placements[axis].IsSharding()) placements[axis] = Placement();
  }
  return placements;
}

int Normal(int64_t dim, size_t rank) { return static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim); }

class Local {
 public:
  Local(const FlatNode& node, absl::Span<const DTensorSpec* const> inputs, const TensorType& output, const Mesh& mesh)
      : node_(node), inputs_(inputs), output_(output), mesh_(mesh) {}

  absl::StatusOr<Placements> Run() {
    const Family* family = FamilyOf(node_.function);
    if (family == nullptr) return ByRule();
    switch (*family) {
      case Family::kElementwise:
        return Broadcast(inputs_, {}, output_.shape.size());
      case Family::kNorm:
        for (size_t i = 1; i < inputs_.size(); ++i) {
          if (inputs_[i] != nullptr) TP_RETURN_IF_ERROR(SameLastDims(*inputs_[0], *inputs_[i]));
        }
        return inputs_[0]->placements.empty() ? Placements() : FromCuts(CutsOf(*inputs_[0]));
      case Family::kLinear:
        return Linear();
      case Family::kMatmul:
        return Matmul();
      case Family::kReduction:
        return Reduction();
      case Family::kTranspose: {
        std::vector<Cut> cuts = CutsOf(*inputs_[0]);
        std::swap(cuts[Normal(AttributeOr<int64_t>(node_.attributes, "dim0", 0), cuts.size())],
                  cuts[Normal(AttributeOr<int64_t>(node_.attributes, "dim1", 1), cuts.size())]);
        return FromCuts(cuts);
      }
      case Family::kPermute: {
        const std::vector<Cut> from = CutsOf(*inputs_[0]);
        std::vector<Cut> cuts;
        for (int64_t dim : AttributeOr<std::vector<int64_t>>(node_.attributes, "dims", {})) {
          cuts.push_back(from[Normal(dim, from.size())]);
        }
        return FromCuts(cuts);
      }
      case Family::kReshape:
        return ByRule();
    }
    return absl::InternalError(node_.function);
  }

 private:
  absl::Status Misfit(const DTensorSpec& a, const DTensorSpec& b) const {
    return absl::InvalidArgumentError(absl::StrCat(node_.function, " inside a local_map: local blocks of ",
                                                   SpecText(a, mesh_), " and ", SpecText(b, mesh_), " do not fit"));
  }

  absl::StatusOr<Placements> FromCuts(const std::vector<Cut>& cuts) const {
    Placements placements(static_cast<size_t>(mesh_.axis_count()));
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      for (size_t dim = 0; dim < cuts.size(); ++dim) {
        if (cuts[dim][axis].IsReplicate()) continue;
        if (!placements[axis].IsReplicate()) {
          return absl::UnimplementedError(absl::StrCat(node_.function, " inside a local_map: two dims of its output ",
                                                       "would be cut over axis '", mesh_.axes()[axis].name, "'"));
        }
        placements[axis] = cuts[dim][axis];
        placements[axis].dim = static_cast<int>(dim);
      }
    }
    return placements;
  }

  // The operands' dims, aligned at the end but for their last `skipped` ones; then `tail`.
  absl::StatusOr<Placements> Broadcast(absl::Span<const DTensorSpec* const> operands, std::vector<Cut> tail,
                                       size_t rank, size_t skipped = 0) const {
    std::vector<Cut> cuts(rank - tail.size(), Cut(static_cast<size_t>(mesh_.axis_count())));
    std::vector<const DTensorSpec*> from(cuts.size(), nullptr);
    for (const DTensorSpec* operand : operands) {
      if (operand == nullptr) continue;
      const size_t own = operand->shape.size() - std::min(skipped, operand->shape.size());
      for (size_t i = 0; i < own; ++i) {
        const size_t dim = own - 1 - i, out = cuts.size() - 1 - i;
        const Cut cut = CutOf(*operand, static_cast<int>(dim));
        if (operand->shape[dim] == Dim(1) && IsWhole(cut)) continue;
        if (from[out] != nullptr && cuts[out] != cut) return Misfit(*from[out], *operand);
        cuts[out] = cut;
        from[out] = operand;
      }
    }
    cuts.insert(cuts.end(), tail.begin(), tail.end());
    return FromCuts(cuts);
  }

  absl::Status SameLastDims(const DTensorSpec& a, const DTensorSpec& b) const {
    for (size_t i = 1; i <= b.shape.size(); ++i) {
      if (CutOf(a, static_cast<int>(a.shape.size() - i)) != CutOf(b, static_cast<int>(b.shape.size() - i))) {
        return Misfit(a, b);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Placements> Linear() const {
    const DTensorSpec &input = *inputs_[0], &weight = *inputs_[1];
    if (CutOf(input, static_cast<int>(input.shape.size()) - 1) != CutOf(weight, 1)) return Misfit(input, weight);
    if (inputs_.size() > 2 && inputs_[2] != nullptr && CutOf(*inputs_[2], 0) != CutOf(weight, 0)) {
      return Misfit(weight, *inputs_[2]);
    }
    std::vector<Cut> cuts = CutsOf(input);
    cuts.back() = CutOf(weight, 0);
    return FromCuts(cuts);
  }

  absl::StatusOr<Placements> Matmul() const {
    const DTensorSpec &left = *inputs_[0], &right = *inputs_[1];
    const int left_rank = static_cast<int>(left.shape.size()), right_rank = static_cast<int>(right.shape.size());
    if (CutOf(left, left_rank - 1) != CutOf(right, std::max(right_rank - 2, 0))) return Misfit(left, right);
    std::vector<Cut> tail;
    if (left_rank > 1) tail.push_back(CutOf(left, left_rank - 2));
    if (right_rank > 1) tail.push_back(CutOf(right, right_rank - 1));
    return Broadcast(inputs_, tail, output_.shape.size(), 2);
  }

  absl::StatusOr<Placements> Reduction() const {
    std::vector<Cut> cuts = CutsOf(*inputs_[0]), kept;
    std::vector<int64_t> dims = AttributeOr<std::vector<int64_t>>(node_.attributes, "dims", {});
    std::vector<bool> reduced(cuts.size(), dims.empty());
    for (int64_t dim : dims) reduced[Normal(dim, cuts.size())] = true;
    const bool keeps = AttributeOr<bool>(node_.attributes, "keepdim", false);
    for (size_t dim = 0; dim < cuts.size(); ++dim) {
      if (reduced[dim] && node_.function == "mean" && !IsWhole(cuts[dim])) {  // the kernel divides by the global count
        return absl::UnimplementedError("mean over a cut dim inside a local_map is not built: sum, then divide");
      }
      if (!reduced[dim]) kept.push_back(cuts[dim]);
      if (reduced[dim] && keeps) kept.push_back(Cut(static_cast<size_t>(mesh_.axis_count())));
    }
    return FromCuts(kept);
  }

  // As the rule of the function says, where it takes the blocks as they lie and leaves every element on its rank.
  absl::StatusOr<Placements> ByRule() const {
    Placements placements(static_cast<size_t>(mesh_.axis_count()));
    RuleContext context{};
    context.function = node_.function;
    context.attributes = &node_.attributes;
    context.outputs = {&output_};
    std::vector<TensorType> types;
    types.reserve(inputs_.size());  // pointers to it are taken
    for (const DTensorSpec* input : inputs_) {
      if (input != nullptr) types.push_back({input->dtype, input->shape});
      context.inputs.push_back(input == nullptr ? nullptr : &types.back());
    }
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      std::vector<Placement> own;
      for (const DTensorSpec* input : inputs_) own.push_back(input == nullptr ? Placement() : input->placements[axis]);
      if (IsWhole(own)) continue;
      context.axis_size = mesh_.axis_size(static_cast<int>(axis));
      context.current = own;
      const absl::StatusOr<std::vector<AxisStrategy>> strategies = AxisStrategies(context);
      const AxisStrategy* kept = nullptr;
      for (size_t i = 0; strategies.ok() && i < strategies->size() && kept == nullptr; ++i) {
        const AxisStrategy& strategy = (*strategies)[i];
        const Placement& made = strategy.outputs[0];
        if (strategy.inputs == own && !strategy.bias_after && (made.IsReplicate() || made.IsSharding())) {
          kept = &strategy;
        }
      }
      if (kept == nullptr || IsNested(axis)) return NotBuilt();
      placements[axis] = kept->outputs[0];
    }
    return placements;
  }

  // Another axis cuts a dim that this one cuts.
  bool IsNested(size_t axis) const {
    return std::any_of(inputs_.begin(), inputs_.end(), [&](const DTensorSpec* input) {
      if (input == nullptr || !input->placements[axis].IsSharding()) return false;
      const int dim = input->placements[axis].dim;
      return std::count_if(input->placements.begin(), input->placements.end(),
                           [&](const Placement& other) { return other.Cuts(dim); }) > 1;
    });
  }

  absl::Status NotBuilt() const {
    std::string text = absl::StrCat(node_.function, " inside a local_map of local blocks");
    for (const DTensorSpec* input : inputs_) {
      if (input != nullptr) absl::StrAppend(&text, " ", SpecText(*input, mesh_));
    }
    return absl::UnimplementedError(absl::StrCat(text, " to ", SymShapeText(output_.shape), " is not built"));
  }

  const FlatNode& node_;
  const absl::Span<const DTensorSpec* const> inputs_;
  const TensorType& output_;
  const Mesh& mesh_;
};

}  // namespace

absl::StatusOr<Placements> LocalPlacements(const FlatNode& node, absl::Span<const DTensorSpec* const> inputs,
                                           const TensorType& output, const Mesh& mesh) {
  if (node.function == "rotary" || node.function == "attention" || node.outputs.size() > 1) {
    return absl::UnimplementedError(absl::StrCat("'", node.function, "' inside a local_map is not built"));
  }
  std::vector<DTensorSpec> specs;
  specs.reserve(inputs.size());  // pointers to it are taken
  std::vector<const DTensorSpec*> whole_on_one;
  for (const DTensorSpec* input : inputs) {
    if (input != nullptr) {
      specs.push_back(*input);
      specs.back().placements = Cuts(input->placements, mesh);
    }
    whole_on_one.push_back(input == nullptr ? nullptr : &specs.back());
  }
  return Local(node, whole_on_one, output, mesh).Run();
}

absl::Status CheckLocalShapes(const DTensorSpec& made, const Placements& named, const Mesh& mesh) {
  DTensorSpec is = made, said = made;
  is.placements = Cuts(made.placements, mesh);
  said.placements = Cuts(named, mesh);
  if (CutsOf(is) == CutsOf(said)) return absl::OkStatus();
  absl::StatusOr<Shape> shape = EvaluateShape(made.shape, {});
  bool fits = shape.ok();
  for (int rank = 0; fits && rank < mesh.rank_count(); ++rank) {
    const Coordinate coordinate = mesh.CoordinateOf(rank);
    fits = LocalShape(*shape, made.placements, mesh, coordinate) == LocalShape(*shape, named, mesh, coordinate);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("says ", PlacementsText(mesh, named), ", the forward makes blocks cut as ", SpecText(made, mesh)));
}

}  // namespace tp

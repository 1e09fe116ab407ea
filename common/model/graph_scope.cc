#include "common/model/graph_scope.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"

namespace tp {
namespace {

using Values = std::vector<std::pair<std::string, Bound>>;

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

bool IsBelow(const std::string& name, const std::string& group) {
  return name.size() > group.size() + 1 && name[group.size()] == '.' && absl::StartsWith(name, group);
}

// True where one of `nodes` makes `name`.
bool MakesLater(const std::vector<GraphNode>& nodes, const std::string& name) {
  for (const GraphNode& node : nodes) {
    if (node.outputs.empty() && (node.name == name || IsBelow(name, node.name))) return true;
    for (const std::string& output : node.outputs) {
      if (output == name || IsBelow(output, name)) return true;
    }
  }
  return false;
}

class Binder {
 public:
  Binder(const std::string& callee, const std::vector<Parameter>& parameters)
      : callee_(callee), parameters_(parameters), bound_(parameters.size()), set_(parameters.size(), false) {
    for (const Parameter& parameter : parameters) names_.push_back(parameter.name);
  }

  // `label`: the argument's value, for messages.
  absl::Status Positional(const Values& values, const std::string& label, size_t given) {
    vague_ |= values[0].second.unknown;  // it may be a list
    if (IsVariadic(position_) || (position_ >= parameters_.size() && IsVariadic(parameters_.size() - 1))) {
      return Append(values);
    }
    if (position_ >= parameters_.size()) {
      if (vague_) return absl::OkStatus();
      return Wrong(absl::StrCat(callee_, " takes ", parameters_.size(), " arguments and gets ", given));
    }
    const std::string& name = names_[position_];
    const std::string tail = "." + values[0].first;
    if (!values[0].first.empty() && absl::EndsWith(name, tail)) {
      const std::string group = name.substr(0, name.size() - tail.size());
      TP_RETURN_IF_ERROR(Spread(group, values));
      while (position_ < names_.size() && IsBelow(names_[position_], group)) ++position_;
      return absl::OkStatus();
    }
    return One(position_++, values, label);
  }

  absl::Status Named(const std::string& name, const Values& values, const std::string& label) {
    const size_t index = std::find(names_.begin(), names_.end(), name) - names_.begin();
    if (IsVariadic(index)) return Append(values);
    if (index < names_.size()) return One(index, values, label);
    const bool group =
        std::any_of(names_.begin(), names_.end(), [&](const auto& other) { return IsBelow(other, name); });
    if (!group) {
      return Wrong(absl::StrCat(callee_, " has no argument '", Cut(name),
                                "'; nearest: ", JoinNames(NearestNames(name, names_))));
    }
    if (values.size() == 1 && values[0].first.empty()) {
      vague_ |= values[0].second.unknown;
      if (values[0].second.IsOmitted() || values[0].second.unknown) return absl::OkStatus();
      return Wrong(
          absl::StrCat("argument '", name, "' of ", callee_, " takes a list or map; '", Cut(label), "' is one value"));
    }
    return Spread(name, values);
  }

  // `complete`: false where an argument was wrong, so that no other one counts as omitted.
  BoundArguments Finish(bool complete, std::vector<absl::Status>* wrong) {
    complete &= !vague_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].variadic) {
        bound_.pop_back();
        if (many_.empty() && complete) wrong->push_back(Omitted(i));
        bound_.insert(bound_.end(), many_.begin(), many_.end());
        break;
      }
      if (bound_[i].IsOmitted() && !parameters_[i].optional && complete) wrong->push_back(Omitted(i));
    }
    return {std::move(bound_), static_cast<int>(position_)};
  }

 private:
  bool IsVariadic(size_t index) const { return index < parameters_.size() && parameters_[index].variadic; }
  absl::Status Omitted(size_t index) const {
    return Wrong(absl::StrCat("argument '", Cut(names_[index]), "' of ", callee_, " is omitted"));
  }

  absl::Status Set(size_t index, const Bound& bound) {
    if (set_[index]) return Wrong(absl::StrCat("argument '", Cut(names_[index]), "' of ", callee_, " is given twice"));
    set_[index] = true;
    bound_[index] = bound;
    return absl::OkStatus();
  }

  absl::Status One(size_t index, const Values& values, const std::string& label) {
    if (values.size() == 1) return Set(index, values[0].second);
    return Wrong(absl::StrCat("argument '", Cut(names_[index]), "' of ", callee_, " takes one value; '", Cut(label),
                              "' holds ", values.size()));
  }

  absl::Status Append(const Values& values) {
    for (const auto& [name, bound] : values) {
      if (bound.IsOmitted()) return Wrong(absl::StrCat("one of the values of ", callee_, " is omitted"));
      many_.push_back(bound);
    }
    return absl::OkStatus();
  }

  absl::Status Spread(const std::string& group, const Values& values) {
    for (const auto& [rest, bound] : values) {
      const std::string name = absl::StrCat(group, ".", rest);
      const size_t index = std::find(names_.begin(), names_.end(), name) - names_.begin();
      if (index == names_.size()) {
        return Wrong(absl::StrCat(callee_, " has no argument '", Cut(name),
                                  "'; nearest: ", JoinNames(NearestNames(name, names_))));
      }
      TP_RETURN_IF_ERROR(Set(index, bound));
    }
    return absl::OkStatus();
  }

  const std::string& callee_;
  const std::vector<Parameter>& parameters_;
  std::vector<std::string> names_;
  std::vector<Bound> bound_, many_;
  std::vector<bool> set_;
  size_t position_ = 0;
  bool vague_ = false;  // an unknown value may stand for several arguments
};

}  // namespace

absl::Status GraphScope::Add(const std::string& name, Bound bound) {
  auto taken = [&](const std::string& other) {
    return Wrong(absl::StrCat("two values have the name '", Cut(other), "'"));
  };
  if (entries_.contains(name) || !Group(name).empty()) return taken(name);
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (entries_.contains(name.substr(0, dot))) return taken(name.substr(0, dot));
  }
  entries_[name] = {std::move(bound), static_cast<int>(entries_.size())};
  return absl::OkStatus();
}

bool GraphScope::IsUnknown(const std::string& name) const {
  if (unknown_.contains(name)) return true;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (unknown_.contains(name.substr(0, dot))) return true;
  }
  const auto below = unknown_.lower_bound(name + ".");
  return below != unknown_.end() && IsBelow(*below, name);
}

const Bound* GraphScope::Find(const std::string& name) const {
  const auto entry = entries_.find(name);
  return entry == entries_.end() ? nullptr : &entry->second.bound;
}

std::vector<std::pair<std::string, Bound>> GraphScope::Group(const std::string& name) const {
  std::vector<std::pair<int, std::pair<std::string, Bound>>> found;
  const std::string prefix = name + ".";
  for (auto entry = entries_.lower_bound(prefix); entry != entries_.end() && absl::StartsWith(entry->first, prefix);
       ++entry) {
    found.push_back({entry->second.order, {entry->first.substr(prefix.size()), entry->second.bound}});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Values values;
  for (auto& [order, value] : found) values.push_back(std::move(value));
  return values;
}

absl::StatusOr<std::vector<std::pair<std::string, Bound>>> GraphScope::Get(const std::string& name,
                                                                           const std::vector<GraphNode>& nodes) const {
  if (const Bound* bound = Find(name); bound != nullptr) return Values{{"", *bound}};
  if (IsUnknown(name)) return Values{{"", Bound{.value = -1, .literal = {}, .unknown = true}}};
  Values values = Group(name);
  if (!values.empty()) return values;
  if (MakesLater(nodes, name)) return Wrong(absl::StrCat("value '", Cut(name), "' is used before it is made"));
  std::vector<std::string> known;
  for (const auto& [other, entry] : entries_) known.push_back(other);
  return Wrong(absl::StrCat("there is no value '", Cut(name), "'; nearest: ", JoinNames(NearestNames(name, known))));
}

BoundArguments OrderArguments(const std::string& callee, const std::vector<Argument>& given,
                              const std::vector<Parameter>& parameters, const GraphScope& scope,
                              const std::vector<GraphNode>& nodes, std::vector<absl::Status>* wrong) {
  Binder binder(callee, parameters);
  bool complete = true;
  for (const Argument& argument : given) {
    Values values{{"", Bound{}}};
    if (argument.literal.has_value()) {
      values[0].second.literal = argument.literal;
    } else if (!argument.value.empty()) {
      absl::StatusOr<Values> found = scope.Get(argument.value, nodes);
      if (found.ok()) {
        values = *std::move(found);
      } else {
        wrong->push_back(found.status());
        values[0].second.unknown = true;
      }
    }
    const absl::Status bound = argument.name.empty() ? binder.Positional(values, argument.value, given.size())
                                                     : binder.Named(argument.name, values, argument.value);
    if (bound.ok()) continue;
    wrong->push_back(bound);
    complete = false;
  }
  return binder.Finish(complete, wrong);
}

}  // namespace tp

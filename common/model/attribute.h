// Attributes of function calls: named, typed values such as softmax's dim. Example: Attributes{{"dim", int64_t{-1}}}.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/tensor/dim.h"
#include "common/tensor/dtype.h"

namespace tp {

// flag, integer, number, text, integers, dims (symbolic sizes), dtype.
using Attribute = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, SymShape, DType>;
using Attributes = std::map<std::string, Attribute>;

// "true", "3", "1e-05" (shortest form that reads back), "text" quoted, "[1, 2]", "[batch, 8]", "F32".
std::string AttributeText(const Attribute& attribute);

// The value of an attribute, or `fallback` where it is absent. TP_CHECKs the type: calls were validated before.
template <typename T>
T AttributeOr(const Attributes& attributes, const std::string& name, T fallback) {
  auto it = attributes.find(name);
  return it == attributes.end() ? std::move(fallback) : std::get<T>(it->second);
}

}  // namespace tp

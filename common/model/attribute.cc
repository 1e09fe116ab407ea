#include "common/model/attribute.h"

#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tp {
namespace {

struct TextOf {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const {
    char buffer[40];
    const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
    return std::string(buffer, result.ptr);
  }
  std::string operator()(const std::string& value) const { return absl::StrCat("\"", absl::CEscape(value), "\""); }
  std::string operator()(const std::vector<int64_t>& value) const {
    return absl::StrCat("[", absl::StrJoin(value, ", "), "]");
  }
  std::string operator()(const SymShape& value) const { return SymShapeText(value); }
  std::string operator()(DType value) const { return std::string(DTypeName(value)); }
};

}  // namespace

std::string AttributeText(const Attribute& attribute) { return std::visit(TextOf{}, attribute); }

}  // namespace tp

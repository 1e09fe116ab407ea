// JSON text as values, for the files of checkpoints: safetensors headers, indexes and config.json. Stricter than most
// parsers, since these files come from anywhere: a repeated key, text that is not UTF-8, deep nesting and too many
// values are refused. json.cc is the only place here that includes nlohmann. Example:
//   TP_ASSIGN_OR_RETURN(Json json, ParseJson(R"({"a": [1, 2]})"));
//   json.Find("a")->array()->size() == 2
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace tp {

// Immutable value. Accessors give nullptr or nullopt where the value is of another kind.
struct Json {
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json>;
  // Whole numbers outside uint64 are doubles.
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value = nullptr;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
  std::optional<bool> flag() const;
  // A whole number that fits int64 ("3", not "3.0").
  std::optional<int64_t> integer() const;
  // Any number.
  std::optional<double> number() const;
  // The member of an object; nullptr where there is none or this is no object.
  const Json* Find(const std::string& key) const;
};

struct JsonLimits {
  int max_depth = 32;               // of nested arrays and objects
  int64_t max_values = 16'000'000;  // keeps the memory of a hostile file within about 1 GB
};

// INVALID_ARGUMENT saying what is wrong and, for syntax, at which byte. Nothing but space may follow the value.
absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// `text` in quotes with JSON's escapes. INVALID_ARGUMENT where it is not UTF-8.
absl::StatusOr<std::string> QuoteJson(std::string_view text);

}  // namespace tp

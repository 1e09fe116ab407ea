#include "common/checkpoint/json.h"

#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tp {
namespace {

// Builds a Json from the parser's events; an event that returns false ends the parse.
class Builder {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return Add(Json{}); }
  bool boolean(bool value) { return Add(Json{value}); }
  bool number_integer(int64_t value) { return Add(Json{value}); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Add(Json{static_cast<int64_t>(value)});
    }
    return Add(Json{value});
  }
  bool number_float(double value, const std::string&) { return Add(Json{value}); }
  bool string(std::string& value) { return Add(Json{std::move(value)}); }
  bool binary(nlohmann::json::binary_t&) { return Fail("binary values are not allowed"); }
  bool start_object(size_t) { return Open(Json{Json::Object{}}); }
  bool start_array(size_t) { return Open(Json{Json::Array{}}); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    auto [it, added] = std::get<Json::Object>(stack_.back()->value).try_emplace(name);
    if (!added) return Fail(absl::StrCat("key \"", name, "\" stands twice"));
    slot_ = &it->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    return Fail(absl::StrCat("not valid JSON in UTF-8 at byte ", position));
  }

  Json TakeRoot() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }
  bool Add(Json json) { return Place(std::move(json)) != nullptr; }
  bool Open(Json json) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return Fail(absl::StrCat("nested deeper than ", limits_.max_depth));
    }
    Json* placed = Place(std::move(json));
    if (placed == nullptr) return false;
    // Children of a vector are only added while it is on top of the stack, so that no pointer here is invalidated.
    stack_.push_back(placed);
    return true;
  }
  bool Close() {
    stack_.pop_back();
    return true;
  }
  Json* Place(Json json) {
    if (++count_ > limits_.max_values) {
      Fail(absl::StrCat("more than ", limits_.max_values, " values"));
      return nullptr;
    }
    if (stack_.empty()) {
      root_ = std::move(json);
      return &root_;
    }
    if (auto* array = std::get_if<Json::Array>(&stack_.back()->value)) {
      array->push_back(std::move(json));
      return &array->back();
    }
    *slot_ = std::move(json);
    return slot_;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> stack_;
  Json* slot_ = nullptr;
  int64_t count_ = 0;
  std::string error_;
};

}  // namespace

std::optional<bool> Json::flag() const {
  const bool* flag = std::get_if<bool>(&value);
  return flag == nullptr ? std::nullopt : std::optional<bool>(*flag);
}

std::optional<int64_t> Json::integer() const {
  const int64_t* integer = std::get_if<int64_t>(&value);
  return integer == nullptr ? std::nullopt : std::optional<int64_t>(*integer);
}

std::optional<double> Json::number() const {
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const uint64_t* integer = std::get_if<uint64_t>(&value)) return static_cast<double>(*integer);
  if (const double* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

const Json* Json::Find(const std::string& key) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  auto it = members->find(key);
  return it == members->end() ? nullptr : &it->second;
}

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  try {
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.TakeRoot();
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", e.what()));
  }
  return absl::InvalidArgumentError(builder.error());
}

absl::StatusOr<std::string> QuoteJson(std::string_view text) {
  try {
    return nlohmann::json(std::string(text)).dump();
  } catch (const std::exception&) {
    return absl::InvalidArgumentError("text is not UTF-8");
  }
}

}  // namespace tp

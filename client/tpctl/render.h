// What tpctl prints: tables for people, JSON (one object, snake_case) for scripts. Pure.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/tp_client/client.h"
#include "common/program/compile.h"

namespace tp::client {

struct GenerateSummary {
  std::string text;
  std::vector<int64_t> token_ids;
  std::string finish_reason;
};

std::string ModelsText(const std::vector<ModelSummary>& models, bool json);
std::string SubmitText(const SubmitResult& result, bool dry_run, bool json);
std::string StepText(const ModelSummary& model, const std::vector<std::string>& warnings, bool json);
std::string DescribeText(const ModelDescription& model, bool json);
std::string ForwardText(const ForwardResult& result, bool json);
std::string WorkersText(const std::vector<WorkerInfo>& workers, bool json);
std::string StatusText(const StatusInfo& status, const std::string& server, bool json);
std::string GenerateJson(const GenerateSummary& summary);
std::string VersionText(const std::string& version, bool json);
// A JSON value to print; members keep their order.
struct JsonNode {
  using List = std::vector<JsonNode>;
  using Members = std::vector<std::pair<std::string, JsonNode>>;
  std::variant<int64_t, double, bool, std::string, List, Members> value = Members();
};
// Numbers that JSON has not become "NaN", "Infinity" and "-Infinity".
std::string JsonText(const JsonNode& node);
constexpr size_t kTableWidth = 160;  // of tables whose last column is free text
// Columns padded to their widest cell, which may have several lines; the first row is the header. A last cell that
// would pass `width` goes under its row, in pieces (0: never).
std::string Table(const std::vector<std::vector<std::string>>& rows, size_t width = 0);
// Lines of at most `width` characters, broken after a comma or a space; a longer word is a line of its own.
std::vector<std::string> Wrapped(const std::string& text, size_t width);
// The first values: "[1, 2, 3, ...]".
std::string ValuesText(const HostTensor& tensor);
// "1.5 MiB".
std::string BytesText(int64_t bytes);

}  // namespace tp::client

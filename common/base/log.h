// Logging to stderr, one line an event. log.cc is the only place that includes spdlog.
// Example: `Log(LogLevel::kInfo, absl::StrCat("worker ", id, " joined"));`
#pragma once

#include <string>
#include <string_view>

namespace tp {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
// kText: `2024-05-01T10:20:30.123 info tp-worker: message`, local time.
// kJson: `{"time":"2024-05-01T10:20:30.123456Z","level":"info","program":"tp-worker","message":"..."}`, UTC.
enum class LogFormat { kText, kJson };

// Thread-safe. No prompt text and no secrets may be passed.
void Log(LogLevel level, std::string_view message);
// Lines below `level` are dropped (default kInfo). `program` stands in every line. Before any thread that logs.
void InitLog(std::string_view program, LogLevel level, LogFormat format = LogFormat::kText);

// `text` between the quotes of a JSON string: escaped, and U+FFFD for each byte that is no UTF-8.
std::string JsonEscape(std::string_view text);

}  // namespace tp

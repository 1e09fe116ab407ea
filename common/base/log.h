// Logging to stderr, one line an event. log.cc is the only place that includes spdlog.
// Example: `Log(LogLevel::kInfo, absl::StrCat("worker ", id, " joined"));`
#pragma once

#include <string>
#include <string_view>

namespace tp {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Thread-safe. No prompt text and no secrets may be passed.
void Log(LogLevel level, std::string_view message);
// Lines below `level` are dropped (default kInfo). `program` stands in every line.
void InitLog(std::string_view program, LogLevel level);

}  // namespace tp

// Configuration files: tp.v1.CoordinatorConfig and tp.v1.WorkerConfig as text. Example:
//   TP_ASSIGN_OR_RETURN(std::vector<ConfigEntry> entries, ParseConfig("time_scale: 2", ConfigKind::kWorker,
//   "w.textproto")); entries[0] is {.flag = "time-scale", .value = "2", .place = "w.textproto:1:1"}
// Pure: reading the file is the caller's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tp {

enum class ConfigKind { kCoordinator, kWorker };

inline constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

// A field that the file sets, as the option that it stands for.
struct ConfigEntry {
  std::string flag;   // "time-scale" of field time_scale
  std::string value;  // as on the command line; "true" or "false" of a flag
  std::string place;  // FILE:LINE:COLUMN
};

// In the order of the message's fields. INVALID_ARGUMENT with every unknown field, with the names nearest to it, and
// the first other error, each as "FILE:LINE:COLUMN: text" (the place behind an unknown name); RESOURCE_EXHAUSTED over
// kMaxConfigBytes.
absl::StatusOr<std::vector<ConfigEntry>> ParseConfig(std::string_view text, ConfigKind kind, std::string_view file);

// The options that a file of this kind may set, in the order of its fields: "listen", "metrics-listen", ...
std::vector<std::string> ConfigFlags(ConfigKind kind);
// The environment variable of an option: "TP_TIME_SCALE" of "time-scale".
std::string ConfigVariable(std::string_view flag);

}  // namespace tp

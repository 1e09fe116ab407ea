#include "common/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tp {
namespace {

LogFormat log_format = LogFormat::kText;  // set by InitLog

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Bytes of the UTF-8 character that `text` begins with; 0 where it begins with none (overlong forms and surrogates
// included).
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return 0;
  if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
  return length;
}

void Write(LogLevel level, std::string_view message) {
  spdlog::default_logger_raw()->log(ToSpdlog(level), "{}", spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

void Log(LogLevel level, std::string_view message) {
  if (log_format == LogFormat::kText) return Write(level, message);
  if (spdlog::default_logger_raw()->should_log(ToSpdlog(level))) Write(level, JsonEscape(message));
}

void InitLog(std::string_view program, LogLevel level, LogFormat format) {
  auto logger =
      std::make_shared<spdlog::logger>(std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (format == LogFormat::kText) {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %n: %v");
  } else {
    logger->set_pattern(absl::StrCat(R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l","program":")",
                                     absl::StrReplaceAll(JsonEscape(program), {{"%", "%%"}}), R"(","message":"%v"})"),
                        spdlog::pattern_time_type::utc);
  }
  log_format = format;
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

std::string JsonEscape(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      absl::StrAppend(&escaped, "\xef\xbf\xbd");
    } else if (first == '"' || first == '\\') {
      absl::StrAppend(&escaped, "\\", std::string(1, text[0]));
    } else if (first == '\n') {
      absl::StrAppend(&escaped, "\\n");
    } else if (first < 0x20 || first == 0x7f) {
      absl::StrAppend(&escaped, "\\u", absl::Hex(first, absl::kZeroPad4));
    } else {
      escaped.append(text.substr(0, length));
    }
    text.remove_prefix(std::max(length, size_t{1}));
  }
  return escaped;
}

}  // namespace tp

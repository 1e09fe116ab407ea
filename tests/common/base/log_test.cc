// Lines of the log as programs read them.
#include "common/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tp {
namespace {

using ::testing::MatchesRegex;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(Log, JsonIsOneObjectALineWhateverTheMessage) {
  const std::vector<std::pair<std::string, std::string>> messages = {
      {"plain", "plain"},
      {"a \"quoted\" \\ path", "a \"quoted\" \\ path"},
      {std::string("two\nlines\r\tand \x1b[31m \x7f and a NUL \0.", 35),
       std::string("two\nlines\r\tand \x1b[31m \x7f and a NUL \0.", 35)},
      {"{} %v %% {0}", "{} %v %% {0}"},
      {"Gr\xc3\xbc\xc3\x9f"
       "e \xe2\x82\xac \xf0\x9f\x8e\xa9",
       "Gr\xc3\xbc\xc3\x9f"
       "e \xe2\x82\xac \xf0\x9f\x8e\xa9"},
      {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
      {"overlong \xc0\xaf surrogate \xed\xa0\x80 high \xf4\x90\x80\x80 \xff",
       "overlong \xef\xbf\xbd\xef\xbf\xbd surrogate \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd high "
       "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd"},
      {"", ""},
  };
  CaptureStderr();
  InitLog("tp-\"test", LogLevel::kDebug, LogFormat::kJson);
  for (const auto& [given, expected] : messages) Log(LogLevel::kWarning, given);
  std::stringstream lines(GetCapturedStderr());
  std::string line;
  for (const auto& [given, expected] : messages) {
    ASSERT_TRUE(std::getline(lines, line));
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(object.is_object()) << line;
    EXPECT_EQ(object.size(), 4u);
    EXPECT_EQ(object["message"], expected) << line;
    EXPECT_EQ(object["level"], "warning");
    EXPECT_EQ(object["program"], "tp-\"test");
    EXPECT_THAT(object["time"].get<std::string>(),
                MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z"));
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(Log, LevelsAreNamedAndFiltered) {
  CaptureStderr();
  InitLog("p", LogLevel::kInfo, LogFormat::kJson);
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) Log(level, "m");
  std::stringstream lines(GetCapturedStderr());
  std::vector<std::string> levels;
  for (std::string line; std::getline(lines, line);) levels.push_back(nlohmann::json::parse(line)["level"]);
  EXPECT_EQ(levels, (std::vector<std::string>{"info", "warning", "error"}));
}

TEST(Log, TextIsTheDefault) {
  CaptureStderr();
  InitLog("p", LogLevel::kInfo);
  Log(LogLevel::kInfo, "a \"quoted\" word");
  EXPECT_THAT(GetCapturedStderr(), MatchesRegex("[0-9T:.-]+ info p: a \"quoted\" word\n"));
}

}  // namespace
}  // namespace tp

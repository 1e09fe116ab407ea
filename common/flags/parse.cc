#include "common/flags/parse.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/rpc/channel.h"

namespace tp {
namespace {

constexpr char kConfig[] = "config";

const char* MessageOf(ConfigKind kind) {
  return kind == ConfigKind::kCoordinator ? "tp.v1.CoordinatorConfig" : "tp.v1.WorkerConfig";
}

// All but --help and --version.
std::vector<CLI::Option*> OptionsOf(CLI::App* app) {
  return app->get_options([app](const CLI::Option* option) {
    return option != app->get_help_ptr() && option != app->get_version_ptr() && !option->get_lnames().empty();
  });
}

const std::string& FlagOf(const CLI::Option& option) { return option.get_lnames()[0]; }

// Gives the option a value that is not of the command line. "" or what is wrong with it.
std::string Set(const std::string& value, CLI::Option* option) {
  try {
    const bool flag = option->get_items_expected_max() == 0;
    option->add_result(flag ? option->get_flag_value(FlagOf(*option), value) : value);
    option->run_callback();
  } catch (const CLI::Error& error) {
    const std::string text = error.what(), prefix = absl::StrCat("--", FlagOf(*option), ": ");
    return text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text;
  }
  return "";
}

void SetFromVariables(const std::vector<CLI::Option*>& options, std::vector<std::string>* problems) {
  for (CLI::Option* option : options) {
    const std::string variable = ConfigVariable(FlagOf(*option));
    const char* value = std::getenv(variable.c_str());
    if (option->count() > 0 || value == nullptr || *value == '\0') continue;
    const std::string problem = Set(value, option);
    if (!problem.empty()) problems->push_back(absl::StrCat(variable, "=", Cut(value), ": ", problem));
  }
}

absl::StatusOr<std::vector<ConfigEntry>> ReadConfig(const std::string& path, ConfigKind kind) {
  TP_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxConfigBytes));
  return ParseConfig(text, kind, path);
}

void SetFromFile(const std::string& path, ConfigKind kind, const std::vector<CLI::Option*>& options,
                 std::vector<std::string>* problems) {
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ReadConfig(path, kind);
  if (!entries.ok()) {
    problems->push_back(absl::StrCat("--config: ", entries.status().message()));
    return;
  }
  std::map<std::string, CLI::Option*> by_flag;
  for (CLI::Option* option : options) by_flag[FlagOf(*option)] = option;
  for (const auto& [flag, value, place] : *entries) {
    CLI::Option* option = by_flag[flag];
    if (option == nullptr) {
      problems->push_back(absl::StrCat(place, ": there is no --", flag));
    } else if (option->count() == 0) {
      const std::string problem = Set(value, option);
      if (!problem.empty()) problems->push_back(absl::StrCat(place, ": ", flag, " ", Cut(value), ": ", problem));
    }
  }
}

}  // namespace

std::optional<int> ParseFlags(int argc, char** argv, ConfigKind kind, CLI::App* app) {
  std::string path;
  app->add_option(absl::StrCat("--", kConfig), path, absl::StrCat("File of options: a ", MessageOf(kind), " as text"));
  app->footer(
      absl::StrCat("An option goes before its variable (Env), a variable before the file of --config. In the file an "
                   "option is a field "
                   "with its name, _ for -:\n  time_scale: 2\n  log_format: \"json\"\n  insecure: true"));
  const std::vector<CLI::Option*> options = OptionsOf(app);
  // CLI11 sees neither what is required nor the variables while it reads the command line: the one may come from
  // elsewhere, and of the others it would not tell where a wrong value came from.
  std::set<CLI::Option*> required;
  for (CLI::Option* option : options) {
    if (option->get_required()) required.insert(option->required(false));
  }
  const auto complete = [&] {
    for (CLI::Option* option : options) option->envname(ConfigVariable(FlagOf(*option)));
    for (CLI::Option* option : required) option->required(true);
  };
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    complete();  // for --help
    return app->exit(error) == 0 ? 0 : 2;
  }
  complete();
  std::vector<std::string> problems;
  SetFromVariables(options, &problems);
  if (!path.empty()) SetFromFile(path, kind, options, &problems);
  const bool read = problems.empty();  // what was given and is wrong is not missing
  for (const CLI::Option* option : required) {
    if (read && option->count() == 0) {
      problems.push_back(absl::StrCat("--", FlagOf(*option), " is required: as an option, as ", option->get_envname(),
                                      " or in the file of --config"));
    }
  }
  if (problems.empty()) return std::nullopt;
  for (const std::string& problem : problems) {
    std::fprintf(stderr, "%s: %s\n", app->get_name().c_str(), problem.c_str());
  }
  return 2;
}

std::function<std::string(const std::string&)> Between(double low, double high) {
  return [low, high](const std::string& text) -> std::string {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value >= low && value <= high) return "";
    return absl::StrCat("must be a number from ", low, " to ", high);
  };
}

std::function<std::string(const std::string&)> AtLeast(int64_t low) {
  return [low](const std::string& text) -> std::string {
    int64_t value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= low) return "";
    return absl::StrCat("must be a whole number of ", low, " or more");
  };
}

std::string HostPort(const std::string& text) { return std::string(ValidateHostPort(text).message()); }

}  // namespace tp

// Where the options of a program come from: the command line, else TP_* variables, else the file of --config. Example:
//   CLI::App app("A Tensorplane worker", "tp-worker");
//   app.add_option("--threads", threads, "Threads")->check(Between(1, 1024));   // TP_THREADS; threads: 2 in the file
//   if (std::optional<int> exit = ParseFlags(argc, argv, ConfigKind::kWorker, &app)) return *exit;
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/proto_convert/config.h"

namespace CLI {
class App;
}

namespace tp {

// Adds --config to `app`, which has all other options, and sets every option that the command line gives, else its
// variable (an empty one counts as not set), else the file. Options that are required() may come from any of them.
// Nothing: go on. A value: the status to exit with: 0 after --help or --version, 2 after wrong usage, told on stderr,
// each wrong value with the place that it came from.
std::optional<int> ParseFlags(int argc, char** argv, ConfigKind kind, CLI::App* app);

// Checks of an option: a number from `low` to `high`, where "nan" is none; a whole number of `low` or more; HOST:PORT.
std::function<std::string(const std::string&)> Between(double low, double high);
std::function<std::string(const std::string&)> AtLeast(int64_t low);
std::string HostPort(const std::string& text);

}  // namespace tp

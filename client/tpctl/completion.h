// `tpctl completion bash|zsh`: scripts that complete commands, flags and values, made from the tree of commands, so
// that no list is kept by hand. What a value is follows from its type's name: FILE, DIR, NAME=FILE, {a,b}; and from the
// name of a positional: FILE, DIR, MODEL. Example: `source <(tpctl completion bash)`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tp::client {

// `app` is whole: all commands and options are added.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);

}  // namespace tp::client

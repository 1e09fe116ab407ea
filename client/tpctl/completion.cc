#include "client/tpctl/completion.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace tp::client {
namespace {

enum class Kind { kNone, kText, kFile, kFolder, kPair, kModel, kWords };

struct Value {
  Kind kind = Kind::kText;
  std::vector<std::string> words;  // of kWords
};

Value ValueOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {Kind::kNone, {}};
  const std::string type = option.get_type_name();
  if (const size_t open = type.find('{'), close = type.find('}'); open < close && close != std::string::npos)
    return {Kind::kWords, absl::StrSplit(type.substr(open + 1, close - open - 1), ',')};
  if (absl::EndsWith(type, "=FILE")) return {Kind::kPair, {}};
  const std::string name = option.get_positional() ? option.get_name() : type;
  if (name == "FILE") return {Kind::kFile, {}};
  if (name == "DIR") return {Kind::kFolder, {}};
  if (name == "MODEL") return {Kind::kModel, {}};
  return {};
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string JoinedNames(const std::vector<const CLI::App*>& commands) {
  return absl::StrJoin(commands, " ",
                       [](std::string* out, const CLI::App* command) { absl::StrAppend(out, command->get_name()); });
}

std::vector<std::string> FlagNames(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Calls `visit` for `app` and all commands below it, with the words that lead there ("tpctl tensor put").
void Walk(const CLI::App& app, const std::string& path,
          const std::function<void(const CLI::App&, const std::string&)>& visit) {
  visit(app, path);
  for (const CLI::App* command : CommandsOf(app)) Walk(*command, absl::StrCat(path, " ", command->get_name()), visit);
}

// The flags that `app` takes, those of the commands above it too, each once.
struct Flag {
  std::string name;
  const CLI::Option* option = nullptr;
};
std::vector<Flag> FlagsOf(const CLI::App& app) {
  std::vector<Flag> flags;
  for (const CLI::App* level = &app; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : FlagNames(*option)) {
        if (std::none_of(flags.begin(), flags.end(), [&](const Flag& flag) { return flag.name == name; }))
          flags.push_back({name, option});
      }
    }
  }
  return flags;
}

// In single quotes, as both shells take it.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string BashKind(const Value& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "none";
    case Kind::kText:
      return "text";
    case Kind::kFile:
      return "file";
    case Kind::kFolder:
      return "folder";
    case Kind::kPair:
      return "pair";
    case Kind::kModel:
      return "model";
    case Kind::kWords:
      return absl::StrCat("words ", absl::StrJoin(value.words, " "));
  }
  return "text";
}

// After the tables _tpctl_commands (path -> words), _tpctl_flags (path -> words) and _tpctl_values (path and flag, or
// path and number of a positional, * for all further ones -> kind).
constexpr char kBashFunction[] = R"sh(
# The kind of the value of flag $2 after the words $1, where those of the words before them go on.
_tpctl_value() {
  local at=$1
  while :; do
    value_kind=${_tpctl_values["$at $2"]-}
    [[ -z $value_kind && $at == *' '* ]] || return 0
    at=${at% *}
  done
}

_tpctl() {
  local words=() word i glue='' value_kind=''
  # Readline breaks words at = and :, which are put together again.
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if ((${#words[@]})) && [[ -n $glue || $word == [=:]* ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
    if [[ $word == [=:] ]]; then glue=1; else glue=''; fi
  done

  local path=tpctl number=1 waits='' server=()
  local current=${words[-1]}
  unset 'words[-1]'
  for word in "${words[@]}"; do
    if [[ -n $waits ]]; then
      [[ $waits == --server ]] && server=(--server "$word")
      waits=''
    elif [[ $word == -*=* ]]; then
      [[ $word == --server=* ]] && server=("$word")
    elif [[ $word == -* ]]; then
      _tpctl_value "$path" "$word"
      [[ $value_kind == none ]] || waits=$word
    elif [[ " ${_tpctl_commands[$path]-} " == *" $word "* ]]; then
      path+=" $word"
    else
      ((++number))
    fi
  done

  # `before` stands in the word and stays; `typed` is what the candidates begin with.
  local before='' typed=$current candidates=()
  if [[ -n $waits ]]; then
    _tpctl_value "$path" "$waits"
  elif [[ $current == --*=* ]]; then
    before=${current%%=*}= typed=${current#*=}
    _tpctl_value "$path" "${current%%=*}"
  elif [[ $current == -* ]]; then
    value_kind="words ${_tpctl_flags[$path]}"
  elif [[ -n ${_tpctl_commands[$path]-} ]]; then
    value_kind="words ${_tpctl_commands[$path]}"
  else
    value_kind=${_tpctl_values["$path $number"]-${_tpctl_values["$path *"]-text}}
  fi
  if [[ $value_kind == pair && $typed == *=* ]]; then
    before+=${typed%%=*}= typed=${typed#*=} value_kind=file
  fi
  case $value_kind in
    file) mapfile -t candidates < <(compgen -f -- "$typed"); compopt -o filenames 2>/dev/null || : ;;
    folder) mapfile -t candidates < <(compgen -d -- "$typed"); compopt -o filenames 2>/dev/null || : ;;
    model)
      mapfile -t candidates < <(compgen -W "$(tpctl "${server[@]}" --timeout 2 models 2>/dev/null | awk 'NR > 1 {print $1}')" -- "$typed") ;;
    words*) mapfile -t candidates < <(compgen -W "${value_kind#words}" -- "$typed") ;;
  esac
  # Readline replaces its own last word only.
  local kept=${#before} last=${COMP_WORDS[COMP_CWORD]}
  [[ $last == [=:] ]] || kept=$((${#current} - ${#last}))
  COMPREPLY=()
  for word in "${candidates[@]}"; do
    word=$before$word
    COMPREPLY+=("${word:kept}")
  done
}
complete -F _tpctl tpctl
)sh";

std::string ZshText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshAction(const Value& value) {
  switch (value.kind) {
    case Kind::kFile:
      return "_files";
    case Kind::kFolder:
      return "_files -/";
    case Kind::kPair:
      return "_tpctl_pair";
    case Kind::kModel:
      return "_tpctl_models";
    case Kind::kWords:
      return absl::StrCat("(", absl::StrJoin(value.words, " "), ")");
    default:
      return " ";
  }
}

// As _arguments takes it.
std::string ZshFlag(const Flag& flag) {
  const Value value = ValueOf(*flag.option);
  const bool takes = value.kind != Kind::kNone, is_long = absl::StartsWith(flag.name, "--");
  std::string spec = absl::StrCat(flag.option->get_items_expected_max() > 1 ? "*" : "", flag.name,
                                  takes && is_long ? "=" : "", "[", ZshText(flag.option->get_description()), "]");
  if (takes) absl::StrAppend(&spec, ":", flag.name.substr(is_long ? 2 : 1), ":", ZshAction(value));
  return Quoted(spec);
}

void AppendZshFunction(const CLI::App& app, const std::string& path, std::string* out) {
  const std::string function = "_" + absl::StrReplaceAll(path, {{" ", "_"}});
  const std::vector<const CLI::App*> commands = CommandsOf(app);
  absl::StrAppend(out, function, "() {\n");
  if (!commands.empty()) absl::StrAppend(out, "  local curcontext=\"$curcontext\" context state state_descr line\n");
  absl::StrAppend(out, "  _arguments -C");
  for (const Flag& flag : FlagsOf(app)) absl::StrAppend(out, " \\\n    ", ZshFlag(flag));
  if (commands.empty()) {
    int number = 1;
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional()) continue;
      const bool all = option->get_items_expected_max() > 1;
      absl::StrAppend(
          out, " \\\n    ",
          Quoted(absl::StrCat(all ? "*" : absl::StrCat(number), option->get_required() ? ":" : (all ? ":" : "::"),
                              option->get_name(), ":", ZshAction(ValueOf(*option)))));
      ++number;
    }
    absl::StrAppend(out, "\n}\n");
    return;
  }
  absl::StrAppend(out, " \\\n    '1: :->command' '*:: :->arguments'\n  case $state in\n    command)\n",
                  "      local -a commands=(\n");
  for (const CLI::App* command : commands)
    absl::StrAppend(out, "        ",
                    Quoted(absl::StrCat(command->get_name(), ":", ZshText(command->get_description()))), "\n");
  absl::StrAppend(out, "      )\n      _describe command commands ;;\n    arguments)\n      case $line[1] in\n");
  for (const CLI::App* command : commands)
    absl::StrAppend(out, "        ", command->get_name(), ") ", function, "_", command->get_name(), " ;;\n");
  absl::StrAppend(out, "      esac ;;\n  esac\n}\n");
}

constexpr char kZshHelpers[] = R"sh(
_tpctl_pair() { compset -P '*='; _files; }
_tpctl_models() {
  local -a models=(${(f)"$(tpctl --timeout 2 models 2>/dev/null | awk 'NR > 1 {print $1}')"})
  compadd -a models
}

)sh";

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string out = "# Completion of tpctl in bash, made by `tpctl completion bash`.\n";
  absl::StrAppend(&out, "declare -gA _tpctl_commands _tpctl_flags _tpctl_values\n");
  Walk(app, app.get_name(), [&out](const CLI::App& command, const std::string& path) {
    const std::string flags = absl::StrJoin(
        FlagsOf(command), " ", [](std::string* text, const Flag& flag) { absl::StrAppend(text, flag.name); });
    if (const auto commands = CommandsOf(command); !commands.empty())
      absl::StrAppend(&out, "_tpctl_commands[", Quoted(path), "]=", Quoted(JoinedNames(commands)), "\n");
    absl::StrAppend(&out, "_tpctl_flags[", Quoted(path), "]=", Quoted(flags), "\n");
    int number = 1;
    for (const CLI::Option* option : command.get_options()) {
      const std::string kind = BashKind(ValueOf(*option));
      for (const std::string& flag : FlagNames(*option))
        absl::StrAppend(&out, "_tpctl_values[", Quoted(absl::StrCat(path, " ", flag)), "]=", Quoted(kind), "\n");
      if (!option->get_positional()) continue;
      const std::string place = option->get_items_expected_max() > 1 ? "*" : absl::StrCat(number);
      absl::StrAppend(&out, "_tpctl_values[", Quoted(absl::StrCat(path, " ", place)), "]=", Quoted(kind), "\n");
      ++number;
    }
  });
  return absl::StrCat(out, kBashFunction);
}

std::string ZshCompletion(const CLI::App& app) {
  std::string out = "#compdef tpctl\n# Completion of tpctl in zsh, made by `tpctl completion zsh`.\n";
  absl::StrAppend(&out, kZshHelpers);
  Walk(app, app.get_name(),
       [&out](const CLI::App& command, const std::string& path) { AppendZshFunction(command, path, &out); });
  // Autoloaded from a folder of fpath, or sourced.
  return absl::StrCat(out, "if [ \"$funcstack[1]\" = _tpctl ]; then _tpctl \"$@\"; else compdef _tpctl tpctl; fi\n");
}

}  // namespace tp::client

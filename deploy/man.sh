#!/usr/bin/env bash
# Prints the manual page (section 1) of a program, made from its --help: every flag, and every command with its own help.
# Usage: deploy/man.sh PROGRAM VERSION
set -euo pipefail
program=$1 version=$2
name=$(basename "$program")

# Help on standard input, as troff: the text before "Usage:", then a list for each of Positionals, Options, Subcommands.
troff() {
  awk -v name="$name" -v top="$1" '
    function text(line) { gsub(/\\/, "\\e", line); gsub(/-/, "\\-", line); if (line ~ /^[.\047]/) line = "\\&" line; return line }
    function item(term) { sub(/ \(Env:/, " (environment: ", term); print ".TP\n\\fB" text(term) "\\fR" }
    { lines[NR] = $0 }
    END {
      for (i = 1; i <= NR; ++i) {
        line = lines[i]
        if (i == 1) { if (!top) print text(line) }
        else if (line ~ /^Usage: /) { sub(/^Usage: [^ ]*/, "Usage: " name, line); if (!top) print ".PP\n" text(line) }
        else if (line ~ /^(Positionals|Options|Subcommands):$/) {
          print top ? ".SH " toupper(substr(line, 1, length(line) - 1)) : ".PP\n" line
          in_list = 1
        } else if (line == "") in_list = 0
        else if (in_list && line ~ /^  [^ ]/) {
          # CLI11: the text begins at column 31 of this line, or of the next one.
          term = substr(line, 3); help = ""
          if (lines[i + 1] !~ /^                              / && substr(line, 30, 1) == " ") { help = substr(line, 31); term = substr(line, 3, 27) }
          sub(/ +$/, "", term); item(term); if (help != "") print text(help)
        } else if (in_list) { sub(/^ +/, "", line); print text(line) }
        else if (!top) print ".PP\n" text(line)
      }
    }'
}
names() { sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p'; }

# commands WORDS...: the help of each command below `program WORDS`.
commands() {
  local help command
  help=$("$program" "$@" --help)
  for command in $(names <<<"$help"); do
    echo ".SS $name $* $command" | tr -s ' '
    "$program" "$@" "$command" --help | troff ''
    commands "$@" "$command"
  done
}

help=$("$program" --help)
about=$(head -n 1 <<<"$help" | sed "s/^$name //")
cat <<TXT
.TH ${name^^} 1 "" "Tensorplane $version" "User Commands"
.SH NAME
$name \\- ${about%.}
.SH SYNOPSIS
.B $name
$(sed -n '1,3s/^Usage: [^ ]* *//p' <<<"$help")
.SH DESCRIPTION
${about^}
TXT
troff 1 <<<"$help"
if [ -n "$(names <<<"$help")" ]; then
  echo ".SH COMMANDS"
  commands
fi
cat <<TXT
.SH SEE ALSO
$(for other in tp-coordinator tp-worker tpctl; do [ "$other" = "$name" ] || printf '.BR %s (1)\n' "$other"; done)
TXT

#!/usr/bin/env bash
# From nothing to an answer: installs packages, builds, starts a coordinator and two workers on this machine, loads the demo
# model tensor-parallel, generates text, and compares it with the reference and with one rank.
# Usage: deploy/quickstart.sh [--keep]     (--keep leaves the cluster running)
set -euo pipefail
cd "$(dirname "$0")/.."

keep=0
for argument in "$@"; do
  case "$argument" in
    --keep) keep=1 ;;
    -h|--help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
    *) echo "quickstart.sh: unknown argument '$argument' (--keep is the only one)" >&2; exit 2 ;;
  esac
done

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'quickstart.sh: %s\n' "$*" >&2; exit 1; }

say "1/5 packages"
deploy/packages.sh build
for tool in cmake ninja g++; do
  command -v "$tool" >/dev/null || fail "$tool is not there although its package is; check your PATH"
done

say "2/5 build (the first one takes minutes, later ones seconds)"
cmake --preset release >/tmp/tensorplane-configure.$$ 2>&1 || { cat /tmp/tensorplane-configure.$$ >&2; rm -f /tmp/tensorplane-configure.$$
  fail "cmake could not configure the build; the lines above say why (a build folder of another checkout? remove build/release)"; }
rm -f /tmp/tensorplane-configure.$$
cmake --build --preset release || fail "the build failed; the lines above say why (not enough memory? try: cmake --build --preset release -j1)"
export PATH="$PWD/build/release/bin:$PATH"

dir=$(mktemp -d "${TMPDIR:-/tmp}/tensorplane.XXXXXX")
stop() {
  local code=$?
  if [ "$keep" -eq 1 ] && [ "$code" -eq 0 ]; then return; fi
  tpctl local down --dir "$dir" >/dev/null 2>&1 || true
  if [ "$code" -eq 0 ]; then rm -rf "$dir"; else echo "quickstart.sh: the logs are in $dir" >&2; fi
}
trap stop EXIT

say "3/5 a coordinator and 2 CPU workers"
tpctl local up --workers 2 --dir "$dir" || fail "the cluster did not start; the line above says why"
server=$(cat "$dir/endpoint")
export TPCTL_SERVER="$server"

say "4/5 the demo model, tensor-parallel on 2 workers and, to compare, on one"
tpctl import deploy/demo/kjv --tp 2 --out "$dir/plan.pb"
tpctl submit "$dir/plan.pb" --name kjv
tpctl submit "$dir/plan.pb" --name kjv-one --mesh tp=1

say "5/5 text that follows \"And God said\""
tpctl generate kjv --prompt "And God said" --max-new-tokens 64 --ignore-eos

# The numbers of a JSON list, one space between them.
numbers() { tr -d '\n' | sed -e "s/.*\"$1\": *\[\([^]]*\)\].*/\1/" | tr -c '0-9\n' ' ' | tr -s ' ' | sed 's/^ //; s/ $//'; }
two=$(tpctl generate kjv --prompt "And God said" --max-new-tokens 64 --ignore-eos --output-format json | numbers token_ids)
one=$(tpctl generate kjv-one --prompt "And God said" --max-new-tokens 64 --ignore-eos --output-format json | numbers token_ids)
reference=$(awk '/"greedy"/ {on = 1} on {print} on && /\]/ {exit}' deploy/demo/kjv/reference.json | numbers greedy)
[ -n "$reference" ] || fail "deploy/demo/kjv/reference.json holds no reference"
[ "$two" = "$reference" ] || fail "the 64 tokens of 2 workers differ from the reference (float64, made by another program):
  $two
  $reference"
[ "$one" = "$reference" ] || fail "the 64 tokens of one worker differ from the reference"
cat <<TXT

What happened: a 3-million-parameter checkpoint was cut over 2 worker processes; each read only the byte ranges of its shards. Every
token took 9 all-reduces between them. The 64 tokens equal the reference and those of one worker.
TXT
if [ "$keep" -eq 1 ]; then
  cat <<TXT
The cluster is still there. Try:
  export PATH="$PWD/build/release/bin:\$PATH" TPCTL_SERVER=$server
  tpctl generate kjv --prompt "In the beginning" --temperature 0.8 --seed 7
  tpctl describe kjv
  tpctl verify kjv
  tpctl explain $dir/plan.pb
  tpctl local down --dir $dir
TXT
else
  cat <<TXT
Everything that was started is stopped. To go on with a running cluster: deploy/quickstart.sh --keep
To see what a plan will do before it runs: build/release/bin/tpctl explain deploy/demo/mlp.textproto --mesh tp=4
TXT
fi

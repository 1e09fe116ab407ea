#!/usr/bin/env bash
# Repeats the tests of a label under load, to find flaky ones; REGEX picks those whose names match.
# Usage: tests/repeat.sh LABEL N [PRESET [REGEX]]
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -ge 2 ] || { echo "usage: tests/repeat.sh LABEL N [PRESET [REGEX]]" >&2; exit 2; }
label=$1 times=$2 preset=${3:-asan-ubsan} regex=${4:-.}
command -v stress-ng >/dev/null || { echo "repeat.sh: stress-ng is missing: apt-get install stress-ng" >&2; exit 1; }
[ -d "build/$preset" ] || { echo "repeat.sh: build/$preset is missing: cmake --workflow --preset $preset" >&2; exit 1; }
stress-ng --cpu "$(nproc)" --cpu-load 60 --io 1 --quiet &
load=$!
trap 'kill "$load" 2>/dev/null || true' EXIT
ctest --test-dir "build/$preset" -L "$label" -R "$regex" --repeat "until-fail:$times" --output-on-failure

#!/usr/bin/env bash
# Runs the commands of README.md's tour as they stand there, with the release programs and a state folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d)
export XDG_STATE_HOME="$state"
unset TPCTL_SERVER
trap 'build/release/bin/tpctl local down >/dev/null 2>&1 || true; rm -rf "$state"' EXIT
tour=$(awk '/^## A tour/ {section = 1} section && /^```$/ {exit} section && on {print} section && /^```sh/ {on = 1}' README.md)
[ "$(grep -c tpctl <<<"$tour")" -ge 10 ] || { echo "readme.sh: the tour was not found in README.md" >&2; exit 1; }
bash -eux -c "$tour"

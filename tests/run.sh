#!/usr/bin/env bash
# Installs what the tests need, builds them with sanitizers, runs every test, and ends with ctest's summary.
# Usage: tests/run.sh [ctest arguments, as -L unit or -R layout]
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/packages.sh test
jobs=$(nproc)

echo "== thread sanitizer: what runs without gRPC"
cmake --preset tsan >/dev/null
cmake --build --preset tsan
ctest --preset tsan -j "$jobs" "$@" | tail -n 30

echo "== address and undefined sanitizers: everything"
cmake --preset asan-ubsan >/dev/null
cmake --build --preset asan-ubsan
ctest --preset asan-ubsan -j "$jobs" "$@"

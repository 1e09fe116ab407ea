#!/usr/bin/env bash
# Installs what the tests need, builds them with sanitizers, runs every test, and ends with ctest's summary.
# Usage: tests/run.sh [ctest arguments of the second part, as -L unit or -R layout]
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/packages.sh test
jobs=$(nproc)

echo "== thread sanitizer: what has threads and no gRPC"
cmake --preset tsan >/dev/null
cmake --build --preset tsan --target thread_tests
ctest --preset tsan -j "$jobs" -L threads

echo "== address and undefined sanitizers: everything"
cmake --preset asan-ubsan >/dev/null
cmake --build --preset asan-ubsan
ctest --preset asan-ubsan -j "$jobs" "$@"

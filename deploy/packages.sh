#!/usr/bin/env bash
# Installs what building (build) or testing (test) Tensorplane needs, from Debian 12's packages. Does nothing where all of
# it is there. Usage: deploy/packages.sh build|test
set -euo pipefail

build="build-essential cmake ninja-build ccache lld pkg-config libgrpc++-dev libprotobuf-dev protobuf-compiler
  protobuf-compiler-grpc libabsl-dev libspdlog-dev libgloo-dev libdnnl-dev ocl-icd-opencl-dev libhwy-dev libsqlite3-dev libcli11-dev
  nlohmann-json3-dev libssl-dev zlib1g-dev libcivetweb-dev prometheus-cpp-dev file"
test="$build clang libclang-rt-14-dev libomp-dev clang-format libgtest-dev libgmock-dev
  python3-grpcio python3-numpy python3-protobuf python3-pip python3-setuptools python3-wheel python3-venv
  python3-yaml openssl golang-go golang-google-grpc-dev golang-github-golang-protobuf-1-5-dev protoc-gen-go
  protoc-gen-go-grpc iproute2 debootstrap"

case "${1:-}" in
  build) wanted=$build ;;
  test) wanted=$test ;;
  *) echo "usage: deploy/packages.sh build|test" >&2; exit 2 ;;
esac

missing=()
for package in $wanted; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "packages.sh: this needs Debian 12 (apt-get); install by hand: ${missing[*]}" >&2
  exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "packages.sh: run as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
  sudo=sudo
fi
echo "installing ${#missing[@]} packages ..." >&2
log=$(mktemp)
if ! { $sudo apt-get update -q &&
       $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 15 "$log" >&2
  echo "packages.sh: the packages could not be installed (full log: $log)." >&2
  echo "  No network? Check that 'apt-get update' works. Not Debian 12? These names are of its packages: ${missing[*]}" >&2
  exit 1
fi
rm -f "$log"

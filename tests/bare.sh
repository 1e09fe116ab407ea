#!/usr/bin/env bash
# Runs the quickstart in a fresh Debian 12 folder that has nothing but the base system. By hand, as root; takes the minutes
# of a first build and 3 GB. Usage: tests/bare.sh [FOLDER]   (kept for a second run where FOLDER is given)
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/support/debian_folder.sh
source "$source/tests/support/debian_folder.sh"

debian_needs bare.sh
root=${1:-$(mktemp -d)}
if [ $# -ge 1 ]; then
  trap 'debian_unmount "$root"' EXIT
else
  trap 'debian_remove "$root"' EXIT
fi
debian_make "$root"
mkdir -p "$root/src"
git -C "$source" archive HEAD | tar -x -C "$root/src"
debian_run "$root" /bin/bash /src/deploy/quickstart.sh

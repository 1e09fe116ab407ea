#!/usr/bin/env bash
# Lints the API with buf (buf-bin of PyPI), and compares it with the last release by its rules. Needs python3 with pip
# and its registry. Usage: tests/proto/lint.sh
set -euo pipefail
cd "$(dirname "$0")/../../proto"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install -q --disable-pip-version-check --no-warn-script-location --root-user-action=ignore --no-deps \
  --target "$folder" buf-bin==1.75.0
buf=$folder/bin/buf
export BUF_CACHE_DIR="$folder/cache"

"$buf" lint
for release in released/*.binpb; do
  "$buf" breaking --against "$release"
done
echo "lint: $("$buf" --version), nothing to say"

#!/usr/bin/env bash
# Runs what deploy/kubernetes' pods run, without Kubernetes: the containers' commands, environment, files, ports and
# probes as they stand in the rendered manifests, each pod in namespaces of its own (pods.py). Needs root, python3-venv and
# PyPI (for kubectl, to render), openssl, python3-grpcio, python3-yaml. Exits with 77 where namespaces are not permitted.
# Usage: tests/kubernetes/pods.sh [BIN]      BIN: folder of the programs; build/release/bin where left out
set -euo pipefail
cd "$(dirname "$0")/../.."
bin="$(realpath "${1:-build/release/bin}")"
for program in tp-coordinator tp-worker tpctl; do
  [ -x "$bin/$program" ] || { echo "pods.sh: no $program in $bin" >&2; exit 1; }
done
# All of it goes with the first process: pods, network, mounts.
apart=(unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private)
if [ "$(id -u)" -ne 0 ] || ! "${apart[@]}" sh -c 'mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip netns add probe' 2>/dev/null; then
  echo "pods.sh: skipped: this needs root and namespaces"
  exit 77
fi
. tests/kubernetes/tools.sh

for case in "overlays/cpu-gloo jobs/submit" "overlays/tls jobs/submit-tls"; do
  read -r overlay job <<<"$case"
  for folder in "$overlay" "$job" jobs/models; do
    render "deploy/kubernetes/$folder" "pods-$(basename "$folder")"
  done
  "${apart[@]}" /usr/bin/python3 tests/kubernetes/pods.py --bin "$bin" --cluster "$work/pods-$(basename "$overlay").yaml" \
    --job "$work/pods-$(basename "$job").yaml" --models "$work/pods-models.yaml"
done

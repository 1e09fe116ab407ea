#!/usr/bin/env bash
# Renders every overlay and job of deploy/kubernetes and checks it: against the schemas of two Kubernetes versions, and by
# our own rules (manifests.py). Needs python3-venv and PyPI at its first run. Usage: tests/kubernetes/manifests.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/kubernetes/tools.sh

# What overlays and components make together: each overlay, and the combinations that their comments promise.
combined="$work/combined"
rm -rf "$combined"
combine() {
  mkdir -p "$combined/$1"
  {
    printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - ../../../../deploy/kubernetes/overlays/%s\n' "$2"
    printf 'components:\n'
    printf '  - ../../../../deploy/kubernetes/components/%s\n' "${@:3}"
  } >"$combined/$1/kustomization.yaml"
}
combine gpu-host-network gpu-nccl host-network
combine gpu-tls gpu-nccl tls
combine gpu-tls-host-network gpu-nccl tls host-network

clusters=() jobs=()
for overlay in deploy/kubernetes/overlays/*/ "$combined"/*/; do
  name="$(basename "$overlay")"
  render "$overlay" "$name"
  clusters+=("$work/$name.yaml")
done
for job in deploy/kubernetes/jobs/*/; do
  name="job-$(basename "$job")"
  render "$job" "$name"
  jobs+=("$work/$name.yaml")
done

# The submission of the demo is the one of deploy/demo.
cmp deploy/demo/mlp.textproto deploy/kubernetes/jobs/submit/mlp.textproto
version="$(sed -n 's/^project(tensorplane VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
"$python" tests/kubernetes/manifests.py --version "$version" --clusters "${clusters[@]}" --jobs "${jobs[@]}"

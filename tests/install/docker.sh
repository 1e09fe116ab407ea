#!/usr/bin/env bash
# Runs the steps of deploy/docker/Dockerfile in bare Debian folders, as no Docker engine is needed for that, and then the
# programs of the last one as its user. As root, with debootstrap, else exit 77. The compiler's cache of this machine is used.
# Usage: docker.sh [FOLDER] [DOCKERFILE]
#   FOLDER is given base.tar, the base system, and the packages, as package.sh takes them; DOCKERFILE: Dockerfile.cuda, by
#   hand: it takes the time of nvcc and 5 GB.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/support/debian_folder.sh
source "$source/tests/support/debian_folder.sh"
debian_needs docker.sh
dockerfile=$source/deploy/docker/${2:-Dockerfile}

work=$(mktemp -d "${TMPDIR:-/tmp}/tensorplane-docker.XXXXXX")
out=${1:-$work}
mkdir -p "$out"
stages=()  # folders, in the file's order
cleanup() {
  local stage
  for stage in "${stages[@]}"; do debian_remove "$stage"; done
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
die() {
  echo "docker.sh: $*" >&2
  exit 1
}

# What Docker would send: the files of the tree; .dockerignore keeps out what git ignores, and .git.
for ignored in build .git; do grep -qx "$ignored" "$source/.dockerignore" || die ".dockerignore lets $ignored in"; done
mkdir "$work/context"
git -C "$source" ls-files -z | (cd "$source" && tar -c --null --ignore-failed-read -T -) | tar -x -C "$work/context"

cache=${CCACHE_DIR:-${HOME:-/root}/.cache/ccache}
declare -A stage_of=()
root='' runs_as='' folder=/ variables=()

# Each function is one instruction of the Dockerfile.
begin_stage() {
  [ "${2:-AS}" = AS ] || [ "${2:-AS}" = as ] || die "FROM $*"
  case "$1" in
    debian:bookworm | debian:bookworm-slim) ;;
    *) die "FROM $1: only debian:bookworm is known here" ;;
  esac
  root=$work/stage${#stages[@]} runs_as='' folder=/ variables=()
  stages+=("$root")
  [ -z "${3:-}" ] || stage_of[$3]=$root
  debian_make "$root" "$out/base.tar"
  if [ "${#stages[@]}" -eq 1 ]; then  # the stage that compiles
    mkdir -p "$cache" "$root/root/.cache/ccache"
    mount --bind "$cache" "$root/root/.cache/ccache"
  fi
}
run_step() { debian_run "$root" ${runs_as:+-u "$runs_as"} -d "$folder" ${variables[@]+"${variables[@]}"} /bin/sh -c "$1"; }
copy() {
  local from=$work/context words=() target
  read -r -a words <<<"$1"
  if [[ ${words[0]} == --from=* ]]; then
    from=${stage_of[${words[0]#--from=}]-}
    [ -n "$from" ] || die "COPY ${words[0]}: no such stage"
    words=("${words[@]:1}")
  elif [[ ${words[0]} == --* ]]; then
    die "COPY ${words[0]} is not known here"
  fi
  target=${words[-1]}
  [[ $target == /* ]] || target=$folder/$target
  mkdir -p "$root$target"
  local word source_path
  for word in "${words[@]:0:${#words[@]}-1}"; do
    for source_path in "$from"/$word; do
      [ -e "$source_path" ] || die "COPY: $word is not there"
      if [ -d "$source_path" ]; then cp -a "$source_path/." "$root$target/"; else cp -a "$source_path" "$root$target/"; fi
    done
  done
}
instruction() {
  local name=$1 rest=$2 words=()
  read -r -a words <<<"$rest"
  echo "== $name $rest"
  case "$name" in
    FROM) begin_stage "${words[@]}" ;;
    ENV)
      for word in "${words[@]}"; do
        [[ $word == [A-Za-z_]*=* ]] || die "ENV $rest: not NAME=VALUE"
        variables+=("$word")
      done ;;
    WORKDIR)
      folder=$rest
      mkdir -p "$root$folder" ;;
    COPY) copy "$rest" ;;
    RUN) run_step "$rest" ;;
    USER) runs_as=$rest ;;
    *) die "$name is not known here" ;;
  esac
}

# Lines that end in \ go on in the next one; comments and empty lines are skipped.
text=''
while IFS= read -r line || [ -n "$line" ]; do
  [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
  if [[ $line == *\\ ]]; then
    text+=${line%\\}
    continue
  fi
  text+=$line
  instruction "${text%% *}" "${text#* }"
  text=''
done <"$dockerfile"

[ "$runs_as" = 65532:65532 ] || die "the image runs as '$runs_as'"
[ "$out" = "$work" ] || cp "${stages[0]}"/package/tensorplane_*.deb "$out/"
echo "== the programs, as $runs_as"
for program in tp-coordinator tp-worker tpctl; do run_step "$program --version"; done
if ls "$root"/tmp/*.deb 2>/dev/null; then die "the package is still in the image"; fi
for path in /src /usr/bin/cmake /usr/bin/g++; do [ ! -e "$root$path" ] || die "the image holds $path"; done
if [[ $dockerfile == *.cuda ]] && ! command -v nvidia-smi >/dev/null; then
  said=$(run_step 'tp-worker --server 127.0.0.1:1 --device cuda:0' 2>&1 || true)
  grep -q 'FAILED_PRECONDITION: --device cuda:0: ' <<<"$said" || die "tp-worker without a GPU says: $said"
  if grep -q "can't be loaded" <<<"$said"; then die "the CUDA backend lacks a library: $said"; fi
fi
mkdir "$root/tmp/demo"
cp "$source"/deploy/demo/mlp.* "$root/tmp/demo/"
chmod -R a+rX "$root/tmp/demo"
run_step '
  set -e
  trap "tpctl local down --dir /tmp/cluster" EXIT
  tpctl local up --workers 2 --dir /tmp/cluster
  [ "$(stat -c %u /tmp/cluster/endpoint)" = 65532 ]
  export TPCTL_SERVER="$(cat /tmp/cluster/endpoint)"
  tpctl submit /tmp/demo/mlp.textproto --mesh tp=2
  tpctl forward mlp --input x=1,2,3,4,5,6,7,8 --output /tmp/cluster/y.npy'
[ -s "$root/tmp/cluster/y.npy" ] || die "the forward left no values"
du -sh --exclude=dev --exclude=proc --exclude=cluster "$root" | sed 's/\t.*/ is the size of the image/'
echo "docker.sh: all steps done"

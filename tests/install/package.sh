#!/usr/bin/env bash
# The life of the Debian package in a bare Debian folder: apt installs it, the units' commands serve a model as the units'
# user, an upgrade keeps what was changed, remove and purge leave nothing. And `cmake --install` into a prefix.
# As root, with debootstrap, else exit 77. Usage: package.sh [DEB] [BASE.tar]
#   DEB: made from the build folder ${TP_BUILD:-build/release} where left out; BASE.tar: the base system (docker.sh leaves one)
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/support/debian_folder.sh
source "$source/tests/support/debian_folder.sh"
debian_needs package.sh
build=${TP_BUILD:-$source/build/release}

work=$(mktemp -d "${TMPDIR:-/tmp}/tensorplane-package.XXXXXX")
root=$work/root
pids=()  # of what runs in the folder
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait
  if [ -x "$work/prefix/bin/tpctl" ]; then "$work/prefix/bin/tpctl" local down --dir "$work/cluster" >/dev/null 2>&1 || true; fi
  debian_remove "$root"
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
die() {
  echo "package.sh: $*" >&2
  exit 1
}
say() { echo "== $*"; }
# wait_for COMMAND ...: until it succeeds, for a minute.
wait_for() {
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  tail -n 5 "$work"/*.log >&2 || true
  die "waited a minute for: $*"
}

if [ -d "$build" ]; then
  say "cmake --install into a prefix; the programs run from there"
  cmake --install "$build" --prefix "$work/prefix" --strip >/dev/null
  (
    unset TPCTL_SERVER
    export PATH="$work/prefix/bin:$PATH"
    cd "$work"
    tpctl local up --workers 2 --dir "$work/cluster"
    TPCTL_SERVER=$(cat "$work/cluster/endpoint")
    export TPCTL_SERVER
    tpctl submit "$work/prefix/share/doc/tensorplane/examples/mlp.textproto" --mesh tp=2
    tpctl forward mlp --input x=1,2,3,4,5,6,7,8
    tpctl local down --dir "$work/cluster"
  )
  grep -q "^ExecStart=$work/prefix/bin/tp-worker --config $work/prefix/etc/tensorplane/worker.textproto$" \
    "$work/prefix/lib/systemd/system/tp-worker@.service" || die "the unit does not start the program of the prefix"
fi
if [ $# -ge 1 ]; then
  deb=$1
else
  say "the package"
  cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/package" >/dev/null
  deb=$(echo "$work"/package/tensorplane_*.deb)
fi
[ -f "$deb" ] || die "$deb is not there"

say "a bare folder"
debian_make "$root" "${2:-}"
debian_run "$root" apt-get update -q >"$work/apt.log" 2>&1
debian_run "$root" apt-get install -y -q --no-install-recommends zsh >"$work/apt.log" 2>&1

# Files that belong to no package of Debian, but for the records of dpkg and apt and the copies that useradd leaves.
strangers() {
  comm -23 \
    <(cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./run -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/lib/apt \
      -o -path ./var/cache -o -path ./var/log \) -prune -o -print | sed 's/^\.//' | sort -u) \
    <(cat "$root"/var/lib/dpkg/info/*.list | sed -E 's#^/(bin|sbin|lib|lib32|lib64|libx32)(/|$)#/usr/\1\2#' | sort -u) |
    grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$' || true
}
strangers >"$work/before"

say "apt installs it with what it depends on"
cp "$deb" "$root/tmp/tensorplane.deb"
debian_run "$root" apt-get install -y -q --no-install-recommends /tmp/tensorplane.deb >"$work/apt.log" 2>&1 || { tail -n 20 "$work/apt.log" >&2; die "apt failed"; }
for file in usr/bin/tp-coordinator usr/bin/tp-worker usr/bin/tpctl etc/tensorplane/coordinator.textproto etc/tensorplane/worker.textproto \
  usr/lib/systemd/system/tp-coordinator.service usr/lib/systemd/system/tp-worker@.service usr/share/man/man1/tpctl.1.gz \
  usr/share/bash-completion/completions/tpctl usr/share/zsh/vendor-completions/_tpctl usr/share/doc/tensorplane/copyright \
  usr/share/tensorplane/proto/tp/v1/coordinator.proto usr/share/doc/tensorplane/examples/mlp.textproto; do
  [ -s "$root/$file" ] || die "/$file is not there"
  [ "$(stat -c %U:%G "$root/$file")" = root:root ] || die "/$file is $(stat -c %U:%G "$root/$file")'s"
done
uid=$(debian_run "$root" id -u tensorplane) gid=$(debian_run "$root" id -g tensorplane)
[ "$(stat -c %u:%g:%a "$root/var/lib/tensorplane")" = "$uid:$gid:750" ] || die "/var/lib/tensorplane: $(stat -c %u:%g:%a "$root/var/lib/tensorplane")"
version=$(dpkg-deb -f "$deb" Version)

say "manual pages and completions"
for program in tp-coordinator tp-worker tpctl; do
  [ "$(debian_run "$root" "$program" --version)" = "$version" ] || die "$program is not of version $version"
  zcat "$root/usr/share/man/man1/$program.1.gz" >"$work/page"
  debian_run "$root" "$program" --help >"$work/help"
  sed -nE 's/^  (-[a-z],)?(--[a-z-]+).*/\2/p' "$work/help" | while read -r flag; do
    grep -q -- "${flag//-/\\\\-}" "$work/page" || die "the page of $program does not have $flag"
  done
done
for command in $(sed -n '/^Subcommands:/,$s/^  \([a-z][a-z-]*\) .*/\1/p' "$work/help") 'tensor redistribute' 'model parallelize'; do
  grep -q "^\.SS tpctl $command$" "$work/page" || die "the page of tpctl does not have the command $command"
done
[ "$(debian_run "$root" bash -c 'source /usr/share/bash-completion/completions/tpctl && complete -p tpctl')" = "complete -F _tpctl tpctl" ] ||
  die "no completion in bash"
debian_run "$root" zsh -n /usr/share/zsh/vendor-completions/_tpctl
# shellcheck disable=SC2016
[ "$(debian_run "$root" zsh -fc 'autoload -Uz compinit && compinit -u -D && print -r -- $_comps[tpctl]')" = _tpctl ] || die "no completion in zsh"

say "the units"
if command -v systemd-analyze >/dev/null; then
  mkdir "$work/units"
  for unit in tp-coordinator.service tp-worker@.service; do
    sed "s#^ExecStart=#ExecStart=$root#" "$root/usr/lib/systemd/system/$unit" >"$work/units/$unit"
  done
  systemd-analyze verify --man=no "$work/units/tp-coordinator.service" "$work/units/tp-worker@0.service" 2>"$work/verify" || true
  if grep -E 'tp-(coordinator|worker)' "$work/verify"; then die "systemd-analyze finds the above in the units"; fi
fi

# setting UNIT KEY INSTANCE: its values, one a line, specifiers replaced.
setting() { sed -n "s/^$2=//p" "$root/usr/lib/systemd/system/$1" | sed "s/%i/$3/g; s/%l/host/g"; }
# start UNIT INSTANCE: as systemd would; the process's id is in the array `pids`.
start() {
  local unit=$1 instance=$2 user file line command environment=()
  user=$(setting "$unit" User "$instance")
  [ "$user" = tensorplane ] || die "$unit runs as '$user'"
  while read -r line; do environment+=("$line"); done < <(setting "$unit" Environment "$instance")
  file=$(setting "$unit" EnvironmentFile "$instance")
  [[ $file == -/etc/tensorplane/* ]] || die "$unit: EnvironmentFile=$file"
  if [ -f "$root${file#-}" ]; then
    while read -r line; do environment+=("$line"); done < <(grep -v '^#' "$root${file#-}")
  fi
  read -r -a command <<<"$(setting "$unit" ExecStart "$instance")"
  rm -f "$work/pid"
  # shellcheck disable=SC2016
  debian_run "$root" -u "$uid:$gid" ${environment[@]+"${environment[@]}"} sh -c 'echo $$ && exec "$@"' sh "${command[@]}" \
    >"$work/pid" 2>>"$work/$unit.$instance.log" &
  wait_for test -s "$work/pid"
  pids+=("$(cat "$work/pid")")
}
# Any port, so that runs at the same time do not meet.
sed -i 's/^listen: .*/listen: "127.0.0.1:0"\nendpoint_file: "\/var\/lib\/tensorplane\/endpoint"/' "$root/etc/tensorplane/coordinator.textproto"
start tp-coordinator.service ''
wait_for test -s "$root/var/lib/tensorplane/endpoint"
server=$(cat "$root/var/lib/tensorplane/endpoint")
for worker in 0 1; do
  echo "TP_SERVER=$server" >"$root/etc/tensorplane/worker-$worker.env"
  start tp-worker@.service "$worker"
done
two_joined() { [ "$(debian_run "$root" tpctl --server "$server" workers | grep -c '^host-[01] ')" -eq 2 ]; }
wait_for two_joined
install -m 0644 "$source"/deploy/demo/mlp.safetensors "$source"/deploy/demo/mlp.textproto "$root/var/lib/tensorplane/models/"
debian_run "$root" tpctl --server "$server" submit /var/lib/tensorplane/models/mlp.textproto --mesh tp=2
debian_run "$root" tpctl --server "$server" forward mlp --input x=1,2,3,4,5,6,7,8
[ "$(stat -c %u "$root/var/lib/tensorplane/coordinator.db")" = "$uid" ] || die "coordinator.db is not in the data folder"
for pid in "${pids[@]}"; do
  [ "$(awk '/^Uid:/ {print $2}' "/proc/$pid/status")" = "$uid" ] || die "a process is not the unit's user's"
done
for ((i = ${#pids[@]} - 1; i >= 0; --i)); do
  kill -TERM "${pids[i]}"
  wait_for test ! -d "/proc/${pids[i]}"
done
pids=()

say "an upgrade keeps the file that was changed and brings the one that was not"
dpkg-deb -R "$deb" "$work/next"
sed -i "s/^Version: .*/Version: $version+1/" "$work/next/DEBIAN/control"
for file in coordinator worker; do echo "# of the next version" >>"$work/next/etc/tensorplane/$file.textproto"; done
dpkg-deb -b "$work/next" "$root/tmp/next.deb" >/dev/null
debian_run "$root" apt-get install -y -q -o Dpkg::Options::=--force-confold /tmp/next.deb >"$work/apt.log" 2>&1 || { tail -n 20 "$work/apt.log" >&2; die "the upgrade failed"; }
grep -q endpoint_file "$root/etc/tensorplane/coordinator.textproto" || die "the upgrade lost what was changed"
grep -q "of the next version" "$root/etc/tensorplane/worker.textproto" || die "the upgrade did not bring its configuration"
[ -s "$root/var/lib/tensorplane/coordinator.db" ] || die "the upgrade lost the data"

say "remove leaves configuration and data, purge nothing"
debian_run "$root" apt-get remove -y -q tensorplane >"$work/apt.log" 2>&1
for program in tp-coordinator tp-worker tpctl; do [ ! -e "$root/usr/bin/$program" ] || die "remove left $program"; done
for file in etc/tensorplane/coordinator.textproto var/lib/tensorplane/coordinator.db; do
  [ -s "$root/$file" ] || die "remove took /$file"
done
debian_run "$root" apt-get purge -y -q tensorplane >"$work/apt.log" 2>&1
if debian_run "$root" getent passwd tensorplane; then die "purge left the user"; fi
strangers >"$work/after"
diff "$work/before" "$work/after" || die "purge left the files above"
echo "package.sh: all steps done"

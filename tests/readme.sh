#!/usr/bin/env bash
# Runs the commands of README.md's tour as they stand there, with the release programs and a state folder of its own, and
# those of "Several hosts" with loopback for every host.
set -euo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d)
export XDG_STATE_HOME="$state" PATH="$PWD/build/release/bin:$PATH"
unset TPCTL_SERVER
programs=()  # of several hosts
stop() {
  tpctl local down >/dev/null 2>&1 || true
  [ ${#programs[@]} -eq 0 ] || { kill "${programs[@]}" && wait "${programs[@]}"; } || true
  rm -rf "$state"
}
trap stop EXIT

# block SECTION LANGUAGE: the first block of code of that language in that section.
block() {
  awk -v section="## $1" -v fence="^\`\`\`$2" '$0 == section {in_section = 1} in_section && /^```$/ {exit}
    in_section && on {print} in_section && $0 ~ fence {on = 1}' README.md
}
tour=$(block "A tour" sh) hosts=$(block "Several hosts" bash)
[ "$(grep -c tpctl <<<"$tour")" -ge 10 ] || { echo "readme.sh: the tour was not found in README.md" >&2; exit 1; }
[ "$(grep -c tls-ca <<<"$hosts")" -eq 3 ] || { echo "readme.sh: the commands for several hosts were not found" >&2; exit 1; }

bash -eux -c "$tour"

port=$((20000 + RANDOM % 10000))
while read -r -a words; do
  echo "+ ${words[*]}"
  case ${words[0]} in
    tp-*) "${words[@]}" & programs+=($!) ;;
    tpctl) timeout 60 bash -c 'until "$@" 2>/dev/null | tee "$0" | grep -q worker-0; do sleep 0.1; done; cat "$0"' "$state/workers" "${words[@]}" ;;
    *) "${words[@]}" ;;
  esac
done < <(sed "s/ *#.*//; /^$/d; s/10\.0\.0\.[12]/127.0.0.1/g; s/:7050/:$port/; s|/var/lib/tensorplane|$state/data|; s|/models|$state|; s|tls/|$state/tls/|g
  s| tls | $state/tls |" <<<"$hosts")

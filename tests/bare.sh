#!/usr/bin/env bash
# Runs the quickstart in a fresh Debian 12 folder that has nothing but the base system. By hand, as root; takes the minutes
# of a first build and 3 GB. Usage: tests/bare.sh [FOLDER]   (kept for a second run where FOLDER is given)
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)

[ "$(id -u)" -eq 0 ] || { echo "bare.sh: run as root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "bare.sh: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
root=${1:-$(mktemp -d)}
cleanup() {
  umount "$root/proc" 2>/dev/null || true
  umount "$root/dev" 2>/dev/null || true
  [ -n "${keep:-}" ] || rm -rf --one-file-system "$root"
}
[ $# -ge 1 ] && keep=1
trap cleanup EXIT

mirror=$(sed -n 's/^URIs: *//p; s/^deb \([^ ]*\) bookworm main.*/\1/p' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1 || true)
[ -x "$root/bin/bash" ] || debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"}
for file in /etc/apt/apt.conf /etc/resolv.conf; do [ -f "$file" ] && cp "$file" "$root$file"; done
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
mkdir -p "$root/proc" "$root/dev" "$root/src"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev" || mount --bind /dev "$root/dev"
git -C "$source" archive HEAD | tar -x -C "$root/src"
chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
  ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
  /bin/bash /src/deploy/quickstart.sh

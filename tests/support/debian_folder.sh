# shellcheck shell=bash
# Sourced by scripts that work in bare Debian 12 folders (chroot), as root. Example:
#   source tests/support/debian_folder.sh
#   debian_needs my_script
#   trap 'debian_remove "$root"' EXIT
#   debian_make "$root" base.tar        # unpacked from base.tar, which is made where it is not there
#   debian_run "$root" apt-get update

# Exits 77 with one line where the machine can't do it. $1: the script's name.
debian_needs() {
  [ "$(id -u)" -eq 0 ] || { echo "$1: needs root" >&2; exit 77; }
  command -v debootstrap >/dev/null || { echo "$1: needs debootstrap: apt-get install debootstrap" >&2; exit 77; }
}

# The base system in folder $1, from the tar $2 where it is given (made where it is not there); with /proc, and with /dev/shm
# for every user; apt reaches what the host's does.
debian_make() {
  local root=$1 tar=${2:-} mirror
  if [ ! -x "$root/bin/bash" ]; then
    mkdir -p "$root"
    if [ -n "$tar" ] && [ -f "$tar" ]; then
      tar -x -f "$tar" -C "$root"
    else
      mirror=$(sed -n 's/^URIs: *//p; s/^deb \([^ ]*\) bookworm main.*/\1/p' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1 || true)
      debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; return 1; }
      rm -f "$root.log"
      if [ -n "$tar" ]; then tar -c -f "$tar" -C "$root" .; fi
    fi
  fi
  for file in /etc/apt/apt.conf /etc/resolv.conf; do [ ! -f "$file" ] || cp "$file" "$root$file"; done
  cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
  mkdir -p "$root/proc" "$root/dev"
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
  mountpoint -q "$root/dev" || mountpoint -q "$root/dev/shm" || {
    # The base system has devices of its own, unless making them was forbidden.
    if [ -c "$root/dev/null" ] && echo 2>/dev/null >"$root/dev/null"; then
      mkdir -p "$root/dev/shm"
      mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    else
      mount --bind /dev "$root/dev"
    fi
  }
}

# debian_run FOLDER [-u UID:GID] [-d FOLDER_INSIDE] [NAME=VALUE ...] COMMAND ...
debian_run() {
  local root=$1 user=() folder=/
  shift
  while :; do
    case "${1:-}" in
      -u) user=(--userspec="$2"); shift 2 ;;
      -d) folder=$2; shift 2 ;;
      *) break ;;
    esac
  done
  chroot ${user[@]+"${user[@]}"} "$root" /usr/bin/env -i --chdir="$folder" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    "$@"
}

# Ends what is mounted below folder $1.
debian_unmount() {
  local mounted
  while read -r mounted; do umount "$mounted" || umount -l "$mounted" || true; done < <(
    awk -v root="$1/" 'index($2, root) == 1 {print $2}' /proc/mounts | sort -r)
}
debian_remove() {
  debian_unmount "$1"
  rm -rf --one-file-system "$1"
}

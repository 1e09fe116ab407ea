#!/usr/bin/env bash
# Makes an authority and certificates that it signs, to try TLS with: FOLDER/ca.pem, and NAME.pem and NAME.key for each
# name, for servers and clients both, good for the given host or address and for 127.0.0.1. The authority stays for more names.
# Usage: deploy/certificates.sh FOLDER NAME[=HOST] ...
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
command -v openssl >/dev/null || { echo "certificates.sh: openssl is missing" >&2; exit 1; }
folder=$1
shift
umask 077
mkdir -p "$folder"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { openssl "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }; }
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

[ -f "$folder/ca.key" ] || run req -x509 "${key[@]}" -keyout "$folder/ca.key" -out "$folder/ca.pem" -days 365 -subj "/CN=tensorplane"
for argument in "$@"; do
  name=${argument%%=*} host=${argument#*=}
  [[ $name =~ ^[A-Za-z0-9._-]+$ ]] || { echo "certificates.sh: '$name' is no name" >&2; exit 2; }
  kind=DNS
  if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then kind=IP; fi
  run req "${key[@]}" -keyout "$folder/$name.key" -out "$folder/$name.csr" -subj "/CN=$name"
  run x509 -req -in "$folder/$name.csr" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -CAcreateserial -days 365 \
    -out "$folder/$name.pem" -extfile <(echo "subjectAltName=$kind:$host,IP:127.0.0.1"; echo "extendedKeyUsage=serverAuth,clientAuth")
  rm "$folder/$name.csr"
done

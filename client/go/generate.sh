#!/usr/bin/env bash
# Writes the messages and the stub of proto/tp/v1 to OUT/tpv1 (client/go by default), with Debian's protobuf-compiler,
# protoc-gen-go and protoc-gen-go-grpc. They have no comments: those stand in proto/tp/v1.
# Usage: client/go/generate.sh [OUT]; run it after a change of a message or an RPC.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
names="placement mesh tensor model plan submission dtensor coordinator"
module=github.com/tensorplane/tensorplane/client/go
options=("--go_opt=module=$module" "--go-grpc_opt=module=$module")
files=()
for name in $names; do
  files+=("tp/v1/$name.proto")
  options+=("--go_opt=Mtp/v1/$name.proto=$module/tpv1" "--go-grpc_opt=Mtp/v1/$name.proto=$module/tpv1")
done
set_of_files=$(mktemp)
trap 'rm -f "$set_of_files"' EXIT
protoc -I "$here/../../proto" "--descriptor_set_out=$set_of_files" --include_imports "${files[@]}"
protoc "--descriptor_set_in=$set_of_files" "--go_out=$out" "--go-grpc_out=$out" "${options[@]}" "${files[@]}"

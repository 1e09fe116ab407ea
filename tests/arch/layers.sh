#!/usr/bin/env bash
# Checks the architecture's rules on the source text: who may include whom, which library lies in which folder, and that no
# model's name stands outside common/checkpoint. Prints each breach; exit 1 where there is one.
set -uo pipefail
cd "${1:?usage: layers.sh SOURCE_DIR}"
breaches=0

# breach TEXT LINES: reports lines that should not be there.
breach() {
  [ -z "$2" ] && return
  printf '%s:\n%s\n' "$1" "$2"
  breaches=1
}
includes() { # includes FOLDER PATTERN: lines of FOLDER that include a header whose path matches PATTERN
  grep -rnE "^#include [<\"]($2)" "$1" --include='*.h' --include='*.cc' 2>/dev/null
}

# --- Sides: server, worker and client never include each other; common includes none of them.
breach "server includes worker or client" "$(includes server '(worker|client)/')"
breach "worker includes server or client" "$(includes worker '(server|client)/')"
breach "client includes server or worker" "$(includes client '(server|worker)/')"
breach "common includes a side" "$(includes common '(server|worker|client)/')"

# --- Layers of common, lowest first: each may include itself and what stands before it.
layers=(base tensor mesh layout redistribute model sharding program)
for ((i = 0; i < ${#layers[@]}; i++)); do
  for ((j = i + 1; j < ${#layers[@]}; j++)); do
    breach "common/${layers[i]} includes common/${layers[j]}" "$(includes "common/${layers[i]}" "common/${layers[j]}/")"
  done
  breach "common/${layers[i]} includes a layer above it" \
    "$(includes "common/${layers[i]}" 'common/(checkpoint|tokenizer|proto_convert|rpc|http|metrics|flags)/')"
done
# --- The pure layers know no thread, clock, file, socket, log or environment.
for layer in tensor mesh layout redistribute model sharding program; do
  breach "common/$layer is not pure" \
    "$(includes "common/$layer" '(thread|mutex|condition_variable|chrono|fstream|filesystem|sys/|unistd.h|common/base/(log|clock).h|absl/synchronization|absl/time/clock.h)')"
  breach "common/$layer reads the environment" "$(grep -rnE '\bgetenv\(' "common/$layer" --include='*.cc' --include='*.h')"
done

# --- Libraries: each in its folder.
outside() { # outside PATTERN ALLOWED-PATH-REGEX
  grep -rnE "^#include [<\"]($1)" common server worker client --include='*.h' --include='*.cc' | grep -vE "^($2)"
}
breach "gRPC outside */rpc/" "$(outside 'grpc|tp/v1/[a-z]*\.grpc\.pb\.h' '[a-z_/]*/rpc/')"
breach "generated messages outside */rpc/ and common/proto_convert" \
  "$(outside 'tp/v1/|google/protobuf/' '[a-z_/]*/rpc/|common/proto_convert/')"
breach "spdlog outside common/base/log.cc" "$(outside 'spdlog/' 'common/base/log\.cc')"
breach "oneDNN or Highway outside worker/device/cpu" "$(outside '(dnnl|oneapi|hwy/)' 'worker/device/cpu/')"
breach "Gloo outside worker/collective/gloo" "$(outside 'gloo/' 'worker/collective/gloo/')"
breach "CUDA outside its folders" "$(outside '(cuda|nccl|cublas)' 'worker/device/cuda/|worker/collective/nccl/')"
breach "civetweb outside common/http" "$(outside 'civetweb|CivetServer' 'common/http/')"
breach "prometheus-cpp outside common/metrics" "$(outside 'prometheus/' 'common/metrics/')"
breach "SQLite outside server/store" "$(outside 'sqlite3' 'server/store/')"
breach "CLI11 outside common/flags, client/tpctl, a flags.cc and a main.cc" "$(outside 'CLI/' 'common/flags/|client/tpctl/|(server|worker)/(flags|main)\.cc')"
breach "nlohmann outside one .cc a folder" \
  "$(outside 'nlohmann/' 'common/checkpoint/json\.cc|client/tpctl/render\.cc')"

# --- Models are values: none is known by name.
breach "a model's name outside common/checkpoint" \
  "$(grep -ril llama proto common server worker client | grep -v '^common/checkpoint/' | grep -v '\.md$')"
# --- The top level holds nothing but what was agreed.
breach "strange files at the top level" \
  "$(ls | grep -vxE 'proto|server|worker|client|common|deploy|tests|build|CMakeLists\.txt|CMakePresets\.json|README\.md|LICENSE|CHANGELOG\.md')"

exit "$breaches"

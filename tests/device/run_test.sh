#!/usr/bin/env bash
# What tests/device/run.sh does, without a GPU: 77 and one line where there is none, and all its parts, its table and its
# JSON file with the program over the fakes of CUDA's libraries. Usage: run_test.sh device_check_over_fakes
set -euo pipefail
over_fakes=${1:?usage: run_test.sh PROGRAM}
script=$(cd "$(dirname "$0")" && pwd)/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
die() {
  echo "run_test.sh: $1" >&2
  exit 1
}

# no_gpu WHAT TEXT ENV..: the script must exit 77 with one line that holds TEXT.
no_gpu() {
  local what=$1 text=$2 code=0
  shift 2
  env "$@" OUT="$work/none" "$script" >"$work/said" 2>&1 || code=$?
  [ "$code" -eq 77 ] || die "$what: exit $code, not 77: $(cat "$work/said")"
  [ "$(wc -l <"$work/said")" -eq 1 ] || die "$what: not one line: $(cat "$work/said")"
  grep -qF "$text" "$work/said" || die "$what: '$text' is not in: $(cat "$work/said")"
  [ ! -e "$work/none" ] || die "$what: wrote a file"
}
# A PATH whose nvidia-smi is `body`.
smi() {
  rm -rf "$work/bin"
  mkdir "$work/bin"
  printf '#!/bin/sh\n%s\n' "$1" >"$work/bin/nvidia-smi"
  chmod +x "$work/bin/nvidia-smi"
}
smi 'exit 9'
no_gpu "a driver that does not answer" "nvidia-smi -L fails" PATH="$work/bin:$PATH"
smi 'echo "No devices found."'
no_gpu "a driver without a GPU" "lists none" PATH="$work/bin:$PATH" TP_DEVICE_CHECK=/nowhere/check
smi 'echo "GPU 0: A GPU (UUID: GPU-1)"'
no_gpu "a GPU that CUDA does not see" "this host has 0 GPUs" PATH="$work/bin:$PATH" TP_DEVICE_CHECK="$over_fakes" \
  TP_FAKE_CUDA_DEVICES=0
if ! command -v nvidia-smi >/dev/null; then
  no_gpu "a machine without the program" "no nvidia-smi" TP_DEVICE_CHECK=/nowhere/check
fi
code=0
env PATH="$work/bin:$PATH" TP_DEVICE_CHECK=/nowhere/check "$script" >"$work/said" 2>&1 || code=$?
[ "$code" -eq 1 ] || die "a GPU but no program: exit $code, not 1"
grep -q "cmake --workflow --preset device" "$work/said" || die "a GPU but no program: it does not say what to do"

# All parts, over fakes: a few tests of each and small sizes.
printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$work/bin/compute-sanitizer" # its options: --tool T --error-exitcode N
chmod +x "$work/bin/compute-sanitizer"
env PATH="$work/bin:$PATH" TP_DEVICE_CHECK="$over_fakes" TP_DEVICE_FLAGS=--small \
  TP_FAKE_CUDA_DEVICES=1 OUT="$work/out" "$script" >"$work/said" 2>&1 || die "over fakes: $(cat "$work/said")"
for row in 'suite +Gpu/KernelSweep.Reductions/Cuda +passed' 'nccl +NcclLibrary.CollectivesGroupsAndSplits +passed' \
  'demo +DemoShort.AFewTokens +passed' 'sanitizer +all of sanitizer +passed' \
  'measure +copy on the device +measured +[0-9.e+]+ GB/s' \
  'measure +product of TF32, m=16, n=k=64, its bytes +measured +[0-9.e+]+ GB/s +\([0-9.]+ % of copy on the device\)' \
  'measure +prefill attention, 2048 tokens +measured +[0-9.e+-]+ TFLOP/s +\([0-9.]+ % of product of BF16' \
  'measure +decode attention, past 8192, batch 16 +measured' \
  'measure +decode step of the demo model in F32, graphs +measured +[0-9.e+]+ us' 'total +all parts +passed'; do
  grep -qE "^$row" "$work/said" || die "no row '$row' in: $(cat "$work/said")"
done
grep -q '"name": "copy on the device", "result": "measured", "number": [0-9.e+]*, "unit": "GB/s"' "$work/out/device.json" ||
  die "device.json: $(cat "$work/out/device.json")"
[ "$(grep -c '^ {"part": .*}' "$work/out/device.json")" -eq "$(wc -l <"$work/out/device.rows")" ] &&
  [ "$(tail -n 1 "$work/out/device.json")" = "]}" ] || die "device.json lacks rows: $(cat "$work/out/device.json")"

# What fails is told, in the exit status too.
printf '#!/bin/sh\n[ "$1" = probe ] && { echo cuda:0; exit 0; }\n[ "$1" = nccl ] && { echo broken; exit 3; }\nexit 0\n' >"$work/bad"
chmod +x "$work/bad"
code=0
env PATH="$work/bin:$PATH" TP_DEVICE_CHECK="$work/bad" OUT="$work/out" "$script" >"$work/said" 2>&1 || code=$?
[ "$code" -eq 1 ] || die "a part that fails: exit $code, not 1"
grep -qE '^nccl +all of nccl: exit 3 +failed' "$work/said" || die "a part that fails: $(cat "$work/said")"
grep -qx 'broken' "$work/said" || die "a part that fails: its log is not shown"

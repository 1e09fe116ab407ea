#!/usr/bin/env bash
# Checks the CUDA backend on a real GPU, in under 8 minutes: the suite of every Device and kernels against float64, NCCL
# with one rank, the demo model against its reference, compute-sanitizer on a short run, measurements. Prints a table of
# name, result and number; writes device.json, and a log a part, into the folder that OUT names (build/device/out unless
# set). Exits 0 where all passed, 1 where something failed, 77 with one line where there is no GPU.
#
# The machine needs an NVIDIA driver for CUDA 13, libcublasLt and NCCL (with a CUDA 13 toolkit in /usr/local/cuda, or on
# LD_LIBRARY_PATH), and none of Debian's packages: the program is built beforehand, with nvcc but without a GPU, by
#   cmake --workflow --preset device          # build/device/bin/tp_device_check, under 64 MiB with the tree
# and is taken along. TP_DEVICE_CHECK names another one, TP_DEVICE_FLAGS are given to each of its runs.
set -uo pipefail
cd "$(dirname "$0")/../.."

program=${TP_DEVICE_CHECK:-build/device/bin/tp_device_check}
no_gpu() {
  echo "device check: no GPU here ($1)"
  exit 77
}
fail() {
  echo "device check: $1" >&2
  exit 1
}

# --- Is there a GPU?
if command -v nvidia-smi >/dev/null; then
  listed=$(timeout 20 nvidia-smi -L 2>/dev/null) || no_gpu "nvidia-smi -L fails"
  grep -q '^GPU ' <<<"$listed" || no_gpu "nvidia-smi -L lists none"
elif [ ! -x "$program" ]; then
  no_gpu "no nvidia-smi, and no $program to ask"
fi
[ -x "$program" ] || fail "$program is not there; build it: cmake --workflow --preset device"

# --- CUDA's libraries in their usual folders.
for folder in "${CUDA_HOME:-}"/lib64 /usr/local/cuda/lib64 /usr/local/cuda-13*/lib64 /usr/local/cuda-13*/lib \
  /usr/local/cuda-13*/targets/x86_64-linux/lib; do
  [ -d "$folder" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
if [ -z "${TP_DEVICE_CHECK:-}" ] && missing=$(ldd "$program" | grep 'not found'); then
  command -v nvidia-smi >/dev/null || no_gpu "no nvidia-smi, no CUDA libraries"
  fail "libraries are missing: $(tr -s '\t\n' ' ' <<<"$missing")"
fi
read -ra flags <<<"${TP_DEVICE_FLAGS:-}"
gpu=$(timeout 60 "$program" probe "${flags[@]}" 2>&1)
code=$?
[ "$code" -eq 77 ] && no_gpu "$(tail -n 1 <<<"$gpu" | sed 's/^no GPU: //')"
[ "$code" -eq 0 ] || fail "the GPU can't be used: $(tail -n 1 <<<"$gpu")"

out=${OUT:-build/device/out}
mkdir -p "$out" || fail "$out can't be made"
rows=$out/device.rows
: >"$rows" || fail "$out can't be written"
started=$SECONDS
failed=0
row() { # row PART NAME RESULT [NUMBER UNIT]: a row of the script's own
  printf '%s\t%s\t%s\t%s\t%s\t\t\n' "$1" "$2" "$3" "${4:-0}" "${5:-}" >>"$rows"
}
# part NAME SECONDS COMMAND..: runs a part within its time; its output goes to a log.
part() {
  local name=$1 limit=$2 from=$SECONDS code=0
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1 || code=$?
  case $code in
    0) row "$name" "all of $name" passed $((SECONDS - from)) s; return ;;
    124 | 137) row "$name" "all of $name: over its $limit s" failed $((SECONDS - from)) s ;;
    *) row "$name" "all of $name: exit $code" failed $((SECONDS - from)) s ;;
  esac
  failed=1
  echo "--- $name failed (exit $code); the end of $out/$name.log:"
  tail -n 25 "$out/$name.log"
}

echo "device check on $gpu"
part suite 120 "$program" suite --rows "$rows" "${flags[@]}"
part nccl 45 "$program" nccl --rows "$rows" "${flags[@]}"
part demo 60 "$program" demo --rows "$rows" "${flags[@]}"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ]; then
  part sanitizer 110 "$sanitizer" --tool memcheck --error-exitcode 9 "$program" short "${flags[@]}"
else
  row sanitizer "compute-sanitizer is not there" skipped
fi
part measure 120 "$program" measure --rows "$rows" "${flags[@]}"
row total "all parts" "$([ "$failed" -eq 0 ] && echo passed || echo failed)" $((SECONDS - started)) s

# --- The table and the JSON file.
awk -F '\t' '
  BEGIN { printf "%-9s  %-74s  %-8s  %s\n", "part", "name", "result", "number" }
  {
    share = $6 == "" ? "" : sprintf("  (%.1f %% of %s)", 100 * $6, $7)
    printf "%-9s  %-74s  %-8s  %s %s%s\n", $1, $2, $3, $4, $5, share
  }' "$rows"
awk -F '\t' -v gpu="$gpu" '
  BEGIN { gsub(/["\\]/, " ", gpu); printf "{\"gpu\": \"%s\", \"rows\": [", gpu }
  {
    gsub(/["\\]/, " ")
    printf "%s\n {\"part\": \"%s\", \"name\": \"%s\", \"result\": \"%s\", \"number\": %s", (NR > 1 ? "," : ""), $1, $2, $3, $4
    if ($5 != "") printf ", \"unit\": \"%s\"", $5
    if ($6 != "") printf ", \"share\": %s, \"of\": \"%s\"", $6, $7
    printf "}"
  }
  END { print "\n]}" }' "$rows" >"$out/device.json"
echo "device check: $out/device.json"
exit "$failed"

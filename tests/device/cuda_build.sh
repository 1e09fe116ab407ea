#!/usr/bin/env bash
# Builds the CUDA backend with nvcc, for which no GPU is needed, and checks what comes out: tp-worker depends on no CUDA
# library and says clearly that a GPU is missing; the program of run.sh depends on nothing but CUDA's libraries and the C
# library, and is small enough to take along. Where nvcc is not there it says so, and that is no failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
die() {
  echo "cuda_build.sh: $1" >&2
  exit 1
}

nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || nvcc=/usr/local/cuda/bin/nvcc
if [ ! -x "$nvcc" ]; then
  echo "cuda_build.sh: no nvcc on PATH or in /usr/local/cuda/bin: the CUDA backend was NOT built"
  exit 0
fi
export CUDACXX=$nvcc

cmake --preset cuda >/dev/null
cmake --build --preset cuda
worker=build/cuda/bin/tp-worker
cuda='libcuda|libcublas|libnccl|libnvrtc|libnvJitLink|libcudnn'
if ldd "$worker" | grep -E "$cuda"; then die "$worker depends on CUDA's libraries"; fi
ldd build/cuda/bin/libtp_cuda.so | grep -q libcublasLt || die "libtp_cuda.so does not depend on cuBLASLt: not built by nvcc?"
if ! command -v nvidia-smi >/dev/null; then
  code=0
  said=$(timeout 60 "$worker" --server 127.0.0.1:1 --device cuda:0 2>&1) || code=$?
  [ "$code" -eq 1 ] || die "tp-worker without a GPU: exit $code, not 1: $said"
  grep -q 'tp-worker: FAILED_PRECONDITION: --device cuda:0: ' <<<"$said" || die "tp-worker without a GPU says: $said"
  echo "cuda_build.sh: $(tail -n 1 <<<"$said")"
fi

cmake --preset device >/dev/null
cmake --build --preset device
program=build/device/bin/tp_device_check
allowed='linux-vdso|ld-linux-x86-64|lib(c|m|pthread|dl|rt)\.so|libcublasLt\.so|libnccl\.so'
needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
if grep -vE "^($allowed)" <<<"$needed"; then die "$program depends on these"; fi
# NCCL and cuBLASLt themselves need the compiler's libraries.
if ldd "$program" | grep -vE "^[[:space:]]*([^ ]*/)?($allowed|libstdc\+\+\.so|libgcc_s\.so)"; then die "$program depends on these too"; fi
size=$({ git ls-files -z; printf '%s\0' "$program"; } | xargs -0 cat | wc -c)
[ "$size" -le $((64 << 20)) ] || die "$program and the tree are $((size >> 20)) MiB, over 64"
if ! command -v nvidia-smi >/dev/null; then
  code=0
  said=$("$program" suite 2>&1) || code=$?
  [ "$code" -eq 77 ] || die "$program without a GPU: exit $code, not 77: $said"
  [ "$(wc -l <<<"$said")" -eq 1 ] || die "$program without a GPU says more than one line: $said"
fi
echo "cuda_build.sh: $program is $(($(stat -c %s "$program") >> 20)) MiB, with the tree $((size >> 20)) MiB"

#!/bin/sh
# Puts CUDA 13 and NCCL from NVIDIA's wheels into a folder (there is no image of Debian 12 that has them).
# Usage: cuda.sh [/usr/local/cuda]
set -eu
prefix=${1:-/usr/local/cuda}
mkdir -p "$prefix"
wheels=$(mktemp -d -p "$(dirname "$prefix")")
pip install -q --no-deps --no-cache-dir --no-compile --root-user-action=ignore --target "$wheels" \
  'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*' \
  'nvidia-cuda-runtime==13.0.*' 'nvidia-cublas==13.0.*' 'nvidia-nccl-cu13==2.28.*'
cp -al "$wheels/nvidia/cu13/." "$wheels/nvidia/nccl/." "$prefix/"
rm -rf "$wheels"
# What the linker and CMake look for.
for library in cudart cublas cublasLt nccl; do
  ln -sf "$(basename "$(echo "$prefix/lib/lib$library".so.*)")" "$prefix/lib/lib$library.so"
done
ln -sfn lib "$prefix/lib64"

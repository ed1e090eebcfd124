#!/usr/bin/env bash
# Prints the folder of a CUDA toolkit (bin/nvcc, include, lib): that of the nvcc on PATH, else one release of NVIDIA's
# Python packages, installed into the cache. Usage: deploy/cuda_toolkit.sh
set -euo pipefail
release=13.5
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvring/cuda-$release

if nvcc=$(command -v nvcc); then
  dirname "$(dirname "$(readlink -f "$nvcc")")"
  exit
fi
found() { find "$cache" -path '*/nvidia/cu13/bin/nvcc' 2>/dev/null | head -1; }
if [ ! -f "$cache/complete" ]; then
  printf 'cuda_toolkit: installing release %s\n' "$release" >&2
  rm -rf "$cache"
  python3 -m venv "$cache"
  "$cache/bin/pip" install --quiet "nvidia-cuda-nvcc==$release.*" "nvidia-nvvm==$release.*" "nvidia-cuda-crt==$release.*" \
    "nvidia-cuda-runtime==$release.*" "nvidia-cuda-cccl>=13.3,<13.6" "nvidia-cublas>=13,<14" >&2
  touch "$cache/complete"
fi
dirname "$(dirname "$(found)")"

#!/usr/bin/env bash
# Compiles every CUDA kernel for real devices, prints what each takes, and fails when one spills registers.
# Usage: cuda_compile.sh     with KVRING_CUDA_ROOT from deploy/cuda_toolkit.sh; skipped without.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x "${KVRING_CUDA_ROOT:-}/bin/nvcc" ]; then
  echo "skipped: no CUDA toolkit (tests/run.sh brings one)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for source in kernels/cuda/*.cu; do
  "$KVRING_CUDA_ROOT/bin/nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -Xptxas -v \
    -I. "-I$KVRING_CUDA_ROOT/include" -c "$source" -o "$work/object.o" 2>>"$work/log" || { cat "$work/log"; exit 1; }
done
awk '
  /Compiling entry function/ { split($0, quoted, "\x27"); arch = quoted[4]; kernel = quoted[2]
    if (match(kernel, /[A-Z][A-Za-z]+Kernel(ILi[0-9]+ELi[0-9]+E)?/)) kernel = substr(kernel, RSTART, RLENGTH)
    gsub(/ILi/, "<", kernel); gsub(/ELi/, ",", kernel); sub(/E$/, ">", kernel) }
  /spill stores/ { stack = $1; spills = $5 }
  /Used [0-9]+ registers/ { match($0, /[0-9]+ registers/); registers = substr($0, RSTART, RLENGTH)
    shared = "0"; if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH - 11)
    printf "%-24s %-6s %-14s stack %3s B, spills %3s B, shared %5s B\n", kernel, arch, registers, stack, spills, shared
    count++; if (spills + 0 > 0) failed = 1 }
  END { if (count == 0) { print "no kernel was seen"; exit 1 } if (failed) print "a kernel spills"; exit failed }' "$work/log" | sort
exit "${PIPESTATUS[0]}"

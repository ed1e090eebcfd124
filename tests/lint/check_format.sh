#!/bin/sh
# All tracked C++ is formatted by .clang-format. Usage: check_format.sh CLANG_FORMAT [--fix]
set -eu
git ls-files '*.h' '*.cc' '*.cu' | if [ "${2:-}" = --fix ]; then xargs "$1" -i; else xargs "$1" --dry-run -Werror; fi

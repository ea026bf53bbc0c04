#!/usr/bin/env bash
# clang-tidy (.clang-tidy says which checks) on the given sources, or on those that differ from main:
#
#   tools/check_tidy.sh [src/FILE.cpp ...]
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-tidy >/dev/null || { echo "check_tidy.sh: clang-tidy is missing: apt-get install clang-tidy" >&2; exit 1; }
files=("$@")
[[ ${#files[@]} -gt 0 ]] || mapfile -t files < <(git diff --name-only --diff-filter=d main -- 'src/*.cpp' | grep -v /kernels/ || true)
[[ ${#files[@]} -gt 0 ]] || { echo "check_tidy.sh: no source differs from main" >&2; exit 0; }
# Without precompiled headers and warning options that are g++'s own: a folder that is only configured.
cmake --preset dev -B build/tidy -DWEFT_BUILD_TESTS=OFF -DCMAKE_CXX_COMPILER=clang++ --log-level=WARNING >/dev/null
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build/tidy

#!/usr/bin/env bash
# Builds the Python package into build/release/python, for Debian's own Python.
set -euo pipefail
cd "$(dirname "$0")/.."

nanobind=$(tools/fetch_nanobind.sh)
options=()
[[ -f build/release/build.ninja ]] || options=(-DWEFT_BUILD_TESTS=OFF)  # as in build_cli.sh
cmake --preset release "${options[@]}" -DWEFT_BUILD_PYTHON=ON -Dnanobind_DIR="$nanobind/cmake" \
  -DPython_EXECUTABLE=/usr/bin/python3 --log-level=WARNING >/dev/null
cmake --build build/release --target weft_stubs
echo "weft: built; try  PYTHONPATH=build/release/python /usr/bin/python3 -c 'import weft; help(weft)'"

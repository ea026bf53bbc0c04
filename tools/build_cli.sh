#!/usr/bin/env bash
# Builds build/release/bin/weft and the libraries: all that `cmake --install build/release` puts in place.
set -euo pipefail
cd "$(dirname "$0")/.."

# The tests' build shares this folder. What is configured stays as it is, with tests or without; a new folder goes
# without them, because they need packages that the program does not.
options=()
[[ -f build/release/build.ninja ]] || options=(-DWEFT_BUILD_TESTS=OFF)
cmake --preset release "${options[@]}" --log-level=WARNING >/dev/null
cmake --build build/release --target weft_installed

#!/usr/bin/env bash
# Builds build/release/bin/weft, without the tests; with --all also the libraries that are installed.
set -euo pipefail
cd "$(dirname "$0")/.."

# The tests' build shares this folder and its objects: only what is configured differs.
cmake --preset release -DWEFT_BUILD_TESTS=OFF --log-level=WARNING >/dev/null
if [[ "${1:-}" == --all ]]; then
  cmake --build build/release
else
  cmake --build build/release --target weft
fi

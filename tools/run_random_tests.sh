#!/usr/bin/env bash
# run_random_tests.sh [SEED]: the fast suite on random cases that nobody has seen before, or again on those of a seed.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=${1:-$((RANDOM * 32768 + RANDOM))}
echo "seed $seed; the same cases again: make test-random SEED=$seed"
export RC_PARAMS="seed=$seed ${RC_PARAMS:-}" GTEST_RANDOM_SEED=$((seed % 99999 + 1))
cmake --preset release -DWEFT_BUILD_TESTS=ON >/dev/null
cmake --build build/release
ctest --test-dir build/release -L '^fast$' -j "$(nproc)" --output-on-failure --no-tests=error

#!/usr/bin/env bash
# run_fuzzers.sh SECONDS [--total]: runs every fuzzer for so long, or all of them together.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=$1
fuzzers=$(find tests/fuzz -name 'fuzz_*.cpp' -not -name fuzz_seeds.cpp | wc -l)
[[ "${2:-}" == --total ]] && seconds=$(((seconds + fuzzers - 1) / fuzzers))
cmake --preset fuzz -DWEFT_FUZZ_RUNS=-1 -DWEFT_FUZZ_SECONDS="$seconds"
cmake --build build/fuzz
mkdir -p build/results
ctest --test-dir build/fuzz -L '^fuzz$' --output-on-failure --no-tests=error --timeout $((seconds + 300)) \
  --output-junit "$PWD/build/results/fuzz.xml"

#!/usr/bin/env bash
# run_fuzzers.sh SECONDS [--total]: runs every fuzzer for so long, or all of them together; prints how many inputs
# each one tried, how fast, and how many of them found something new. They run side by side.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=$1
fuzzers=$(find tests/fuzz -name 'fuzz_*.cpp' -not -name fuzz_seeds.cpp | wc -l)
options=
if [[ "${2:-}" == --total ]]; then
  seconds=$(((seconds + fuzzers - 1) / fuzzers))
  # How rare what an input reaches is, libFuzzer counts anew with every input: of the first seconds that takes nearly
  # all, and pays within minutes.
  options=-entropic=0
fi
cmake --preset fuzz -DWEFT_FUZZ_RUNS=-1 -DWEFT_FUZZ_SECONDS="$seconds" -DWEFT_FUZZ_OPTIONS="$options"
cmake --build build/fuzz
mkdir -p build/results
outcome=0
# All of it is built as of now: the tests that ask for that (build.*, fixtures of the others) are left out.
ctest --test-dir build/fuzz -L '^fuzz$' -FS '^build\.' -j "$fuzzers" --output-on-failure --no-tests=error \
  --timeout $((seconds + 300)) --output-junit "$PWD/build/results/fuzz.xml" || outcome=$?

# libFuzzer's -print_final_stats, as CTest kept them.
awk '
  /^[0-9]+\/[0-9]+ Test: / { name = $NF }
  /^stat::/ { stats[name, $1] = $2; if (!(name in seen)) { seen[name] = 1; names[++n] = name } }
  END {
    printf "%-16s %12s %12s %14s %12s\n", "fuzzer", "executions", "a second", "new inputs", "peak MiB"
    for (i = 1; i <= n; ++i)
      printf "%-16s %12d %12d %14d %12d\n", names[i], stats[names[i], "stat::number_of_executed_units:"],
        stats[names[i], "stat::average_exec_per_sec:"], stats[names[i], "stat::new_units_added:"],
        stats[names[i], "stat::peak_rss_mb:"]
  }' build/fuzz/Testing/Temporary/LastTest.log | tee build/results/fuzz.txt
exit "$outcome"

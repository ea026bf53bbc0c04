#!/usr/bin/env bash
# run_random_tests.sh [--sparse] [SEED]: the fast suite on random cases that nobody has seen before, or again on those of
# a seed. --sparse: random expressions, programs and schedules of the sparse compiler alone, in numbers that take about
# an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

sparse=
[[ "${1:-}" == --sparse ]] && { sparse=1; shift; }
seed=${1:-$((RANDOM * 32768 + RANDOM))}
echo "seed $seed; the same cases again: $0 ${sparse:+--sparse }$seed"
export RC_PARAMS="seed=$seed ${RC_PARAMS:-}" GTEST_RANDOM_SEED=$((seed % 99999 + 1)) WEFT_RANDOM_SEED=$seed
cmake --preset release -DWEFT_BUILD_TESTS=ON >/dev/null
if [[ -z "$sparse" ]]; then
  cmake --build build/release
  ctest --test-dir build/release -L '^fast$' -j "$(nproc)" --output-on-failure --no-tests=error
  exit
fi

cmake --build build/release --target sparse_random_test sparse_random_card_test
mkdir -p build/results
# run PROGRAM TEST CASES: to build/results/random_TEST.txt.
run() {
  local log=build/results/random_$2.txt outcome=passed
  WEFT_RANDOM_CASES=$3 "build/release/bin/$1" --gtest_filter="*.$2" >"$log" 2>&1 || outcome=FAILED
  echo "$2: $3 cases $outcome in ${SECONDS} s ($log)"
  [[ "$outcome" == passed ]]
}
outcome=0
{ # Two at a time, the longest first.
  run sparse_random_test CompiledHaveTheirValue 100 &
  {
    run sparse_random_test HaveTheirValueInEveryForm 100000
    run sparse_random_test InterpretedComputeWhatTheProgramSays 20000
    run sparse_random_test CompiledComputeWhatTheProgramSays 2000
    run sparse_random_card_test OnCardsComputeWhatTheProgramSays 2000
  } &
  for job in $(jobs -p); do wait "$job" || outcome=1; done
}
exit "$outcome"

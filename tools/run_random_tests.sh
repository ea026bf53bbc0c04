#!/usr/bin/env bash
# The fast suite on random cases that nobody has seen before, or again on those of a seed; or the sparse compiler's own:
# expressions, programs and schedules, in numbers that take about an hour on two cores.
#   run_random_tests.sh [SEED]
#   run_random_tests.sh --sparse [-j JOBS] [--share PERCENT] [--only PART]... [SEED]
# JOBS: how many programs run at a time, one for each core if not given. PERCENT of the cases, 100 if not given.
# PART: expressions, compiled_expressions, interpreted, compiled, host_machine, card; all of them if none is given, card only
# where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

sparse= seed= jobs=$(nproc) share=100 only=
while (($# > 0)); do
  case $1 in
    --sparse) sparse=1 ;;
    -j) jobs=$2; shift ;;
    --share) share=$2; shift ;;
    --only) only+=" $2"; shift ;;
    *[!0-9]*) sed -n '2,9s/^# \?//p' "$0" >&2; exit 2 ;;
    *) seed=$1 ;;
  esac
  shift
done
seed=${seed:-$((RANDOM * 32768 + RANDOM))}
again=${sparse:+--sparse }${only:+$(printf -- '--only %s ' $only)}
[[ $share != 100 ]] && again+="--share $share "
echo "seed $seed; the same cases again: $0 $again$seed"
export RC_PARAMS="seed=$seed ${RC_PARAMS:-}" GTEST_RANDOM_SEED=$((seed % 99999 + 1)) WEFT_RANDOM_SEED=$seed
cmake --preset release -DWEFT_BUILD_TESTS=ON >/dev/null
if [[ -z "$sparse" ]]; then
  cmake --build build/release
  ctest --test-dir build/release -L '^fast$' -j "$jobs" --output-on-failure --no-tests=error
  exit
fi

cmake --build build/release -j "$jobs" --target sparse_random_test sparse_random_host_test sparse_random_card_test
export results=build/results/random
rm -rf "$results"
mkdir -p "$results"

# Each part: its program and test, how many cases, and how many of them one process runs: one that dies takes no others
# with it.
parts=$(awk -v share="$share" '{ $4 = int(($4 * share + 99) / 100); print }' <<'TABLE'
compiled_expressions sparse_random_test CompiledHaveTheirValue 100 5
host_machine sparse_random_host_test OnTheHostMachineComputeWhatTheProgramSays 2000 500
card sparse_random_card_test OnACardComputeWhatTheProgramSays 2000 125
compiled sparse_random_test CompiledComputeWhatTheProgramSays 2000 500
interpreted sparse_random_test InterpretedComputeWhatTheProgramSays 20000 2000
expressions sparse_random_test HaveTheirValueInEveryForm 100000 20000
TABLE
)

# run PART PROGRAM TEST FIRST CASES: one line, and how failures are run again; the log keeps all else.
run() {
  local begin=$SECONDS log=$results/$1.$4.txt outcome=passed
  local -x WEFT_RANDOM_FIRST=$4 WEFT_RANDOM_CASES=$5 WEFT_RANDOM_FAILURES=${WEFT_RANDOM_FAILURES:-10}
  timeout -k 10 3600 "build/release/bin/$2" --gtest_filter="*.$3" >"$log" 2>&1 || outcome="FAILED with $?"
  echo "$(date +%T) $1, cases $4 to $(($4 + $5 - 1)): $outcome, $((SECONDS - begin)) s ($log)"
  [[ $outcome == passed ]] && return
  local lines
  lines=$(grep -aoE 'WEFT_RANDOM_SEED=[0-9]+ WEFT_RANDOM_FIRST=[0-9]+ WEFT_RANDOM_CASES=1' "$log" | sort -u)
  lines=${lines:-WEFT_RANDOM_SEED=$WEFT_RANDOM_SEED WEFT_RANDOM_FIRST=$4 WEFT_RANDOM_CASES=$5}
  sed "s|\$| build/release/bin/$2 --gtest_filter=*.$3|; s|^|  again: |" <<<"$lines"
  return 1
}
export -f run

outcome=0
while read -r part program test cases size; do
  [[ -n "$only" && " $only " != *" $part "* ]] && continue
  for ((first = 0; first < cases; first += size)); do
    echo "$part" "$program" "$test" "$first" "$((cases - first < size ? cases - first : size))"
  done
done <<<"$parts" | xargs -P "$jobs" -L 1 bash -c 'run "$@"' run || outcome=1

# How often each primitive was accepted, and in how many cases that have run, over all processes of a part.
for part in interpreted compiled host_machine card; do
  logs=("$results/$part".*.txt)
  [[ -e "${logs[0]}" ]] || continue
  echo "$part:"
  awk '
    /^lines +drawn +accepted/ { inside = 1; next }
    inside && NF == 5 && $2 ~ /^[0-9]+$/ { drawn[$1] += $2; accepted[$1] += $3; cases[$1] += $5 }
    inside && $1 == "all" { inside = 0 }
    END {
      for (line in drawn) {
        if (cases["all"] >= 900 && cases[line] == 0) never = never " " line
        printf("  %-20s %8d drawn %8d accepted %4d %% %8d cases\n", line, drawn[line], accepted[line],
               (drawn[line] > 0 ? 100 * accepted[line] / drawn[line] : 0), cases[line]) | "sort"
      }
      close("sort")
      if (never != "") print "  FAILED: in no case that ran:" never
      exit never != ""
    }' "${logs[@]}" || outcome=1
done
[[ $outcome == 0 ]] && echo "all passed in $SECONDS s" || echo "FAILED, see above; $SECONDS s"
exit "$outcome"

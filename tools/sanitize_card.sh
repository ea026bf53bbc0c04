#!/usr/bin/env bash
# Runs compute-sanitizer's four tools on the first card, over one call of each path, tile, loader and cache of attention, plans
# and merges there, a replayed graph, steps of a model, layered and fused, the operators of sparse, and the kernels of
# tests/simt:
#   tools/sanitize_card.sh [FOLDER WITH THE TEST PROGRAMS [FILE FOR THE SUMMARY [TOOL...]]]
# The summary has a line a tool and program: how many tests ran, and what the tool counted. Ends with 0 where all are clean, 77
# where the tool is not there or cannot run on this machine.
set -u
bin=${1:-build/release/bin}
summary=${2:-/dev/null}
[ $# -gt 2 ] && tools=("${@:3}") || tools=(memcheck racecheck initcheck synccheck)
tool=$(command -v compute-sanitizer || ls -d /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -1)
[ -n "$tool" ] || { echo "compute-sanitizer is not here: it comes with CUDA's toolkit" >&2; exit 77; }

failed=0
check() {  # check TOOL PROGRAM FILTER
  local log rc begin=$SECONDS line passed
  log=$(WEFT_STEP_LIMIT_MS=0 "$tool" --tool "$1" --error-exitcode 99 "$bin/$2" --gtest_filter="$3" 2>&1)
  rc=$?
  if [ $rc -ne 0 ] && grep -qi "not supported\|unable to\|insufficient permission" <<<"$log"; then
    grep -i "not supported\|unable to\|insufficient permission" <<<"$log" | head -3 >&2
    exit 77
  fi
  passed=$(grep -c '^\[       OK \]' <<<"$log")
  line="$1 $2: $passed tests passed; $(grep -o '\(ERROR\|RACECHECK\) SUMMARY:.*' <<<"$log" | tail -1); \
exit $rc, $((SECONDS - begin)) s"
  echo "$line" | tee -a "$summary"
  if [ $rc -ne 0 ] || [ "$passed" -eq 0 ]; then
    failed=1
    grep -v '^\[' <<<"$log" | head -60
  fi
}
for name in "${tools[@]}"; do
  # To racecheck a relaxed word of shared memory (ptx::load_relaxed_shared), by which threads of a fused step tell each other
  # how far they are, is a race.
  fused=CardOnceFused.*; [ "$name" = racecheck ] && fused=
  check "$name" attention_card_test 'Calls/CardOnce.*:CardOnceOf.*:CardGraphUpload.*'
  check "$name" attention_older_card_test 'Calls/CardOnce.*-*cp_async_bf16:*tma_bf16'
  check "$name" decode_card_test "CardOnce.*:$fused"
  check "$name" sparse_card_test 'Ready/*:Mma/*:SparseCallsOnCard.AreAsOnTheCpu'
  check "$name" simt_card_test '*'
done
exit $failed

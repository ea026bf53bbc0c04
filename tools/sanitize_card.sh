#!/usr/bin/env bash
# Runs compute-sanitizer's four tools over one call of each path, tile and loader of attention on the first card, a replayed graph
# and the kernels of tests/simt:  tools/sanitize_card.sh [FOLDER WITH THE TEST PROGRAMS]
# Ends with 0 where all are clean, 77 where the tool is not there or cannot run on this machine.
set -u
bin=${1:-build/release/bin}
tool=$(command -v compute-sanitizer || ls -d /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -1)
[ -n "$tool" ] || { echo "compute-sanitizer is not here: it comes with CUDA's toolkit" >&2; exit 77; }

failed=0
check() {  # check TOOL PROGRAM FILTER
  local log
  log=$("$tool" --tool "$1" --error-exitcode 99 "$bin/$2" --gtest_filter="$3" 2>&1)
  local rc=$?
  if [ $rc -ne 0 ] && grep -qi "not supported\|unable to\|insufficient permission" <<<"$log"; then
    grep -i "not supported\|unable to\|insufficient permission" <<<"$log" | head -3 >&2
    exit 77
  fi
  if [ $rc -eq 0 ]; then
    echo "$1 $2: clean"
  else
    failed=1
    printf '%s %s: ended with %d\n%s\n' "$1" "$2" $rc "$(grep -v '^\[' <<<"$log" | head -60)"
  fi
}
for name in memcheck racecheck initcheck synccheck; do
  check "$name" attention_card_test 'Calls/CardOnce.*:CardGraphUpload.*'
  check "$name" simt_card_test '*'
done
exit $failed

#!/usr/bin/env bash
# Everything that needs no model. One step fails, the others still run; the last line counts all tests.
set -uo pipefail
cd "$(dirname "$0")/.."

results=build/results
rm -rf "$results"
mkdir -p "$results"
jobs=$(($(nproc) + 1))  # some tests wait for compilers and threads
export RC_PARAMS="${RC_PARAMS:-seed=20261121}"  # the same random cases every time; set RC_PARAMS for others

# step NAME COMMAND...: one line in steps.tsv, the output in NAME.log, shown when the step fails.
step() {
  local name=$1 begin=$SECONDS outcome=passed
  shift
  echo "== $name"
  if ! "$@" >"$results/$name.log" 2>&1; then
    outcome=failed
    # What tests said, or the end of what a build said.
    grep -aE '(FAILED|\*\*\*|error:|Failure|runtime error|Sanitizer)' "$results/$name.log" | head -50
    tail -60 "$results/$name.log"
  fi
  echo "   $outcome after $((SECONDS - begin)) s"
  printf '%s\t%s\t%s\n' "$name" "$outcome" "$((SECONDS - begin))" >>"$results/steps.tsv"
  [[ $outcome == passed ]]
}

# Where tests write: they leave nothing behind.
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
is_empty() {
  [[ -z "$(ls -A "$temporary")" ]] && return
  echo "*** tests left among the temporary files:"
  (cd "$temporary" && find . -mindepth 1 -maxdepth 3)
  find "$temporary" -mindepth 1 -delete
  return 1
}

# suite PRESET CTEST-ARGUMENTS...: all of it is built as of now, so that the tests that ask for that (build.*, fixtures of
# the others) are left out.
suite() {
  local preset=$1 options=()
  shift
  [[ $preset == release ]] && options=("${python[@]}")
  step "$preset-configure" cmake --preset "$preset" -DWEFT_BUILD_TESTS=ON "${options[@]}" || return
  step "$preset-build" cmake --build "build/$preset" || return
  step "$preset-tests" env TMPDIR="$temporary" ctest --test-dir "build/$preset" -LE '^build$' -FS '^build\.' \
    -j "$jobs" --output-on-failure --timeout 300 --no-tests=error --output-junit "$PWD/$results/$preset.xml" "$@"
  step "$preset-litter" is_empty
}

# Kernels for cards are compiled by the NVRTC that is pinned; where it cannot be had, the tests that need it are skipped, and
# the summary says so.
if [[ -z "${WEFT_CUDA_LIBS:-}" ]] && nvrtc=$(tools/fetch_nvrtc.sh); then
  export WEFT_CUDA_LIBS="$nvrtc"
fi

# The Python package is built with a nanobind that is pinned, for the Python whose numpy Debian has; where that cannot be had,
# its tests are skipped, and the summary says so.
python=(-DWEFT_BUILD_PYTHON=OFF)
if nanobind=$(tools/fetch_nanobind.sh); then
  python=(-DWEFT_BUILD_PYTHON=ON "-Dnanobind_DIR=$nanobind/cmake" -DPython_EXECUTABLE=/usr/bin/python3)
fi

step layers-self-test python3 tools/check_layers.py --self-test
step layers python3 tools/check_layers.py
step cuda-kernels-self-test python3 tools/check_cuda_kernels.py --self-test
step cuda-kernels python3 tools/check_cuda_kernels.py
step classes-self-test python3 tools/check_classes.py --self-test
step classes python3 tools/check_classes.py
step format tools/check_format.sh
# Tests that need a model skip themselves, and say so.
unset WEFT_TEST_MODEL WEFT_TEST_GEMMA3
suite release
RC_PARAMS+=" max_success=30"  # sanitizers take tens of times longer
# Of where memory was allocated a few calls are enough: keeping thirty takes a third of the time of what allocates much.
# Stacks that outlive their calls, the default from g++ 13 on, do not align vectors of 64 bytes.
export ASAN_OPTIONS="malloc_context_size=8:detect_stack_use_after_return=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
# A second of sleep at the end of each case with threads, for races with what runs then: these are seen in less.
export TSAN_OPTIONS="atexit_sleep_ms=50${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
suite asan -L '^fast$'
suite tsan -L '^fast$'
step fuzzing tools/run_fuzzers.sh 60 --total

python3 tools/summarise_tests.py "$results"

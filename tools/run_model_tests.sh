#!/usr/bin/env bash
# The tests labelled `model`: with the demo's model, and with each model of fetch_model.sh that is named besides
# (gemma3). They find the files through WEFT_TEST_MODEL and WEFT_TEST_GEMMA3; a test without its model is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

WEFT_TEST_MODEL=$(tools/fetch_model.sh)
export WEFT_TEST_MODEL
for name in "$@"; do
  path=$(tools/fetch_model.sh "$name")
  export "WEFT_TEST_${name^^}=$path"
done
cmake --preset release -DWEFT_BUILD_TESTS=ON
cmake --build build/release
rm -rf build/results
mkdir -p build/results
status=0
ctest --test-dir build/release -L '^model$' --output-on-failure --no-tests=error \
  --output-junit "$PWD/build/results/model.xml" || status=$?
python3 tools/summarise_tests.py build/results
exit $status

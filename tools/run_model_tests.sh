#!/usr/bin/env bash
# The tests labelled `model`. They find the model through WEFT_TEST_MODEL.
set -euo pipefail
cd "$(dirname "$0")/.."

WEFT_TEST_MODEL=$(tools/fetch_model.sh)
export WEFT_TEST_MODEL
cmake --preset release -DWEFT_BUILD_TESTS=ON
cmake --build build/release
rm -rf build/results
mkdir -p build/results
status=0
ctest --test-dir build/release -L '^model$' --output-on-failure --no-tests=error \
  --output-junit "$PWD/build/results/model.xml" || status=$?
python3 tools/summarise_tests.py build/results
exit $status

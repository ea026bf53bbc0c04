#!/usr/bin/env bash
# Builds build/wheels/*.whl, a Python package that needs nothing but the C and C++ libraries of Debian 12 or of what is newer,
# and an sdist beside it. PYTHON says which Python it is for (/usr/bin/python3): from 3.12 on the wheel is for all later ones.
set -euo pipefail
cd "$(dirname "$0")/.."

python="${PYTHON:-/usr/bin/python3}"
"$python" -m venv build/wheels/venv
build/wheels/venv/bin/pip install --quiet --disable-pip-version-check build wheel
build/wheels/venv/bin/python -m build --sdist --wheel --outdir build/wheels .
for wheel in build/wheels/weft-*-linux_*.whl; do
  build/wheels/venv/bin/python -m wheel tags --remove --platform-tag "manylinux_2_36_$(uname -m)" "$wheel" >/dev/null
done
ls -l build/wheels/weft-*

#!/usr/bin/env bash
# Checks that clang-format would change no source, and that no line has more than 120 columns, comments and texts of kernels
# included, which clang-format leaves as they are; with --fix lets it format.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-format >/dev/null || { echo "clang-format is missing: apt-get install clang-format" >&2; exit 1; }
mapfile -t files < <(find include src tests examples bench python -type f \( -name '*.h' -o -name '*.cpp' \) -not -path 'tests/data/*' | sort)
if [[ "${1:-}" == --fix ]]; then
  clang-format -i "${files[@]}"
  exit 0
fi
too_long=$(printf '%s\0' "${files[@]}" | LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{121,}' | cut -d: -f1,2 || true)
if [[ -n $too_long ]]; then
  printf 'more than 120 columns: %s\n' $too_long >&2
  echo "break these lines by hand: make format leaves comments as they are" >&2
  exit 1
fi
unformatted=$( (printf '%s\0' "${files[@]}" | xargs -0 -n 8 -P "$(nproc)" clang-format --dry-run -Werror 2>&1 || true) |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error:.*/\1/p' | sort -u)
if [[ -n $unformatted ]]; then
  printf 'not formatted: %s\n' $unformatted >&2
  echo "make format mends it" >&2
  exit 1
fi

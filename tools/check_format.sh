#!/usr/bin/env bash
# Checks that clang-format would change no source; with --fix lets it.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t files < <(find include src tests examples bench -type f \( -name '*.h' -o -name '*.cpp' \) -not -path 'tests/data/*' | sort)
if [[ "${1:-}" == --fix ]]; then
  clang-format -i "${files[@]}"
  exit 0
fi
unformatted=()
for file in "${files[@]}"; do
  clang-format --dry-run -Werror "$file" >/dev/null 2>&1 || unformatted+=("$file")
done
if [[ ${#unformatted[@]} -gt 0 ]]; then
  printf 'not formatted: %s\n' "${unformatted[@]}" >&2
  echo "make format mends it" >&2
  exit 1
fi

#!/usr/bin/env bash
# Prints the folder of the nanobind that the Python module is built with, after fetching it from PyPI (0.3 MB, once) into the
# user's cache folder where it is not there yet: Debian 12 has none. Version and content are pinned.
set -euo pipefail

version=3.1.0
folder="${XDG_CACHE_HOME:-${HOME:?is not set: say where nanobind goes with XDG_CACHE_HOME}/.cache}/weft/nanobind-$version"
if [[ -f "$folder/complete" ]]; then
  echo "$folder/nanobind"
  exit 0
fi

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder-XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/requirements.txt" <<TEXT
nanobind==$version \\
  --hash=sha256:96984dbe8154ffb86e653b1b60aaeed6985c710c5e75ad0279eb87943c66292d
TEXT
echo "weft: fetching nanobind $version (once) into $folder" >&2
if ! python3 -m pip download --no-deps --only-binary :all: --require-hashes --disable-pip-version-check --quiet \
  --dest "$work" -r "$work/requirements.txt" >&2; then
  echo "weft: nanobind could not be fetched: it comes from PyPI, which needs network and python3-pip" >&2
  exit 1
fi
python3 -m zipfile -e "$work"/nanobind-*.whl "$work"
rm -rf "$work"/*.whl "$work"/*.dist-info "$work/requirements.txt"
touch "$work/complete"
mv -T "$work" "$folder" 2>/dev/null || [[ -f "$folder/complete" ]]  # another was first
echo "$folder/nanobind"

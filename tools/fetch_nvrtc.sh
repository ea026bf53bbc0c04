#!/usr/bin/env bash
# Prints the folder of the NVRTC that the tests compile kernels with, after fetching it from PyPI (90 MB, once) into the
# user's cache folder where it is not there yet. Its version and content are pinned: tables of registers depend on both.
set -euo pipefail

version=12.9.86
folder="${XDG_CACHE_HOME:-${HOME:?is not set: say where NVRTC goes with XDG_CACHE_HOME}/.cache}/weft/nvrtc-$version"
if [[ -f "$folder/complete" ]]; then
  echo "$folder"
  exit 0
fi

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder-XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/requirements.txt" <<TEXT
nvidia-cuda-nvrtc-cu12==$version \\
  --hash=sha256:210cf05005a447e29214e9ce50851e83fc5f4358df8b453155d5e1918094dcb4 \\
  --hash=sha256:096d4de6bda726415dfaf3198d4f5c522b8e70139c97feef5cd2ca6d4cd9cead
TEXT
echo "weft: fetching NVRTC $version (90 MB, once) into $folder" >&2
if ! python3 -m pip download --no-deps --only-binary :all: --require-hashes --disable-pip-version-check --quiet \
  --dest "$work" -r "$work/requirements.txt" >&2; then
  echo "weft: NVRTC could not be fetched: it comes from PyPI, which needs network and python3-pip; or name the folder of" \
    "one in WEFT_CUDA_LIBS" >&2
  exit 1
fi
python3 - "$work" <<'PYTHON'
import glob, pathlib, sys, zipfile

folder = pathlib.Path(sys.argv[1])
wheel, = glob.glob(f"{folder}/*.whl")
archive = zipfile.ZipFile(wheel)
for name in archive.namelist():
    file = pathlib.PurePosixPath(name).name
    if file.startswith("libnvrtc") and ".alt." not in file:
        (folder / file).write_bytes(archive.read(name))
PYTHON
rm "$work"/*.whl "$work/requirements.txt"
touch "$work/complete"
mv -T "$work" "$folder" 2>/dev/null || [[ -f "$folder/complete" ]]  # another was first
echo "$folder"

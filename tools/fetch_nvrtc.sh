#!/usr/bin/env bash
# Prints the folder of the NVRTC that the tests compile kernels with, and of the headers that our declarations are compared
# with, after fetching both from PyPI (94 MB, once) into the user's cache folder where they are not there yet. Versions and
# content are pinned: tables of registers depend on both.
set -euo pipefail

version=12.9.86 runtime=12.9.79
folder="${XDG_CACHE_HOME:-${HOME:?is not set: say where NVRTC goes with XDG_CACHE_HOME}/.cache}/weft/nvrtc-$version"
if [[ -f "$folder/complete" && -f "$folder/cuda.h" ]]; then
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
nvidia-cuda-runtime-cu12==$runtime \\
  --hash=sha256:25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3 \\
  --hash=sha256:83469a846206f2a733db0c42e223589ab62fd2fabac4432d2f8802de4bded0a4
TEXT
echo "weft: fetching NVRTC $version with headers (94 MB, once) into $folder" >&2
if ! python3 -m pip download --no-deps --only-binary :all: --require-hashes --disable-pip-version-check --quiet \
  --dest "$work" -r "$work/requirements.txt" >&2; then
  echo "weft: NVRTC could not be fetched: it comes from PyPI, which needs network and python3-pip; or name the folder of" \
    "one in WEFT_CUDA_LIBS" >&2
  exit 1
fi
python3 - "$work" <<'PYTHON'
import glob, pathlib, sys, zipfile

folder = pathlib.Path(sys.argv[1])
for wheel in glob.glob(f"{folder}/*.whl"):
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        file = pathlib.PurePosixPath(name).name
        if file in ("cuda.h", "nvrtc.h") or (file.startswith("libnvrtc") and ".alt." not in file):
            (folder / file).write_bytes(archive.read(name))
PYTHON
rm "$work"/*.whl "$work/requirements.txt"
touch "$work/complete"
[[ -f "$folder/cuda.h" ]] || rm -rf "$folder"  # of a time without headers
mv -T "$work" "$folder" 2>/dev/null || [[ -f "$folder/complete" ]]  # another was first
echo "$folder"

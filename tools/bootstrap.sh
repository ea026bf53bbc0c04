#!/usr/bin/env bash
# Installs the Debian packages that are missing for what is asked: build, python, test, fetch, format.
set -euo pipefail

packages=()
for purpose in "$@"; do
  case "$purpose" in
    build) packages+=(g++ cmake ninja-build pkg-config libfmt-dev libpcre2-dev nlohmann-json3-dev libcli11-dev libedit-dev libboost1.81-dev) ;;
    python) packages+=(python3-dev python3-numpy python3-pip python3-venv) ;;
    test) packages+=(libgtest-dev librapidcheck-dev libboost-context1.81-dev binutils clang libclang-rt-14-dev clang-format python3 python3-pip) ;;
    fetch) packages+=(python3 python3-pip) ;;
    format) packages+=(clang-format) ;;
    *) echo "bootstrap.sh: '$purpose' is none of build, python, test, fetch, format" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "weft: this is no Debian system; needed are what Debian calls: ${packages[*]}" >&2
  exit 0  # CMake says what it does not find
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

echo "weft: installing missing packages: ${missing[*]}" >&2
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "weft: that needs root, and there is no sudo. Run as root:  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >&2; then
  echo "weft: the packages could not be installed. Without network, install them by hand:  apt-get install ${missing[*]}" >&2
  exit 1
fi

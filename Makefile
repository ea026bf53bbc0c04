# make             build/release/bin/weft and the libraries
# make demo        fetches a small model and lets it answer: MODEL=path.gguf (or gemma3) and PROMPT="..." choose others
# make serve       the same model, served on http://127.0.0.1:8080: PORT chooses another port
# make python      the Python package, in build/release/python (docs/python.md)
# make wheel       the same as a wheel that needs nothing else, and an sdist, in build/wheels: PYTHON chooses another Python
# make test        everything that needs no model: release suite, sanitizers, fuzzing, checks of the sources
# make test-random the fast suite on random cases of a seed of its own: SEED=N gives the same ones again
# make test-model  the tests that need the model; MODEL=gemma3: those with Gemma 3 besides
# make fuzz        fuzzing, FUZZ_SECONDS (600) for each fuzzer
# make soak        serves for SOAK_SECONDS (3600) whatever may come: no page may be lost, no answer change, no memory grow
# make format      formats the sources
# make install     PREFIX=/usr/local
# Each installs the Debian packages it lacks first (as root or with sudo) and says which.

PREFIX ?= /usr/local
PROMPT ?= Why is the sky blue? Answer in two sentences.
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 3600
PORT ?= 8080
MODEL ?=
SEED ?=

.PHONY: all demo serve python wheel test test-random test-model fuzz soak format install
all:
	@tools/bootstrap.sh build
	@tools/build_cli.sh

demo:
	@tools/bootstrap.sh build $(if $(wildcard $(MODEL)),,fetch)
	@tools/build_cli.sh
	@model="$$(tools/fetch_model.sh "$(MODEL)")" && build/release/bin/weft run "$$model" -p "$(PROMPT)"

serve:
	@tools/bootstrap.sh build $(if $(wildcard $(MODEL)),,fetch)
	@tools/build_cli.sh
	@model="$$(tools/fetch_model.sh "$(MODEL)")" && exec build/release/bin/weft serve "$$model" --port "$(PORT)"

python:
	@tools/bootstrap.sh build python
	@tools/build_python.sh

wheel:
	@tools/bootstrap.sh build python
	@tools/build_wheel.sh

test:
	@tools/bootstrap.sh build python test
	@tools/run_tests.sh

test-random:
	@tools/bootstrap.sh build test
	@tools/run_random_tests.sh $(SEED)

test-model:
	@tools/bootstrap.sh build test fetch
	@tools/run_model_tests.sh $(MODEL)

fuzz:
	@tools/bootstrap.sh build test
	@tools/run_fuzzers.sh $(FUZZ_SECONDS)

soak:
	@tools/bootstrap.sh build fetch
	@tools/build_cli.sh
	@tests/serve/soak.py --seconds "$(SOAK_SECONDS)"

format:
	@tools/bootstrap.sh format
	@tools/check_format.sh --fix

install:
	@tools/bootstrap.sh build
	@tools/build_cli.sh
	cmake --install build/release --prefix "$(PREFIX)"

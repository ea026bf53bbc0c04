"""Runs FlashInfer's test files, a process each, and writes the table and the ledger."""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from .files import FILES

_COLUMNS = ("passed", "failed", "refused", "different", "skipped", "cut", "no time", "not drawn")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weft.testing.flashinfer", description=__doc__)
    parser.add_argument("checkout", type=pathlib.Path, help="a work tree of FlashInfer's repository")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what \"cuda\" is in the files")
    parser.add_argument("--cases", type=int, default=200, help="of each file, drawn by seed; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-bytes", type=int, default=1 << 29, help="a case with a larger tensor is cut (CPU)")
    parser.add_argument("--memory", type=int, default=6 << 30, help="bytes that the files' processes may have (CPU)")
    parser.add_argument("--max-operations", type=float, default=1e11, help="a case with a larger call is cut (CPU)")
    parser.add_argument("--case-seconds", type=float, default=600, help="a case that takes longer is cut; 0: none is")
    parser.add_argument("--minutes", type=float, default=0, help="for all files, a like share each; 0: no limit")
    parser.add_argument("--go-on", type=pathlib.Path, metavar="LEDGER",
                        help="an earlier run's ledger: only the cases that it had no time for")
    parser.add_argument("--ledger", type=pathlib.Path, default=pathlib.Path("flashinfer_ledger.tsv"))
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="files whose path has one of these")
    return parser


def _run(file: str, options: argparse.Namespace, folder: pathlib.Path) -> list[list[str]]:
    """[case, outcome, why] of each case of a file."""
    results = folder / "results.json"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-p", "weft.testing.flashinfer.plugin", "-q",
               "--import-mode=importlib", "-p", "no:cacheprovider", "--tb=short", "--no-header", "-W", "ignore",
               f"--weft-device={options.device}", f"--weft-cases={options.cases}", f"--weft-seed={options.seed}",
               f"--weft-max-bytes={options.max_bytes}", f"--weft-memory={options.memory}",
               f"--weft-max-operations={options.max_operations}", f"--weft-seconds={options.seconds}",
               f"--weft-case-seconds={options.case_seconds}",
               f"--weft-results={results}", f"tests/{file}"]
    if options.go_on is not None:
        command.append(f"--weft-go-on={options.go_on.resolve()}")
    made = subprocess.run(command, cwd=options.checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    options.log.write(f"== {file}\n{made.stdout}\n")
    options.log.flush()
    cases = list(json.loads(results.read_text())["cases"]) if results.exists() else []
    nothing_left = options.go_on is not None and made.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    if not nothing_left and (made.returncode not in (0, 1) or not cases):  # 1: some case failed
        last = made.stdout.strip().splitlines()[-1:] or ["no output"]
        cases.append([f"tests/{file}", "failed", f"the process ended with status {made.returncode}: {last[0]}"])
    return cases


def main() -> int:
    options = _parser().parse_args()
    if not (options.checkout / "tests").is_dir():
        print(f"{options.checkout}: has no folder `tests`; give a work tree of FlashInfer's repository",
              file=sys.stderr)
        return 2
    chosen = [file for file in FILES if not options.only or any(name in file for name in options.only)]
    options.seconds = options.minutes * 60 / max(len(chosen), 1)
    totals: collections.Counter[str] = collections.Counter()
    print("| file | " + " | ".join(_COLUMNS) + " |\n|---|" + "--:|" * len(_COLUMNS), flush=True)
    with (tempfile.TemporaryDirectory() as folder, options.ledger.open("w") as ledger,
          options.ledger.with_suffix(".log").open("w") as options.log):
        ledger.write("outcome\tcase\twhy\n")
        for file in chosen:
            if (options.checkout / "tests" / file).exists():
                cases = _run(file, options, pathlib.Path(folder))
            else:
                cases = [[f"tests/{file}", "skipped", "this checkout has no such file"]]
            counts = collections.Counter(outcome for _, outcome, _ in cases)
            totals += counts
            print(f"| {file} | " + " | ".join(str(counts[x]) for x in _COLUMNS) + " |", flush=True)
            for case, outcome, why in cases:
                if outcome != "passed":
                    ledger.write(f"{outcome}\t{case}\t{why}\n")
            ledger.flush()
    print("| all | " + " | ".join(str(totals[x]) for x in _COLUMNS) + " |")
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

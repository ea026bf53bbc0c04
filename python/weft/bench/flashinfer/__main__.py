"""Runs solutions over a data set's workloads and appends Trace lines."""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any, Optional

import torch

from . import dataset, solutions
from .evaluate import evaluate


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weft.bench.flashinfer", description=__doc__)
    parser.add_argument("dataset", type=pathlib.Path, help="a folder of FlashInfer-Bench's form")
    parser.add_argument("--device", default="cpu", help="cpu, or a card as cuda:0")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="definitions whose name has one of these")
    parser.add_argument("--solutions", action="store_true", help="run the data set's own solutions in Python, too")
    parser.add_argument("--trials", type=int, default=3, help="inputs that are compared")
    parser.add_argument("--repeats", type=int, default=10, help="calls that are timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, help="the folder of the traces; DATASET/traces without it")
    return parser


def _plain(x: Any) -> Any:
    """JSON has no infinities: FlashInfer-Bench writes them as strings."""
    if isinstance(x, dict):
        return {name: _plain(value) for name, value in x.items()}
    if isinstance(x, float) and not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    return x


def main(arguments: Optional[list[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    root, device = options.dataset, torch.device(options.device)
    if not (root / "definitions").is_dir():
        print(f"{root}: has no folder `definitions`; give a data set of FlashInfer-Bench", file=sys.stderr)
        return 2
    out, failed = options.out or root / "traces", 0
    print("| definition | solution | workload | status | max abs | ms | reference ms |\n|---|---|---|---|--:|--:|--:|")
    for definition in dataset.definitions(root):
        if options.only and not any(name in definition.name for name in options.only):
            continue
        runs: dict[str, Any] = {}
        own = solutions.of_weft(definition)
        if own is None:
            print(f"| {definition.name} | weft | | not served: {definition.op_type} | | | |")
        else:
            runs[f"weft_{definition.name}"] = own
        for solution in dataset.solutions(root) if options.solutions else ():
            if solution["definition"] == definition.name and solution["spec"]["language"] == "python":
                runs[solution["name"]] = solutions.of_dataset(definition, solution)
        if not runs:
            continue
        reference = solutions.of_reference(definition)
        path = out / definition.op_type / f"{definition.name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        for workload in dataset.workloads(root, definition):
            trials = [dataset.inputs_of(root, definition, workload, options.seed + i, device)
                      for i in range(max(options.trials, 1))]
            for name, run in runs.items():
                made = evaluate(definition, run, reference, trials, max(options.repeats, 1), device)
                with path.open("a") as file:
                    file.write(json.dumps(_plain({"definition": definition.name, "workload": workload, "solution": name,
                                                  "evaluation": made})) + "\n")
                failed += made["status"] != "PASSED"
                error, speed = made["correctness"] or {}, made["performance"] or {}
                print(f"| {definition.name} | {name} | {workload['uuid']} | {made['status']} | "
                      f"{error.get('max_absolute_error', math.nan):.2e} | {speed.get('latency_ms', math.nan):.3f} | "
                      f"{speed.get('reference_latency_ms', math.nan):.3f} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

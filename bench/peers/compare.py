#!/usr/bin/env python3
"""Weft beside its peers: the same shapes, in the same call, in turns.

    bench/peers/compare.py                         every row, every peer; an hour or more
    bench/peers/compare.py --only decode-short     rows whose name starts so
    bench/peers/compare.py --peer llama.cpp        Weft and this peer alone
    bench/peers/compare.py --against BUILD         Weft and another build of it alone; with --peer, that too
    bench/peers/compare.py --list                  names of rows and peers

Peers come from PyPI into the user's cache folder; one that fails to install is a row of the table that says why.
A reading is one operation (short ones repeated for 0.1 s); contestants take turns, and so does the ceiling of the row.
Results go to bench/results/NAME.jsonl (--name), a run of some rows replaces these alone. bench/README.md explains them.
"""
import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import against
import install
import table
from contestants import CONTESTANTS, PEERS, Field, Refused
from rows import WEFT, all_rows, bench_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def machine():
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    memory = int(next(line.split()[1] for line in open("/proc/meminfo"))) / 2**20
    system = next((line.split("=")[1].strip().strip('"') for line in open("/etc/os-release")
                   if line.startswith("PRETTY_NAME")), "unknown system")
    return f"{cpu}, {os.cpu_count()} CPUs, {memory:.0f} GiB, {system}"


def measure(row, names, field, rounds, pair=False):
    """{contestant: readings in seconds, or why there are none}; "ceiling" is one of them where the row has one.

    A pair takes turns A B A B and has no ceiling: before each reading the other one ran, and nothing else."""
    running, results, facts = {}, {}, {}
    for name in names:
        try:
            running[name] = field.start(name, row)
            facts[name] = getattr(running[name], "facts", {})
        except Refused as error:
            results[name] = str(error)
    ceiling = field.start_ceiling(row) if running and not pair else None  # what keeps all from starting keeps it too
    if ceiling is not None:
        running["ceiling"] = ceiling
    order = [] if pair and results else list(running)
    for name in order:
        results[name] = []
    for number in range(rounds if order else 0):
        first = 0 if pair else number % len(order)
        for name in order[first:] + order[:first]:
            if not isinstance(results[name], list):
                continue
            time.sleep(0.05)  # threads of the one before go to sleep
            try:
                results[name].append(running[name].read())
            except Refused as error:
                results[name] = str(error)
    for server in running.values():
        server.close()
    if any(facts.values()):
        results["facts"] = facts
    return results


def lines_of(row, results, about):
    """One JSON line a contestant."""
    median = {name: statistics.median(readings) for name, readings in results.items() if isinstance(readings, list)}
    for name in row.contestants:
        if name not in results:
            continue
        readings, contestant = results[name], CONTESTANTS[name]
        version = about[contestant.peer] if contestant.peer in about else install.VERSIONS.get(contestant.package)
        line = {"row": row.name, "what": row.what, "contestant": name, "peer": contestant.peer,
                "version": version, "unit": row.unit}
        if name not in median:
            yield {**line, "refused": readings, **about}
            continue
        values = sorted(row.value(seconds) for seconds in readings)
        line |= {"median": row.value(median[name]), "low": values[0], "high": values[-1], "readings": len(values),
                 "share": median["ceiling"] / median[name] if "ceiling" in median else None, "weft_is": None}
        line |= results.get("facts", {}).get(name, {})
        if contestant.peer != "weft" and not contestant.less_work:
            line["weft_is"] = {weft: row.ratio(row.value(median[weft]), line["median"])
                               for weft in ((contestant.beside,) if contestant.beside else WEFT) if weft in median}
        yield {**line, **about}


OF_FILES = ("spmm-", "rgcn-", "convolution-", "graphsage-")  # rows that files of --data may give a name


def keep(path, lines):
    """Replaces the rows that were measured, keeps the others, in the order of rows.py."""
    place = {row.name: i for i, row in enumerate(all_rows("", False) + bench_rows())}
    names = {line["row"] for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    old = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    kept = [line for line in old if (line["row"] in place or line["row"].startswith(OF_FILES)) and line["row"] not in names]
    kept = sorted(kept + lines, key=lambda line: place.get(line["row"], len(place)))
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))


def chosen_rows(arguments):
    """Rows for peers, and rows for another build of Weft, which has more of them."""
    def is_chosen(row):
        return not arguments.only or any(fnmatch.fnmatchcase(row.name, f"{names}*") for names in arguments.only)

    model = arguments.model
    if not model and any(is_chosen(row) and "model" in row.fields for row in all_rows("", False)):
        model = subprocess.run([ROOT / "tools/fetch_model.sh"], check=True, stdout=subprocess.PIPE,
                               text=True).stdout.strip()
    rows = list(filter(is_chosen, all_rows(model, arguments.quick, arguments.data)))
    return rows if arguments.peer else [], rows + list(filter(is_chosen, bench_rows())) if arguments.against else []


def compare_with_peers(rows, peers, field, rounds, about, results):
    measured = []
    for row in rows:
        names = [name for name in row.contestants if CONTESTANTS[name].peer in ("weft", *peers)]
        print(f"peers: {row.what}", file=sys.stderr, flush=True)
        lines = list(lines_of(row, measure(row, names, field, rounds), about))
        keep(results, lines)
        measured += lines
    print(table.text(measured))
    print(table.peers_summary(measured))


def compare_with_build(rows, field, rounds, about, results):
    measured = []
    for group in against.together(rows):
        more = f" and {len(group) - 1} more of the same program" if len(group) > 1 else ""
        print(f"against {about['against']}: {group[0].what}{more}", file=sys.stderr, flush=True)
        pairs = against.measured(group, lambda row: measure(row, row.contestants, field, rounds, pair=True))
        lines = sorted((line for row, readings in pairs for line in lines_of(row, readings, about)),
                       key=lambda line: [row.name for row in group].index(line["row"]))
        keep(results, lines)
        measured += lines
    print(table.text(measured))
    print(table.against_summary(measured))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ROW", action="append", help="rows whose name starts so, * standing for anything; may be repeated")
    parser.add_argument("--peer", metavar="NAME", action="append", choices=PEERS, help="this peer alone; may be repeated")
    parser.add_argument("--against", metavar="BUILD", help="a build folder of another Weft, or its program: the two in turns")
    parser.add_argument("--rounds", metavar="N", type=int, help="readings of each contestant; default 9, --quick 3")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="3 rounds and less memory instead of 9 rounds")
    parser.add_argument("--model", help="a GGUF file; default: tools/fetch_model.sh fetches one")
    parser.add_argument("--data", metavar="DIR", action="append",
                        help="sparse operators also over the matrices (.mtx, .smtx), typed graphs (_triples.csv) and voxels "
                             "(.zyx_i16.bin) of this folder, each also .gz; may be repeated")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path, help="where Weft is built")
    parser.add_argument("--name", help="of the file in bench/results; default: peers, and against for --against")
    parser.add_argument("--plot", metavar="FILE", help="draws all results of the peers' file too, as .svg")
    parser.add_argument("--list", action="store_true", help="names of rows and peers")
    parser.add_argument("--install", action="store_true", help="installs the peers and ends")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{row.name:<44} {row.what}" for row in all_rows("", False, arguments.data)))
        print("with --against only:")
        print("\n".join(f"{row.name:<44} {row.what}" for row in bench_rows()))
        return print("peers:", " ".join(PEERS))
    if arguments.peer is None and not arguments.against:
        arguments.peer = list(PEERS)
    rounds = (3 if arguments.quick else 9) if arguments.rounds is None else arguments.rounds
    if rounds < 1:
        parser.error(f"--rounds = {rounds}; at least 1")
    try:
        programs = against.programs_of(arguments.against) if arguments.against else None
    except against.NoBuild as error:
        parser.error(f"--against: {error}")
    field = Field(arguments.build / "bin", arguments.threads, programs)
    if arguments.install:
        for peer in arguments.peer or PEERS:
            try:
                field.command_of(peer)
            except Refused as error:
                print(f"{peer}: {error}")
        return None

    for_peers, for_build = chosen_rows(arguments)
    if not for_peers and not for_build:
        parser.error(f"--only = {arguments.only}; --list prints the names")
    subprocess.run(["cmake", "--build", arguments.build, "--target", *against.PROGRAMS], check=True, stdout=sys.stderr)
    # Everyone has the same CPUs and as many threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    about = {"weft": against.describe(ROOT), "threads": arguments.threads, "machine": machine(),
             "date": datetime.date.today().isoformat()}
    print(f"{about['machine']}; {about['threads']} threads; Weft {about['weft']}\n")
    folder = ROOT / "bench/results"
    peers_file = folder / f"{arguments.name or 'peers'}.jsonl"
    if for_peers:
        compare_with_peers(for_peers, arguments.peer, field, rounds, about, peers_file)
    if for_build:
        name = f"{arguments.name}-against" if arguments.name and for_peers else arguments.name or "against"
        compare_with_build(for_build, field, rounds, {**about, "against": against.version_of(programs)},
                           folder / f"{name}.jsonl")
    if arguments.plot:
        subprocess.run([install.PYTHON, install.HERE / "plot.py", peers_file, arguments.plot], check=True)
    return None


if __name__ == "__main__":
    main()

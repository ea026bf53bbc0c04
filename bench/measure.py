#!/usr/bin/env python3
"""Measures this machine with `weft bench` and puts the figures where they are read.

    bench/measure.py --model MODEL.gguf [--program build/release/bin/weft] [--name cpu]
    bench/measure.py --peers            the same, then every row of bench/peers/compare.py
    bench/measure.py --write            measures nothing: writes the README's table from bench/results
    bench/measure.py --numerics         measures errors, on any machine: bench/results/numerics.jsonl, docs/numerics.md

Writes bench/results/NAME.jsonl (every row, as `weft bench --json` prints it) and the tables in README.md between its
`measured` marks. Run it on a machine with nothing else to do; rows stand beside ceilings of the same run.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
sys.path.insert(0, str(ROOT / "bench/peers"))
import table as peers_table  # noqa: E402

BENCHES = (("ceilings", ["--quick"]), ("threads", ["--quick"]), ("attention", ["--quick"]), ("plan", ["--quick"]),
           ("jit", ["--quick"]))
SHOWN = ("ceilings", "attention", "model")


def rows_of(program, bench, extra):
    command = [program, "bench", bench, "--json", *extra]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines() if line.strip()]


def read_rows(name):
    results = ROOT / "bench/results" / f"{name}.jsonl"
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def write_rows(name, rows):
    results = ROOT / "bench/results" / f"{name}.jsonl"
    results.parent.mkdir(exist_ok=True)
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{results}: {len(rows)} rows")


def write_between_marks(path, text):
    old = path.read_text()
    path.write_text(old[:old.index(BEGIN) + len(BEGIN)] + "\n" + text + "\n" + old[old.index(END):])


def ceilings_table(rows):
    """Weft alone: each row as a share of what the machine can do."""
    notes = [row["note"] for row in rows if "note" in row]
    lines = [f"{notes[0]}; written by `bench/measure.py`.", ""] if notes else []
    lines += ["| Case | Metric | Value | Share of the ceiling in the same run |", "|---|---|---:|---:|"]
    for row in rows:
        if "metric" not in row or row["bench"] not in SHOWN:
            continue
        share = f"{100 * row['share']:.0f} %" if row.get("share") else ""
        lines.append(f"| {row['bench']}: {row['case']} | {row['metric']} | {row['value']:.4g} {row['unit']} | {share} |")
    return "\n".join(lines)


def numerics_table(rows):
    """Errors against fp64."""
    lines = [f"{rows[0]['note']}; written by `bench/measure.py --numerics`.", "",
             "| Case | Worst error as a share of its bound |", "|---|---:|"]
    lines += [f"| {row['case'].removeprefix('numerics ')} | {row['value']:.2f} |" for row in rows if "metric" in row]
    return "\n".join(lines)


def comparison_tables(lines):
    """A table for each machine that rows were measured on: a run of some rows leaves the others as they were."""
    machines = {}
    for line in lines:
        machines.setdefault((line["machine"], line["threads"]), []).append(line)
    return "\n\n".join(comparison_table(group) for group in machines.values())


def comparison_table(lines):
    """Weft beside the fastest peer of each row."""
    about = lines[0]
    out = [f"{about['machine']}; {about['threads']} threads; medians, lowest and highest of readings taken in turns "
           "([bench/README.md](bench/README.md)); written by `bench/measure.py`.", "",
           "| Work | Weft | Share of the ceiling | Best peer | Weft is |", "|---|---:|---:|---|---:|"]
    for group in peers_table.by_row(lines):
        measured = {line["contestant"]: line for line in group if "median" in line}
        weft = measured.get("Weft")
        peers = [line for line in measured.values() if line["weft_is"] is not None]
        best = peers_table.fastest(peers)
        share = f"{100 * weft['share']:.0f} %" if weft and weft["share"] else ""
        out.append(f"| {group[0]['what']} | {cell(weft)} | {share} | "
                   f"{f'{peers_table.name_of(best)}: {cell(best)}' if best else 'none'} | "
                   f"{peers_table.ratio_of(best) if best else ''} |")
    return "\n".join(out)


def cell(line):
    if line is None:
        return "none"
    low, median, high = (peers_table.number(line[key]) for key in ("low", "median", "high"))
    return f"{median} {line['unit']} ({low} to {high})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/weft"))
    parser.add_argument("--model", help="a GGUF file; default: tools/fetch_model.sh fetches one")
    parser.add_argument("--name", default="cpu", help="of the file in bench/results")
    parser.add_argument("--peers", action="store_true", help="compares with peers too")
    parser.add_argument("--write", action="store_true", help="measures nothing, writes the tables")
    parser.add_argument("--numerics", action="store_true", help="measures errors alone")
    arguments = parser.parse_args()
    if arguments.numerics:
        rows = rows_of(arguments.program, "attention", ["--numerics"])
        write_rows("numerics", rows)
        return write_between_marks(ROOT / "docs/numerics.md", numerics_table(rows))
    if not arguments.write:
        model = arguments.model or subprocess.run([ROOT / "tools/fetch_model.sh"], check=True, text=True,
                                                  stdout=subprocess.PIPE).stdout.strip()
        rows = []
        for bench, extra in (*BENCHES, ("model", ["--model", model])):
            rows += rows_of(arguments.program, bench, extra)
        write_rows(arguments.name, rows)
        if arguments.peers:
            subprocess.run([ROOT / "bench/peers/compare.py", "--model", model], check=True)
    tables = [make(rows) for make, name in ((comparison_tables, "peers"), (ceilings_table, arguments.name))
              if (rows := read_rows(name))]
    if not tables:
        sys.exit("bench/results holds no rows yet: run bench/measure.py without --write")
    write_between_marks(ROOT / "README.md", "\n\n".join(tables))


if __name__ == "__main__":
    main()

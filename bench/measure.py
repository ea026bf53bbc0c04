#!/usr/bin/env python3
"""Measures this machine with `weft bench` and puts the figures where they are read.

    bench/measure.py --model MODEL.gguf [--program build/release/bin/weft] [--name cpu]
    bench/measure.py --peers            the same, then every row of bench/peers/compare.py
    bench/measure.py --write            measures nothing: writes docs/performance.md, draws its picture
    bench/measure.py --sparse --data DIR    sparse operators alone, over the matrices of DIR too, and their search:
                                        bench/results/sparse-alone.jsonl; two hours
    bench/measure.py --numerics         measures errors, on any machine: bench/results/numerics.jsonl, docs/numerics.md

Writes bench/results/NAME.jsonl (every row, as `weft bench --json` prints it), the tables in docs/performance.md between
its `measured` marks, and docs/peers.svg. The README's rows are copied from there by hand. Run it on a machine with nothing
else to do; rows stand beside ceilings of the same run.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
sys.path.insert(0, str(ROOT / "bench/peers"))
import against  # noqa: E402
import compare  # noqa: E402
import table as peers_table  # noqa: E402

BENCHES = (("ceilings", ["--quick"]), ("threads", ["--quick"]), ("attention", ["--quick"]), ("plan", ["--quick"]),
           ("jit", ["--quick"]))
SHOWN = ("ceilings", "attention", "model")
QUICK = {bench for bench, extra in BENCHES if "--quick" in extra}
FULL_READINGS = 9  # of a peer's row; fewer are a quick run


def rows_of(program, bench, extra):
    command = [program, "bench", bench, "--json", *extra]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # progress is seen
    return [json.loads(line) for line in output.splitlines() if line.strip()]


def sparse_rows(program, data, seconds):
    """Both benches of sparse operators in one run; every line says what was measured where and when."""
    about = {"weft": against.describe(ROOT), "machine": compare.machine(), "date": datetime.date.today().isoformat()}
    folder = ["--data", data] if data else []
    return [{**row, **about} for bench, extra in (("sparse", []), ("sparse-tune", ["--seconds", str(seconds)]))
            for row in rows_of(program, bench, [*extra, *folder])]


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


def machine_of(about):
    """The processor and how many: what comparisons and `weft bench` both begin with."""
    return re.match(r"[^,]+, \d+ CPUs", about).group()


def case_of(row):
    return f"{row['bench']}: {row['case']}{', quick' if row['bench'] in QUICK else ''}"


def bench_table(rows, heading):
    lines = [f"| Case | Metric | Value | {heading} |", "|---|---|---:|---:|"]
    for row in rows:
        share = f"{100 * row['share']:.0f} %" if row.get("share") else ""
        lines.append(f"| {case_of(row)} | {row['metric']} | {row['value']:.4g} {row['unit']} | {share} |")
    return "\n".join(lines)


def bench_tables(rows):
    """Weft alone: rows with a ceiling, and apart from them rows that are measured by another case ("A by B")."""
    note = next(row["note"] for row in rows if "note" in row)
    shown = [row for row in rows if "metric" in row and row["bench"] in SHOWN]
    return "\n\n".join([f"### Weft beside the ceiling\n\n{note}.",
                        bench_table([row for row in shown if " by " not in row["case"]], "Share of the ceiling"),
                        "### One case by another\n\nA time is the better for a smaller figure, a rate for a larger "
                        "one; neither case is a ceiling.",
                        bench_table([row for row in shown if " by " in row["case"]], "By the other case")])


def numerics_table(rows):
    """Errors against fp64."""
    lines = [f"{rows[0]['note']}; written by `bench/measure.py --numerics`.", "",
             "| Case | Worst error as a share of its bound |", "|---|---:|"]
    lines += [f"| {row['case'].removeprefix('numerics ')} | {row['value']:.2f} |" for row in rows if "metric" in row]
    return "\n".join(lines)


def comparison_table(lines):
    """Weft in its two precisions beside the fastest peer of each row."""
    about = lines[0]
    out = ["### Weft beside its peers", "",
           f"{about['machine']}; {about['threads']} threads; median (lowest to highest).", "",
           "| Work | Weft | Share of the ceiling | Weft `fast` | Best peer | Weft is |",
           "|---|---:|---:|---:|---|---:|"]
    for group in peers_table.by_row(lines):
        measured = {line["contestant"]: line for line in group if "median" in line}
        weft = measured.get("Weft")
        peers = [line for line in measured.values() if line["weft_is"] is not None]
        best = peers_table.fastest(peers)
        share = f"{100 * weft['share']:.0f} %" if weft and weft["share"] else ""
        quick = ", quick" if weft and weft["readings"] < FULL_READINGS else ""
        out.append(f"| {group[0]['what']}{quick} | {cell(weft)} | {share} | {cell(measured.get('Weft fast'))} | "
                   f"{f'{peers_table.name_of(best)}: {cell(best)}' if best else 'none'} | "
                   f"{peers_table.ratio_of(best) if best else ''} |")
    return "\n".join(out)


def sections(peers, rows):
    """A section for each machine, with what was measured there."""
    machines = {}
    for line in peers:
        machines.setdefault(machine_of(line["machine"]), {}).setdefault(line["threads"], []).append(line)
    parts = {machine: [comparison_table(group) for group in groups.values()] for machine, groups in machines.items()}
    if rows:
        parts.setdefault(machine_of(rows[0]["note"]), []).append(bench_tables(rows))
    return "\n\n".join("\n\n".join([f"## {machine}", *tables]) for machine, tables in parts.items())


def cell(line):
    if line is None:
        return ""
    low, median, high = (peers_table.number(line[key]) for key in ("low", "median", "high"))
    return f"{median} {line['unit']} ({low} to {high})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/weft"))
    parser.add_argument("--model", help="a GGUF file; default: tools/fetch_model.sh fetches one")
    parser.add_argument("--name", default="cpu", help="of the file in bench/results")
    parser.add_argument("--peers", action="store_true", help="compares with peers too")
    parser.add_argument("--write", action="store_true", help="measures nothing, writes tables and picture")
    parser.add_argument("--numerics", action="store_true", help="measures errors alone")
    parser.add_argument("--sparse", action="store_true", help="measures sparse operators alone")
    parser.add_argument("--data", help="with --sparse: a folder of matrices and typed graphs")
    parser.add_argument("--seconds", type=float, default=45, help="with --sparse: of the search for a matrix, at most")
    arguments = parser.parse_args()
    if arguments.sparse:
        return write_rows("sparse-alone", sparse_rows(arguments.program, arguments.data, arguments.seconds))
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
    peers, rows = read_rows("peers"), read_rows(arguments.name)
    if not peers and not rows:
        sys.exit("bench/results holds no rows yet: run bench/measure.py without --write")
    write_between_marks(ROOT / "docs/performance.md", sections(peers, rows))
    if peers:
        subprocess.run([sys.executable, ROOT / "bench/peers/plot.py", "--front"], check=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures this machine with `weft bench` and puts the figures where they are read.

    bench/measure.py --program build/release/bin/weft --model MODEL.gguf [--name cpu-zen3]

Writes bench/results/NAME.jsonl (every row, as `weft bench --json` prints it) and the table in README.md between its
`measured` marks. Run it on a machine with nothing else to do; rows stand beside ceilings of the same run.
"""
import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"


def rows_of(program, bench, extra):
    command = [program, "bench", bench, "--json", *extra]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines() if line.strip()]


def table(rows):
    notes = [row["note"] for row in rows if "note" in row]
    lines = [f"{notes[0]}; written by `bench/measure.py`.", ""] if notes else []
    lines += ["| Case | Metric | Value | Share of the ceiling in the same run |", "|---|---|---:|---:|"]
    for row in rows:
        if "metric" not in row:
            continue
        share = f"{100 * row['share']:.0f} %" if row.get("share") else ""
        lines.append(f"| {row['bench']}: {row['case']} | {row['metric']} | {row['value']:.4g} {row['unit']} | {share} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/weft"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="cpu")
    arguments = parser.parse_args()
    shown, every = [], []
    for bench, extra, in_readme in (("ceilings", ["--quick"], True), ("threads", ["--quick"], False),
                                    ("attention", ["--quick"], True), ("plan", ["--quick"], False),
                                    ("jit", ["--quick"], False), ("model", ["--model", arguments.model], True)):
        rows = rows_of(arguments.program, bench, extra)
        every += rows
        shown += rows if in_readme else []
    results = ROOT / "bench/results" / f"{arguments.name}.jsonl"
    results.write_text("".join(json.dumps(row) + "\n" for row in every))
    readme = ROOT / "README.md"
    text = readme.read_text()
    readme.write_text(text[:text.index(BEGIN) + len(BEGIN)] + "\n" + table(shown) + "\n" + text[text.index(END):])
    print(f"{results}: {len(every)} rows")


if __name__ == "__main__":
    main()

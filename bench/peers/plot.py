#!/usr/bin/env python3
"""Draws results as an SVG that reads in light and dark: a bar a contestant, longest the fastest of its row.

    bench/peers/plot.py bench/results/peers.jsonl peers.svg     every row
    bench/peers/plot.py --front [FILE]                          the README's picture, docs/peers.svg

It needs nothing but Python. Times are drawn by their reciprocal, so the longer bar is the faster one everywhere.
"""
import html
import json
import pathlib
import sys

import table
from rows import TIMES

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FRONT = ("prefill-486", "prefill-4106", "attention-prefill-128-bf16", "attention-softcap-bf16",
         "decode-short", "decode-8192", "decode-16x1024", "decode-16-shared", "attention-decode-32x8x128-batch1-bf16")
COLUMNS = (("Prefill", "prefill"), ("Decode", "decode"), ("Other", ""))  # title, and how a row's text begins
WIDTH, NAMES, BARS, BAR, GAP = 460, 178, 210, 16, 12  # a column; in it the names, the longest bar
STYLE = """
  text { font-family: system-ui, sans-serif; font-size: 12px }
  .card { fill: #ffffff; stroke: #d0d7de } .title { fill: #1f2328; font-weight: 600; font-size: 15px }
  .row { fill: #1f2328; font-weight: 600 } .label { fill: #59636e } .peer { fill: #afb8c1 }
  .weft { fill: #0969da } .fast { fill: #54aeff } .own { fill: #0550ae; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d } .title, .row { fill: #f0f6fc } .label { fill: #9198a1 }
    .peer { fill: #656c76 } .weft { fill: #4493f8 } .fast { fill: #1f6feb } .own { fill: #79c0ff }
  }"""


def speed(line):
    return 1 / line["median"] if line["unit"] in TIMES else line["median"]


def text(x, y, kind, words, anchor="start"):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'


def draw_row(group, x, y):
    """The row's title and bars; what was drawn, and where the next row begins."""
    best = max(map(speed, group))
    out = [text(x, y + 12, "row", f"{group[0]['what']}, {group[0]['unit']}")]
    y += 20
    for line in group:
        own = line["peer"] == "weft"
        bar = "peer" if not own else "weft" if line["contestant"] == "Weft" else "fast"
        length = max(1, BARS * speed(line) / best)
        out += [text(x + NAMES - 8, y + 12, "own" if own else "label", line["contestant"], "end"),
                f'<rect x="{x + NAMES}" y="{y + 2}" width="{length:.1f}" height="{BAR - 4}" rx="2" class="{bar}"/>',
                text(x + NAMES + length + 5, y + 12, "own" if own else "label", table.number(line["median"]))]
        y += BAR
    return out, y + GAP


def picture(lines, chosen=None):
    rows = [[line for line in group if "median" in line] for group in table.by_row(lines)]
    rows = [group for group in rows if any(line["contestant"] == "Weft" for line in group)]
    if chosen:
        missing = set(chosen) - {group[0]["row"] for group in rows}
        if missing:
            sys.exit(f"the results lack rows: {', '.join(sorted(missing))}")
        rows = [next(group for group in rows if group[0]["row"] == name) for name in chosen]
    columns = {}
    for group in rows:
        title = next(title for title, begin in COLUMNS if group[0]["what"].startswith(begin))
        columns.setdefault(title, []).append(group)
    out, bottom = [], 0
    for i, title in enumerate(title for title, _ in COLUMNS if title in columns):
        x, y = 16 + i * WIDTH, 40
        out.append(text(x, 26, "title", title))
        for group in columns[title]:
            drawn, y = draw_row(group, x, y)
            out += drawn
        bottom = max(bottom, y)
    about = rows[0][0]
    counts = sorted({line["readings"] for group in rows for line in group})
    readings = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    out.append(text(16, bottom + 10, "label", f"{about['machine']}; {about['threads']} threads; medians of {readings} "
                    "readings; longer is faster"))
    width, height = 16 + WIDTH * len(columns), bottom + 24
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                      f'height="{height}" role="img" aria-label="Weft beside its peers">',
                      f"<style>{STYLE}\n</style>",
                      f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" class="card"/>',
                      *out, "</svg>"]) + "\n"


def main(arguments):
    front = arguments[:1] == ["--front"]
    if front:
        arguments = [ROOT / "bench/results/peers.jsonl", *(arguments[1:] or [ROOT / "docs/peers.svg"])]
    if len(arguments) != 2 or str(arguments[0]).startswith("-"):
        sys.exit(__doc__)
    results, to = arguments
    if not str(to).endswith(".svg"):
        sys.exit(f"{to}: pictures are drawn as .svg alone")
    lines = [json.loads(line) for line in pathlib.Path(results).read_text().splitlines()]
    machines = {(line["machine"], line["threads"]) for line in lines}
    if len(machines) != 1:
        sys.exit(f"{results}: a picture is of one machine, and these rows are of {len(machines)}")
    pathlib.Path(to).write_text(picture(lines, FRONT if front else None))


if __name__ == "__main__":
    main(sys.argv[1:])

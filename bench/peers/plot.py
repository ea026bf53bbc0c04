"""Draws results as an SVG or PNG: a bar a contestant, as a share of Weft in its default precision.

    ~/.cache/weft/peers/venv/bin/python bench/peers/plot.py bench/results/peers.jsonl peers.svg
"""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import table
from rows import TIMES


def speed(line):
    return 1 / line["median"] if line["unit"] in TIMES else line["median"]


def main(results, picture):
    lines = [json.loads(text) for text in pathlib.Path(results).read_text().splitlines()]
    rows = [[line for line in group if "median" in line] for group in table.by_row(lines)]
    rows = [group for group in rows if any(line["contestant"] == "Weft" for line in group)]
    bars = sum(len(group) for group in rows)
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.22 * (bars + 2 * len(rows))), layout="constrained")
    names = list(dict.fromkeys(line["contestant"] for group in rows for line in group))
    colours = dict(zip(names, plt.get_cmap("tab20").colors))
    y, ticks = 0, []
    for group in rows:
        weft = next(line for line in group if line["contestant"] == "Weft")
        ticks.append((y + (len(group) - 1) / 2, f"{weft['what']}\n{table.number(weft['median'])} {weft['unit']}"))
        for line in group:
            axes.barh(y, speed(line) / speed(weft), color=colours[line["contestant"]])
            axes.text(speed(line) / speed(weft), y, f" {table.number(line['median'])}", va="center", fontsize=6)
            y += 1
        y += 1
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.5)
    axes.set_xlabel("speed, Weft in its default precision = 1")
    about = lines[0]
    axes.set_title(f"{about['machine']}; {about['threads']} threads; Weft {about['weft']}", fontsize=8)
    axes.legend([plt.Rectangle((0, 0), 1, 1, color=colours[name]) for name in names], names, fontsize=7, loc="best")
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

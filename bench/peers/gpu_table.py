#!/usr/bin/env python3
"""Weft on a card beside its peers, row by row, from lines of `weft bench --device cuda:0 --json` and of bench/peers/gpu.py.

    bench/peers/gpu_table.py bench/results/gpu_peers.jsonl                 a file that holds Weft's lines too (gpu.py --weft)
    bench/peers/gpu_table.py bench/results/gpu_peers.jsonl weft.jsonl      or both

Prints Markdown. Weft is by the fastest peer of a row; where the reads that both were measured beside differ by more than 3 %,
the ratio is of their shares, and marked so.
"""
import json
import pathlib
import sys

from rows import TIMES

AGREE = 0.03


def read(paths):
    """Lines with a contestant; those of `weft bench` have none, and are Weft's."""
    lines = []
    for path in paths:
        for text in pathlib.Path(path).read_text().splitlines():
            line = json.loads(text)
            if "metric" in line:
                lines.append({"contestant": "Weft", **line})
    return lines


def speed(line):
    return 1 / line["value"] if line["unit"] in TIMES else line["value"]


def agree(weft, peer):
    """Whether both were measured beside the same ceiling, or beside none. Products have two kinds of it, and agree."""
    if weft["metric"] != "bandwidth" or not weft["ceiling"] or not peer["ceiling"]:
        return True
    return abs(weft["ceiling"] / peer["ceiling"] - 1) <= AGREE


def ratio(weft, peer):
    if agree(weft, peer):
        return f"{speed(weft) / speed(peer):.2f}"
    return f"{weft['share'] / peer['share']:.2f} of shares"


def cell(line):
    share = f" ({line['share']:.2f})" if line["share"] else ""
    return f"{line['value']:.4g} {line['unit']}{share}"


def table(lines):
    out = ["| Work | Weft | Best peer | Weft is | Others |", "|---|---:|---:|---:|---|"]
    cases = {}
    for line in lines:
        cases.setdefault((line["case"], line["metric"]), []).append(line)
    for (case, _), group in cases.items():
        weft = [line for line in group if line["contestant"] == "Weft"][-1:]
        peers = sorted((line for line in group if line["contestant"] != "Weft"), key=speed, reverse=True)
        best = f"{peers[0]['contestant']} {cell(peers[0])}" if peers else ""
        others = "; ".join(f"{line['contestant']} {cell(line)}" for line in peers[1:])
        factor = ratio(weft[0], peers[0]) if weft and peers else ""
        out.append(f"| {case} | {cell(weft[0]) if weft else ''} | {best} | {factor} | {others} |")
    return "\n".join(out)


def main(paths):
    if not paths or paths[0].startswith("-"):
        sys.exit(__doc__)
    lines = read(paths)
    if not lines:
        sys.exit(f"{', '.join(paths)}: hold no rows")
    print(table(lines))


if __name__ == "__main__":
    main(sys.argv[1:])

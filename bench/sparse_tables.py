#!/usr/bin/env python3
"""The tables of SparseTIR's evaluation, of what was measured here.

    bench/sparse_tables.py            prints them
    bench/sparse_tables.py --write    puts them into docs/sparse/evaluation.md, between its `measured` marks
    bench/sparse_tables.py --check    says whether they are there

Reads bench/results/sparse-alone.jsonl (`bench/measure.py --sparse`) and bench/results/sparse.jsonl (`bench/peers/compare.py`);
measures nothing. Speeds over several widths are geometric means.
"""
import json
import re
import statistics

import page
from page import markdown

PAGE = "docs/sparse/evaluation.md"
PAPER_PADDING = {"cora": (2, 15.9), "pubmed": (5, 23.1)}  # Table 3.1, of the graphs that are here
ABLATION = re.compile(r"ablation (formats of spmm|schedules of spmm|schedules of sddmm|phases of spmm|sums of spmm|"
                      r"empty rows of blocks,|pruned weights|rgcn|convolution) (.*): ([^:]*)$")
WIDTH = re.compile(r" F(\d+)|,? (\d+) -> \d+")
HYB = re.compile(r"hyb\((\d+), (\d+)\)")


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def mean(values):
    values = list(values)
    return statistics.geometric_mean(values) if values else None


def times(value):
    return "" if value is None else f"{value:.2f}"


def ablations(rows):
    """{kind: {subject: {width: {candidate: {metric: value}}}}}, in the order of the rows."""
    result = {}
    for row in rows:
        found = ABLATION.match(row.get("case", ""))
        if not found:
            continue
        kind, subject, candidate = found.groups()
        width = WIDTH.search(subject)
        if width is None:
            continue
        subject = WIDTH.sub("", subject).strip(" ,")
        widths = result.setdefault(kind, {}).setdefault(subject, {})
        metrics = widths.setdefault(int(width[1] or width[2]), {}).setdefault(candidate, {})
        metrics.setdefault(row["metric"], row["value"])
    return result


def speeds(widths, candidate, first):
    """How fast a candidate is by the first of its group, at each width that has both."""
    return [group[candidate]["rate"] / group[first]["rate"] for group in widths.values()
            if "rate" in group.get(candidate, {}) and "rate" in group.get(first, {})]


def padding_table(rows):
    lines = []
    for row in rows:
        found = re.match(r"hyb\(1, (\d+)\) of (.*)", row.get("case", ""))
        if found and row["bench"] == "sparse-tune":
            k, graph = int(found[1]), found[2]
            paper = f"{PAPER_PADDING[graph][1]:.1f}" if PAPER_PADDING.get(graph, (None,))[0] == k else ""
            lines.append([graph, str(k), f"{row['value']:.1f}", paper])
    return markdown(["Matrix", "k", "padding of hyb(1, k), %", "the paper's"], lines) if lines else ""


def operator_table(rows, operator):
    """Of a matrix, how fast Weft is by the plain loop, and its share of the ceiling, over all widths."""
    over, share = {}, {}
    for row in rows:
        found = re.match(rf"{operator} (.*?) F\d+(?: auto)?$", row.get("case", ""))
        if found and row["bench"] == "sparse":
            if row["metric"] == "over plain loop":
                over.setdefault(found[1], []).append(row["value"])
            elif row.get("share"):
                share.setdefault(found[1], []).append(row["share"])
    lines = [[graph, str(len(values)), times(mean(values)),
              f"{100 * mean(share[graph]):.0f} %" if graph in share else ""] for graph, values in over.items()]
    return markdown(["Matrix", "widths", "by the plain loop", "of the ceiling"], lines) if lines else ""


def peers_table(lines):
    """Of a graph, how many times faster Weft's SpMM is than each peer, over all widths."""
    ratios, peers = {}, []
    for line in lines:
        found = re.match(r"spmm-(.*)-F\d+$", line["row"])
        if not found or not line.get("weft_is"):
            continue
        if line["contestant"] not in peers:
            peers.append(line["contestant"])
        of_peer = ratios.setdefault(found[1], {}).setdefault(line["contestant"], [])
        of_peer.append(line["weft_is"]["Weft"])
    body = [[graph, *(times(mean(of[peer])) if peer in of else "" for peer in peers)] for graph, of in ratios.items()]
    return markdown(["Matrix", *peers], body) if body else ""


def formats_table(subjects):
    """CSR against hyb(c, k): the k that all widths were measured with, over column partitions."""
    lines, partitions = [], (1, 2, 4, 8, 16)
    for subject, widths in subjects.items():
        counts = {}
        for group in widths.values():
            for candidate in group:
                if (found := HYB.match(candidate)) and found[1] == "1":
                    counts[found[2]] = counts.get(found[2], 0) + 1
        if not counts:
            continue
        k = max(counts, key=counts.get)
        lines.append([subject, k, *(times(mean(speeds(widths, f"hyb({c}, {k})", "csr"))) for c in partitions)])
    return markdown(["SpMM by CSR's", "k", *(f"c = {c}" for c in partitions)], lines) if lines else ""


def candidates_table(subjects, heading):
    """Each candidate by the first one, over all widths."""
    names = list(dict.fromkeys(name for widths in subjects.values() for group in widths.values() for name in group))
    lines = [[subject, *(times(mean(speeds(widths, name, names[0]))) for name in names[1:])]
             for subject, widths in subjects.items()]
    return markdown([f"{heading}, by {names[0]}", *names[1:]], lines)


def widths_table(subjects, heading):
    """Rates, and the most memory beside the tensors, a line for each width."""
    names = list(dict.fromkeys(name for widths in subjects.values() for group in widths.values() for name in group))

    def cell(metrics):
        memory = metrics.get("peak memory beside its tensors")
        return f"{metrics['rate']:.0f}" + (f" ({memory:.1f})" if memory is not None else "") if "rate" in metrics else ""

    lines = [[f"{subject}, {width}", *(cell(group.get(name, {})) for name in names)]
             for subject, widths in subjects.items() for width, group in sorted(widths.items())]
    return markdown([heading, *names], lines)


def sections(rows, lines):
    of = ablations(rows)
    parts = [("Padding (Table 3.1)", padding_table(rows)),
             ("SpMM beside peers (Figure 3.13): times as fast", peers_table(lines)),
             ("SpMM alone", operator_table(rows, "spmm")),
             ("SDDMM alone (Figure 3.14)", operator_table(rows, "sddmm"))]
    if "formats of spmm" in of:
        parts.append(("Without and with hyb, and column partitions (Figures 3.12, 3.13)", formats_table(of["formats of spmm"])))
    for kind, title, heading in (("schedules of spmm", "Schedules of SpMM", "A line more each"),
                                 ("schedules of sddmm", "Schedules of SDDMM", "A line more each"),
                                 ("phases of spmm", "Buckets in one loop", "hyb"),
                                 ("sums of spmm", "Sums of partitions", "hyb"),
                                 ("empty rows of blocks,", "Block-pruned weights (Figure 3.17)", "Blocks"),
                                 ("pruned weights", "Unstructured pruned weights (Figure 3.19)", "Weights")):
        if kind in of:
            parts.append((title, candidates_table(of[kind], heading)))
    for kind, title in (("rgcn", "RGCN (Figure 3.20): GFLOP/s (peak memory, MB)"),
                        ("convolution", "Sparse convolution (Figure 3.23): GFLOP/s (peak memory, MB)")):
        if kind in of:
            parts.append((title, widths_table(of[kind], "Work, channels")))
    return "\n\n".join(f"## {title}\n\n{table}" for title, table in parts if table)


def about(rows, lines):
    """What was measured where: each machine and version once."""
    seen = dict.fromkeys((line["machine"], line["weft"], line["date"]) for line in rows + lines
                         if {"machine", "weft", "date"} <= line.keys())
    return "; ".join(f"{machine}, Weft {weft}, {date}" for machine, weft, date in seen)


def main():
    arguments = page.parser(__doc__, PAGE).parse_args()
    results = page.ROOT / "bench/results"
    rows, lines = read(results / "sparse-alone.jsonl"), read(results / "sparse.jsonl")
    page.finish(arguments, PAGE, {"measured": f"Measured: {about(rows, lines)}.\n\n{sections(rows, lines)}"})


if __name__ == "__main__":
    main()

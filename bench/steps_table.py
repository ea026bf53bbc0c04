#!/usr/bin/env python3
"""Decode of models on a card in both forms of their steps, as tables, of rows that measure_gpu.py has kept.

    bench/measure_gpu.py steps --model MODEL.gguf      on a machine with a card: measures
    bench/steps_table.py                               prints the tables, of bench/results/gpu.jsonl or of FILE
    bench/steps_table.py --write                       puts them into docs/kernels/decode.md, between its `steps` marks
    bench/steps_table.py --check                       says whether they are there

Speeds are tokens a second of one request, with logits on the host and with ids alone; a share is of the rate at which the card
reads the step's weights, keys and values in the same run. Fused and layered steps took turns, unless a note of the part says
that there was no room for both.
"""
import json
import pathlib
import re
import sys

import page
from page import markdown

PAGE = "docs/kernels/decode.md"
CASE = re.compile(r"(.*) decode batch(\d+) ctx(\d+), (layered|fused)$")
FORMS = ("fused", "layered")


def read(path):
    """{(model, rows, context): {form: {metric: line}}}, in the order of the lines, and the cards."""
    cases, cards = {}, []
    for text in path.read_text().splitlines():
        line = json.loads(text)
        found = CASE.match(line.get("case", ""))
        if not found:
            continue
        model, rows, context, form = found.groups()
        of = cases.setdefault((model.removesuffix(" random"), int(rows), int(context)), {})
        of.setdefault(form, {})[line["metric"]] = line
        if line.get("card") and line["card"] not in cards:
            cards.append(line["card"])
    return cases, cards


def cell(forms, form, metric, text):
    line = forms.get(form, {}).get(metric)
    return text(line) if line else ""


def speeds(cases):
    rows = []
    for (model, count, context), forms in cases.items():
        if not any("speed" in metrics for metrics in forms.values()):
            continue
        row = [f"{model}, {context:,}"]
        for form in FORMS:
            row += [cell(forms, form, "speed", lambda line: f"{line['value']:.1f}"),
                    cell(forms, form, "speed, ids alone", lambda line: f"{line['value']:.1f}"),
                    cell(forms, form, "speed", lambda line: f"{line['share']:.2f}")]
        both = [forms.get(form, {}).get("speed") for form in FORMS]
        rows.append(row + [f"{both[0]['value'] / both[1]['value']:.2f} x" if all(both) else ""])
    head = ["Model, tokens before", "Fused", "ids alone", "Share", "Layered", "ids alone", "Share", "Fused is"]
    return markdown(head, rows) if rows else ""


def several(cases):
    metric = "without keys and values, by one row's"
    rows = {}
    for (model, count, context), forms in cases.items():
        for form in FORMS:
            if line := forms.get(form, {}).get(metric):
                rows.setdefault((model, context, form), {})[count] = line["value"]
    counts = sorted({count for of in rows.values() for count in of})
    body = [[f"{model}, {context:,}, {form}"] + [f"{of[count]:.2f}" if count in of else "" for count in counts]
            for (model, context, form), of in rows.items()]
    return markdown(["Model, tokens before, form"] + [f"{count} rows" for count in counts], body) if body else ""


def tables(path):
    cases, cards = read(path)
    if not cases:
        sys.exit(f"{path}: holds no steps; bench/measure_gpu.py steps measures them")
    parts = [f"{', '.join(cards)}:" if cards else "", speeds(cases),
             "A step's time without what its keys and values take, by that of one row:" if several(cases) else "",
             several(cases)]
    return "\n\n".join(part for part in parts if part)


def main():
    parser = page.parser(__doc__, PAGE)
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=page.ROOT / "bench/results/gpu.jsonl")
    arguments = parser.parse_args()
    page.finish(arguments, PAGE, {"steps": tables(arguments.file)})


if __name__ == "__main__":
    main()

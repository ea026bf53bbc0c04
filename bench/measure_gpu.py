#!/usr/bin/env python3
"""Measures a card with `weft bench --device cuda:0` and keeps the rows in bench/results/gpu.jsonl.

    bench/measure_gpu.py --model MODEL.gguf               every part: minutes each
    bench/measure_gpu.py steps --model MODEL.gguf         a group of parts: models in both forms of their steps (steps_table.py)
    bench/measure_gpu.py decode prefill                   these alone; the rows of the others stay as they are
    bench/measure_gpu.py prefill --only n4096             of a part that has --only, the rows whose name holds this
    bench/measure_gpu.py --commit HASH                    where there is no .git; or WEFT_COMMIT of the environment

Each line has the row of `weft bench --json`, and date, commit, card and machine of its measurement. A row that was measured
before is replaced in its place, a new one comes behind those of its part; each part is written when it ends, with what it
measured if it failed. What is measured now is told on stderr.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = {"ceilings": ["ceilings"], "decode": ["attention", "--only", "decode"],
         "prefill": ["attention", "--only", "prefill"], "mixed": ["attention", "--only", "mixed"], "plan": ["plan"], "jit": ["jit"], "model": ["model", "--model"],
         "8b": ["model", "--shape", "8b"], "1b": ["model", "--shape", "1b"],
         "deep-linear": ["decode", "--study", "deep-linear"],
         **{f"deep-linear-{kind}": ["decode", "--study", "deep-linear", "--weights", kind]
            for kind in ("q8_0", "q4_0", "q4_1", "q4_g128")},
         **{study: ["decode", "--study", study] for study in ("attention-stack", "glu-stack", "depth-size", "edges")},
         # Models in both forms of their steps, in turns.
         "steps-8b": ["model", "--shape", "8b", "--step", "both"],
         "steps-8b-q4_g128": ["model", "--shape", "8b", "--weights", "q4_g128", "--step", "both"],
         "steps-70b-q4_g128": ["model", "--shape", "70b", "--weights", "q4_g128", "--step", "both"],
         "steps-1b": ["model", "--shape", "1b", "--step", "both"],
         "steps-model": ["model", "--step", "both", "--model"]}
NEED_MODEL = [part for part, command in PARTS.items() if command[-1] == "--model"]
GROUPS = {"steps": [part for part in PARTS if part.startswith("steps-")],
          "studies": ["deep-linear", "attention-stack", "glu-stack", "depth-size", "edges"]}
CARD = re.compile(r"cuda:\d+: ([^,;]+)")


def say(text):
    print(text, file=sys.stderr, flush=True)


def commit_of(given):
    if given:
        return given
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if git.returncode:
        sys.exit("there is no .git here: give --commit HASH, or WEFT_COMMIT in the environment")
    return git.stdout.strip()


def measure(program, part, arguments, about):
    """The part's lines, and whether it ended well."""
    command = [program, "bench", *arguments, "--device", "cuda:0", "--json"]
    say(f"== {part}: {' '.join(map(str, command))}")
    lines, notes = [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for text in run.stdout:
            line = json.loads(text) if text.strip() else {}
            if "note" in line:
                notes.append(line["note"])
                card = CARD.match(line["note"])
                if len(notes) == 1:
                    about["machine"] = line["note"]
                elif card:
                    about["card"] = card.group(1)
                if len(notes) > 1:
                    lines.append({"part": part, "note": line["note"], **about})
            elif "metric" in line:
                lines.append({"part": part, **line, **about})
                say(f"{line['case']}: {line['metric']} {line['value']:.4g} {line['unit']}" +
                    (f", share {line['share']:.3f}" if line.get("share") else ""))
    return lines, run.returncode == 0


def key(line):
    return line["part"], line.get("case"), line.get("metric"), line.get("note")


def part_of(line):
    return list(PARTS).index(line["part"])


def merged(old, new, replaces_part):
    """`new` in the places of what it measures again; a part that ran whole loses rows that it has no more."""
    again = {key(line): line for line in new}
    parts = {line["part"] for line in new} if replaces_part else set()
    kept = [again.pop(key(line), line) for line in old if key(line) in again or line["part"] not in parts]
    return sorted(kept + list(again.values()), key=part_of)  # stable: rows of a part keep their order


def read(path):
    lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    return sorted((with_part(line) for line in lines if "part" in line or "case" in line), key=part_of)


def with_part(line):
    """Of `weft bench --json` as it stands, the part that its case belongs to."""
    if "part" in line:
        return line
    return {"part": part_of_case(line["bench"], line["case"]), **line}


def part_of_case(bench, case):
    words = case.split()
    if bench == "decode":
        if words[0] == "edge":
            return "edges"
        if words[0] == "ring":
            return "depth-size"
        name = f"{words[0]}-{words[1]}"
        return f"{name}-{words[2]}" if f"{name}-{words[2]}" in PARTS else name
    if bench == "model" and case.endswith((", layered", ", fused")):
        names = [f"steps-{words[0]}-{words[1]}", f"steps-{words[0]}", "steps-model"]
        return next(name for name in names if name in PARTS)
    return words[0] if words[0] in PARTS else bench


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=f"{', '.join(PARTS)}; {' and '.join(GROUPS)} are several of them; default: all of them")
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/weft"))
    parser.add_argument("--model", help=f"a GGUF file, of the parts {' and '.join(NEED_MODEL)}")
    parser.add_argument("--only", help="rows whose name holds this, of decode and prefill")
    parser.add_argument("--commit", default=os.environ.get("WEFT_COMMIT"))
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "bench/results/gpu.jsonl")
    arguments = parser.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS and part not in GROUPS]:
        parser.error(f"unknown part {unknown[0]}; there are {', '.join([*PARTS, *GROUPS])}")
    named = [part for name in arguments.parts for part in GROUPS.get(name, [name])]
    parts = named or [part for part in PARTS if part not in NEED_MODEL or arguments.model]
    if not arguments.model and (needy := [part for part in parts if part in NEED_MODEL]):
        parser.error(f"the part {needy[0]} needs --model FILE")
    about = {"date": datetime.date.today().isoformat(), "commit": commit_of(arguments.commit), "card": None,
             "machine": None}
    failed = []
    for part in parts:
        command = list(PARTS[part])
        if part in NEED_MODEL:
            command.append(arguments.model)
        if arguments.only and "--only" in command:
            command[-1] = arguments.only
        lines, well = measure(arguments.program, part, command, about)
        if arguments.only:  # a name of another part's row may hold it, too
            lines = [line for line in lines if not line.get("case") or line["case"].startswith(part)]
        failed += [] if well else [part]
        rows = merged(read(arguments.to), lines, well and not arguments.only)
        arguments.to.parent.mkdir(exist_ok=True)
        arguments.to.write_text("".join(json.dumps(line) + "\n" for line in rows))
        say(f"{arguments.to}: {len(lines)} lines of {part}")
    if failed:
        sys.exit(f"ended with an error: {', '.join(failed)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Holds the log-probabilities of `weft eval --json` against those of reference_eval.

    tools/compare_eval.py eval.jsonl reference.jsonl --limit 0.015

Prints one JSON line: how many tokens, and the mean, 99th percentile and largest absolute difference of the next token's
log-probability. Ends with 1 when the mean is above the limit, with 3 when the two are not about the same tokens.
"""
import argparse
import json
import math
import sys


def read(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    return {row["position"]: row for row in rows if "position" in row}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("eval")
    parser.add_argument("reference")
    parser.add_argument("--limit", type=float, help="largest mean difference allowed")
    arguments = parser.parse_args()
    ours, reference = read(arguments.eval), read(arguments.reference)
    common = sorted(ours.keys() & reference.keys())
    if not common:
        print("compare_eval: the files have no position in common", file=sys.stderr)
        return 3
    for position in common:
        if ours[position]["id"] != reference[position]["id"]:
            print(f"compare_eval: position {position} has id {ours[position]['id']} in {arguments.eval}, "
                  f"{reference[position]['id']} in {arguments.reference}: other text or tokenizer", file=sys.stderr)
            return 3
    differences = sorted(abs(ours[p]["logprob"] - reference[p]["logprob"]) for p in common)
    mean = math.fsum(differences) / len(differences)
    result = {"tokens": len(differences), "mean": mean, "p99": differences[int(0.99 * (len(differences) - 1))],
              "max": differences[-1], "limit": arguments.limit}
    print(json.dumps(result))
    # A NaN is above every limit.
    return 1 if arguments.limit is not None and not mean <= arguments.limit else 0


if __name__ == "__main__":
    sys.exit(main())

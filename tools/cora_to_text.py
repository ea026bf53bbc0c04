#!/usr/bin/env python3
"""Packs the Cora graph, its words, labels and public split into one text that needs no reader.

    tools/cora_to_text.py cora.mtx.gz cora_features.mtx.gz cora_labels.csv.gz > tests/data/cora.txt

The first line holds the numbers of nodes, words and classes. Then a line a node: its label, its part of the split (t:
train, v: valid, s: test, -: none), its words, a bar, and those of its neighbours that have a higher number.
"""
import gzip
import sys


def elements(path):
    with gzip.open(path, "rt") as file:
        lines = [line for line in file if not line.startswith("%")]
    rows, columns, _ = map(int, lines[0].split())
    return rows, columns, [tuple(int(x) - 1 for x in line.split()[:2]) for line in lines[1:]]


def main():
    graph, features, labels = sys.argv[1:]
    nodes, words, stored = elements(features)
    held = [[] for _ in range(nodes)]
    for node, word in stored:
        held[node].append(word)
    above = [[] for _ in range(nodes)]
    for a, b in elements(graph)[2]:
        above[min(a, b)].append(max(a, b))
    with gzip.open(labels, "rt") as file:
        rows = [line.split(",") for line in file.read().split()[1:]]
    part = {"train": "t", "valid": "v", "test": "s", "none": "-"}
    print(nodes, words, 1 + max(int(row[1]) for row in rows))
    for node, label, split in rows:
        node = int(node)
        print(label, part[split], *sorted(held[node]), "|", *sorted(above[node]))


main()

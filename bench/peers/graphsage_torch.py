#!/usr/bin/env python3
"""Accuracy of GraphSAGE on Cora: the model of examples/graphsage.cpp in torch, beside that program.

    bench/peers/graphsage_torch.py [--seeds 10] [--epochs 200] [--hidden 64] [--program build/release/bin/graphsage]

Both train two layers x w_self + mean over neighbours (x w_neigh) + b on tests/data/cora.txt: 140 nodes of the public
split, the whole graph a step, dropout of a half on words and hidden features, Adam at 0.01, weight decay 5e-4 on every
parameter. The epoch with the best accuracy on the 500 validation nodes counts, the first of several; shown is its
accuracy on the 1,000 test nodes. Writes bench/results/graphsage.jsonl, a line for each program. It fails where
the means are further apart than one point. torch of `bench/peers/compare.py --install` is used where this Python has none.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

from against import describe
from compare import machine
from install import ENVIRONMENT

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CORA = ROOT / "tests/data/cora.txt"
RATE, DECAY, DROPOUT = 0.01, 5e-4, 0.5


def read_cora():
    """Words of each node, its neighbours (both sparse, rows sum to one), labels, and the part that each node is of."""
    import torch
    lines = CORA.read_text().splitlines()
    nodes, num_words, classes = map(int, lines[0].split())
    labels, parts, words, edges = [], [], [], []
    for node, line in enumerate(lines[1:nodes + 1]):
        own, _, others = line.partition("|")
        label, part, *found = own.split()
        labels.append(int(label))
        parts.append(part)
        words += [(node, int(word)) for word in found]
        edges += [pair for other in map(int, others.split()) for pair in ((node, other), (other, node))]

    def means(pairs, cols):
        index = torch.tensor(pairs).t()
        length = torch.bincount(index[0], minlength=nodes).clamp(min=1)
        values = 1 / length.float()[index[0]]
        return torch.sparse_coo_tensor(index, values, (nodes, cols), check_invariants=True).coalesce()

    part = {name: torch.tensor([p == name for p in parts]) for name in "tvs"}
    return means(words, num_words), means(edges, nodes), torch.tensor(labels), part, classes


class GraphSage:
    """Its parameters, and their scores of all nodes."""

    def __init__(self, features, hidden, classes):
        import torch
        self.layers = []
        for inputs, outputs in ((features, hidden), (hidden, classes)):
            own, neigh = torch.empty(inputs, outputs), torch.empty(inputs, outputs)
            for weight in (own, neigh):
                torch.nn.init.xavier_uniform_(weight)
            self.layers.append([own, neigh, torch.zeros(outputs)])
        self.parameters = [p.requires_grad_() for layer in self.layers for p in layer]

    def scores(self, x, neighbours, training):
        import torch
        from torch.nn.functional import dropout
        # What is 0 stays 0, dropped or not.
        h = torch.sparse_coo_tensor(x.indices(), dropout(x.values(), DROPOUT, training), x.shape, is_coalesced=True,
                                    check_invariants=False)
        for at, (own, neigh, bias) in enumerate(self.layers):
            h = h @ own + torch.sparse.mm(neighbours, h @ neigh) + bias
            if at == 0:
                h = dropout(torch.relu(h), DROPOUT, training)
        return h


def train(data, seed, epochs, hidden):
    """Test accuracy of the first epoch that is best on the validation nodes."""
    import torch
    x, neighbours, labels, part, classes = data
    torch.manual_seed(seed)
    model = GraphSage(x.shape[1], hidden, classes)
    optimizer = torch.optim.Adam(model.parameters, RATE, weight_decay=DECAY)
    best, test = 0, 0
    for _ in range(epochs):
        scores = model.scores(x, neighbours, training=True)
        loss = torch.nn.functional.cross_entropy(scores[part["t"]], labels[part["t"]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            right = model.scores(x, neighbours, training=False).argmax(1) == labels
        valid = right[part["v"]].double().mean().item()
        if valid > best:
            best, test = valid, right[part["s"]].double().mean().item()
    return test


def of_torch(arguments):
    import torch
    torch.set_num_threads(arguments.threads)
    data = read_cora()
    seeds = range(arguments.seeds)
    return torch.__version__, [train(data, seed, arguments.epochs, arguments.hidden) for seed in seeds]


def of_weft(arguments):
    """What the example prints for each seed."""
    options = [f"--{name}={getattr(arguments, name)}".split("=") for name in ("seeds", "epochs", "hidden")]
    printed = subprocess.run([arguments.program, CORA, *(word for option in options for word in option)], check=True,
                             text=True, stdout=subprocess.PIPE).stdout
    accuracies = [float(found) for found in re.findall(r"^seed \d+: test accuracy ([0-9.]+)$", printed, re.MULTILINE)]
    if len(accuracies) != arguments.seeds:
        sys.exit(f"{arguments.program} has printed {len(accuracies)} accuracies; {arguments.seeds} are expected")
    return describe(ROOT), accuracies


def line_of(contestant, version, accuracies, arguments):
    return {"case": "graphsage cora, public split", "contestant": contestant, "version": version,
            "metric": "test accuracy",
            "mean": statistics.mean(accuracies), "deviation": statistics.stdev(accuracies), "accuracies": accuracies,
            "epochs": arguments.epochs, "hidden": arguments.hidden, "weft": describe(ROOT), "machine": machine(),
            "date": datetime.date.today().isoformat()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="2 and more")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/graphsage"))
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error("--seeds: a deviation needs 2 and more")
    try:
        import torch  # noqa: F401
    except ImportError:
        python = ENVIRONMENT / "bin/python"
        if pathlib.Path(sys.executable) == python or not python.exists():
            sys.exit("torch is not there: bench/peers/compare.py --install")
        os.execv(python, [str(python), *sys.argv])
    lines = [line_of("Weft", *of_weft(arguments), arguments), line_of("torch", *of_torch(arguments), arguments)]
    results = ROOT / "bench/results/graphsage.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for line in lines:
        print(f"{line['contestant']:<6} {100 * line['mean']:.2f} % (deviation {100 * line['deviation']:.2f})")
    apart = abs(lines[0]["mean"] - lines[1]["mean"])
    return 0 if apart <= 0.01 else f"the means are {100 * apart:.2f} points apart; one is allowed"


if __name__ == "__main__":
    sys.exit(main())

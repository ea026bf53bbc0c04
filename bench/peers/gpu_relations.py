"""Layers of relations of torch and PyG, and an epoch of GraphSAGE of torch, over the files that `weft bench sparse
--device cuda:0 --data FOLDER` is given: typed graphs side by side, voxels of hills, a graph of gpu_sparse.py."""
import edges
import numpy as np
import torch
from gpu_rows import line
from gpu_timing import plain_seconds_of, seconds_of
from protocol import read_csr
from torch_sparse import layer_by_relation

# relations, rows, columns, and relation, row and column of each edge; with widths of a layer, or channels.
RELATIONS = {"aifb-like-x32": (lambda: side_by_side(edges.typed_graph(7262, 45, 48810), 32), (32,)),
             "convolution-80k": (lambda: edges.kernel_map(edges.hills(80_000)), (16, 64, 256))}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def side_by_side(graph, copies):
    """So many of a graph, which have relations in common and no node."""
    relations, rows, cols, relation, row, col = graph
    copy = np.repeat(np.arange(copies), len(relation))
    return (relations, copies * rows, copies * cols, np.tile(relation, copies), np.tile(row, copies) + copy * rows,
            np.tile(col, copies) + copy * cols)


def typed_files(folder):
    """Name, widths, and file of a line (relation, source, destination) for each edge, made at first need."""
    for name, (make, widths) in RELATIONS.items():
        path = folder / f"{name}_triples.csv"
        if not path.exists():
            _, _, _, relation, row, col = make()
            np.savetxt(path, np.stack([relation, col, row], 1), "%d", ",", header="rel,src,dst", comments="")
        yield name, widths, path


def by_relation(relation, source, destination, nodes, x, weights):
    parts = [(r, destination[relation == r], source[relation == r]) for r in range(len(weights))]
    out = torch.empty(nodes, weights.shape[2], device="cuda", dtype=x.dtype)
    return layer_by_relation([part for part in parts if len(part[1])], out, x, weights)


def by_pyg(relation, source, destination, nodes, x, weights):
    from torch_geometric.nn import FastRGCNConv
    layer = FastRGCNConv(x.shape[1], weights.shape[2], len(weights), aggr="add", root_weight=False, bias=False)
    layer = layer.to("cuda", x.dtype)
    with torch.no_grad():
        layer.weight.copy_(weights)
    between = torch.stack([source, destination])
    return lambda: layer(x, between, relation)


class Mean(torch.autograd.Function):
    """Means over neighbours, with the matrix and its transpose."""
    @staticmethod
    def forward(context, x, a, transposed):
        context.transposed = transposed
        return a @ x

    @staticmethod
    def backward(context, gradient):
        return context.transposed @ gradient, None, None


def graphsage(rows, cols, indptr, indices, feat=500, hidden=128, classes=3):
    """An epoch of training: two layers, the whole graph, Adam, as src/bench/sparse/graphsage.cpp has it."""
    length = torch.from_numpy(indptr).diff()
    means = (1 / length.float()).repeat_interleave(length)
    a = torch.sparse_csr_tensor(torch.from_numpy(indptr), torch.from_numpy(indices), means, (rows, cols)).cuda()
    transposed = a.to_sparse_coo().t().coalesce().to_sparse_csr()
    x, labels = torch.rand(rows, feat, device="cuda") * 2 - 1, torch.arange(rows, device="cuda") % classes
    sizes = [(feat, hidden), (hidden, classes)]
    own, theirs = ([torch.nn.Linear(i, o, bias=bias, device="cuda") for i, o in sizes] for bias in (True, False))
    parameters = [p for layer in (*own, *theirs) for p in layer.parameters()]
    optimizer = torch.optim.Adam(parameters, 0.01, weight_decay=5e-4, capturable=True)

    def epoch():
        h = x
        for layer in range(2):
            h = own[layer](h) + Mean.apply(theirs[layer](h), a, transposed)
            if layer == 0:
                h = torch.relu(h)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(h, labels).backward()
        optimizer.step()

    for _ in range(3):
        epoch()
    return epoch


def measure_training(name, graph, is_wanted, results):
    case = f"graphsage epoch {name}"
    if not is_wanted(case):
        return
    epoch = graphsage(*graph)
    for contestant, time in (("torch in a graph", seconds_of), ("torch", plain_seconds_of)):
        try:
            results.add(line(case, "time", time([epoch]) * 1e3, "ms", bench="sparse"), contestant, torch.__version__)
        except Exception as error:  # whatever a peer throws is its reason
            torch.cuda.synchronize()
            results.refuse(contestant, error)


def check_same(run, want):
    with torch.no_grad():
        got = run()
    error = ((got - want).abs().max() / want.abs().max().clamp(min=1e-6)).item()
    if error > 0.05:
        raise RuntimeError(f"computes something else, by {error:.2g} of the largest")


def measure_relations(folder, is_wanted, results):
    """Layers by relation in a graph, as convolutions are gathered, too; and PyG's, which no graph is sure to take."""
    for name, widths, path in typed_files(folder):
        is_layer = not name.startswith("convolution")
        cases = [(f"{'rgcn ' if is_layer else ''}{name} F{feat} {dtype}", feat, DTYPES[dtype])
                 for feat in widths for dtype in DTYPES]
        cases = [case for case in cases if is_wanted(case[0])]
        if not cases:
            continue
        found = torch.from_numpy(np.loadtxt(path, np.int64, delimiter=",", skiprows=1, unpack=True)).cuda()
        relation, source, destination = found
        nodes, sources = int(destination.max()) + 1, int(source.max()) + 1
        products = min(len(torch.unique(relation * size + ends))
                       for size, ends in ((nodes, destination), (sources, source)))
        contestants = [("torch by relation", by_relation, seconds_of)]
        if is_layer:
            contestants.append(("PyG FastRGCNConv", by_pyg, plain_seconds_of))
        for case, feat, dtype in cases:
            x = torch.randn(sources, feat, device="cuda", dtype=dtype)
            weights = torch.randn(int(relation.max()) + 1, feat, feat, device="cuda", dtype=dtype)
            want = by_relation(relation, source, destination, nodes, x, weights)().clone()
            for contestant, make, time in contestants:
                try:
                    run = make(relation, source, destination, nodes, x, weights)
                    check_same(run, want)
                    torch.cuda.synchronize()
                    before = torch.cuda.memory_allocated()
                    torch.cuda.reset_peak_memory_stats()
                    with torch.no_grad():
                        run()
                        torch.cuda.synchronize()
                        extra = torch.cuda.max_memory_allocated() - before
                        seconds = time([run])
                except Exception as error:  # whatever a peer throws is its reason
                    torch.cuda.synchronize()
                    results.refuse(contestant, error)
                    continue
                rate = 2 * products * feat * feat / seconds / 1e9
                for metric, value, unit in (("rate", rate, "GFLOP/s"), ("time", seconds * 1e6, "us"),
                                            ("memory beside tensors", extra / 1e6, "MB")):
                    results.add(line(case, metric, value, unit, bench="sparse"), contestant, torch.__version__)


def measure(folder, is_wanted, results):
    torch.backends.cuda.matmul.allow_tf32 = False
    measure_relations(folder, is_wanted, results)
    measure_training("pubmed-like", read_csr(folder / "pubmed-like.csr"), is_wanted, results)

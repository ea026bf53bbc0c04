"""torch's part in the rows of sparse operators, each in the ways that a careful user would write it."""
import os

import torch

from protocol import Refused, mean_seconds, note_memory_of, read_csr, read_edges

TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def random_tensor(dtype, *shape):
    """One block of random numbers, again and again: a large tensor must fill quickly."""
    count = torch.Size(shape).numel()
    block = torch.randn(min(count, 1 << 20)).to(dtype)
    return block.repeat(-(-count // block.numel()))[:count].view(shape)


def timed(operation):
    """A reading of what keeps no gradients; the first call is not timed."""
    def once():
        with torch.inference_mode():
            operation()

    once()
    return lambda: mean_seconds(once)


def csr(rows, cols, indptr, indices, values):
    return torch.sparse_csr_tensor(torch.from_numpy(indptr), torch.from_numpy(indices), values, (rows, cols))


def spmm(row):
    rows, cols, indptr, indices = read_csr(row["matrix"])
    a = csr(rows, cols, indptr, indices, torch.full((len(indices),), 0.5))
    b, c = random_tensor(torch.float32, cols, row["feat"]), torch.empty(rows, row["feat"])
    return timed(lambda: torch.addmm(c, a, b, beta=0, out=c))  # into a kept output


def blocks(row):
    """Dense products of the whole shape, whatever the pattern, into a kept output."""
    if row.get("amx") is False:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"  # before the first product
    dtype, tokens = TYPES[row["dtype"]], 4096
    heads, feat = (1, 512) if row["pattern"] == "pruned" else (12, 64)
    dense = random_tensor(dtype, heads, tokens, tokens)
    x, y = random_tensor(dtype, heads, tokens, feat), random_tensor(dtype, heads, tokens, feat)
    if row["op"] == "spmm":
        return timed(lambda: torch.bmm(dense, y, out=x))
    return timed(lambda: torch.bmm(x, y.transpose(1, 2), out=dense))


def layer_by_relation(parts, out, x, weights):
    """A layer: of each relation's (number, rows of out, rows of x) what its edges gather, their product, and where it is
    added."""
    def layer():
        out.zero_()
        for relation, to, source in parts:
            out.index_add_(0, to, x.index_select(0, source) @ weights[relation])
        return out

    return layer


def rgms(row):
    """"all": every node by the relation's weights, then sums over its edges. "gathered": the inputs of its edges by them,
    added to their outputs. Relations without an edge are left out."""
    relations, rows, cols, relation, to, source = read_edges(row["edges"])
    x, w = random_tensor(torch.float32, cols, row["feat_in"]), random_tensor(
        torch.float32, relations, row["feat_in"], row["feat_out"])
    y = torch.empty(rows, row["feat_out"])
    bounds = [int((relation < r).sum()) for r in range(relations + 1)]
    parts = [(r, torch.from_numpy(to[a:b]).long(), torch.from_numpy(source[a:b]).long())
             for r, (a, b) in enumerate(zip(bounds, bounds[1:])) if b > a]
    if row["way"] == "all":
        import numpy as np
        matrices = []
        for r, i, j in parts:
            indptr = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=rows))]).astype(np.int32)
            matrices.append((r, csr(rows, cols, indptr, j.int().numpy(), torch.ones(len(i)))))

        def layer():
            y.zero_()
            for r, a in matrices:
                torch.addmm(y, a, x @ w[r], out=y)
    else:
        layer = layer_by_relation(parts, y, x, w)
    with torch.inference_mode():
        note_memory_of(layer)
    return timed(layer)


class Mean(torch.autograd.Function):
    """Mean over neighbours, by a matrix whose transpose is kept as well."""
    @staticmethod
    def forward(context, x, a, transposed):
        context.transposed = transposed
        return a @ x

    @staticmethod
    def backward(context, gradient):
        return context.transposed @ gradient, None, None


def graphsage(row):
    """An epoch of training: two layers, the whole graph, Adam. Of each order of mean and product the cheaper one."""
    rows, cols, indptr, indices = read_csr(row["matrix"])
    length = torch.from_numpy(indptr).diff()
    a = csr(rows, cols, indptr, indices, (1 / length.float()).repeat_interleave(length))
    transposed = a.to_sparse_coo().t().coalesce().to_sparse_csr()
    x, labels = random_tensor(torch.float32, rows, row["feat"]), torch.arange(rows) % row["classes"]
    sizes = [(row["feat"], row["hidden"]), (row["hidden"], row["classes"])]
    own, theirs = ([torch.nn.Linear(i, o, bias=bias) for i, o in sizes] for bias in (True, False))
    optimizer = torch.optim.Adam([p for layer in (*own, *theirs) for p in layer.parameters()], 0.01, weight_decay=5e-4)

    def epoch():
        h = x
        for layer in range(2):
            h = own[layer](h) + Mean.apply(theirs[layer](h), a, transposed)
            if layer == 0:
                h = torch.relu(h)
        loss = torch.nn.functional.cross_entropy(h, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(3):
        epoch()
    return lambda: mean_seconds(epoch)


KINDS = {"spmm": spmm, "blocks": blocks, "rgms": rgms, "graphsage": graphsage}


def prepare(row):
    if row["kind"] not in KINDS:
        raise Refused("torch is measured with attention, linear layers and sparse operators")
    return KINDS[row["kind"]](row)

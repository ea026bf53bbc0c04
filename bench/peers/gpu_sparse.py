"""SpMM and SDDMM of cuSPARSE through torch, and dense products of torch, over the graphs that `weft bench sparse --device
cuda:0 --data FOLDER` is given: as many nodes and edges as graphs of these names, degrees by a power law, or even ones."""
import torch

import matrices
from gpu_rows import line
from gpu_timing import seconds_of
from protocol import read_csr

FEATURES = (32, 128)
GRAPHS = {"pubmed-like": lambda: matrices.power_law(19717, 88651),
          "arxiv-like": lambda: matrices.power_law(169343, 1166243),
          "reddit-like-tenth": lambda: matrices.power_law(23296, 11461589),
          "uniform-100k": lambda: matrices.uniform(100_000, 15)}
MOST_DENSE = 1 << 30  # elements of a dense matrix


def files(folder):
    """The graphs as files of the folder, made at first need."""
    for name, make in GRAPHS.items():
        path = folder / f"{name}.csr"
        if not path.exists():
            matrices.write(path, *make())
        yield name, path


def rates(a, feat):
    """(operation, contestant, seconds, elements that are multiplied) of what torch has."""
    rows, cols = a.shape
    x, y = torch.randn(rows, feat, device="cuda"), torch.randn(cols, feat, device="cuda")
    out = torch.empty(rows, feat, device="cuda")
    nnz = a.values().numel()
    yield "spmm", "cuSPARSE", lambda: torch.addmm(out, a, y, beta=0, out=out), nnz
    yield "sddmm", "cuSPARSE", lambda: torch.sparse.sampled_addmm(a, x, y.t(), beta=0), nnz
    if rows * cols <= MOST_DENSE:
        dense = a.to_dense()
        yield "spmm", "torch dense", lambda: torch.mm(dense, y, out=out), nnz


def measure(folder, is_wanted, results):
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, path in files(folder):
        rows, cols, indptr, indices = read_csr(path)
        a = torch.sparse_csr_tensor(torch.from_numpy(indptr), torch.from_numpy(indices),
                                    torch.randn(len(indices)), (rows, cols)).cuda()
        for feat in FEATURES:
            for operation, contestant, run, nnz in rates(a, feat):
                case = f"{operation} {name} F{feat}"
                if not is_wanted(case):
                    continue
                try:
                    seconds = seconds_of([run])
                except Exception as error:  # whatever a peer throws is its reason
                    torch.cuda.synchronize()
                    results.refuse(contestant, error)
                    continue
                rate = 2 * nnz * feat / seconds / 1e9
                results.add(line(case, "rate", rate, "GFLOP/s", bench="sparse"), contestant, torch.__version__)

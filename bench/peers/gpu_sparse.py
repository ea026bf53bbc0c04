"""SpMM and SDDMM of cuSPARSE through torch, and dense products of torch, over the graphs that `weft bench sparse --device
cuda:0 --data FOLDER` is given: as many nodes and edges as graphs of these names, degrees by a power law, or even ones.
In blocks of bf16, torch's Triton kernels for BSR and dense products, over the patterns of sparse attention and pruned
weights that it measures."""
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


def band(blocks, reach):
    return [[j for j in range(blocks) if abs(i - j) <= reach] for i in range(blocks)]


def butterfly(blocks, stride):
    bits = [1 << b for b in range(stride.bit_length())]
    return [sorted({i} | {i ^ bit for bit in bits if i ^ bit < blocks}) for i in range(blocks)]


def pruned(blocks, density):
    generator = torch.Generator().manual_seed(3)
    return [torch.nonzero(row < density).flatten().tolist() for row in torch.rand(blocks, blocks, generator=generator)]


BLOCK = 32
# Case as `weft bench` names it, behind the operation; columns of each block row, heads, features.
PATTERNS = {"longformer 4096 x 12 heads d64 band 256": (lambda: band(128, 4), 12, 64),
            "butterfly 4096 x 12 heads d64": (lambda: butterfly(128, 64), 12, 64),
            "pruned 4096 x 4096 block 32 density 0.1 F512": (lambda: pruned(128, 0.1), 1, 512)}


class Blocks:
    """A matrix in blocks for each head, and the dense ones beside it."""

    def __init__(self, columns, heads, feat):
        self.stored = sum(map(len, columns)) * heads * BLOCK * BLOCK
        self.feat, size = feat, len(columns) * BLOCK
        indptr = torch.tensor([0] + [len(row) for row in columns]).cumsum(0)
        indices = torch.tensor([j for row in columns for j in row])

        def random(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        self.bsr = torch.sparse_bsr_tensor(
            indptr.expand(heads, -1).contiguous().cuda(), indices.expand(heads, -1).contiguous().cuda(),
            random(heads, len(indices), BLOCK, BLOCK), (heads, size, size))
        self.x, self.y, self.out = (random(heads, size, feat) for _ in range(3))
        self.dense = random(heads, size, size)

    def runs(self, has_sddmm):
        from torch.sparse import _triton_ops as triton
        yield "spmm", "torch Triton BSR", lambda: triton.bsr_dense_mm(self.bsr, self.y, out=self.out)
        yield "spmm", "torch dense", lambda: torch.bmm(self.dense, self.y, out=self.out)
        if has_sddmm:
            turned = self.y.transpose(1, 2)
            yield "sddmm", "torch Triton BSR", lambda: triton.sampled_addmm(self.bsr, self.x, turned, beta=0,
                                                                            skip_checks=True)
            yield "sddmm", "torch dense", lambda: torch.bmm(self.x, turned, out=self.dense)


def measure_blocks(is_wanted, results):
    for name, (columns, heads, feat) in PATTERNS.items():
        wanted = [operation for operation in ("spmm", "sddmm") if is_wanted(f"block {operation} {name} bf16")]
        if not wanted:
            continue
        blocks = Blocks(columns(), heads, feat)
        for operation, contestant, run in blocks.runs(heads > 1):
            if operation not in wanted:
                continue
            try:
                seconds = seconds_of([run])
            except Exception as error:  # whatever a peer throws is its reason
                torch.cuda.synchronize()
                results.refuse(contestant, error)
                continue
            case = f"block {operation} {name} bf16"
            rate = 2 * blocks.stored * feat / seconds / 1e9
            results.add(line(case, "rate", rate, "GFLOP/s", bench="sparse"), contestant, torch.__version__)
            results.add(line(case, "time", seconds * 1e6, "us", bench="sparse"), contestant, torch.__version__)


def measure(folder, is_wanted, results):
    measure_blocks(is_wanted, results)
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

"""Sparse tensor programs and ready operators: weft/sparse.h under its own names (docs/sparse.md)."""

from __future__ import annotations

from typing import Any

from ._weft import sparse as _sparse
from ._weft.sparse import *  # noqa: F403
from ._weft.sparse import Structure as Structure
from ._weft.sparse import csr as csr

__all__ = [name for name in vars(_sparse) if not name.startswith("_")] + ["matrix"]


def matrix(a: Any) -> tuple[Structure, Any]:
    """(structure, values) of a matrix of scipy.sparse or torch.sparse in CSR: the values are its own memory, no copy.

    Other layouts would need one: a.tocsr(), a.to_sparse_csr(). Raises TypeError for those, and
    Error(invalid_argument) where indices of a row do not rise (a.sum_duplicates() of scipy mends that).
    """
    kind = type(a).__module__.partition(".")[0]
    if kind == "scipy" and getattr(a, "format", None) == "csr":
        return csr(a.shape[0], a.shape[1], a.indptr, a.indices), a.data
    if kind == "torch" and str(a.layout) == "torch.sparse_csr" and a.dim() == 2:
        return csr(a.shape[0], a.shape[1], a.crow_indices(), a.col_indices()), a.values().detach()
    made = {"scipy": "a.tocsr()", "torch": "a.to_sparse_csr()"}.get(kind, "weft.sparse.csr(...)")
    raise TypeError(f"a: {type(a).__name__} is no matrix in CSR; make one with {made}")

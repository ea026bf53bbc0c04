"""Sparse tensor programs and ready operators: weft/sparse.h under its own names (docs/sparse.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._weft import sparse as _sparse
from ._weft.sparse import *  # noqa: F403
from ._weft.sparse import AxisKind, Coo, StoredAxis, Structure, csr, csr_from_coo, structure_of

__all__ = [name for name in vars(_sparse) if not name.startswith("_")] + ["matrix"]


def matrix(a: Any, layout: str = "csr") -> tuple[Structure, Any]:
    """(structure, values) of a matrix of scipy.sparse or torch.sparse, the values where they lie: no copy.

    layout 'csr': of CSR, and of COO in the order of its rows, then columns; values [nnz].
    'csc': of CSC, the structure being that of the transpose, as csc_from_coo makes it; values [nnz] by columns.
    'bsr': of BSR with square blocks, the structure being that of blocks, as block_spmm takes it; values [nnzb, block,
    block]. 'coo': of COO in any order, for programs with such axes; values [nnz].

    Indices are checked and copied, to the host where they lie on a card. Raises TypeError that names the call which
    makes a copy where only a copy has that layout, ValueError for another `layout`, and Error(invalid_indptr |
    invalid_argument) for indices that are none of a matrix.
    """
    if layout not in _READERS:
        raise ValueError(f"layout: is {layout!r}; allowed are 'csr', 'csc', 'bsr' and 'coo'")
    library = type(a).__module__.partition(".")[0]
    view: _View
    if library == "scipy" and hasattr(a, "format"):
        own, view = str(a.format), _OfScipy(a)
    elif library == "torch" and hasattr(a, "layout") and str(a.layout).startswith("torch.sparse"):
        own, view = str(a.layout).removeprefix("torch.sparse_"), _OfTorch(a)
    else:
        raise TypeError(f"a: {type(a).__name__} is no matrix of scipy.sparse or torch.sparse; weft.sparse.csr(...) and "
                        "its kin take arrays")
    if len(a.shape) != 2:
        raise TypeError(f"a: has {len(a.shape)} dimensions; a matrix has two")
    read = _READERS[layout].get(own)
    if read is None:
        raise TypeError(f"a: is stored as {own}; its values would have to be copied for layout {layout!r}: "
                        f"{view.calls[layout]} makes that copy")
    return read(view)


class _OfScipy:
    """What readers ask of a matrix of scipy."""

    calls = {"csr": "a.tocsr()", "csc": "a.tocsc()", "bsr": "a.tobsr((b, b))", "coo": "a.tocoo()"}
    sorts = "a.tocsr()"

    def __init__(self, a: Any) -> None:
        self.a, self.shape = a, a.shape

    def compressed(self) -> tuple[Any, Any, Any]:
        """(indptr, indices, values)"""
        if not self.a.has_canonical_format:
            raise TypeError("a: indices of a row do not rise, or an element stands twice; a.sum_duplicates() mends "
                            "that in place")
        return self.a.indptr, self.a.indices, self.a.data

    def listed(self) -> tuple[Any, Any, Any]:
        """(rows, cols, values)"""
        return self.a.row, self.a.col, self.a.data


class _OfTorch:
    """The same of a matrix of torch."""

    calls = {"csr": "a.to_sparse_csr()", "csc": "a.to_sparse_csc()", "bsr": "a.to_sparse_bsr((b, b))",
             "coo": "a.to_sparse_coo()"}
    sorts = "a.coalesce()"

    def __init__(self, a: Any) -> None:
        self.a, self.shape = a, a.shape

    def compressed(self) -> tuple[Any, Any, Any]:
        a = self.a
        by_columns = str(a.layout) == "torch.sparse_csc"
        indptr, indices = (a.ccol_indices, a.row_indices) if by_columns else (a.crow_indices, a.col_indices)
        return indptr().cpu(), indices().cpu(), self._values(a.values())

    def listed(self) -> tuple[Any, Any, Any]:
        if not self.a.is_coalesced():  # its values are not to be had without
            raise TypeError("a: elements of one place have not been added up; a.coalesce() makes a copy that has")
        if self.a.sparse_dim() != 2:
            raise TypeError("a: its rows are stored whole; a.to_dense().to_sparse() makes a copy whose elements are listed")
        rows, cols = self.a.indices().cpu()
        return rows, cols, self._values(self.a.values())

    @staticmethod
    def _values(values: Any) -> Any:
        return values.detach()


_View = _OfScipy | _OfTorch


def _check_values(values: Any, rank: int) -> None:
    if values.ndim != rank:
        raise TypeError(f"a: its elements are arrays of {values.ndim - rank} dimensions; weft.sparse has numbers alone")


def _of_rows(view: _View) -> tuple[Structure, Any]:
    indptr, indices, values = view.compressed()
    _check_values(values, 1)
    return csr(view.shape[0], view.shape[1], indptr, indices), values


def _of_columns(view: _View) -> tuple[Structure, Any]:
    indptr, indices, values = view.compressed()
    _check_values(values, 1)
    return csr(view.shape[1], view.shape[0], indptr, indices), values


def _of_blocks(view: _View) -> tuple[Structure, Any]:
    indptr, indices, values = view.compressed()
    _check_values(values, 3)
    rows, cols = values.shape[1:]
    if rows != cols:
        raise TypeError(f"a: its blocks are {rows} x {cols}; square ones are taken: {view.calls['bsr']} makes a copy")
    return csr(view.shape[0] // rows, view.shape[1] // cols, indptr, indices), values


def _of_sorted_list(view: _View) -> tuple[Structure, Any]:
    rows, cols, values = view.listed()
    _check_values(values, 1)
    made = csr_from_coo(Coo(view.shape[0], view.shape[1], rows, cols))
    if not made.keeps_order:
        raise TypeError(f"a: its elements do not stand by row, then column; {view.sorts} makes a copy that does, and "
                        "layout='coo' takes them as they are")
    return made.structure, values


def _of_list(view: _View) -> tuple[Structure, Any]:
    rows, cols, values = view.listed()
    _check_values(values, 1)
    axes = [StoredAxis(length=len(rows))]
    for length, indices in zip(view.shape, (rows, cols)):
        axes.append(StoredAxis(kind=AxisKind.sparse_fixed, length=length, nnz_cols=1, indices=indices))
    return structure_of(axes), values


_READERS: dict[str, dict[str, Callable[[_View], tuple[Structure, Any]]]] = {
    "csr": {"csr": _of_rows, "coo": _of_sorted_list},
    "csc": {"csc": _of_columns},
    "bsr": {"bsr": _of_blocks},
    "coo": {"coo": _of_list},
}

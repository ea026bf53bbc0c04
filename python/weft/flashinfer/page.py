"""Paged caches: flashinfer.page."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from . import _common as common
from ._batch import pair_of
from ._common import Invalid


def get_seq_lens(kv_indptr: Tensor, kv_last_page_len: Tensor, page_size: int) -> Tensor:
    """Tokens of each request, int32 [batch]. A request without pages has kv_last_page_len of them."""
    kv_indptr, last = common.index_of("kv_indptr", kv_indptr), common.index_of("kv_last_page_len", kv_last_page_len)
    if last.numel() != kv_indptr.numel() - 1:
        raise Invalid(f"kv_last_page_len: has {last.numel()} elements; kv_indptr says {kv_indptr.numel() - 1} requests")
    common.whole("page_size", page_size, 1)
    return ((kv_indptr[1:] - kv_indptr[:-1] - 1).clamp_min(0) * page_size + last).to(torch.int32)


def get_batch_indices_positions(append_indptr: Tensor, seq_lens: Tensor, nnz: int,
                                batch_indices: Optional[Tensor] = None,
                                positions: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
    """The request and the position of each of nnz appended rows, int32 [nnz]; seq_lens are those after the append.

    Rows behind the last request have request -1 and position 0.
    """
    indptr = common.index_of("append_indptr", append_indptr).long()
    lens = common.index_of("seq_lens", seq_lens).long()
    common.whole("nnz", nnz, 0)
    if lens.numel() != indptr.numel() - 1:
        raise Invalid(f"seq_lens: has {lens.numel()} elements; append_indptr says {indptr.numel() - 1} requests")
    shape = (nnz,)
    request = common.check_out("batch_indices", batch_indices, shape, torch.int32, indptr.device)
    position = common.check_out("positions", positions, shape, torch.int32, indptr.device)
    rows = torch.arange(nnz, device=indptr.device)
    found = torch.searchsorted(indptr, rows, right=True) - 1
    inside = found < lens.numel()
    at = found.clamp_max(max(lens.numel() - 1, 0))
    where = rows + lens[at] - indptr[at + 1] if lens.numel() else torch.zeros_like(rows)
    made = torch.where(inside, found, -1).to(torch.int32), torch.where(inside, where, 0).to(torch.int32)
    results = []
    for given, x in zip((request, position), made):
        results.append(x if given is None else given.copy_(x))
    return results[0], results[1]


def _places(batch_indices: Tensor, positions: Tensor, kv_indices: Tensor, kv_indptr: Tensor, kv_last_page_len: Tensor,
            page_size: int, num_pages: int) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, pages, slots) of the rows that belong to a request."""
    request, position, ids, indptr, last = (
        common.index_of(name, x).long() for name, x in (
            ("batch_indices", batch_indices), ("positions", positions), ("kv_indices", kv_indices),
            ("kv_indptr", kv_indptr), ("kv_last_page_len", kv_last_page_len)))
    common.refuse_capture("batch_indices", request)
    if request.shape != position.shape or request.dim() != 1:
        raise Invalid(f"positions: {tuple(position.shape)} beside batch_indices {tuple(request.shape)}; both are [nnz]")
    rows = (request >= 0).nonzero().flatten()
    request, position = request[rows], position[rows]
    if rows.numel() == 0:
        return rows, rows, rows
    batch = indptr.numel() - 1
    if last.numel() != batch:
        raise Invalid(f"kv_last_page_len: has {last.numel()} elements; kv_indptr says {batch} requests")
    if batch < 0 or int(indptr[0]) != 0 or bool((indptr[1:] < indptr[:-1]).any()) or int(indptr[-1]) > ids.numel():
        raise Invalid(f"kv_indptr: {indptr.tolist()}; it starts at 0, never decreases and ends at the {ids.numel()} "
                      "kv_indices or before")
    if int(request.max()) >= batch:
        raise Invalid(f"batch_indices: {int(request.max())}; kv_indptr says {batch} requests")
    lens = (indptr[1:] - indptr[:-1] - 1).clamp_min(0) * page_size + last
    wrong = (position < 0) | (position >= lens[request])
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise Invalid(f"positions[{int(rows[at])}] = {int(position[at])}; request {int(request[at])} has "
                      f"{int(lens[request[at]])} tokens")
    pages = ids[indptr[request] + position // page_size]
    if int(pages.min()) < 0 or int(pages.max()) >= num_pages:
        raise Invalid(f"kv_indices: name pages {int(pages.min())} to {int(pages.max())}; the cache has {num_pages}")
    return rows, pages, position % page_size


def _write(name: str, cache: Tensor, pages: Tensor, slots: Tensor, rows: Tensor, new: Tensor) -> None:
    """cache [pages, slots, ...] takes the rows of `new`."""
    if new.dtype != cache.dtype:
        raise Invalid(f"{name}: is {new.dtype}, the cache {cache.dtype}; convert it first")
    if new.shape[1:] != cache.shape[2:]:
        raise Invalid(f"{name}: rows of {tuple(new.shape[1:])}; the cache has {tuple(cache.shape[2:])}")
    if rows.numel() != new.shape[0]:
        new = new[rows]
    if cache.element_size() == 1:  # fp8 is moved as bytes
        cache, new = cache.view(torch.uint8), new.view(torch.uint8)
    cache[pages, slots] = new


def append_paged_kv_cache(append_key: Tensor, append_value: Tensor, batch_indices: Tensor, positions: Tensor,
                          paged_kv_cache: Any, kv_indices: Tensor, kv_indptr: Tensor, kv_last_page_len: Tensor,
                          kv_layout: str = "NHD") -> None:
    """Writes append_key and append_value [nnz, num_kv_heads, head_dim] into their requests' pages, at any positions.

    Rows of request -1 go nowhere. Everything is checked before anything is written.
    """
    common.check_layout(kv_layout)
    k, v = pair_of(paged_kv_cache, kv_layout)
    common.check_rank("k_cache", k, 4)
    if kv_layout == "HND":
        k, v = k.transpose(1, 2), v.transpose(1, 2)
    new_k, new_v = common.tensor_of("append_key", append_key), common.tensor_of("append_value", append_value)
    common.check_rank("append_key", new_k, 3)
    common.check_rank("append_value", new_v, 3)
    batch_indices = common.index_of("batch_indices", batch_indices)
    if new_k.shape[0] != batch_indices.numel() or new_v.shape[0] != batch_indices.numel():
        raise Invalid(f"append_key: has {new_k.shape[0]} rows, append_value {new_v.shape[0]}, batch_indices "
                      f"{batch_indices.numel()}; all are [nnz, ...]")
    rows, pages, slots = _places(batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len, k.shape[1],
                                 k.shape[0])
    if new_v.dtype != v.dtype or new_v.shape[1:] != v.shape[2:]:
        raise Invalid(f"append_value: rows of {tuple(new_v.shape[1:])} {new_v.dtype}; the cache has "
                      f"{tuple(v.shape[2:])} {v.dtype}")
    _write("append_key", k, pages, slots, rows, new_k)
    _write("append_value", v, pages, slots, rows, new_v)


def append_paged_mla_kv_cache(append_ckv: Tensor, append_kpe: Tensor, batch_indices: Tensor, positions: Tensor,
                              ckv_cache: Optional[Tensor], kpe_cache: Optional[Tensor], kv_indices: Tensor,
                              kv_indptr: Tensor, kv_last_page_len: Tensor) -> None:
    """The same of latent rows: append_ckv [nnz, head_dim_ckv] into ckv_cache [pages, page_size, head_dim_ckv], and
    append_kpe likewise; a cache that is None is left out."""
    for name, cache, new in (("append_ckv", ckv_cache, append_ckv), ("append_kpe", kpe_cache, append_kpe)):
        if cache is None:
            continue
        cache, new = common.tensor_of(name.replace("append_", "") + "_cache", cache), common.tensor_of(name, new)
        common.check_rank(name, new, 2)
        common.check_rank(name.replace("append_", "") + "_cache", cache, 3)
        rows, pages, slots = _places(batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len, cache.shape[1],
                                     cache.shape[0])
        _write(name, cache, pages, slots, rows, new)

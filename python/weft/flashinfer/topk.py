"""The largest elements of rows: flashinfer.topk."""

from __future__ import annotations

import enum
from typing import Optional

import torch
from torch import Tensor

from . import _common as common
from ._common import Invalid


class TopKTieBreak(enum.IntEnum):
    """Which of equal elements are taken: any, those at smaller indices, or those at larger ones."""

    NONE = 0
    SMALL = 1
    LARGE = 2


def can_implement_filtered_topk() -> bool:
    """True: what FlashInfer has in its filtered kernels alone is served, tie_break among it."""
    return True


def _ordered(rows: Tensor, kind: TopKTieBreak) -> Tensor:
    """All indices of each row, of falling elements; of equal ones those at smaller or at larger indices first."""
    if kind != TopKTieBreak.LARGE:
        return torch.argsort(rows, dim=1, descending=True, stable=True)
    return rows.shape[1] - 1 - torch.argsort(rows.flip(1), dim=1, descending=True, stable=True)


def top_k(input: Tensor, k: int, sorted: bool = False, deterministic: bool = False,
          tie_break: int = TopKTieBreak.NONE, dsa_graph_safe: bool = False) -> tuple[Tensor, Tensor]:
    """input [rows, n] -> (values [rows, k], indices int64 [rows, k]); sorted: falling."""
    rows = common.tensor_of("input", input)
    common.check_rank("input", rows, 2)
    if not 0 <= k <= rows.shape[1]:
        raise Invalid(f"k = {k}; allowed are 0 to {rows.shape[1]}, the length of a row")
    kind = TopKTieBreak(tie_break)
    if kind == TopKTieBreak.NONE:
        values, indices = rows.topk(k, 1, sorted=sorted)
        return values, indices
    indices = _ordered(rows, kind)[:, :k]
    return rows.gather(1, indices), indices


def _of_rows(name: str, x: Optional[Tensor], rows: int, device: torch.device) -> Tensor:
    """An index of each row, int64 [rows]; zeros where none are given."""
    if x is None:
        return torch.zeros(rows, dtype=torch.int64, device=device)
    made = common.index_of(name, x)
    if made.numel() != rows:
        raise Invalid(f"{name}: has {made.numel()} elements; input has {rows} rows")
    return made.to(device=device, dtype=torch.int64)


def _selected(input: Tensor, lengths: Tensor, k: int, deterministic: bool, tie_break: int,
              row_starts: Optional[Tensor]) -> Tensor:
    """int64 [rows, k]: of each row's window [row_starts, row_starts + lengths) the indices of its largest elements,
    counted from the window's start, and -1 behind them. They rise where the call is deterministic or breaks ties, and
    where a window has up to k elements, which are all of them."""
    scores = common.tensor_of("input", input)
    common.refuse_capture("input", scores)
    common.check_rank("input", scores, 2)
    common.whole("k", k, 0)
    rows, width = scores.shape
    kind = TopKTieBreak(tie_break)
    length, start = (_of_rows(name, x, rows, scores.device)
                     for name, x in (("lengths", lengths), ("row_starts", row_starts)))
    wrong = (length < 0) | (start < 0) | (start + length > width)
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise Invalid(f"lengths[{at}] = {int(length[at])}, from row_starts[{at}] = {int(start[at])} on; a row of input "
                      f"has {width} elements")
    place = torch.arange(max(width, k), device=scores.device)
    if row_starts is not None and width:
        scores = scores.gather(1, (start.unsqueeze(1) + place[:width]).clamp_max(width - 1))
    outside = place[:width] >= length.unsqueeze(1)
    masked = scores.masked_fill(outside, -torch.inf)
    most = min(k, width)
    best = masked.topk(most, 1).indices if kind == TopKTieBreak.NONE else _ordered(masked, kind)
    if bool((outside.gather(1, best[:, :most]) & (length > k).unsqueeze(1)).any()):  # -inf is also a window's own
        best = _ordered(masked, kind)
    if best.shape[1] == width and width:
        best = best.gather(1, torch.argsort(outside.gather(1, best), dim=1, stable=True))
    best = best[:, :most]
    if deterministic or kind != TopKTieBreak.NONE:
        best = best.sort(1).values
    made = place[:k].repeat(rows, 1)
    made[:, :most] = torch.where((length > k).unsqueeze(1), best, made[:, :most])
    return made.masked_fill(place[:k] >= length.unsqueeze(1), -1)


def top_k_page_table_transform(input: Tensor, src_page_table: Tensor, lengths: Tensor, k: int,
                               row_to_batch: Optional[Tensor] = None, deterministic: bool = False,
                               tie_break: int = TopKTieBreak.NONE, dsa_graph_safe: bool = False,
                               row_starts: Optional[Tensor] = None, page_table_row_starts: Optional[Tensor] = None,
                               *, page_size: int = 1, out: Optional[Tensor] = None,
                               out_raw_indices: Optional[Tensor] = None) -> Tensor:
    """Where the k largest of each row's first `lengths` scores lie: input [rows, n], src_page_table int32 [batch,
    entries], an entry for page_size scores -> int32 [rows, k], entry * page_size + slot, and -1 behind them.

    row_to_batch [rows]: the row of the table, the row's own without it. row_starts: where a row's scores begin;
    page_table_row_starts: where its entries do, at row_starts as well without them. out_raw_indices int32 [rows, k]
    takes the indices themselves.
    """
    if page_size < 1 or page_size > 1 << 30 or page_size & (page_size - 1):
        raise Invalid(f"page_size = {page_size}; page_size must be a positive power of two no greater than 2**30")
    if page_size != 1 and row_starts is not None and page_table_row_starts is None:
        raise Invalid("page_table_row_starts is required with page_size > 1 and row_starts: they count pages")
    chosen = _selected(input, lengths, k, deterministic, tie_break, row_starts)
    rows, device = chosen.shape[0], chosen.device
    table = common.tensor_of("src_page_table", src_page_table)
    common.check_rank("src_page_table", table, 2)
    if table.dtype != torch.int32:
        raise Invalid(f"src_page_table: its elements are {table.dtype}; required is torch.int32")
    results = [common.check_out(name, x, (rows, k), torch.int32, device)
               for name, x in (("out", out), ("out_raw_indices", out_raw_indices))]
    batch = (torch.arange(rows, device=device) if row_to_batch is None
             else _of_rows("row_to_batch", row_to_batch, rows, device))
    first = _of_rows("page_table_row_starts", row_starts if page_table_row_starts is None else page_table_row_starts,
                     rows, device)
    seen = chosen >= 0
    entry = torch.where(seen, first.unsqueeze(1) + chosen.clamp_min(0) // page_size, 0)
    if bool(seen.any()):
        if not 0 <= int(batch.min()) <= int(batch.max()) < table.shape[0] or int(entry.max()) >= table.shape[1]:
            raise Invalid(f"src_page_table: {tuple(table.shape)}; rows name its rows {int(batch.min())} to "
                          f"{int(batch.max())} and entries up to {int(entry.max())}")
        where = table[batch.unsqueeze(1), entry].long() * page_size + chosen % page_size
    else:
        where = chosen
    made = torch.where(seen, where, -1).to(torch.int32), chosen.to(torch.int32)
    if results[1] is not None:
        results[1].copy_(made[1])
    return made[0] if results[0] is None else results[0].copy_(made[0])


def top_k_ragged_transform(input: Tensor, offsets: Tensor, lengths: Tensor, k: int, deterministic: bool = False,
                           tie_break: int = TopKTieBreak.NONE, dsa_graph_safe: bool = False,
                           row_starts: Optional[Tensor] = None) -> Tensor:
    """The k largest of each row's first `lengths` scores, as offsets [rows] + their indices: int32 [rows, k], and -1
    behind them."""
    chosen = _selected(input, lengths, k, deterministic, tie_break, row_starts)
    shift = _of_rows("offsets", offsets, chosen.shape[0], chosen.device)
    return torch.where(chosen >= 0, chosen + shift.unsqueeze(1), -1).to(torch.int32)

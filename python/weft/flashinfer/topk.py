"""The largest elements of rows: flashinfer.topk."""

from __future__ import annotations

import enum

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
    """False: there is one algorithm here."""
    return False


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
    turned = rows.flip(1) if kind == TopKTieBreak.LARGE else rows
    order = torch.argsort(turned, dim=1, descending=True, stable=True)[:, :k]
    indices = rows.shape[1] - 1 - order if kind == TopKTieBreak.LARGE else order
    return rows.gather(1, indices), indices

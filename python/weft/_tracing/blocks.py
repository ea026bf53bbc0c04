"""Masks of Python functions -> lists of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy

from .. import _weft
from .evaluate import Evaluation
from .ranges import check_indices
from .trace import Functions, MaskMod, QueryIndex
from .values import error


def block_mask(mask_mod: MaskMod, B: Optional[int], H: Optional[int], Q_LEN: Union[int, Sequence[int]],
               KV_LEN: Union[int, Sequence[int]], BLOCK_SIZE: Union[int, tuple[int, int]] = 128, *,
               num_kv_heads: Optional[int] = None, pages: Optional[_weft.PageTableView] = None,
               q_idx: QueryIndex = "position") -> _weft.BlockSparse:
    """Lists of the blocks in which any query sees any key, for kernels with kv_form = KvForm.block_sparse.

    mask_mod(b, h, q_idx, kv_idx) is traced as by weft.variants.trace, and asked for every pair once, by numpy. Of B
    requests (None: one), each with Q_LEN queries and KV_LEN keys, or as two lists say; H query heads (None: the mask is
    the same for all) of num_kv_heads KV heads (None: H), where those that share a KV head have to agree. BLOCK_SIZE: of
    rows and columns, or (rows, columns). A block that all its rows see whole has no bits, others have.

    The kernel's cache is that of the paged form with pages of BLOCK_SIZE columns: those of `pages`, or without it block
    after block of request after request. Raises Error(invalid_argument | invalid_shape | invalid_device), and what
    trace raises.
    """
    block_rows, block_cols = BLOCK_SIZE if isinstance(BLOCK_SIZE, tuple) else (BLOCK_SIZE, BLOCK_SIZE)
    requests = _requests(1 if B is None else B, Q_LEN, KV_LEN)
    for name, value in (("BLOCK_SIZE", block_rows), ("BLOCK_SIZE", block_cols), ("H", 1 if H is None else H)):
        if value < 1:
            raise _invalid(f"{name} = {value}; allowed are 1 and more")
    functions = Functions(None, mask_mod, q_idx)
    assert functions.mask is not None
    mask = Evaluation(functions.mask)
    heads, kv_heads = _heads(mask, H, num_kv_heads)
    longest_qo, longest_kv = max(qo for qo, _ in requests), max(kv for _, kv in requests)
    check_indices(mask.loads, {"b": (0, len(requests) - 1), "h": (0, heads - 1), "q_row": (0, longest_qo - 1),
                               "q_idx": (0, longest_kv - 1), "kv_idx": (0, longest_kv - 1)})
    lists = _Lists(block_rows, block_cols, _pool(requests, block_cols, pages))
    group = heads // kv_heads
    for kv_head in range(kv_heads):
        for b, lengths in enumerate(requests):
            for row in range(0, lengths[0], block_rows):
                seen = _seen(mask, b, kv_head * group, lengths, row, block_rows)
                for head in range(kv_head * group + 1, (kv_head + 1) * group):
                    if not numpy.array_equal(seen, _seen(mask, b, head, lengths, row, block_rows)):
                        raise _invalid(f"mask_mod: query heads {kv_head * group} and {head} share KV head {kv_head} "
                                       f"and see other keys in rows from {row} on; lists are one a KV head")
                lists.add(b, seen)
    positions = [numpy.arange(kv - qo, kv, dtype=numpy.int32) for qo, kv in requests]
    return lists.finished(numpy.concatenate(positions))


def _invalid(text: str) -> _weft.Error:
    return error(_weft.ErrorCode.invalid_argument, text)


def _requests(batch: int, qo: Union[int, Sequence[int]], kv: Union[int, Sequence[int]]) -> list[tuple[int, int]]:
    if batch < 1:
        raise _invalid(f"B = {batch}; allowed are 1 and more, and None for one request")
    lengths = []
    for name, given in (("Q_LEN", qo), ("KV_LEN", kv)):
        each = [given] * batch if isinstance(given, int) else list(given)
        if len(each) != batch or min(each) < 0:
            raise _invalid(f"{name} = {given}; allowed is a length, or one for each of the {batch} requests")
        lengths.append(each)
    return list(zip(*lengths))


def _heads(mask: Evaluation, heads: Optional[int], kv_heads: Optional[int]) -> tuple[int, int]:
    """Query heads and KV heads that lists are made for."""
    if not mask.depends_on("h"):
        return 1, 1
    if heads is None:
        raise _invalid("H = None, and mask_mod reads h; give the number of query heads")
    shared = heads if kv_heads is None else kv_heads
    if shared < 1 or heads % shared != 0:
        raise _invalid(f"num_kv_heads = {shared}; allowed are divisors of H = {heads}")
    return heads, shared


def _pool(requests: list[tuple[int, int]], block_cols: int,
          pages: Optional[_weft.PageTableView]) -> tuple[int, list[Any]]:
    """The number of blocks of the pool, and which of them each request has."""
    counts = [-(-kv // block_cols) for _, kv in requests]
    ends = numpy.cumsum([0, *counts])
    if pages is None:
        return int(ends[-1]), [numpy.arange(ends[b], ends[b + 1]) for b in range(len(requests))]
    indptr, ids = pages.kv_page_indptr, numpy.array(pages.kv_page_indices)
    if pages.page_size != block_cols:
        raise _invalid(f"pages: have {pages.page_size} tokens, and blocks {block_cols} columns; give BLOCK_SIZE = "
                       f"(rows, {pages.page_size})")
    listed = [end - begin for begin, end in zip(indptr, indptr[1:])]
    if listed != counts:
        raise _invalid(f"pages: list {listed} pages; requests of KV_LEN keys have {counts}")
    return pages.num_pages, [ids[begin:end] for begin, end in zip(indptr, indptr[1:])]


def _seen(mask: Evaluation, b: int, head: int, lengths: tuple[int, int], row: int, block_rows: int) -> Any:
    """Which keys rows [row, row + block_rows) of a request see: bool [rows, keys]."""
    qo, kv = lengths
    rows = numpy.arange(row, min(row + block_rows, qo), dtype=numpy.int32)[:, None]
    keys = numpy.arange(kv, dtype=numpy.int32)[None]
    seen = mask({"b": numpy.int32(b), "h": numpy.int32(head), "q_row": rows, "q_idx": rows + numpy.int32(kv - qo),
                 "kv_idx": keys})
    return numpy.broadcast_to(seen, (len(rows), kv))


class _Lists:
    """Block lists that grow row block by row block."""

    def __init__(self, block_rows: int, block_cols: int, pool: tuple[int, list[Any]]) -> None:
        self._rows, self._cols = block_rows, block_cols
        self._num_blocks, self._blocks = pool
        self._indptr, self._last = [0], list[int]()
        self._indices, self._positions, self._patterns = list[Any](), list[Any](), list[int]()
        self._bits: dict[bytes, int] = {}

    def add(self, b: int, seen: Any) -> None:
        """The next row block, of request b: seen bool [rows, keys]."""
        rows, keys = seen.shape
        count = -(-keys // self._cols)
        padded = numpy.zeros((self._rows, count * self._cols), numpy.bool_)
        padded[:rows, :keys] = seen
        tiles = padded.reshape(self._rows, count, self._cols).transpose(1, 0, 2)
        listed = numpy.flatnonzero(tiles.any((1, 2)))
        for block in listed:
            width = min(self._cols, keys - block * self._cols)
            if tiles[block, :rows, :width].all():
                self._patterns.append(-1)
            else:
                bits = numpy.packbits(tiles[block].reshape(-1), bitorder="little").tobytes()
                self._patterns.append(self._bits.setdefault(bits, len(self._bits)))
        self._indices.append(self._blocks[b][listed])
        self._positions.append(listed * self._cols)
        self._indptr.append(self._indptr[-1] + len(listed))
        self._last.append(min(self._cols, keys - int(listed[-1]) * self._cols) if len(listed) else 0)

    def finished(self, q_positions: Any) -> _weft.BlockSparse:
        def ints(parts: Sequence[Any]) -> Any:
            return numpy.concatenate([numpy.zeros(0, numpy.int32), *parts]).astype(numpy.int32)

        bits = numpy.frombuffer(b"".join(self._bits), numpy.uint8) if self._bits else None
        return _weft.BlockSparse(
            self._rows, self._cols, self._num_blocks, numpy.array(self._indptr, numpy.int32), ints(self._indices),
            numpy.array(self._last, numpy.int32), ints(self._positions), q_positions,
            None if bits is None else numpy.array(self._patterns, numpy.int32), bits)

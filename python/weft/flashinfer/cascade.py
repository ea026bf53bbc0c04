"""Merging of attention states, and attention over keys that requests share: flashinfer.cascade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from .. import _weft
from . import _batch, _common as common
from ._batch import Form
from ._common import DTypeLike, Invalid
from ._wrapper import Wrapper, all_or_nothing
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .prefill import BatchPrefillWithPagedKVCacheWrapper, single_prefill_with_kv_cache_return_lse


def _merged(v: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """v [states, rows, heads, dim] with s in base 2 -> the state of each row."""
    o, lse = _weft.merge_states(v, s.float() / common.LOG2_E, stream=common.stream_of(v))
    return o, lse.mul_(common.LOG2_E)


def _check_pair(v: Tensor, s: Tensor, names: tuple[str, str], rank: int) -> None:
    common.check_rank(names[0], v, rank)
    if v.shape[:-1] != s.shape:
        raise Invalid(f"{names[1]}: {tuple(s.shape)} beside {names[0]} {tuple(v.shape)}; it has all axes but the last")


def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
    """v [rows, heads, dim], s [rows, heads] in base 2: the state over the keys of both. The empty one is (0, -inf)."""
    v_a, s_a, v_b, s_b = (common.tensor_of(*x) for x in (("v_a", v_a), ("s_a", s_a), ("v_b", v_b), ("s_b", s_b)))
    _check_pair(v_a, s_a, ("v_a", "s_a"), 3)
    _check_pair(v_b, s_b, ("v_b", "s_b"), 3)
    if v_a.shape != v_b.shape or v_a.dtype != v_b.dtype:
        raise Invalid(f"v_b: {tuple(v_b.shape)} {v_b.dtype}; v_a is {tuple(v_a.shape)} {v_a.dtype}")
    return _merged(torch.stack([v_a, v_b]), torch.stack([s_a.float(), s_b.float()]))


def merge_state_in_place(v: Tensor, s: Tensor, v_other: Tensor, s_other: Tensor,
                         mask: Optional[Tensor] = None) -> None:
    """(v, s) becomes its merger with the other state; where mask (bool [rows]) is False, rows stay as they are."""
    v, s = common.tensor_of("v", v), common.tensor_of("s", s)
    if s.dtype != torch.float32:
        raise Invalid(f"s: is {s.dtype}; required is torch.float32, in which it is written")
    merged, lse = merge_state(v, s, v_other, s_other)
    if mask is None:
        v.copy_(merged)
        s.copy_(lse)
        return
    rows = common.tensor_of("mask", mask)
    if tuple(rows.shape) != (v.shape[0],):
        raise Invalid(f"mask: {tuple(rows.shape)}; required is one of each row, [{v.shape[0]}]")
    rows = rows.bool()
    v[rows] = merged[rows]
    s[rows] = lse[rows]


def merge_states(v: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """v [rows, states, heads, dim], s [rows, states, heads] in base 2 -> (v [rows, heads, dim], s [rows, heads])."""
    v, s = common.tensor_of("v", v), common.tensor_of("s", s)
    _check_pair(v, s, ("v", "s"), 4)
    return _merged(v.transpose(0, 1), s.transpose(0, 1))


class MultiLevelCascadeAttentionWrapper(Wrapper):
    """Attention over keys that requests share, level by level: one plan of Weft's, which reads shared pages once."""

    def __init__(self, num_levels: int, float_workspace_buffer: Tensor, kv_layout: str = "NHD",
                 use_cuda_graph: bool = False, qo_indptr_buf_arr: Optional[Sequence[Tensor]] = None,
                 paged_kv_indptr_buf_arr: Optional[Sequence[Tensor]] = None,
                 paged_kv_indices_buf_arr: Optional[Sequence[Tensor]] = None,
                 paged_kv_last_page_len_buf_arr: Optional[Sequence[Tensor]] = None) -> None:
        arrays = {"qo_indptr": qo_indptr_buf_arr, "paged_kv_indptr": paged_kv_indptr_buf_arr,
                  "paged_kv_indices": paged_kv_indices_buf_arr,
                  "paged_kv_last_page_len": paged_kv_last_page_len_buf_arr}
        given = {name: list(x) if x is not None else [None] * num_levels for name, x in arrays.items()}
        for name, buffers in given.items():
            if len(buffers) != num_levels:
                raise Invalid(f"{name}_buf_arr: has {len(buffers)} buffers for {num_levels} levels")
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, "auto", None,
                         {f"{name}_buf_arr[{level}]": buffer for name, buffers in given.items()
                          for level, buffer in enumerate(buffers)})
        self._num_levels = num_levels

    @all_or_nothing
    def plan(self, qo_indptr_arr: Sequence[Tensor], paged_kv_indptr_arr: Sequence[Tensor],
             paged_kv_indices_arr: Sequence[Tensor], paged_kv_last_page_len: Sequence[Tensor], num_qo_heads: int,
             num_kv_heads: int, head_dim: int, page_size: int, causal: bool = False, pos_encoding_mode: str = "NONE",
             use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None, window_left: int = -1,
             logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
             rope_theta: Optional[float] = None, q_data_type: DTypeLike = "float16",
             kv_data_type: Optional[DTypeLike] = None) -> None:
        """An array of each kind a level, the one that most requests share first; the last has an entry a request.

        A request's keys are those of its entries, level after level: masks, windows and rotations go by that.
        """
        arrays = {"qo_indptr_arr": qo_indptr_arr, "paged_kv_indptr_arr": paged_kv_indptr_arr,
                  "paged_kv_indices_arr": paged_kv_indices_arr, "paged_kv_last_page_len": paged_kv_last_page_len}
        for name, given in arrays.items():
            if len(given) != self._num_levels:
                raise Invalid(f"{name}: has {len(given)} arrays; this wrapper has {self._num_levels} levels")
        rows = [common.host_ints(f"qo_indptr_arr[{level}]", x) for level, x in enumerate(qo_indptr_arr)]
        pages = [_batch.page_lists(*x, page_size) for x in zip(paged_kv_indptr_arr, paged_kv_indices_arr,
                                                               paged_kv_last_page_len)]
        q_dtype = common.float_dtype_of("q_data_type", q_data_type)
        form = Form("paged", self._kv_layout, num_qo_heads, num_kv_heads, head_dim, head_dim, q_dtype,
                    common.kv_dtype_of("kv_data_type", kv_data_type or q_dtype), q_dtype)
        last, qo_len = _batch.indptr_of("qo_indptr_arr[-1]", rows[-1])
        for level, (indptr, lists) in enumerate(zip(rows, pages)):
            _batch.indptr_of(f"qo_indptr_arr[{level}]", indptr)
            if indptr.numel() != lists.kv_len.numel() + 1:
                raise Invalid(f"qo_indptr_arr[{level}]: has {indptr.numel()} elements; its page table has "
                              f"{lists.kv_len.numel()} entries")
        kv_len = self._lengths(rows, pages)
        num_pages = max(x.num_pages for x in pages)
        levels = [_weft.Level(qo_indptr=indptr, pages=x.view(num_pages)) for indptr, x in zip(rows, pages)]
        self._check_graph(qo_len.numel(), int(last[-1]))
        self._set_options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        self._batch = _batch.Batch(form, {"levels": levels}, device=self.device, num_rows=int(last[-1]),
                                   **_batch.positions(qo_len, kv_len))
        for level, (indptr, lists) in enumerate(zip(rows, pages)):
            self._fill(f"qo_indptr_buf_arr[{level}]", indptr)
            self._fill_pages(lists, suffix=f"_buf_arr[{level}]")

    begin_forward = plan

    def _lengths(self, rows: Sequence[Tensor], pages: Sequence[_batch.PageLists]) -> Tensor:
        """Keys of each request, of all levels."""
        first = rows[-1][:-1]
        total = torch.zeros(first.numel(), dtype=torch.int32)
        for indptr, lists in zip(rows, pages):
            entry = torch.searchsorted(indptr, first, right=True) - 1
            total += lists.kv_len[entry.clamp(0, max(lists.kv_len.numel() - 1, 0))]
        return total

    def run(self, q: Tensor, paged_kv_cache: Any) -> Tensor:
        """q [nnz_qo, num_qo_heads, head_dim] -> o of the same shape."""
        batch, options = self._planned(), self._options()
        o, _ = batch.run(q, *_batch.pair_of(paged_kv_cache, self._kv_layout), options,
                         sm_scale=_batch.scale_of(options, batch.form.head_dim_qk))
        return o

    forward = run


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper:
    """Decode of requests that share one prefix, whose keys lie in tensors of their own."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        self._kv_layout = kv_layout
        self._wrapper = BatchDecodeWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor, int_workspace_buffer: Any = None) -> None:
        self._wrapper.reset_workspace_buffer(float_workspace_buffer)

    def begin_forward(self, unique_kv_indptr: Tensor, unique_kv_indices: Tensor, unique_kv_last_page_len: Tensor,
                      num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
                      data_type: DTypeLike = "float16") -> None:
        self._wrapper.plan(unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, num_qo_heads, num_kv_heads,
                           head_dim, page_size, q_data_type=data_type, kv_data_type=data_type)

    def forward(self, q: Tensor, k_shared: Tensor, v_shared: Tensor, unique_kv_cache: Any) -> Tensor:
        shared = single_prefill_with_kv_cache_return_lse(q, k_shared, v_shared, kv_layout=self._kv_layout)
        own = self._wrapper.run(q, unique_kv_cache, return_lse=True)
        return merge_state(*shared, *own)[0]

    def end_forward(self) -> None:
        """Nothing, as in FlashInfer."""


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper:
    """Prefill of requests that share one prefix, whose keys lie in tensors of their own."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        self._kv_layout = kv_layout
        self._wrapper = BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)
        self._plan: Optional[tuple[Tensor, Tensor, Tensor, Tensor, int, int, int, int]] = None
        self._planned_for: Any = None

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor, int_workspace_buffer: Any = None) -> None:
        self._wrapper.reset_workspace_buffer(float_workspace_buffer)

    def begin_forward(self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
                      paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim: int,
                      page_size: int) -> None:
        """The type is that of the q which forward is given."""
        self._plan = (common.host_ints("qo_indptr", qo_indptr), common.host_ints("paged_kv_indptr", paged_kv_indptr),
                      common.host_ints("paged_kv_indices", paged_kv_indices),
                      common.host_ints("paged_kv_last_page_len", paged_kv_last_page_len), num_qo_heads, num_kv_heads,
                      head_dim, page_size)
        self._planned_for = None

    def forward(self, q: Tensor, k_shared: Tensor, v_shared: Tensor, unique_kv_cache: Any, causal: bool = False,
                use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None,
                rope_scale: Optional[float] = None, rope_theta: Optional[float] = None) -> Tensor:
        if self._plan is None:
            raise AttributeError(f"{type(self).__name__}: forward needs a plan; call begin_forward() first")
        wanted = q.dtype, k_shared.dtype
        if self._planned_for != wanted:
            self._wrapper.plan(*self._plan, q_data_type=q.dtype, kv_data_type=k_shared.dtype)
            self._planned_for = wanted
        shared = single_prefill_with_kv_cache_return_lse(q, k_shared, v_shared, causal=False, sm_scale=sm_scale,
                                                         kv_layout=self._kv_layout)
        own = self._wrapper.forward_return_lse(q, unique_kv_cache, causal=causal, sm_scale=sm_scale)
        return merge_state(*shared, *own)[0]

    def end_forward(self) -> None:
        """Nothing, as in FlashInfer."""

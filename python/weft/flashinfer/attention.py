"""Prefill and decode in one batch, and attention with sinks: flashinfer.attention."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

from . import _batch, _common as common
from ._batch import Form
from ._common import DTypeLike, Invalid, Unsupported
from ._wrapper import Wrapper, all_or_nothing
from .decode import Scale
from .prefill import BatchPrefillWithPagedKVCacheWrapper


class BatchAttention(Wrapper):
    """Requests of any numbers of query tokens over a paged cache; lengths instead of last_page_len."""

    def __init__(self, kv_layout: str = "NHD", device: Union[str, torch.device] = "cuda") -> None:
        super().__init__(torch.empty(0, dtype=torch.uint8, device=device), kv_layout, False, "auto", None, {})

    @all_or_nothing
    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_len_arr: Tensor, num_qo_heads: int,
             num_kv_heads: int, head_dim_qk: int, head_dim_vo: int, page_size: int, causal: bool = False,
             sm_scale: Optional[float] = None, logits_soft_cap: Optional[float] = None,
             q_data_type: DTypeLike = torch.bfloat16, kv_data_type: DTypeLike = torch.bfloat16,
             use_profiler: bool = False) -> None:
        """kv_len_arr [batch]: tokens of each request."""
        common.refuse("a profile", use_profiler=use_profiler)
        pages = _batch.page_lists_of_lengths(kv_indptr, kv_indices, kv_len_arr, page_size)
        q_dtype = common.float_dtype_of("q_data_type", q_data_type)
        form = Form("paged", self._kv_layout, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, q_dtype,
                    common.kv_dtype_of("kv_data_type", kv_data_type), q_dtype)
        batch = _batch.paged(form, qo_indptr, pages, self.device, previous=self._batch)
        self._set_options(causal, "NONE", -1, logits_soft_cap, sm_scale, None, None)
        self._batch = batch

    def run(self, q: Tensor, kv_cache: Any, out: Optional[Tensor] = None, lse: Optional[Tensor] = None,
            k_scale: Scale = None, v_scale: Scale = None, logits_soft_cap: float = 0.0, profiler_buffer: Any = None,
            kv_cache_sf: Any = None) -> tuple[Tensor, Tensor]:
        """(o, lse), lse in base 2. The cap is the plan's; another one here is refused."""
        batch, options = self._planned(), self._options()
        common.refuse("a profile", profiler_buffer=profiler_buffer)
        common.refuse("caches of fp4", kv_cache_sf=kv_cache_sf)
        if logits_soft_cap and logits_soft_cap != self._logits_soft_cap:
            raise Invalid(f"logits_soft_cap = {logits_soft_cap} at run; the plan has {self._logits_soft_cap}")
        o, made = batch.run(q, *_batch.pair_of(kv_cache, self._kv_layout), options,
                            sm_scale=_batch.scale_of(options, batch.form.head_dim_qk, None, k_scale), v_scale=v_scale,
                            out=out, lse=lse, return_lse=True)
        assert made is not None
        return o, made


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """Paged prefill with a learned sink a head, which run takes behind the cache, and sm_scale behind it."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 qo_indptr_buf: Optional[Tensor] = None, paged_kv_indptr_buf: Optional[Tensor] = None,
                 paged_kv_indices_buf: Optional[Tensor] = None, paged_kv_last_page_len_buf: Optional[Tensor] = None,
                 custom_mask_buf: Optional[Tensor] = None, mask_indptr_buf: Optional[Tensor] = None,
                 backend: str = "auto", pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
                 q_data_type: DTypeLike = torch.bfloat16, kv_data_type: DTypeLike = torch.bfloat16,
                 head_dim_qk: int = 128, head_dim_vo: int = 128, window_left: int = -1) -> None:
        """Types, sizes and the window are those of plan(), which is given them, too."""
        if pos_encoding_mode != "NONE":
            raise Unsupported(f"pos_encoding_mode: required is {pos_encoding_mode!r}; supported is 'NONE' here; "
                              "missing: give it to plan()")
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, paged_kv_indptr_buf,
                         paged_kv_indices_buf, paged_kv_last_page_len_buf, custom_mask_buf, mask_indptr_buf, backend)
        self._text_has_sink = True

"""Attention of many query tokens a request, over paged and ragged caches: flashinfer.prefill."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

from . import _batch, _common as common
from ._batch import Form, Options
from ._common import DTypeLike, Invalid
from ._wrapper import Wrapper, all_or_nothing
from .decode import Scale, run_single

_MULTI_ITEM = "scoring of many items behind one prefix: give the mask as custom_mask"


def _single(q: Tensor, k: Tensor, v: Tensor, scale_q: Any, scale_k: Any, scale_v: Any, o_dtype: Optional[DTypeLike],
            custom_mask: Optional[Tensor], packed_custom_mask: Optional[Tensor], causal: bool, kv_layout: str,
            pos_encoding_mode: str, sm_scale: Optional[float], window_left: int, logits_soft_cap: Optional[float],
            rope_scale: Optional[float], rope_theta: Optional[float], backend: str, return_lse: bool,
            kv_cache_sf: Any, k_scale: Scale, v_scale: Scale) -> Union[Tensor, tuple[Tensor, Tensor]]:
    common.check_backend(backend)
    common.refuse("scales of fp8 a head (k_scale and v_scale are of the whole cache)", scale_q=scale_q, scale_k=scale_k,
                  scale_v=scale_v)
    common.refuse("caches of fp4", kv_cache_sf=kv_cache_sf)
    options = Options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
    o, lse = run_single(common.tensor_of("q", q), k, v, kv_layout, options, None, k_scale, v_scale, return_lse,
                        custom_mask=custom_mask, packed_custom_mask=packed_custom_mask, o_dtype=o_dtype)
    return o if lse is None else (o, lse)


def single_prefill_with_kv_cache(
        q: Tensor, k: Tensor, v: Tensor, scale_q: Any = None, scale_k: Any = None, scale_v: Any = None,
        o_dtype: Optional[DTypeLike] = None, custom_mask: Optional[Tensor] = None,
        packed_custom_mask: Optional[Tensor] = None, causal: bool = False, kv_layout: str = "NHD",
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None,
        window_left: int = -1, logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None, backend: str = "auto", return_lse: bool = False, kv_cache_sf: Any = None,
        k_scale: Scale = None, v_scale: Scale = None) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """q [qo_len, num_qo_heads, head_dim], k and v [kv_len, num_kv_heads, head_dim] (NHD) or with the first two axes
    exchanged (HND) -> o [qo_len, num_qo_heads, head_dim], and with return_lse lse [qo_len, num_qo_heads] in base 2.

    causal: key j for row i where j <= kv_len - qo_len + i. custom_mask: bool [qo_len, kv_len], True is seen;
    packed_custom_mask: the same as little-endian bits. Either switches causal off.
    """
    return _single(q, k, v, scale_q, scale_k, scale_v, o_dtype, custom_mask, packed_custom_mask, causal, kv_layout,
                   pos_encoding_mode, sm_scale, window_left, logits_soft_cap, rope_scale, rope_theta, backend,
                   return_lse, kv_cache_sf, k_scale, v_scale)


def single_prefill_with_kv_cache_return_lse(q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Any:
    """single_prefill_with_kv_cache with return_lse."""
    return single_prefill_with_kv_cache(q, k, v, *args, **{**kwargs, "return_lse": True})


def single_prefill_with_kv_cache_with_jit_module(jit_module: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any,
                                                 kv_layout: str = "NHD", mask_mode: int = 0, window_left: int = -1,
                                                 return_lse: bool = False) -> Any:
    """The same with a weft.Variant as jit_module; `args` are its tensors and then its scalars. mask_mode: 0 none,
    1 causal."""
    if mask_mode not in (0, 1):
        raise Invalid(f"mask_mode = {mask_mode}; allowed are 0 (none) and 1 (causal); masks of your own go into the "
                      "variant's text")
    o, lse = run_single(common.tensor_of("q", q), k, v, kv_layout, Options(mask_mode == 1, window_left=window_left),
                        None, None, None, return_lse, variant=_batch.Custom(jit_module), args=args)
    return o if lse is None else (o, lse)


class _Prefill(Wrapper):
    """What paged and ragged prefill have in common."""

    _holds_plans = True

    def _types(self, q_data_type: DTypeLike, kv_data_type: Optional[DTypeLike],
               o_data_type: Optional[DTypeLike]) -> tuple[torch.dtype, torch.dtype, torch.dtype]:
        q_dtype = common.float_dtype_of("q_data_type", q_data_type)
        return (q_dtype, common.kv_dtype_of("kv_data_type", kv_data_type or q_dtype),
                common.float_dtype_of("o_data_type", o_data_type or q_dtype))

    def _fill_mask(self) -> None:
        batch = self._planned()
        if batch.mask is not None and self._use_cuda_graph:
            self._fill("custom_mask_buf", batch.mask.bits[:batch.mask.indptr[-1]])
            self._fill("mask_indptr_buf", torch.tensor(batch.mask.indptr, dtype=torch.int32))


class BatchPrefillWithPagedKVCacheWrapper(_Prefill):
    """Prefill and append over a paged cache: plan() once a step, run() once a layer."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 qo_indptr_buf: Optional[Tensor] = None, paged_kv_indptr_buf: Optional[Tensor] = None,
                 paged_kv_indices_buf: Optional[Tensor] = None, paged_kv_last_page_len_buf: Optional[Tensor] = None,
                 custom_mask_buf: Optional[Tensor] = None, mask_indptr_buf: Optional[Tensor] = None,
                 backend: str = "auto", jit_args: Any = None, jit_kwargs: Any = None,
                 variant_owns_mask: bool = False) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend, jit_args,
                         {"qo_indptr_buf": qo_indptr_buf, "paged_kv_indptr_buf": paged_kv_indptr_buf,
                          "paged_kv_indices_buf": paged_kv_indices_buf,
                          "paged_kv_last_page_len_buf": paged_kv_last_page_len_buf})
        self._buffers.update(custom_mask_buf=custom_mask_buf, mask_indptr_buf=mask_indptr_buf)
        self._qo_indptr_buf, self._paged_kv_indices_buf = qo_indptr_buf, paged_kv_indices_buf
        if use_cuda_graph and paged_kv_last_page_len_buf is not None:
            self._fixed_batch_size = paged_kv_last_page_len_buf.numel()

    @all_or_nothing
    def plan(self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
             paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int,
             head_dim_vo: Optional[int] = None, custom_mask: Optional[Tensor] = None,
             packed_custom_mask: Optional[Tensor] = None, causal: bool = False, pos_encoding_mode: str = "NONE",
             use_fp16_qk_reduction: bool = False, sm_scale: Optional[float] = None, window_left: int = -1,
             logits_soft_cap: Optional[float] = None, rope_scale: Optional[float] = None,
             rope_theta: Optional[float] = None, q_data_type: DTypeLike = "float16",
             kv_data_type: Optional[DTypeLike] = None, o_data_type: Optional[DTypeLike] = None,
             non_blocking: bool = True, prefix_len_ptr: Any = None, token_pos_in_items_ptr: Any = None,
             token_pos_in_items_len: int = 0, max_item_len_ptr: Any = None, seq_lens: Any = None,
             seq_lens_q: Any = None, block_tables: Any = None, max_token_per_sequence: Any = None,
             max_sequence_kv: Any = None, fixed_split_size: Optional[int] = None, disable_split_kv: bool = False,
             uniform_q_len: Optional[int] = None) -> None:
        """Index arrays int32, on the host or the device; they are copied, and so are masks.

        custom_mask: the requests' bool masks [qo_len * kv_len], one behind the other; packed_custom_mask: the same as
        little-endian bits, each request's on whole bytes. fixed_split_size counts pages.
        """
        common.refuse(_MULTI_ITEM, prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr,
                      token_pos_in_items_len=token_pos_in_items_len or None, max_item_len_ptr=max_item_len_ptr)
        types = self._types(q_data_type, kv_data_type, o_data_type)
        pages = _batch.page_lists(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        form = Form("paged", self._kv_layout, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo or head_dim_qk,
                    *types)
        batch = _batch.paged(form, qo_indptr, pages, self.device, custom=custom_mask, packed=packed_custom_mask,
                             split=_batch.split_mode(fixed_split_size, disable_split_kv, page_size),
                             variant=self._custom, previous=self._batch)
        self._check_graph(pages.kv_len.numel(), batch.num_rows)
        self._set_options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        self._batch = batch
        self._fill("qo_indptr_buf", batch.lengths["qo_indptr"])
        self._fill_pages(pages)
        self._fill_mask()
        self._hold(batch, 0, "paged_kv_indices_buf", page_size)
        if not self._use_cuda_graph:
            self._qo_indptr_buf, self._paged_kv_indices_buf = qo_indptr, paged_kv_indices

    begin_forward = plan

    def run(self, q: Tensor, paged_kv_cache: Any, *args: Any, q_scale: Scale = None, k_scale: Scale = None,
            v_scale: Scale = None, out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = False,
            lse_base: str = "log2", lse_layout: str = "NH", enable_pdl: Optional[bool] = None,
            window_left: Optional[int] = None, sinks: Optional[Tensor] = None, kv_cache_sf: Any = None,
            skip_softmax_threshold_scale_factor: Optional[float] = None, use_fp16_softmax: Optional[bool] = None,
            uses_spcompress: Optional[bool] = None) -> Any:
        """q [nnz_qo, num_qo_heads, head_dim_qk] -> o, or (o, lse) with return_lse."""
        batch = self._planned()
        self._check_window(window_left)
        common.refuse("caches of fp4", kv_cache_sf=kv_cache_sf)
        common.refuse("a softmax that leaves keys out",
                      skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        common.refuse("compressed keys", uses_spcompress=uses_spcompress)
        options = self._options()
        args, sinks = self._take_sink(args, sinks, options)
        o, made = batch.run(q, *_batch.pair_of(paged_kv_cache, self._kv_layout), options,
                            sm_scale=_batch.scale_of(options, batch.form.head_dim_qk, q_scale, k_scale),
                            v_scale=v_scale, out=out, lse=lse, return_lse=return_lse, lse_base=lse_base,
                            lse_layout=lse_layout, sinks=sinks, args=args)
        return (o, made) if return_lse else o

    def run_return_lse(self, q: Tensor, paged_kv_cache: Any, *args: Any, **options: Any) -> Any:
        return self.run(q, paged_kv_cache, *args, **{**options, "return_lse": True})

    def forward(self, q: Tensor, paged_kv_cache: Any, causal: bool = False, pos_encoding_mode: str = "NONE",
                use_fp16_qk_reduction: bool = False, k_scale: Scale = None, v_scale: Scale = None,
                window_left: int = -1, logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
                rope_scale: Optional[float] = None, rope_theta: Optional[float] = None) -> Any:
        """run with these options instead of the plan's, which they replace, as in FlashInfer."""
        self._set_options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(self, q: Tensor, paged_kv_cache: Any, causal: bool = False, pos_encoding_mode: str = "NONE",
                           use_fp16_qk_reduction: bool = False, k_scale: Scale = None, v_scale: Scale = None,
                           window_left: int = -1, logits_soft_cap: Optional[float] = None,
                           sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
                           rope_theta: Optional[float] = None) -> Any:
        self._set_options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=True)


class BatchPrefillWithRaggedKVCacheWrapper(_Prefill):
    """Prefill over keys and values that lie one request behind the other."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 qo_indptr_buf: Optional[Tensor] = None, kv_indptr_buf: Optional[Tensor] = None,
                 custom_mask_buf: Optional[Tensor] = None, mask_indptr_buf: Optional[Tensor] = None,
                 backend: str = "auto", jit_args: Any = None, jit_kwargs: Any = None,
                 variant_owns_mask: bool = False) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend, jit_args,
                         {"qo_indptr_buf": qo_indptr_buf, "kv_indptr_buf": kv_indptr_buf})
        self._buffers.update(custom_mask_buf=custom_mask_buf, mask_indptr_buf=mask_indptr_buf)
        if use_cuda_graph and qo_indptr_buf is not None:
            self._fixed_batch_size = qo_indptr_buf.numel() - 1

    @all_or_nothing
    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
             head_dim_vo: Optional[int] = None, custom_mask: Optional[Tensor] = None,
             packed_custom_mask: Optional[Tensor] = None, causal: bool = False, pos_encoding_mode: str = "NONE",
             use_fp16_qk_reduction: bool = False, window_left: int = -1, logits_soft_cap: Optional[float] = None,
             sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
             q_data_type: DTypeLike = "float16", kv_data_type: Optional[DTypeLike] = None,
             o_data_type: Optional[DTypeLike] = None, non_blocking: bool = True, prefix_len_ptr: Any = None,
             token_pos_in_items_ptr: Any = None, token_pos_in_items_len: int = 0, max_item_len_ptr: Any = None,
             fixed_split_size: Optional[int] = None, disable_split_kv: bool = False, seq_lens: Any = None,
             seq_lens_q: Any = None, max_token_per_sequence: Any = None, max_sequence_kv: Any = None,
             v_indptr: Any = None, o_indptr: Any = None, uniform_q_len: Optional[int] = None) -> None:
        """As of the paged wrapper, but that window_left and logits_soft_cap stand before sm_scale, as in FlashInfer,
        and that fixed_split_size counts tokens."""
        common.refuse(_MULTI_ITEM, prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr,
                      token_pos_in_items_len=token_pos_in_items_len or None, max_item_len_ptr=max_item_len_ptr)
        common.refuse("values and outputs that begin elsewhere than keys and queries", v_indptr=v_indptr,
                      o_indptr=o_indptr)
        form = Form("ragged", self._kv_layout, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo or head_dim_qk,
                    *self._types(q_data_type, kv_data_type, o_data_type))
        batch = _batch.ragged(form, qo_indptr, kv_indptr, self.device, custom=custom_mask, packed=packed_custom_mask,
                              split=_batch.split_mode(fixed_split_size, disable_split_kv, 1), variant=self._custom,
                              previous=self._batch)
        self._check_graph(batch.lengths["qo_indptr"].numel() - 1, batch.num_rows)
        self._set_options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        self._batch = batch
        self._fill("qo_indptr_buf", batch.lengths["qo_indptr"])
        self._fill("kv_indptr_buf", batch.lengths["kv_indptr"])
        self._fill_mask()
        self._hold(batch, 0)

    begin_forward = plan

    def run(self, q: Tensor, k: Tensor, v: Tensor, *args: Any, q_scale: Scale = None, k_scale: Scale = None,
            v_scale: Scale = None, o_scale: Scale = None, out: Optional[Tensor] = None, lse: Optional[Tensor] = None,
            return_lse: bool = False, lse_base: str = "log2", lse_layout: str = "NH",
            enable_pdl: Optional[bool] = None, kv_cache_sf: Any = None) -> Any:
        """q [nnz_qo, num_qo_heads, head_dim_qk], k and v [nnz_kv, num_kv_heads, head_dim] (HND: the first two axes
        exchanged) -> o, or (o, lse) with return_lse."""
        batch = self._planned()
        common.refuse("caches of fp4", kv_cache_sf=kv_cache_sf)
        common.refuse("outputs of fewer bits", o_scale=o_scale)
        options = self._options()
        args, sinks = self._take_sink(args, None, options)
        o, made = batch.run(q, common.tensor_of("k", k), common.tensor_of("v", v), options,
                            sm_scale=_batch.scale_of(options, batch.form.head_dim_qk, q_scale, k_scale),
                            v_scale=v_scale, out=out, lse=lse, return_lse=return_lse, lse_base=lse_base,
                            lse_layout=lse_layout, sinks=sinks, args=args)
        return (o, made) if return_lse else o

    def run_return_lse(self, q: Tensor, k: Tensor, v: Tensor, *args: Any, **options: Any) -> Any:
        return self.run(q, k, v, *args, **{**options, "return_lse": True})

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, pos_encoding_mode: str = "NONE",
                use_fp16_qk_reduction: bool = False, window_left: int = -1, logits_soft_cap: Optional[float] = None,
                sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
                rope_theta: Optional[float] = None) -> Any:
        """run with these options instead of the plan's, which they replace, as in FlashInfer."""
        self._set_options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v)

    def forward_return_lse(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, pos_encoding_mode: str = "NONE",
                           use_fp16_qk_reduction: bool = False, window_left: int = -1,
                           logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
                           rope_scale: Optional[float] = None, rope_theta: Optional[float] = None) -> Any:
        self._set_options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v, return_lse=True)

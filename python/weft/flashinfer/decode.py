"""Attention of one query token a request: flashinfer.decode."""

from __future__ import annotations

from typing import Any, Literal, Optional, Union, overload

import torch
from torch import Tensor

from . import _batch, _common as common
from ._batch import Form, Options
from ._common import DTypeLike, Invalid, Unsupported
from ._wrapper import Wrapper, all_or_nothing

Scale = Union[None, float, Tensor]


@overload
def single_decode_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, kv_layout: str = ..., pos_encoding_mode: str = ...,
                                use_tensor_cores: bool = ..., q_scale: Scale = ..., k_scale: Scale = ...,
                                v_scale: Scale = ..., window_left: int = ..., logits_soft_cap: Optional[float] = ...,
                                sm_scale: Optional[float] = ..., rope_scale: Optional[float] = ...,
                                rope_theta: Optional[float] = ..., return_lse: Literal[False] = ...) -> Tensor: ...


@overload
def single_decode_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, kv_layout: str = ..., pos_encoding_mode: str = ...,
                                use_tensor_cores: bool = ..., q_scale: Scale = ..., k_scale: Scale = ...,
                                v_scale: Scale = ..., window_left: int = ..., logits_soft_cap: Optional[float] = ...,
                                sm_scale: Optional[float] = ..., rope_scale: Optional[float] = ...,
                                rope_theta: Optional[float] = ...,
                                return_lse: bool = ...) -> Union[Tensor, tuple[Tensor, Tensor]]: ...


def single_decode_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, kv_layout: str = "NHD",
                                pos_encoding_mode: str = "NONE", use_tensor_cores: bool = False,
                                q_scale: Scale = None, k_scale: Scale = None, v_scale: Scale = None,
                                window_left: int = -1, logits_soft_cap: Optional[float] = None,
                                sm_scale: Optional[float] = None, rope_scale: Optional[float] = None,
                                rope_theta: Optional[float] = None,
                                return_lse: bool = False) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """q [num_qo_heads, head_dim], k and v [kv_len, num_kv_heads, head_dim] (NHD) or [num_kv_heads, kv_len, head_dim]
    (HND) -> o [num_qo_heads, head_dim], and with return_lse lse [num_qo_heads] in base 2."""
    q = common.tensor_of("q", q)
    common.check_rank("q", q, 2)
    options = Options(False, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
    o, lse = run_single(q.unsqueeze(0), k, v, kv_layout, options, q_scale, k_scale, v_scale, return_lse)
    return o[0] if lse is None else (o[0], lse[0])


def run_single(q: Tensor, k: Tensor, v: Tensor, kv_layout: str, options: Options, q_scale: Scale, k_scale: Scale,
               v_scale: Scale, return_lse: bool, *, custom_mask: Optional[Tensor] = None,
               packed_custom_mask: Optional[Tensor] = None, o_dtype: Optional[DTypeLike] = None,
               variant: Optional[_batch.Custom] = None,
               args: tuple[Any, ...] = ()) -> tuple[Tensor, Optional[Tensor]]:
    """One request: q [qo_len, num_qo_heads, head_dim]."""
    common.check_layout(kv_layout)
    k, v = common.tensor_of("k", k), common.tensor_of("v", v)
    common.check_rank("q", q, 3)
    common.check_rank("k", k, 3)
    common.check_rank("v", v, 3)
    tokens, heads = (0, 1) if kv_layout == "NHD" else (1, 0)
    if k.shape[:2] != v.shape[:2]:
        raise Invalid(f"v: {tuple(v.shape)} beside k {tuple(k.shape)}; they have tokens and heads in common")
    form = Form("ragged", kv_layout, q.shape[1], k.shape[heads], q.shape[2], v.shape[2],
                common.float_dtype_of("q.dtype", q.dtype), common.kv_dtype_of("k.dtype", k.dtype),
                common.float_dtype_of("o_dtype", q.dtype if o_dtype is None else o_dtype))
    rows, keys = (torch.tensor([0, n], dtype=torch.int32) for n in (q.shape[0], k.shape[tokens]))
    batch = _batch.ragged(form, rows, keys, q.device, custom=custom_mask, packed=packed_custom_mask, variant=variant)
    return batch.run(q, k, v, options, sm_scale=_batch.scale_of(options, q.shape[2], q_scale, k_scale), v_scale=v_scale,
                     return_lse=return_lse, args=args)


def single_decode_with_kv_cache_with_jit_module(jit_module: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any,
                                                kv_layout: str = "NHD", window_left: int = -1) -> Tensor:
    """The same with a weft.Variant as jit_module; `args` are its tensors and then its scalars."""
    o, _ = run_single(common.tensor_of("q", q).unsqueeze(0), k, v, kv_layout, Options(window_left=window_left), None,
                      None, None, False, variant=_batch.Custom(jit_module), args=args)
    return o[0]


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    """Decode over a paged cache: plan() once a step, run() once a layer."""

    _holds_plans = True

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", use_cuda_graph: bool = False,
                 use_tensor_cores: bool = False, paged_kv_indptr_buffer: Optional[Tensor] = None,
                 paged_kv_indices_buffer: Optional[Tensor] = None,
                 paged_kv_last_page_len_buffer: Optional[Tensor] = None, backend: str = "auto",
                 jit_args: Any = None) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend, jit_args,
                         {"paged_kv_indptr_buffer": paged_kv_indptr_buffer,
                          "paged_kv_indices_buffer": paged_kv_indices_buffer,
                          "paged_kv_last_page_len_buffer": paged_kv_last_page_len_buffer})
        self._use_tensor_cores = use_tensor_cores
        self._paged_kv_indices_buf = paged_kv_indices_buffer
        self._q_len_per_req = 1
        if use_cuda_graph and paged_kv_last_page_len_buffer is not None:
            self._fixed_batch_size = paged_kv_last_page_len_buffer.numel()
            if paged_kv_indptr_buffer is not None and paged_kv_indptr_buffer.numel() != self._fixed_batch_size + 1:
                raise Invalid(f"paged_kv_indptr_buffer: has {paged_kv_indptr_buffer.numel()} elements; beside "
                              f"{self._fixed_batch_size} requests it has {self._fixed_batch_size + 1}")

    @property
    def use_tensor_cores(self) -> bool:
        return self._use_tensor_cores

    @all_or_nothing
    def plan(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int,
             head_dim: int, page_size: int, pos_encoding_mode: str = "NONE", window_left: int = -1,
             logits_soft_cap: Optional[float] = None, q_data_type: Optional[DTypeLike] = None,
             kv_data_type: Optional[DTypeLike] = None, o_data_type: Optional[DTypeLike] = None,
             data_type: Optional[DTypeLike] = None, sm_scale: Optional[float] = None,
             rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, non_blocking: bool = True,
             block_tables: Any = None, seq_lens: Any = None, fixed_split_size: Optional[int] = None,
             disable_split_kv: bool = False, q_len_per_req: int = 1, *, window_right: int = 0,
             is_causal: Optional[bool] = None) -> None:
        """indptr [batch + 1], indices, last_page_len [batch]: int32, on the host or the device; they are copied.

        data_type is the type of q and of the cache where theirs are not given, and float16 where it is not. Each
        request has q_len_per_req query tokens, which see each other causally. fixed_split_size counts pages.
        """
        if window_right != 0:
            raise Unsupported(f"window_right: required is {window_right}; supported is 0; missing: keys behind the "
                              "query token's own")
        common.whole("q_len_per_req", q_len_per_req, 1)
        q_dtype = common.float_dtype_of("q_data_type", q_data_type or data_type or "float16")
        kv_dtype = common.kv_dtype_of("kv_data_type", kv_data_type or data_type or q_dtype)
        o_dtype = common.float_dtype_of("o_data_type", o_data_type or q_dtype)
        pages = _batch.page_lists(indptr, indices, last_page_len, page_size, "")
        requests = pages.kv_len.numel()
        if q_len_per_req > 1 and requests and int(pages.kv_len.min()) < q_len_per_req:
            raise Invalid(f"q_len_per_req = {q_len_per_req}: a request has {int(pages.kv_len.min())} tokens, an empty "
                          "KV range for some of its query tokens")
        self._check_graph(requests, requests * q_len_per_req)
        self._set_options(q_len_per_req > 1 if is_causal is None else is_causal, pos_encoding_mode, window_left,
                          logits_soft_cap, sm_scale, rope_scale, rope_theta)
        self._q_len_per_req = q_len_per_req
        form = Form("paged", self._kv_layout, num_qo_heads, num_kv_heads, head_dim, head_dim, q_dtype, kv_dtype,
                    o_dtype)
        self._batch = _batch.paged(form, torch.arange(0, requests * q_len_per_req + 1, q_len_per_req), pages,
                                   self.device, split=_batch.split_mode(fixed_split_size, disable_split_kv, page_size),
                                   variant=self._custom, previous=self._batch)
        self._fill_pages(pages, suffix="_buffer")
        self._hold(self._batch, q_len_per_req, "paged_kv_indices_buffer", page_size)
        if not self._use_cuda_graph:
            self._paged_kv_indices_buf = indices

    begin_forward = plan

    def run(self, q: Tensor, paged_kv_cache: Any, *args: Any, q_scale: Scale = None, k_scale: Scale = None,
            v_scale: Scale = None, out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None, window_left: Optional[int] = None, sinks: Optional[Tensor] = None,
            q_len_per_req: Optional[int] = None, skip_softmax_threshold_scale_factor: Optional[float] = None,
            kv_cache_sf: Any = None) -> Any:
        """q [batch * q_len_per_req, num_qo_heads, head_dim] -> o, or (o, lse) with return_lse; lse in base 2."""
        batch = self._planned()
        self._check_window(window_left)
        common.refuse("caches of fp4", kv_cache_sf=kv_cache_sf)
        common.refuse("a softmax that leaves keys out",
                      skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        if q_len_per_req is not None and q_len_per_req != self._q_len_per_req:
            raise Invalid(f"q_len_per_req = {q_len_per_req} at run; the plan has {self._q_len_per_req}")
        options = self._options()
        o, made = batch.run(q, *_batch.pair_of(paged_kv_cache, self._kv_layout), options,
                            sm_scale=_batch.scale_of(options, batch.form.head_dim_qk, q_scale, k_scale),
                            v_scale=v_scale, out=out, lse=lse, return_lse=return_lse, sinks=sinks, args=args)
        return (o, made) if return_lse else o

    def run_return_lse(self, q: Tensor, paged_kv_cache: Any, *args: Any, **options: Any) -> Any:
        return self.run(q, paged_kv_cache, *args, **{**options, "return_lse": True})

    def forward(self, q: Tensor, paged_kv_cache: Any, pos_encoding_mode: str = "NONE", q_scale: Scale = None,
                k_scale: Scale = None, v_scale: Scale = None, window_left: int = -1,
                logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
                rope_scale: Optional[float] = None, rope_theta: Optional[float] = None) -> Any:
        """run with these options instead of the plan's, which they replace, as in FlashInfer."""
        self._set_options(self._causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale,
                          rope_theta)
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(self, q: Tensor, paged_kv_cache: Any, pos_encoding_mode: str = "NONE",
                           q_scale: Scale = None, k_scale: Scale = None, v_scale: Scale = None, window_left: int = -1,
                           logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
                           rope_scale: Optional[float] = None, rope_theta: Optional[float] = None) -> Any:
        self._set_options(self._causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale,
                          rope_theta)
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """The same with buffers of the caller's, which keep their size."""

    def __init__(self, workspace_buffer: Tensor, indptr_buffer: Tensor, indices_buffer: Tensor,
                 last_page_len_buffer: Tensor, kv_layout: str = "NHD", use_tensor_cores: bool = False) -> None:
        super().__init__(workspace_buffer, kv_layout, True, use_tensor_cores, indptr_buffer, indices_buffer,
                         last_page_len_buffer)


def fast_decode_plan(self: BatchDecodeWithPagedKVCacheWrapper, indptr: Tensor, indices: Tensor, last_page_len: Tensor,
                     num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
                     pos_encoding_mode: str = "NONE", window_left: int = -1, logits_soft_cap: Optional[float] = None,
                     q_data_type: Optional[DTypeLike] = None, kv_data_type: Optional[DTypeLike] = None,
                     data_type: Optional[DTypeLike] = None, sm_scale: Optional[float] = None,
                     rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, non_blocking: bool = True,
                     fixed_split_size: Optional[int] = None, disable_split_kv: bool = False, q_len_per_req: int = 1,
                     global_override_indptr_cpu: Optional[Tensor] = None) -> None:
    """plan of a later step; engines set a wrapper's plan to functools.partial(fast_decode_plan, wrapper).

    global_override_indptr_cpu: indptr on the host, which saves copying it.
    """
    if self._batch is None:
        raise Invalid("fast_decode_plan: needs a prior plan of the same wrapper")
    type(self).plan(self, indptr if global_override_indptr_cpu is None else global_override_indptr_cpu, indices,
                    last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode, window_left,
                    logits_soft_cap, q_data_type, kv_data_type, None, data_type, sm_scale, rope_scale, rope_theta,
                    non_blocking, None, None, fixed_split_size, disable_split_kv, q_len_per_req)

"""Prefill and decode of one step: flashinfer.pod. Two plans of Weft's, one after the other."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from . import _common as common
from ._common import DTypeLike
from .decode import BatchDecodeWithPagedKVCacheWrapper, Scale
from .prefill import BatchPrefillWithPagedKVCacheWrapper, single_prefill_with_kv_cache


class PODWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """One request's prefill beside a batch's decode, which plan() is for."""

    _holds_plans = False  # prefill has its plan when it runs

    def run(self, q_p: Tensor, k_p: Tensor, v_p: Tensor, q_d: Tensor,  # type: ignore[override]
            paged_kv_cache_d: Any, custom_mask_p: Optional[Tensor] = None,
            packed_custom_mask_p: Optional[Tensor] = None, causal_p: bool = False, kv_layout_p: str = "NHD",
            pos_encoding_mode_p: str = "NONE", sm_scale_p: Optional[float] = None, window_left_p: int = -1,
            rope_scale_p: Optional[float] = None, rope_theta_p: Optional[float] = None, return_lse_p: bool = False,
            custom_mask_d: Optional[Tensor] = None, packed_custom_mask_d: Optional[Tensor] = None,
            causal_d: bool = False, kv_layout_d: str = "NHD", pos_encoding_mode_d: str = "NONE",
            sm_scale_d: Optional[float] = None, window_left_d: int = -1, rope_scale_d: Optional[float] = None,
            rope_theta_d: Optional[float] = None, q_scale: Scale = None, k_scale: Scale = None, v_scale: Scale = None,
            return_lse_d: bool = False, use_fp16_qk_reduction: bool = False,
            enable_pdl: Optional[bool] = None) -> tuple[Tensor, Tensor]:
        """(out_p, out_d). Options of decode are the plan's; those that end in _d, which FlashInfer leaves unread, are
        refused where they ask for something, as are the lse."""
        common.refuse("an lse of these calls: run prefill and decode by themselves", return_lse_p=return_lse_p,
                      return_lse_d=return_lse_d)
        common.refuse("masks of decode", custom_mask_d=custom_mask_d, packed_custom_mask_d=packed_custom_mask_d)
        for name, value, plain in (("pos_encoding_mode_d", pos_encoding_mode_d, self._pos_encoding_mode),
                                   ("sm_scale_d", sm_scale_d, self._sm_scale),
                                   ("window_left_d", window_left_d, self._window_left),
                                   ("rope_scale_d", rope_scale_d, self._rope_scale),
                                   ("rope_theta_d", rope_theta_d, self._rope_theta)):
            if value not in (plain, None, -1, "NONE"):
                raise common.Invalid(f"{name} = {value!r}; the plan has {plain!r}")
        made = single_prefill_with_kv_cache(
            q_p, k_p, v_p, custom_mask=custom_mask_p, packed_custom_mask=packed_custom_mask_p, causal=causal_p,
            kv_layout=kv_layout_p, pos_encoding_mode=pos_encoding_mode_p, sm_scale=sm_scale_p,
            window_left=window_left_p, rope_scale=rope_scale_p, rope_theta=rope_theta_p)
        assert isinstance(made, Tensor)
        return made, super().run(q_d, paged_kv_cache_d, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)


class BatchPODWithPagedKVCacheWrapper:
    """A batch's prefill beside a batch's decode, over one paged cache each."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD") -> None:
        self._prefill = BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)
        self._decode = BatchDecodeWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout)
        self._prefill_plan: Optional[tuple[Tensor, Tensor, Tensor, Tensor, int, int, int, int]] = None
        self._prefill_options: dict[str, Any] = {}

    def plan(self, qo_indptr_p: Tensor, kv_indptr_p: Tensor, kv_indices_p: Tensor, last_page_len_p: Tensor,
             qo_indptr_d: Tensor, kv_indptr_d: Tensor, kv_indices_d: Tensor, last_page_len_d: Tensor, num_qo_heads: int,
             num_kv_heads: int, head_dim: int, page_size: int, pos_encoding_mode: str = "NONE", window_left: int = -1,
             q_data_type: DTypeLike = "float16", kv_data_type: Optional[DTypeLike] = None,
             data_type: Optional[DTypeLike] = None, sm_scale: Optional[float] = None,
             rope_scale: Optional[float] = None, rope_theta: Optional[float] = None, non_blocking: bool = True) -> None:
        options: dict[str, Any] = dict(pos_encoding_mode=pos_encoding_mode, window_left=window_left, sm_scale=sm_scale,
                                       rope_scale=rope_scale, rope_theta=rope_theta,
                                       q_data_type=data_type or q_data_type,
                                       kv_data_type=kv_data_type or data_type)
        rows = common.host_ints("qo_indptr_d", qo_indptr_d)
        if rows.tolist() != list(range(len(rows))):
            raise common.Invalid(f"qo_indptr_d: {rows.tolist()}; requests of decode have one query token each")
        self._decode.plan(kv_indptr_d, kv_indices_d, last_page_len_d, num_qo_heads, num_kv_heads, head_dim, page_size,
                          **options)
        self._prefill_plan = (
            common.host_ints("qo_indptr_p", qo_indptr_p), common.host_ints("kv_indptr_p", kv_indptr_p),
            common.host_ints("kv_indices_p", kv_indices_p), common.host_ints("last_page_len_p", last_page_len_p),
            num_qo_heads, num_kv_heads, head_dim, page_size)
        self._prefill_options = options
        self._prefill.plan(*self._prefill_plan, **options)

    def run(self, q_p: Tensor, paged_kv_cache_p: Any, q_d: Tensor, paged_kv_cache_d: Any,
            custom_mask_p: Optional[Tensor] = None, packed_custom_mask_p: Optional[Tensor] = None,
            causal_p: bool = False, q_scale: Scale = None, k_scale: Scale = None, v_scale: Scale = None,
            return_lse: bool = False, use_fp16_qk_reduction: bool = False, enable_pdl: Optional[bool] = None) -> Any:
        """(out_p, out_d), or ((out_p, out_d), (lse_p, lse_d))."""
        if self._prefill_plan is None:
            raise AttributeError(f"{type(self).__name__}: run needs a plan; call plan() first")
        scales: dict[str, Any] = dict(q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)
        if custom_mask_p is not None or packed_custom_mask_p is not None or self._prefill._planned().mask is not None:
            self._prefill.plan(*self._prefill_plan, custom_mask=custom_mask_p, packed_custom_mask=packed_custom_mask_p,
                               **self._prefill_options)
        self._prefill._causal = causal_p
        made = (self._prefill.run(q_p, paged_kv_cache_p, **scales), self._decode.run(q_d, paged_kv_cache_d, **scales))
        return tuple(zip(*made)) if return_lse else made

"""Attention over latent rows (DeepSeek's MLA, absorbed): flashinfer.mla."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from . import _batch, _common as common
from ._batch import Form
from ._common import DTypeLike, Invalid, Unsupported
from ._wrapper import Wrapper, all_or_nothing
from .decode import Scale


class BatchMLAPagedAttentionWrapper(Wrapper):
    """Attention over a paged cache of one latent row a token, ckv beside kpe, for all heads."""

    def __init__(self, float_workspace_buffer: Tensor, use_cuda_graph: bool = False, qo_indptr: Optional[Tensor] = None,
                 kv_indptr: Optional[Tensor] = None, kv_indices: Optional[Tensor] = None,
                 kv_len_arr: Optional[Tensor] = None, backend: str = "auto") -> None:
        super().__init__(float_workspace_buffer, "NHD", use_cuda_graph, backend, None,
                         {"qo_indptr": qo_indptr, "kv_indptr": kv_indptr, "kv_indices": kv_indices,
                          "kv_len_arr": kv_len_arr})
        if use_cuda_graph and kv_len_arr is not None:
            self._fixed_batch_size = kv_len_arr.numel()

    @all_or_nothing
    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_len_arr: Tensor, num_heads: int,
             head_dim_ckv: int, head_dim_kpe: int, page_size: int, causal: bool, sm_scale: float,
             q_data_type: DTypeLike, kv_data_type: DTypeLike, use_profiler: bool = False, *, metadata: Any = None,
             cum_seq_lens_q: Any = None, block_tables: Any = None, seq_lens: Any = None,
             max_q_len: Optional[int] = None, query_layout: Any = None, kv_cache_layout: Any = None,
             lse_mode: str = "none", output_dtype: Optional[DTypeLike] = None, output_scale: str = "none",
             scale_mode: str = "default", skip_softmax: bool = False, enable_pdl: Optional[bool] = None,
             use_sinks: bool = False) -> None:
        """kv_len_arr [batch]: tokens of each request. sm_scale is that of the model before absorption, 1 / sqrt of the
        head's size there."""
        common.refuse("plans of other forms than the twelve arguments in front", metadata=metadata,
                      cum_seq_lens_q=cum_seq_lens_q, query_layout=query_layout, kv_cache_layout=kv_cache_layout)
        common.refuse("a profile", use_profiler=use_profiler)
        common.refuse("a softmax that leaves keys out", skip_softmax=skip_softmax)
        for name, value, plain in (("output_scale", output_scale, "none"), ("scale_mode", scale_mode, "default")):
            if value != plain:
                raise Unsupported(f"{name}: required is {value!r}; supported is {plain!r}; missing: scales of its kind")
        for name, index in (("qo_indptr", qo_indptr), ("kv_indptr", kv_indptr), ("kv_indices", kv_indices),
                            ("kv_len_arr", kv_len_arr)):
            if common.tensor_of(name, index).dtype != torch.int32:
                raise Invalid(f"{name}: its elements are {index.dtype}; required is torch.int32")
        pages = _batch.page_lists_of_lengths(kv_indptr, kv_indices, kv_len_arr, page_size)
        q_dtype = common.float_dtype_of("q_data_type", q_data_type)
        form = Form("latent", "NHD", num_heads, 1, head_dim_ckv + head_dim_kpe, head_dim_ckv, q_dtype,
                    common.kv_dtype_of("kv_data_type", kv_data_type),
                    common.float_dtype_of("output_dtype", output_dtype or q_dtype))
        batch = _batch.paged(form, qo_indptr, pages, self.device, previous=self._batch)
        self._check_graph(pages.kv_len.numel(), batch.num_rows)
        self._set_options(causal, "NONE", -1, None, sm_scale, None, None)
        self._batch = batch
        self._fill("qo_indptr", batch.lengths["qo_indptr"])
        self._fill("kv_indptr", pages.indptr)
        self._fill("kv_indices", pages.indices)
        self._fill("kv_len_arr", pages.kv_len)

    begin_forward = plan

    def run(self, q_nope: Optional[Tensor] = None, q_pe: Optional[Tensor] = None, ckv_cache: Optional[Tensor] = None,
            kpe_cache: Optional[Tensor] = None, out: Optional[Tensor] = None, lse: Optional[Tensor] = None,
            return_lse: bool = False, profiler_buffer: Any = None, kv_len: Any = None, page_table: Any = None,
            return_lse_base_on_e: bool = False, o_scale: Scale = None, *, query: Optional[Tensor] = None,
            kv_cache: Optional[Tensor] = None, ckv_scale: Scale = None, ckv_scale_arr: Any = None,
            kpe_scale: Scale = None, sinks: Optional[Tensor] = None,
            skip_softmax_threshold_scale_factor: Optional[float] = None, bmm1_scale: Any = None,
            bmm2_scale: Any = None) -> Any:
        """q_nope [nnz_qo, num_heads, head_dim_ckv], q_pe [nnz_qo, num_heads, head_dim_kpe], ckv_cache [pages,
        page_size, head_dim_ckv], kpe_cache [pages, page_size, head_dim_kpe] -> o like q_nope, or (o, lse) with
        return_lse.

        Instead of the pairs: query [nnz_qo, num_heads, both], which saves joining them, and kv_cache [pages, page_size,
        both].
        """
        if self._batch is None:
            raise RuntimeError(f"{type(self).__name__}: run needs a plan; call plan() first")
        batch, options = self._batch, self._options()
        common.refuse("a profile", profiler_buffer=profiler_buffer)
        common.refuse("lengths at run: give them to plan", kv_len=kv_len, page_table=page_table)
        common.refuse("outputs of fewer bits", o_scale=o_scale)
        common.refuse("scales of the latent rows", ckv_scale=ckv_scale, ckv_scale_arr=ckv_scale_arr,
                      kpe_scale=kpe_scale, bmm1_scale=bmm1_scale, bmm2_scale=bmm2_scale)
        common.refuse("a softmax that leaves keys out",
                      skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        if query is None:
            if q_nope is None or q_pe is None:
                raise Invalid("q_nope and q_pe: one is missing; give both, or query")
            q_nope, q_pe = common.tensor_of("q_nope", q_nope), common.tensor_of("q_pe", q_pe)
            if q_nope.dim() != 3 or q_nope.shape[:-1] != q_pe.shape[:-1]:
                raise Invalid(f"q_pe: {tuple(q_pe.shape)} beside q_nope {tuple(q_nope.shape)}; required are rows and "
                              "heads in common")
            query = torch.cat([q_nope, q_pe], -1)
        first = batch.form.head_dim_vo
        if kv_cache is not None:
            kv_cache = common.tensor_of("kv_cache", kv_cache)
            ckv, kpe = kv_cache[..., :first], kv_cache[..., first:]
        elif ckv_cache is None or kpe_cache is None:
            raise Invalid("ckv_cache and kpe_cache: one is missing; give both, or kv_cache")
        else:
            ckv, kpe = common.tensor_of("ckv_cache", ckv_cache), common.tensor_of("kpe_cache", kpe_cache)
        o, made = batch.run(query, ckv, kpe, options, sm_scale=_batch.scale_of(options, batch.form.head_dim_qk),
                            out=out, lse=lse, return_lse=return_lse,
                            lse_base="ln" if return_lse_base_on_e else "log2", sinks=sinks)
        return (o, made) if return_lse else o

    forward = run

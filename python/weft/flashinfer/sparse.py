"""Block-sparse attention: flashinfer.sparse. Each row block is a request over pages of a column block's size.

Masks and rotations count the keys that a row block lists, one after the other, as FlashInfer's do.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from . import _batch, _common as common
from ._batch import Form, PageLists
from ._common import DTypeLike, Invalid, Unsupported
from ._wrapper import Wrapper, all_or_nothing


def convert_bsr_mask_layout(mask: Tensor, indptr: Tensor) -> Tensor:
    """mask [blocks, R, C] -> flat, of each row block its R rows over all of its blocks."""
    mask = common.tensor_of("mask", mask)
    common.check_rank("mask", mask, 3)
    starts = common.host_ints("indptr", indptr).tolist()
    parts = [mask[a:b].transpose(0, 1).reshape(-1) for a, b in zip(starts, starts[1:])]
    return torch.cat(parts) if parts else mask.reshape(-1)


class BlockSparseAttentionWrapper(Wrapper):
    """Attention of q [M] over k, v [N] through a matrix of R x C blocks in BSR."""

    def __init__(self, float_workspace_buffer: Tensor, backend: str = "auto") -> None:
        super().__init__(float_workspace_buffer, "NHD", False, backend, None, {})
        self._sizes = (0, 0, 0)

    @all_or_nothing
    def plan(self, indptr: Tensor, indices: Tensor, M: int, N: int, R: int, C: int, num_qo_heads: int,
             num_kv_heads: int, head_dim: int, mask: Optional[Tensor] = None, packed_mask: Optional[Tensor] = None,
             causal: bool = False, pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
             logits_soft_cap: Optional[float] = None, sm_scale: Optional[float] = None,
             rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
             q_data_type: DTypeLike = "float16", kv_data_type: Optional[DTypeLike] = None,
             o_data_type: Optional[DTypeLike] = None, non_blocking: bool = True, **vendor: Any) -> None:
        """indptr [ceil(M / R) + 1], indices: column blocks of each row block; C divides N. mask [blocks, R, C], or
        packed_mask: what convert_bsr_mask_layout makes of it, each row block's bits on whole bytes, little-endian.
        o_data_type is q_data_type where it is not given."""
        common.refuse("options of other vendors' kernels", **vendor)
        if R < 1 or C < 1 or N % C:
            raise Invalid(f"R = {R}, C = {C}, N = {N}; R and C are 1 and more, and C divides N")
        blocks, keys = common.host_ints("indptr", indptr), common.host_ints("indices", indices)
        row_blocks = -(-M // R)
        if blocks.numel() != row_blocks + 1:
            raise Invalid(f"indptr: has {blocks.numel()} elements; M = {M} has {row_blocks} row blocks of R = {R}")
        if keys.numel() and not 0 <= int(keys.min()) <= int(keys.max()) < N // C:
            raise Invalid(f"indices: {int(keys.min())} to {int(keys.max())}; N = {N} has {N // C} blocks of C = {C}")
        pages = _batch.page_lists(blocks, keys, torch.full((row_blocks,), C), C, "")
        if mask is not None:
            if tuple(mask.shape) != (pages.indices.numel(), R, C):
                raise Invalid(f"mask: {tuple(mask.shape)}; required is {(pages.indices.numel(), R, C)}")
            short = row_blocks * R - M
            mask = convert_bsr_mask_layout(mask, blocks)
            if short:  # rows that the last row block has not
                mask = mask[:mask.numel() - short * int(pages.kv_len[-1])]
        q_dtype = common.float_dtype_of("q_data_type", q_data_type)
        form = Form("paged", "NHD", num_qo_heads, num_kv_heads, head_dim, head_dim, q_dtype,
                    common.kv_dtype_of("kv_data_type", kv_data_type or q_dtype),
                    common.float_dtype_of("o_data_type", o_data_type or q_dtype))
        rows = torch.arange(0, row_blocks * R + 1, R).clamp_max(M)
        batch = _batch.paged(form, rows, pages, self.device, custom=mask, packed=packed_mask)
        self._set_options(causal, pos_encoding_mode, -1, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        self._batch, self._sizes = batch, (M, N, C)

    begin_forward = plan

    def run(self, q: Tensor, k: Tensor, v: Tensor, scale_q: Any = None, scale_k: Any = None, scale_v: Any = None,
            out: Optional[Tensor] = None, lse: Optional[Tensor] = None, return_lse: bool = False,
            enable_pdl: Optional[bool] = None) -> Any:
        """q [M, num_qo_heads, head_dim], k and v [N, num_kv_heads, head_dim] -> o, or (o, lse)."""
        batch, options = self._planned(), self._options()
        common.refuse("scales of fp8", scale_q=scale_q, scale_k=scale_k, scale_v=scale_v)
        _, keys, block = self._sizes
        pages = []
        for name, x in (("k", k), ("v", v)):
            x = common.tensor_of(name, x)
            if x.dim() != 3 or x.shape[0] != keys:
                raise Invalid(f"{name}: {tuple(x.shape)}; required is [{keys}, num_kv_heads, head_dim]")
            pages.append(x.unfold(0, block, block).movedim(-1, 1))
        o, made = batch.run(q, pages[0], pages[1], options,
                            sm_scale=_batch.scale_of(options, batch.form.head_dim_qk), out=out, lse=lse,
                            return_lse=return_lse)
        return (o, made) if return_lse else o

    forward = run


class VariableBlockSparseAttentionWrapper(Wrapper):
    """The same with blocks of any sizes, different for each KV head."""

    def __init__(self, float_workspace_buffer: Tensor, backend: str = "auto") -> None:
        super().__init__(float_workspace_buffer, "NHD", False, backend, None, {})
        self._heads = (0, 0)

    @all_or_nothing
    def plan(self, block_mask_map: Tensor, block_row_sz: Tensor, block_col_sz: Tensor, num_qo_heads: int,
             num_kv_heads: int, head_dim: int, causal: bool = False, pos_encoding_mode: str = "NONE",
             use_fp16_qk_reduction: bool = False, logits_soft_cap: Optional[float] = None,
             sm_scale: Optional[float] = None, rope_scale: Optional[float] = None, rope_theta: Optional[float] = None,
             non_blocking: bool = True, q_data_type: DTypeLike = "float16",
             kv_data_type: Optional[DTypeLike] = None) -> None:
        """block_mask_map bool [num_kv_heads, row blocks, column blocks], block_row_sz [num_kv_heads, row blocks],
        block_col_sz [num_kv_heads, column blocks], of the same sums for all heads."""
        if pos_encoding_mode == "ALIBI":
            raise Unsupported("pos_encoding_mode: required is 'ALIBI'; supported are 'NONE' and 'ROPE_LLAMA'; missing: "
                              "slopes where each KV head is a request")
        seen = common.tensor_of("block_mask_map", block_mask_map).bool().cpu()
        rows = common.tensor_of("block_row_sz", block_row_sz).long().cpu()
        cols = common.tensor_of("block_col_sz", block_col_sz).long().cpu()
        common.check_rank("block_mask_map", seen, 3)
        heads, row_blocks, col_blocks = seen.shape
        sizes = (num_kv_heads, row_blocks), (num_kv_heads, col_blocks)
        if heads != num_kv_heads or (tuple(rows.shape), tuple(cols.shape)) != sizes:
            raise Invalid(f"block_row_sz: {tuple(rows.shape)}, block_col_sz: {tuple(cols.shape)}; beside "
                          f"block_mask_map {tuple(seen.shape)} of {num_kv_heads} heads they are {sizes[0]} and "
                          f"{sizes[1]}")
        qo_len, kv_len = rows.sum(1), cols.sum(1)
        if bool((qo_len != qo_len[:1]).any()) or bool((kv_len != kv_len[:1]).any()):
            raise Invalid(f"block_row_sz, block_col_sz: sums {qo_len.tolist()} and {kv_len.tolist()}; all heads have "
                          "as many rows and keys")
        # A page of one token: KV head h's token t is page h * kv_len + t.
        of_token = torch.repeat_interleave(torch.arange(heads * col_blocks), cols.flatten())
        seen_tokens = seen.transpose(1, 2).reshape(heads * col_blocks, row_blocks)[of_token]
        tokens = seen_tokens.view(heads, -1, row_blocks).transpose(1, 2)  # [heads, row blocks, kv_len]
        keys = (tokens.nonzero()[:, 2] + tokens.nonzero()[:, 0] * tokens.shape[2]).int()
        counts = tokens.sum(2).flatten()
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int()
        pages = PageLists(1, indptr, keys, (counts > 0).int(), counts.int())
        q_dtype = common.float_dtype_of("q_data_type", q_data_type)
        form = Form("paged", "NHD", num_qo_heads // num_kv_heads, 1, head_dim, head_dim, q_dtype,
                    common.kv_dtype_of("kv_data_type", kv_data_type or q_dtype), q_dtype)
        qo_indptr = torch.cat([torch.zeros(1, dtype=torch.int64), rows.flatten().cumsum(0)])
        self._batch = _batch.paged(form, qo_indptr, pages, self.device)
        self._heads = num_qo_heads, num_kv_heads
        self._set_options(causal, pos_encoding_mode, -1, logits_soft_cap, sm_scale, rope_scale, rope_theta)

    begin_forward = plan

    def run(self, q: Tensor, k: Tensor, v: Tensor, out: Optional[Tensor] = None, lse: Optional[Tensor] = None,
            return_lse: bool = False, enable_pdl: Optional[bool] = None) -> Any:
        """q [num_qo_heads, rows, head_dim], k and v [num_kv_heads, keys, head_dim] -> o like q, or (o, lse
        [num_qo_heads, rows])."""
        common.refuse("outputs of the caller's: FlashInfer fills them in a shape of its own", out=out, lse=lse)
        batch, options = self._planned(), self._options()
        heads, groups = self._heads
        q = common.tensor_of("q", q)
        if q.dim() != 3 or q.shape[0] != heads:
            raise Invalid(f"q: {tuple(q.shape)}; required is [{heads}, rows, head_dim]")
        rows, dim = q.shape[1:]
        turned = q.reshape(groups, -1, rows, dim).transpose(1, 2).reshape(groups * rows, -1, dim)
        k, v = (common.tensor_of(name, x).reshape(-1, 1, 1, x.shape[-1]) for name, x in (("k", k), ("v", v)))
        o, made = batch.run(turned, k, v, options, sm_scale=_batch.scale_of(options, batch.form.head_dim_qk),
                            return_lse=return_lse)
        o = o.view(groups, rows, -1, dim).transpose(1, 2).reshape(q.shape)
        if made is None:
            return o
        return o, made.view(groups, rows, -1).transpose(1, 2).reshape(heads, rows)

    forward = run

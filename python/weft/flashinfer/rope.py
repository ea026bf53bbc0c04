"""Rotary position embeddings: flashinfer.rope."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .. import _weft
from . import _common as common
from ._common import Invalid


def _params(rotary_dim: Optional[int], interleave: bool, rope_scale: float, rope_theta: float) -> _weft.RopeParams:
    return _weft.RopeParams(pairs=_weft.RopePairs.adjacent if interleave else _weft.RopePairs.halves,
                            rotary_dim=rotary_dim or 0, linear_scale=rope_scale, theta=rope_theta)


def _llama31_params(rotary_dim: Optional[int], interleave: bool, rope_scale: float, rope_theta: float,
                    low_freq_factor: float, high_freq_factor: float, old_context_len: int) -> _weft.RopeParams:
    return _params(rotary_dim, interleave, 1.0, rope_theta).replace(
        scaling=_weft.RopeScaling.llama3, factor=rope_scale, low_freq_factor=low_freq_factor,
        high_freq_factor=high_freq_factor, original_context=old_context_len)


def _rotated(name: str, x: Tensor, positions: Tensor, params: _weft.RopeParams) -> Tensor:
    """x [nnz, heads, head_dim], turned in float32, as a new tensor."""
    x = common.tensor_of(name, x)
    common.check_rank(name, x, 3)
    if x.shape[0] != positions.numel():
        raise Invalid(f"{name}: has {x.shape[0]} rows; there are {positions.numel()} positions")
    turned = torch.empty(x.shape, dtype=torch.float32, device=x.device).copy_(x)
    _weft.apply_rope(turned, positions, params, stream=common.stream_of(x))
    return turned.to(x.dtype)


def _ids(pos_ids: Tensor, x: Tensor) -> Tensor:
    device = common.tensor_of("q", x).device
    return common.index_of("pos_ids", pos_ids).to(device=device, dtype=torch.int32).contiguous()


def _positions(indptr: Tensor, offsets: Tensor, x: Tensor) -> Tensor:
    """Row i of request b stands at offsets[b] + i."""
    x = common.tensor_of("q", x)
    indptr, offsets = common.index_of("indptr", indptr).long(), common.index_of("offsets", offsets).long()
    if offsets.numel() != indptr.numel() - 1:
        raise Invalid(f"offsets: has {offsets.numel()} elements; indptr says {indptr.numel() - 1} requests")
    if not x.dim() or not indptr.numel() or int(indptr[-1]) != x.shape[0]:
        raise Invalid(f"indptr: ends at {indptr[-1:].tolist()}; q {tuple(x.shape)} has another number of rows")
    rows = torch.arange(x.shape[0], device=indptr.device)
    request = torch.searchsorted(indptr, rows, right=True) - 1
    return (rows - indptr[request] + offsets[request]).to(device=x.device, dtype=torch.int32)


def _both(q: Tensor, k: Tensor, positions: Tensor, params: _weft.RopeParams) -> tuple[Tensor, Tensor]:
    return _rotated("q", q, positions, params), _rotated("k", k, positions, params)


def _write(q: Tensor, k: Tensor, turned: tuple[Tensor, Tensor]) -> None:
    common.tensor_of("q", q).copy_(turned[0])
    common.tensor_of("k", k).copy_(turned[1])


def apply_rope(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor, rotary_dim: Optional[int] = None,
               interleave: bool = False, rope_scale: float = 1, rope_theta: float = 1e4) -> tuple[Tensor, Tensor]:
    """q [nnz, num_qo_heads, head_dim], k [nnz, num_kv_heads, head_dim], row i of request b at position offsets[b] + i.

    Positions are divided by rope_scale. interleave: pairs (2i, 2i + 1), else (i, i + rotary_dim / 2); dims from
    rotary_dim on are copied.
    """
    return _both(q, k, _positions(indptr, offsets, q), _params(rotary_dim, interleave, rope_scale, rope_theta))


def apply_rope_inplace(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor, rotary_dim: Optional[int] = None,
                       interleave: bool = False, rope_scale: float = 1, rope_theta: float = 1e4) -> None:
    _write(q, k, apply_rope(q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta))


def apply_rope_pos_ids(q: Tensor, k: Tensor, pos_ids: Tensor, rotary_dim: Optional[int] = None,
                       interleave: bool = False, rope_scale: float = 1,
                       rope_theta: float = 1e4) -> tuple[Tensor, Tensor]:
    """apply_rope with the position of each row, [nnz]."""
    return _both(q, k, _ids(pos_ids, q), _params(rotary_dim, interleave, rope_scale, rope_theta))


def apply_rope_pos_ids_inplace(q: Tensor, k: Tensor, pos_ids: Tensor, rotary_dim: Optional[int] = None,
                               interleave: bool = False, rope_scale: float = 1, rope_theta: float = 1e4) -> None:
    _write(q, k, apply_rope_pos_ids(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta))


def apply_llama31_rope(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor, rotary_dim: Optional[int] = None,
                       interleave: bool = False, rope_scale: float = 8, rope_theta: float = 5e5,
                       low_freq_factor: float = 1, high_freq_factor: float = 4,
                       old_context_len: int = 8192) -> tuple[Tensor, Tensor]:
    """apply_rope with the frequencies of Llama 3.1, lowered by rope_scale for contexts beyond old_context_len."""
    return _both(q, k, _positions(indptr, offsets, q),
                 _llama31_params(rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor, high_freq_factor,
                                 old_context_len))


def apply_llama31_rope_inplace(q: Tensor, k: Tensor, indptr: Tensor, offsets: Tensor, rotary_dim: Optional[int] = None,
                               interleave: bool = False, rope_scale: float = 8, rope_theta: float = 5e5,
                               low_freq_factor: float = 1, high_freq_factor: float = 4,
                               old_context_len: int = 8192) -> None:
    _write(q, k, apply_llama31_rope(q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta,
                                    low_freq_factor, high_freq_factor, old_context_len))


def apply_llama31_rope_pos_ids(q: Tensor, k: Tensor, pos_ids: Tensor, rotary_dim: Optional[int] = None,
                               interleave: bool = False, rope_scale: float = 8, rope_theta: float = 5e5,
                               low_freq_factor: float = 1, high_freq_factor: float = 4,
                               old_context_len: int = 8192) -> tuple[Tensor, Tensor]:
    return _both(q, k, _ids(pos_ids, q),
                 _llama31_params(rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor, high_freq_factor,
                                 old_context_len))


def apply_llama31_rope_pos_ids_inplace(q: Tensor, k: Tensor, pos_ids: Tensor, rotary_dim: Optional[int] = None,
                                       interleave: bool = False, rope_scale: float = 8, rope_theta: float = 5e5,
                                       low_freq_factor: float = 1, high_freq_factor: float = 4,
                                       old_context_len: int = 8192) -> None:
    _write(q, k, apply_llama31_rope_pos_ids(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta,
                                            low_freq_factor, high_freq_factor, old_context_len))


def _by_table(name: str, x: Tensor, positions: Tensor, head_size: int, table: Tensor, is_neox: bool) -> Tensor:
    x = common.tensor_of(name, x)
    if x.dim() < 2 or x.shape[0] != positions.numel() or x[0:1].numel() % head_size:
        raise Invalid(f"{name}: {tuple(x.shape)}; required is [{positions.numel()}, heads * {head_size}]")
    heads = x.reshape(x.shape[0], x.shape[1:].numel() // head_size, head_size).float()
    half = table.shape[1] // 2
    angles = table[positions].unsqueeze(1)
    cos, sin = angles[..., :half], angles[..., half:]
    turned = heads.clone()
    low, high = (heads[..., :half], heads[..., half:2 * half]) if is_neox else (
        heads[..., :2 * half:2], heads[..., 1:2 * half:2])
    parts = low * cos - high * sin, high * cos + low * sin
    if is_neox:
        turned[..., :half], turned[..., half:2 * half] = parts
    else:
        turned[..., :2 * half:2], turned[..., 1:2 * half:2] = parts
    return turned.reshape(x.shape).to(x.dtype)


def apply_rope_with_cos_sin_cache(positions: Tensor, query: Tensor, key: Tensor, head_size: int,
                                  cos_sin_cache: Tensor, is_neox: bool = True) -> tuple[Tensor, Tensor]:
    """query [nnz, num_qo_heads * head_size], key [nnz, num_kv_heads * head_size]; cos_sin_cache float32 [positions,
    rotary_dim], the cosines of each position's pairs and then the sines. is_neox: pairs (i, i + rotary_dim / 2)."""
    table = common.tensor_of("cos_sin_cache", cos_sin_cache)
    common.whole("head_size", head_size, 1)
    if table.dtype != torch.float32:
        raise Invalid(f"cos_sin_cache: is {table.dtype}; cos_sin_cache should be float32")
    if table.dim() != 2 or table.shape[1] % 2 or table.shape[1] > head_size:
        raise Invalid(f"cos_sin_cache: {tuple(table.shape)}; required is [positions, rotary_dim] with an even "
                      f"rotary_dim up to head_size = {head_size}")
    ids = common.index_of("positions", positions).long()
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < table.shape[0]:
        raise Invalid(f"positions: {int(ids.min())} to {int(ids.max())}; cos_sin_cache has {table.shape[0]}")
    return (_by_table("query", query, ids, head_size, table, is_neox),
            _by_table("key", key, ids, head_size, table, is_neox))


def apply_rope_with_cos_sin_cache_inplace(positions: Tensor, query: Tensor, key: Tensor, head_size: int,
                                          cos_sin_cache: Tensor, is_neox: bool = True) -> None:
    _write(query, key, apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox))

"""Bits of masks: flashinfer.quantization."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _common as common
from ._common import Invalid


def _packed(bits: Tensor, bitorder: str) -> Tensor:
    """bool [rows, 8 n] -> uint8 [rows, n]."""
    powers = torch.arange(8, device=bits.device)
    weights = (1 << (7 - powers if bitorder == "big" else powers)).to(torch.int32)
    return (bits.reshape(*bits.shape[:-1], -1, 8).to(torch.int32) * weights).sum(-1).to(torch.uint8)


def _check(x: Tensor, bitorder: str) -> Tensor:
    x = common.tensor_of("x", x)
    common.check_rank("x", x, 1)
    if bitorder not in ("big", "little"):
        raise Invalid(f"bitorder = {bitorder!r}; allowed are 'big' and 'little', which masks of attention need")
    return x.bool()


def packbits(x: Tensor, bitorder: str = "big") -> Tensor:
    """bool [n] -> uint8 [ceil(n / 8)], as numpy.packbits; attention's masks are of bitorder 'little'."""
    x = _check(x, bitorder)
    return _packed(torch.nn.functional.pad(x, (0, -x.numel() % 8)), bitorder)


def segment_packbits(x: Tensor, indptr: Tensor, bitorder: str = "big") -> tuple[Tensor, Tensor]:
    """The same of segments [indptr[i], indptr[i + 1]), each of which begins on a byte: (bytes, their indptr)."""
    x = _check(x, bitorder)
    starts = common.index_of("indptr", indptr).long().to(x.device)
    lengths = starts[1:] - starts[:-1]
    if not starts.numel() or int(starts[0]) < 0 or bool((lengths < 0).any()) or int(starts[-1]) > x.numel():
        raise Invalid(f"indptr: {starts.tolist()}; it never decreases and lies within the {x.numel()} elements of x")
    byte_starts = torch.zeros_like(starts)
    byte_starts[1:] = torch.cumsum((lengths + 7) // 8, 0)
    bits = torch.zeros(int(byte_starts[-1]) * 8 if byte_starts.numel() else 0, dtype=torch.bool, device=x.device)
    segment = torch.repeat_interleave(torch.arange(lengths.numel(), device=x.device), lengths)
    element = torch.arange(segment.numel(), device=x.device) - (starts[:-1] - starts[0])[segment]
    bits[byte_starts[segment] * 8 + element] = x[starts[segment] + element]
    return _packed(bits, bitorder), byte_starts.to(indptr.dtype)

"""Gates: flashinfer.activation. All compute in float32, whatever the type of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import torch
from torch import Tensor

from .. import _weft
from . import _common as common
from ._common import Invalid


def _gated(x: Tensor, out: Optional[Tensor], gate: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    x = common.tensor_of("input", x)
    if x.dim() == 0 or x.shape[-1] % 2:
        raise Invalid(f"input: {tuple(x.shape)}; its last axis holds two halves, so that it is even")
    half = x.shape[-1] // 2
    shape = (*x.shape[:-1], half)
    if out is not None:
        to = common.tensor_of("out", out)
        assert tuple(to.shape) == shape and to.dtype == x.dtype and to.device == x.device, (
            f"out: {tuple(to.shape)} {to.dtype} on {to.device}; required is {shape} {x.dtype} on {x.device}")
    rows = x.reshape(-1, 2 * half).float()
    y = gate(rows[:, :half], rows[:, half:]).reshape(shape)
    return y.to(x.dtype) if out is None else to.copy_(y)


def silu_and_mul(input: Tensor, out: Optional[Tensor] = None, enable_pdl: Optional[bool] = None) -> Tensor:
    """silu of the first half of the last axis times the second."""
    def gate(a: Tensor, b: Tensor) -> Tensor:
        y: Tensor = _weft.silu_and_mul(a, b, stream=common.stream_of(a))
        return y
    return _gated(input, out, gate)


def gelu_tanh_and_mul(input: Tensor, out: Optional[Tensor] = None, enable_pdl: Optional[bool] = None) -> Tensor:
    """gelu (by tanh) of the first half of the last axis times the second."""
    def gate(a: Tensor, b: Tensor) -> Tensor:
        y: Tensor = _weft.gelu_tanh_and_mul(a, b, stream=common.stream_of(a))
        return y
    return _gated(input, out, gate)


def gelu_and_mul(input: Tensor, out: Optional[Tensor] = None, enable_pdl: Optional[bool] = None) -> Tensor:
    """gelu (by erf) of the first half of the last axis times the second."""
    return _gated(input, out, lambda a, b: torch.nn.functional.gelu(a) * b)

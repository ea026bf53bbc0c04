"""Norms: flashinfer.norm. All compute in float32, whatever the type of the rows."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from .. import _weft
from . import _common as common
from ._common import Invalid, Unsupported


def _rms(name: str, x: Tensor, weight: Tensor, eps: float, offset: float = 0) -> Tensor:
    """The norm of each row of x (float32 or less), in float32."""
    x, weight = common.tensor_of(name, x), common.tensor_of("weight", weight)
    common.check_rank(name, x, 2, 3)
    if tuple(weight.shape) != (x.shape[-1],):
        raise Invalid(f"weight: {tuple(weight.shape)}; required is [{x.shape[-1]}], the last axis of {name}")
    y: Tensor = _weft.rms_norm(x.float(), (weight.float() + offset).contiguous(), eps, stream=common.stream_of(x))
    return y


def _normed(x: Tensor, weight: Tensor, eps: float, out: Optional[Tensor], offset: float) -> Tensor:
    y = _rms("input", x, weight, eps, offset)
    to = common.check_out("out", out, tuple(x.shape), x.dtype, x.device)
    return y.to(x.dtype) if to is None else to.copy_(y)


def rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6, out: Optional[Tensor] = None,
            enable_pdl: Optional[bool] = None) -> Tensor:
    """input / sqrt(mean(input^2) + eps) * weight over the last axis of 2 or 3."""
    return _normed(input, weight, eps, out, 0)


def gemma_rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6, out: Optional[Tensor] = None,
                  enable_pdl: Optional[bool] = None) -> Tensor:
    """rmsnorm by weight + 1."""
    return _normed(input, weight, eps, out, 1)


def _add(x: Tensor, residual: Tensor) -> Tensor:
    """residual := residual + x, rounded to its type; returns the sum in float32."""
    x, residual = common.tensor_of("input", x), common.tensor_of("residual", residual)
    if x.shape != residual.shape:
        raise Invalid(f"residual: {tuple(residual.shape)} beside input {tuple(x.shape)}; the shapes are equal")
    total = x.float() + residual.float()
    residual.copy_(total)
    return total


def _fused_add(input: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float) -> None:
    x, weight = common.tensor_of("input", input), common.tensor_of("weight", weight)
    if tuple(weight.shape) != tuple(x.shape[-1:]):
        raise Invalid(f"weight: {tuple(weight.shape)}; required is {tuple(x.shape[-1:])}, the last axis of input")
    x.copy_(_rms("input", _add(x, residual), weight, eps, offset))


def fused_add_rmsnorm(input: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6,
                      enable_pdl: Optional[bool] = None) -> None:
    """In place: residual += input, and input := rmsnorm of that sum before it is rounded."""
    _fused_add(input, residual, weight, eps, 0)


def gemma_fused_add_rmsnorm(input: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6,
                            enable_pdl: Optional[bool] = None) -> None:
    """fused_add_rmsnorm by weight + 1."""
    _fused_add(input, residual, weight, eps, 1)


def layernorm(input: Tensor, gemma: Tensor, beta: Tensor, eps: float = 1e-6) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * gemma + beta over the last axis."""
    x = common.tensor_of("input", input)
    for name, given in (("gemma", gemma), ("beta", beta)):
        if tuple(given.shape) != (x.shape[-1],):
            raise Invalid(f"{name}: {tuple(given.shape)}; required is [{x.shape[-1]}], the last axis of input")
    y = torch.nn.functional.layer_norm(x.float(), (x.shape[-1],), common.tensor_of("gemma", gemma).float(),
                                       common.tensor_of("beta", beta).float(), eps)
    return y.to(x.dtype)


def _quantised(out: Tensor, y: Tensor, scale: Union[float, Tensor]) -> None:
    """out := y / scale, clamped to the numbers of its type."""
    out = common.tensor_of("out", out)
    if out.shape != y.shape:
        raise Invalid(f"out: {tuple(out.shape)}; required is {tuple(y.shape)}")
    y = y / common.number("scale", scale)
    if out.dtype == torch.int8:
        out.copy_(y.round().clamp(-128, 127))
    elif out.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        most = torch.finfo(out.dtype).max
        out.copy_(y.clamp(-most, most))
    else:
        raise Unsupported(f"out: required is {out.dtype}; supported are torch.float8_e4m3fn, torch.float8_e5m2 and "
                          "torch.int8; missing: other quantised types")


def rmsnorm_quant(out: Tensor, input: Tensor, weight: Tensor, scale: Union[float, Tensor], eps: float = 1e-6,
                  enable_pdl: Optional[bool] = None) -> None:
    """out := rmsnorm(input) / scale, in fp8 or int8."""
    _quantised(out, _rms("input", input, weight, eps), scale)


def fused_add_rmsnorm_quant(out: Tensor, input: Tensor, residual: Tensor, weight: Tensor, scale: Union[float, Tensor],
                            eps: float = 1e-6, enable_pdl: Optional[bool] = None) -> None:
    """residual += input; out := rmsnorm of that sum before it is rounded, divided by scale."""
    _quantised(out, _rms("input", _add(input, residual), weight, eps), scale)


def layernorm_quant(out: Tensor, input: Tensor, gemma: Tensor, beta: Tensor, scale: Union[float, Tensor],
                    eps: float = 1e-6) -> None:
    """out := layernorm(input) / scale."""
    _quantised(out, layernorm(common.tensor_of("input", input).float(), gemma, beta, eps), scale)

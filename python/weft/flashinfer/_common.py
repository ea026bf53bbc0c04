"""What the modules of weft.flashinfer share: errors, types, layouts, index arrays, streams."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import _weft
from .._streams import num_workers_on as num_workers_on
from .._streams import stream_of as stream_of
from .._streams import stream_on as stream_on

LOG2_E = 1 / math.log(2)

# A torch.dtype, or its name.
DTypeLike = Union[str, torch.dtype]

WEFT_DTYPE = {
    torch.float32: _weft.DType.fp32, torch.float16: _weft.DType.fp16, torch.bfloat16: _weft.DType.bf16,
    torch.float8_e4m3fn: _weft.DType.fp8_e4m3, torch.float8_e5m2: _weft.DType.fp8_e5m2,
}
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
LAYOUTS = {"NHD": _weft.Layout.nhd, "HND": _weft.Layout.hnd}
POS_ENCODING_MODES = ("NONE", "ROPE_LLAMA", "ALIBI")
_BACKENDS = ("auto", "fa2", "fa3")  # what "fa3" selects in FlashInfer is the same function, for another card


class Invalid(_weft.Error, ValueError):
    """A value that is not allowed: weft.Error(invalid_argument), and a ValueError as FlashInfer's are."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = _weft.ErrorCode.invalid_argument


class UnknownName(Invalid, KeyError):
    """A layout or a mode that does not exist, which is a KeyError in FlashInfer."""

    def __str__(self) -> str:
        return str(self.args[0])


class Unsupported(_weft.Error, NotImplementedError):
    """What FlashInfer has and Weft has not: weft.Error(unsupported), and a NotImplementedError."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = _weft.ErrorCode.unsupported


def refuse(reason: str, **given: Any) -> None:
    """Raises Unsupported for the first argument that is given: neither None nor False."""
    for name, value in given.items():
        if value is not None and value is not False:
            shown = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise Unsupported(f"{name}: given is {shown}; supported is None; missing: {reason}")


def check_layout(kv_layout: str) -> None:
    if kv_layout not in LAYOUTS:
        raise UnknownName(f"kv_layout = {kv_layout!r}; allowed are 'NHD' and 'HND'")


def check_pos_encoding_mode(mode: str) -> None:
    if mode not in POS_ENCODING_MODES:
        raise UnknownName(f"pos_encoding_mode = {mode!r}; allowed are {', '.join(map(repr, POS_ENCODING_MODES))}")


def check_backend(backend: str) -> None:
    if backend not in _BACKENDS:
        raise Unsupported(f"backend: required is {backend!r}; supported are 'auto', 'fa2' and 'fa3', which all mean "
                          "Weft; missing: kernels of other vendors")


def dtype_of(name: str, value: DTypeLike) -> torch.dtype:
    made = getattr(torch, value, None) if isinstance(value, str) else value
    if not isinstance(made, torch.dtype):
        raise TypeError(f"{name} = {value!r}; give a torch.dtype or the name of one")
    return made


def _served(name: str, value: DTypeLike, served: Collection[torch.dtype], missing: str) -> torch.dtype:
    made = dtype_of(name, value)
    if made not in served:
        raise Unsupported(f"{name}: required is {made}; supported are {', '.join(map(str, served))}; missing: {missing}")
    return made


def float_dtype_of(name: str, value: DTypeLike) -> torch.dtype:
    """The type of queries or outputs."""
    return _served(name, value, _FLOATS, "queries and outputs of fewer bits")


def kv_dtype_of(name: str, value: DTypeLike) -> torch.dtype:
    """The type of keys and values."""
    return _served(name, value, WEFT_DTYPE, "caches of other types (weft.AttentionSpec has int8 and int4)")


def tensor_of(name: str, x: Any) -> Tensor:
    """x without its gradient, as a plain tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: {type(x).__name__} is no torch.Tensor")
    if x.is_meta or x.is_complex():
        raise Invalid(f"{name}: {x.dtype} on {x.device}; required are real numbers in memory")
    return x if type(x) is Tensor and not x.requires_grad else x.detach()


def check_rank(name: str, x: Tensor, *allowed: int) -> None:
    if x.dim() not in allowed:
        raise Invalid(f"{name}: {tuple(x.shape)} has {x.dim()} dimensions; required are "
                      f"{' or '.join(map(str, allowed))}")


def index_of(name: str, x: Any) -> Tensor:
    """An index array, int32 or int64."""
    made = tensor_of(name, x)
    check_rank(name, made, 1)
    if made.dtype not in (torch.int32, torch.int64):
        raise Invalid(f"{name}: its elements are {made.dtype}; required is torch.int32")
    return made


def host_ints(name: str, x: Any) -> Tensor:
    """int32 on the host, a copy: a caller may write the next step's numbers over its own."""
    x = index_of(name, x)
    refuse_capture(name, x)
    if x.dtype == torch.int64 and x.numel() and not -2**31 <= int(x.min()) <= int(x.max()) < 2**31:
        raise Invalid(f"{name}: a number lies outside of int32's range")
    return torch.empty(x.shape, dtype=torch.int32).copy_(x)


def captures(device: torch.device) -> bool:
    """Whether a CUDA graph captures what is done on the device."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def is_captured(x: Tensor) -> bool:
    """Whether one captures what is done to x's card: no number of it can be read."""
    return captures(x.device)


def refuse_capture(name: str, x: Tensor) -> None:
    """Raises Unsupported while a CUDA graph captures what is done to x's card, for calls that read numbers of it."""
    if is_captured(x):
        raise Unsupported(f"{name}: required is a call that a CUDA graph captures; supported are calls outside of "
                          "captures; missing: checks and choices that the card makes alone")


def whole(name: str, x: Any, least: int) -> int:
    """An integer from `least` on."""
    if isinstance(x, (bool, float)) or not hasattr(x, "__index__") or (isinstance(x, Tensor) and x.numel() != 1):
        raise TypeError(f"{name} = {x!r}; give an integer")
    made = int(x)
    if not least <= made < 2**31:
        raise Invalid(f"{name} = {made}; allowed are {least} to 2**31 - 1")
    return made


def check_out(name: str, x: Optional[Tensor], shape: tuple[int, ...], dtype: torch.dtype,
              device: torch.device) -> Optional[Tensor]:
    """An output that the caller gives."""
    if x is None:
        return None
    x = tensor_of(name, x)
    for what, made, expected in (("shape", tuple(x.shape), shape), ("dtype", x.dtype, dtype),
                                 ("device", x.device, device)):
        if made != expected:
            raise Invalid(f"Invalid {what} of {name}: expected {expected}, got {made}")
    return x


def number(name: str, x: Union[None, float, Tensor]) -> float:
    """A scale: a number, or a tensor of one element; 1 where there is none."""
    if x is None:
        return 1.0
    if isinstance(x, Tensor):
        if x.numel() != 1:
            raise Invalid(f"{name}: {tuple(x.shape)} has {x.numel()} elements; required is a number, or a tensor of "
                          "one")
    elif not hasattr(x, "__float__"):
        raise TypeError(f"{name} = {x!r}; give a number")
    return float(x)

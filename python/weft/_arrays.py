"""Arrays of other libraries: made where a call has to make one, and seen with numpy's types."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from . import _weft

_TORCH = {
    "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "int8": "int8", "uint8": "uint8", "int32": "int32", "int64": "int64",
}
_NUMPY = {
    "fp32": "float32", "fp16": "float16", "fp64": "float64", "int8": "int8", "uint8": "uint8", "int32": "int32",
    "int64": "int64",
}
_ML_DTYPES = {"bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}


def _is_of(array: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(array, getattr(loaded, name))


def numpy_dtype(dtype: str) -> Any:
    """numpy's type of that name of Weft's; bf16 and fp8 come from ml_dtypes."""
    import numpy

    if dtype in _NUMPY:
        return numpy.dtype(_NUMPY[dtype])
    if dtype not in _ML_DTYPES:
        raise TypeError(f"numpy has no type for {dtype}: use weft.empty, and weft.TensorView of it")
    try:
        ml_dtypes = importlib.import_module("ml_dtypes")
    except ImportError as missing:
        raise ImportError(f"numpy has no type for {dtype}: install ml_dtypes, or give out=") from missing
    return numpy.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))


def empty(like: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    """An array of the library that `like` is of, on its device; elements are not set.

    weft.TensorView of Weft's own memory for libraries whose arrays cannot be written, as jax's.
    """
    if _is_of(like, "numpy", "ndarray"):
        import numpy

        return numpy.empty(shape, numpy_dtype(dtype))
    if _is_of(like, "torch", "Tensor") and dtype in _TORCH:
        torch = importlib.import_module("torch")
        return torch.empty(shape, dtype=getattr(torch, _TORCH[dtype]), device=like.device)
    if _is_of(like, "cupy", "ndarray") and dtype in _NUMPY:
        cupy = importlib.import_module("cupy")
        return cupy.empty(shape, _NUMPY[dtype])
    return _weft.empty(list(shape), getattr(_weft.DType, dtype), _weft.Device(device))


def to_numpy(view: Any) -> Any:
    """The memory of a weft.TensorView as a numpy array."""
    import numpy

    dtype = view.dtype.name
    if dtype in _NUMPY:
        return numpy.asarray(view)
    as_bits = _weft.TensorView(view, _weft.DType.fp16 if dtype == "bf16" else _weft.DType.uint8)
    return numpy.asarray(as_bits).view(numpy_dtype(dtype))

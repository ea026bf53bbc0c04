"""How far the indices of captured arrays reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from .. import _weft
from .values import Captured, Value, error

# The least and the greatest number that an integer may be; None: nothing is known.
Range = Optional[tuple[int, int]]


def check_indices(loads: list[Value], indices: Mapping[str, tuple[int, int]]) -> None:
    """Raises Error(invalid_shape) for the first array that is read beyond its end."""
    for load in loads:
        captured: Captured = load.data
        shape = captured.view.shape
        for axis, index in enumerate(load.args):
            reached = range_of(index, indices)
            if reached is not None and reached[1] >= shape[axis]:
                raise error(_weft.ErrorCode.invalid_shape,
                            f"{captured.name}: has the shape {tuple(shape)}, and its axis {axis} is read up to "
                            f"{reached[1]}; give an array with {reached[1] + 1} elements there, or shorter requests")


def range_of(x: Value, indices: Mapping[str, tuple[int, int]]) -> Range:
    if x.op == "number":
        return int(x.data), int(x.data)
    if x.op == "parameter":
        return int(x.data.value), int(x.data.value)
    if x.op == "index":
        return indices[x.data]
    if x.op == "load":
        return _elements(x.data)
    parts = [range_of(one, indices) for one in x.args]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        # min(x, 7) and x % 7 are below 8 whatever x is.
        if x.op == "mod":
            return 0, int(x.args[1].data) - 1
        return (-2**63, known[0][1]) if x.op == "min" and known else None
    return _combined(x.op, known)


def _combined(op: str, parts: list[tuple[int, int]]) -> Range:
    (low, high), (low_b, high_b) = parts[-2] if len(parts) > 1 else parts[0], parts[-1]
    if op == "add":
        return low + low_b, high + high_b
    if op == "sub":
        return low - high_b, high - low_b
    if op == "neg":
        return -high, -low
    if op == "mul":
        products = [a * b for a in (low, high) for b in (low_b, high_b)]
        return min(products), max(products)
    if op == "floordiv":
        return low // low_b, high // low_b
    if op == "mod":
        return (low, high) if 0 <= low and high < low_b else (0, low_b - 1)
    if op in ("min", "max"):
        pick = min if op == "min" else max
        return pick(low, low_b), pick(high, high_b)
    if op == "abs":
        return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    if op == "select":
        return min(low, low_b), max(high, high_b)
    return (low, high) if op in ("int", "long") else None


def _elements(captured: Captured) -> Range:
    """Of an array of integers in memory of the host."""
    import numpy

    if captured.view.device.kind != _weft.DeviceKind.cpu:
        return None
    elements: Any = numpy.asarray(captured.view)
    return (int(elements.min()), int(elements.max())) if elements.size else None

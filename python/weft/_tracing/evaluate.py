"""Values over numpy's arrays of indices: what block lists are made from."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from .. import _weft
from .text import reachable
from .values import BOOL, INT, LONG, REAL, Captured, Value, error

_TYPES = {BOOL: numpy.bool_, INT: numpy.int32, LONG: numpy.int64, REAL: numpy.float64}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "neg": operator.neg, "abs": abs, "min": numpy.minimum,
    "max": numpy.maximum, "exp": numpy.exp, "exp2": numpy.exp2, "log": numpy.log, "tanh": numpy.tanh,
    "sigmoid": lambda x: 1 / (1 + numpy.exp(-x)), "sqrt": numpy.sqrt, "rsqrt": lambda x: 1 / numpy.sqrt(x),
    "sin": numpy.sin, "cos": numpy.cos, "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne,
    "and": operator.and_, "or": operator.or_, "not": numpy.logical_not, "bitand": operator.and_,
    "bitor": operator.or_, "bitxor": operator.xor, "shl": operator.lshift, "shr": operator.rshift,
    "invert": operator.invert, "select": numpy.where,
}


class Evaluation:
    """One value, to be computed for many indices."""

    def __init__(self, root: Value) -> None:
        self._root, self._all = root, list(reachable([root]))
        self._arrays = {id(x): _elements(x.data) for x in self._all if x.op == "load"}

    def depends_on(self, index: str) -> bool:
        return any(x.op == "index" and x.data == index for x in self._all)

    @property
    def loads(self) -> list[Value]:
        return [x for x in self._all if x.op == "load"]

    def __call__(self, indices: Mapping[str, Any]) -> Any:
        """`indices`: integers or arrays of int32 that broadcast."""
        made: dict[int, Any] = {}
        with numpy.errstate(all="ignore"):
            for x in self._all:
                made[id(x)] = self._one(x, [made[id(one)] for one in x.args], indices)
        return made[id(self._root)]

    def _one(self, x: Value, args: list[Any], indices: Mapping[str, Any]) -> Any:
        kind = _TYPES[x.kind]
        if x.op == "number":
            return kind(x.data)
        if x.op == "parameter":
            return kind(x.data.value)
        if x.op == "index":
            return indices[x.data]
        if x.op == "load":
            return self._arrays[id(x)][tuple(numpy.maximum(index, 0) for index in args)].astype(kind)
        if x.op in ("real", "int", "long"):
            return numpy.asarray(args[0]).astype(kind)
        return _FUNCTIONS[x.op](*args)


def _elements(captured: Captured) -> Any:
    if captured.view.device.kind != _weft.DeviceKind.cpu:
        raise error(_weft.ErrorCode.invalid_device,
                    f"{captured.name}: lies on {captured.view.device}; block lists are made on the host: capture "
                    "x.cpu()")
    return numpy.asarray(captured.view)

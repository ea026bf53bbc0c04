"""Stand-ins of traced functions: numbers that are not known yet, and captured arrays that such numbers index."""

from __future__ import annotations

import linecache
import os
import sys
from types import FrameType
from typing import Any, NoReturn, Optional, Union

from .. import _weft

# Types of a value, in the order in which operands of two types meet.
BOOL, INT, LONG, REAL = range(4)
INT_MAX = 2**31 - 1

Number = Union[bool, int, float]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def error(code: _weft.ErrorCode, text: str) -> _weft.Error:
    """A weft.Error as the library raises it."""
    made = _weft.Error(f"{code.name}: {text}")
    made.code = code
    return made


def refuse(what: str, hint: str, code: _weft.ErrorCode = _weft.ErrorCode.unsupported) -> NoReturn:
    """Raises Error(code) that names the line of the traced function which is being executed."""
    frame = _frame_of_the_function()
    place, shown = "", ""
    if frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        source = linecache.getline(file, line).strip()
        place, shown = f"{file}:{line}: ", f" in `{source}`" if source else ""
    raise error(code, f"{place}{what}{shown}; {hint}")


def _frame_of_the_function() -> Optional[FrameType]:
    """The innermost frame that is neither Weft's nor of a library that calls back."""
    libraries = [_PACKAGE]
    for name in ("torch", "numpy"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            libraries.append(os.path.dirname(file))
    frame: Optional[FrameType] = sys._getframe(1)
    others = (*(x + os.sep for x in libraries), "<__array_function__")
    while frame is not None and frame.f_code.co_filename.startswith(others):
        frame = frame.f_back
    return frame


class Parameter:
    """A captured number. `literal`: the text says its value, as what follows from it is fixed."""

    def __init__(self, name: str, value: Union[int, float]) -> None:
        self.name, self.value = name, value
        self.literal = False


class Captured:
    """A captured array, declared as a tensor of the variant where the function uses it."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array
        self._view: Optional[_weft.TensorView] = None

    @property
    def view(self) -> _weft.TensorView:
        """Raises Error for what a variant cannot read."""
        if self._view is None:
            self._view = self._readable()
        return self._view

    def _readable(self) -> _weft.TensorView:
        dtype, rank = str(self.array.dtype).rpartition(".")[2], len(self.array.shape)
        if dtype not in ("float32", "int32", "int64", "uint8", "bool"):
            refuse(f"{self.name}, a captured array, is {dtype}",
                   "a variant reads float32, int32, int64, uint8 and bool: convert it outside of the function",
                   _weft.ErrorCode.invalid_dtype)
        if rank > 4:
            refuse(f"{self.name}, a captured array, has {rank} axes", "a variant reads 1 to 4")
        if getattr(self.array, "requires_grad", False):
            refuse(f"{self.name}, a captured array, needs a gradient", "capture x.detach()",
                   _weft.ErrorCode.invalid_argument)
        view = _weft.TensorView(self.array)
        if view.shape[-1] > 1 and view.strides[-1] != 1:
            refuse(f"{self.name}, a captured array, has a last axis whose elements are {view.strides[-1]} apart",
                   "a variant reads contiguous ones: x.contiguous(), numpy.ascontiguousarray(x)",
                   _weft.ErrorCode.invalid_stride)
        return view

    @property
    def is_bool(self) -> bool:
        return str(self.array.dtype).rpartition(".")[2] == "bool"


class Graph:
    """The values of one trace; equal ones are the same object."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Value] = {}
        self.captured: list[Captured] = []
        self.parameters: list[Parameter] = []

    def value(self, op: str, kind: int, *args: Value, data: Any = None) -> Value:
        key = (op, kind, repr(data) if isinstance(data, float) else data, *map(id, args))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Value(self, op, kind, args, data)
        return found

    def number(self, x: Number) -> Value:
        """A literal, or a parameter where x is a captured number."""
        parameter = getattr(x, "weft_parameter", None)
        if parameter is not None:
            return self.value("parameter", REAL if isinstance(x, float) else INT, data=parameter)
        if isinstance(x, bool):
            return self.value("number", BOOL, data=x)
        if isinstance(x, int):
            if abs(x) > INT_MAX:
                refuse(f"the integer {x} has more than 32 bits", "integers of a variant have 32: write it as a float")
            return self.value("number", INT, data=int(x))
        if x != x:
            refuse("a NaN", "a variant's literals are numbers")
        return self.value("number", REAL, data=float(x))

    def of(self, x: Any) -> Value:
        """x as a value: a stand-in, a number, or an array without axes."""
        if isinstance(x, StandIn):
            if x.graph is not self:
                refuse("a stand-in of another trace is used", "functions keep nothing of one call for the next")
            return x.value()
        if isinstance(x, (bool, int, float)):
            return self.number(x)
        shape = getattr(x, "shape", None)
        if shape is not None and len(shape) == 0 and hasattr(x, "item"):
            return self.number(x.item())
        if shape is not None:
            refuse(f"a whole array of shape {tuple(shape)} is computed with",
                   "index it by b, h, q_idx and kv_idx, or compute with it outside of the function")
        refuse(f"{type(x).__name__} is no number", "values are stand-ins, numbers and elements of captured arrays")


class StandIn:
    """What operators, methods and functions of torch and numpy are written down for, instead of being computed."""

    graph: Graph
    __hash__ = object.__hash__

    def value(self) -> Value:
        raise NotImplementedError

    def _call(self, name: str, *args: Any) -> Any:
        from .operations import call

        return call(self.graph, name, args, {})

    # Libraries' own ways in.
    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **named: Any) -> Any:
        if method != "__call__" or named:
            refuse(f"numpy.{ufunc.__name__}.{method}", "ufuncs are called with their operands alone")
        return self._call(ufunc.__name__, *args)

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        from .operations import call

        return call(self.graph, function.__name__, args, named)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        from .operations import call, graph_of

        return call(graph_of(args, named), function.__name__, args, named or {})

    def __getattr__(self, name: str) -> Any:
        from .operations import call, is_known

        if name.startswith("__"):
            raise AttributeError(name)
        if not is_known(name):
            refuse(f"{name} of a stand-in", "docs/variants.md lists what there is: it is one score's, and no tensor")
        return lambda *args, **named: call(self.graph, name, (self, *args), named)

    # What needs a number now.
    def __bool__(self) -> bool:
        refuse("a branch on what only kernels know",
               "write torch.where or numpy.where instead of if; & | ~ instead of and, or, not; (a < b) & (b < c) "
               "instead of a < b < c; torch.minimum or numpy.minimum instead of min")

    def _number(self) -> NoReturn:
        refuse("a number is wanted of what only kernels know",
               "call torch's or numpy's functions instead of math's, and index arrays, not lists, that the function "
               "finds under a name of their own (bias = self.bias outside of it)")

    def __int__(self) -> int:
        self._number()

    def __float__(self) -> float:
        self._number()

    def __complex__(self) -> complex:
        self._number()

    def __index__(self) -> int:
        self._number()

    def __round__(self, *_: Any) -> int:
        self._number()

    def __array__(self, *_: Any, **__: Any) -> Any:
        refuse("an array of what only kernels know",
               "compute with single numbers: leave numpy.array out, and index arrays that the function finds under a "
               "name of their own (bias = self.bias outside of it)")

    def __iter__(self) -> Any:
        refuse("a loop over what only kernels know", "loop over Python's own numbers and ranges")

    def __setitem__(self, *_: Any) -> None:
        refuse("a captured array or a stand-in is written to", "functions only read: make a new value")

    # Operators.
    def __add__(self, x: Any) -> Any:
        return self._call("add", self, x)

    def __radd__(self, x: Any) -> Any:
        return self._call("add", x, self)

    def __sub__(self, x: Any) -> Any:
        return self._call("subtract", self, x)

    def __rsub__(self, x: Any) -> Any:
        return self._call("subtract", x, self)

    def __mul__(self, x: Any) -> Any:
        return self._call("multiply", self, x)

    def __rmul__(self, x: Any) -> Any:
        return self._call("multiply", x, self)

    def __truediv__(self, x: Any) -> Any:
        return self._call("divide", self, x)

    def __rtruediv__(self, x: Any) -> Any:
        return self._call("divide", x, self)

    def __floordiv__(self, x: Any) -> Any:
        return self._call("floor_divide", self, x)

    def __rfloordiv__(self, x: Any) -> Any:
        return self._call("floor_divide", x, self)

    def __mod__(self, x: Any) -> Any:
        return self._call("remainder", self, x)

    def __rmod__(self, x: Any) -> Any:
        return self._call("remainder", x, self)

    def __pow__(self, x: Any) -> Any:
        return self._call("power", self, x)

    def __rpow__(self, x: Any) -> Any:
        return self._call("power", x, self)

    def __and__(self, x: Any) -> Any:
        return self._call("bitwise_and", self, x)

    __rand__ = __and__

    def __or__(self, x: Any) -> Any:
        return self._call("bitwise_or", self, x)

    __ror__ = __or__

    def __xor__(self, x: Any) -> Any:
        return self._call("bitwise_xor", self, x)

    __rxor__ = __xor__

    def __lshift__(self, x: Any) -> Any:
        return self._call("left_shift", self, x)

    def __rlshift__(self, x: Any) -> Any:
        return self._call("left_shift", x, self)

    def __rshift__(self, x: Any) -> Any:
        return self._call("right_shift", self, x)

    def __rrshift__(self, x: Any) -> Any:
        return self._call("right_shift", x, self)

    def __lt__(self, x: Any) -> Any:
        return self._call("less", self, x)

    def __le__(self, x: Any) -> Any:
        return self._call("less_equal", self, x)

    def __gt__(self, x: Any) -> Any:
        return self._call("greater", self, x)

    def __ge__(self, x: Any) -> Any:
        return self._call("greater_equal", self, x)

    def __eq__(self, x: Any) -> Any:
        return self._call("equal", self, x)

    def __ne__(self, x: Any) -> Any:
        return self._call("not_equal", self, x)

    def __neg__(self) -> Any:
        return self._call("negative", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._call("absolute", self)

    def __invert__(self) -> Any:
        return self._call("invert", self)


class Value(StandIn):
    """One number of a score, an operation on others. `data`: of a leaf, its number, parameter, array or index."""

    shape: tuple[int, ...] = ()
    ndim = 0
    device = "cpu"

    def __init__(self, graph: Graph, op: str, kind: int, args: tuple[Value, ...], data: Any) -> None:
        self.graph, self.op, self.kind, self.args, self.data = graph, op, kind, args, data

    def value(self) -> Value:
        return self

    @property
    def dtype(self) -> str:
        return ("bool", "int32", "int64", "float32")[self.kind]

    @property
    def is_literal(self) -> bool:
        return self.op == "number"

    def __len__(self) -> int:
        refuse("a length of a single number", "a stand-in is one number of one score")

    def __getitem__(self, _: Any) -> Any:
        refuse("a single number is indexed", "a stand-in is one number of one score")


class Element(StandIn):
    """A captured array of which none, some or all axes are indexed."""

    def __init__(self, graph: Graph, captured: Captured, indices: tuple[Value, ...] = ()) -> None:
        self.graph, self.captured, self.indices = graph, captured, indices

    def __getitem__(self, index: Any) -> Element:
        indices = self.indices
        for one in index if isinstance(index, tuple) else (index,):
            if one is None or one is Ellipsis or isinstance(one, slice):
                refuse(f"{self.captured.name} is indexed by None, ... or a slice", "give each axis an integer")
            indices += (self._index(one, len(indices)),)
        return Element(self.graph, self.captured, indices)

    def _index(self, given: Any, axis: int) -> Value:
        name, shape = self.captured.name, self.captured.view.shape
        if axis >= len(shape):
            refuse(f"{name} has {len(shape)} axes and is indexed by more", "give each axis one integer")
        index = self.graph.of(given)
        if index.kind not in (INT, LONG):
            refuse(f"{name} is indexed by a {'bool' if index.kind == BOOL else 'real number'}",
                   "give integers: x.to(torch.int32)")
        if index.is_literal:
            at = index.data + (shape[axis] if index.data < 0 else 0)
            if not 0 <= at < shape[axis]:
                refuse(f"index {index.data} of axis {axis} of {name}, which has {shape[axis]} elements",
                       "stay within the array")
            return self.graph.number(at)
        return index

    def value(self) -> Value:
        name, rank = self.captured.name, len(self.captured.view.shape)
        if len(self.indices) < rank:
            refuse(f"{name} has {rank} axes, of which {len(self.indices)} are indexed",
                   "index all of them by b, h, q_idx and kv_idx, or compute with the array outside of the function")
        kind = {"fp32": REAL, "int64": LONG}.get(self.captured.view.dtype.name, INT)
        loaded = self.graph.value("load", kind, *self.indices, data=self.captured)
        return self.graph.value("ne", BOOL, loaded, self.graph.number(0)) if self.captured.is_bool else loaded

    @property
    def shape(self) -> tuple[int, ...]:
        return self.captured.view.shape[len(self.indices):]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def size(self, axis: Optional[int] = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        return self.ndim

    @property
    def dtype(self) -> Any:
        return getattr(self.captured.array, "dtype", None)

    @property
    def device(self) -> Any:
        return getattr(self.captured.array, "device", "cpu")

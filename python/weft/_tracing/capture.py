"""What a Python function captures, by closure, globals and defaults: numbers and arrays get names of their own."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

from .values import INT_MAX, Captured, Element, Graph, Parameter, StandIn

# Words that a parameter cannot be called: those of C++, and what a variant's text means by them.
_RESERVED = frozenset("""
    sm_scale real P Vec Row Score Request alignas alignof and asm auto bool break case catch char class concept const
    constexpr continue default delete do double else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not nullptr operator or private protected public register requires return
    short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual
    void volatile while xor mask_indptr""".split())


class CapturedInt(int):
    """A captured integer: a number to Python, a parameter where it meets a stand-in."""

    weft_parameter: Parameter


class CapturedFloat(float):
    """The same of a real number."""

    weft_parameter: Parameter


def name_of(wanted: str, taken: Callable[[str], bool]) -> str:
    """A name that a variant's text may use, as near to the wanted one as can be."""
    plain = re.sub("_+", "_", re.sub("[^A-Za-z0-9_]", "_", wanted)).strip("_")
    if not plain or plain[0].isdigit() or plain.startswith("weft"):
        plain = "captured_" + plain if plain else "captured"
    made, n = plain, 0
    while made in _RESERVED or taken(made):
        n += 1
        made = f"{plain}_{n}"
    return made


class Captures:
    """Makes functions whose captured numbers and arrays are known to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._made: dict[int, Any] = {}  # by id
        self._kept: list[Any] = []       # what has these ids

    def _taken(self, name: str) -> bool:
        return name in [x.name for x in self.graph.parameters] + [x.name for x in self.graph.captured]

    def number(self, name: str, x: Union[int, float]) -> Union[int, float]:
        if type(x) not in (int, float) or x != x or isinstance(x, int) and abs(x) > INT_MAX:
            return x  # a literal where it is used, or refused there
        for one in self.graph.parameters:
            same = type(one.value) is type(x) and one.value == x
            if same and re.fullmatch(re.escape(name_of(name, lambda _: False)) + r"(_\d+)?", one.name):
                parameter = one
                break
        else:
            parameter = Parameter(name_of(name, self._taken), x)
            self.graph.parameters.append(parameter)
        made: Union[CapturedInt, CapturedFloat] = CapturedFloat(x) if isinstance(x, float) else CapturedInt(x)
        made.weft_parameter = parameter
        return made

    def array(self, name: str, x: Any) -> Any:
        """An Element for an array of any library, or its number where it has no axes."""
        if len(x.shape) == 0:
            return self.number(name, x.item())
        for one in self.graph.captured:
            if one.array is x:
                return Element(self.graph, one)
        self.graph.captured.append(Captured(name_of(name, self._taken), x))
        return Element(self.graph, self.graph.captured[-1])

    def known(self, name: str, x: Any) -> Any:
        """x as the traced function sees it."""
        if type(x) in (int, float):
            return self.number(name, x)
        return self._deep(name, x)

    def _deep(self, name: str, x: Any) -> Any:
        """The same of arrays and functions alone, as what stands in a container is."""
        if isinstance(x, StandIn):
            return x
        if is_array(x):
            return self.array(name, x)
        if not isinstance(x, (types.FunctionType, types.MethodType, functools.partial, tuple, list, dict)):
            return x
        made = self._made.get(id(x))
        if made is None:
            self._kept.append(x)
            made = self._made[id(x)] = self._compound(name, x)
        return made

    def _compound(self, name: str, x: Any) -> Any:
        if isinstance(x, types.FunctionType):
            return x if _is_of_a_library(x) else self.function(x)
        if isinstance(x, types.MethodType):
            return types.MethodType(self._deep(name, x.__func__), x.__self__)
        if isinstance(x, functools.partial):
            return functools.partial(self._deep(name, x.func), *(self.known(name, one) for one in x.args),
                                     **{key: self.known(key, one) for key, one in x.keywords.items()})
        if type(x) not in (tuple, list, dict):
            return x
        known = [self._deep(name, one) for one in (x.values() if isinstance(x, dict) else x)]
        if all(mine is theirs for mine, theirs in zip(known, x.values() if isinstance(x, dict) else x)):
            return x
        return dict(zip(x, known)) if isinstance(x, dict) else type(x)(known)

    def function(self, f: types.FunctionType) -> types.FunctionType:
        """The same code over what stands in for its captures."""
        code = f.__code__
        used = set(_names_in(code))
        scope = dict(f.__globals__)
        made = types.FunctionType(code, scope, f.__name__, None, None if f.__closure__ is None else
                                  tuple(types.CellType() for _ in f.__closure__))
        self._made[id(f)] = made  # it may call itself
        self._kept.append(f)
        for name in used & scope.keys():
            scope[name] = self.known(name, scope[name])
        parameters = code.co_varnames[:code.co_argcount]
        if f.__defaults__:
            made.__defaults__ = tuple(self.known(name, x) for name, x in
                                      zip(parameters[-len(f.__defaults__):], f.__defaults__))
        if f.__kwdefaults__:
            made.__kwdefaults__ = {name: self.known(name, x) for name, x in f.__kwdefaults__.items()}
        for name, mine, theirs in zip(code.co_freevars, made.__closure__ or (), f.__closure__ or ()):
            try:
                mine.cell_contents = self.known(name, theirs.cell_contents)
            except ValueError:
                pass  # not set yet; the function that uses it says so
        return made

    def rebound(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Any callable, as far as its captures can be seen."""
        if isinstance(f, (types.FunctionType, types.MethodType, functools.partial)):
            made: Callable[..., Any] = self.known(getattr(f, "__name__", "f"), f)
            return made
        method = getattr(type(f), "__call__", None)
        if isinstance(method, types.FunctionType):
            return types.MethodType(self.function(method), f)
        return f


def is_array(x: Any) -> bool:
    """An array of any library, or a number of numpy's with a type."""
    return hasattr(x, "dtype") and hasattr(x, "shape") and hasattr(x, "item") and not isinstance(x, type)


def _is_of_a_library(f: types.FunctionType) -> bool:
    """Whether a library's own functions are called as they are; those that keep another function are looked into."""
    return f.__closure__ is None and (f.__module__ or "").partition(".")[0] in ("torch", "numpy", "math", "weft")


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def torch_mode(captures: Captures) -> Optional[Any]:
    """Sees torch's own indexing of tensors that the trace has not met: of attributes, and made in the function."""
    import sys

    if "torch" not in sys.modules:
        return None
    import torch
    from torch.overrides import TorchFunctionMode

    from .operations import call, find

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
            named = named or {}
            if find((args, named)) is None:
                return function(*args, **named)
            if function is torch.Tensor.__getitem__:
                return captures.array("tensor", args[0])[args[1]]
            return call(captures.graph, function.__name__, args, named)

    return Mode()

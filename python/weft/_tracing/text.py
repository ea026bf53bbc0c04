"""Values as the text of a variant's class."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Optional

from .values import BOOL, LONG, REAL, Number, Value

_TYPES = ("bool", "int", "long long", "real")
_INDICES = {"b": "c.batch", "h": "c.qo_head", "q_idx": "c.q_pos", "q_row": "c.qo_idx", "kv_idx": "c.kv_pos"}
# Operators of C++ and how tightly they bind; the right operand of one that is not associative binds tighter.
_BINARY = {"mul": ("*", 9), "div": ("/", 9), "add": ("+", 8), "sub": ("-", 8), "shl": ("<<", 7), "shr": (">>", 7),
           "lt": ("<", 6), "le": ("<=", 6), "eq": ("==", 5), "ne": ("!=", 5), "bitand": ("&", 4), "and": ("&", 4),
           "bitxor": ("^", 3), "bitor": ("|", 2), "or": ("|", 2)}
_UNARY = {"neg": "-", "not": "!", "invert": "~"}
_CASTS = {"real": "real", "int": "int", "long": "static_cast<long long>"}
_CALLS = {"abs", "min", "max", "exp", "exp2", "log", "tanh", "sigmoid", "sqrt", "rsqrt", "sin", "cos"}
_TIGHT, _PREFIX = 11, 10


def reachable(roots: Iterable[Value]) -> Iterator[Value]:
    """Each value that these are made of, once, operands first."""
    known: set[int] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        x, is_ready = stack.pop()
        if is_ready:
            yield x
        elif id(x) not in known:
            known.add(id(x))
            stack.append((x, True))
            stack.extend((one, False) for one in reversed(x.args))


def literal(x: Number) -> str:
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int):
        return str(x)
    if x in (float("inf"), float("-inf")):
        return "weft::infinity()" if x > 0 else "-weft::infinity()"
    try:
        is_float = struct.unpack("f", struct.pack("f", x))[0] == x
    except OverflowError:
        is_float = False
    return f"{x!r}f" if is_float else f"real({x!r})"


def is_at_least_0(x: Value) -> bool:
    """Whether it is known that an integer is never negative."""
    if x.op in ("number", "parameter"):
        number: Number = x.data if x.op == "number" else x.data.value
        return number >= 0 and (x.op == "number" or bool(x.data.literal))
    if x.op == "index":
        return bool(x.data != "q_idx")  # below 0 where a request has more queries than keys
    if x.op in ("add", "mul", "min", "floordiv", "int", "long"):
        return all(map(is_at_least_0, x.args))
    if x.op == "max":
        return any(map(is_at_least_0, x.args))
    if x.op == "select":
        return all(map(is_at_least_0, x.args[1:]))
    return x.op in ("mod", "abs") or x.kind == BOOL


class Writer:
    """The body of one member function."""

    def __init__(self, root: Value) -> None:
        uses: dict[int, int] = {}
        self._all = list(reachable([root]))
        for x in self._all:
            is_repeated = x.op in ("floordiv", "mod") and not is_at_least_0(x.args[0])
            for one in x.args:
                uses[id(one)] = uses.get(id(one), 0) + (2 if is_repeated else 1)
        self._locals: dict[int, str] = {}
        lines = []
        for x in self._all:
            if uses.get(id(x), 0) > 1 and x.op not in ("score", "index", "number", "parameter", "real"):
                text = self._of(x, 0)
                name = f"x{len(self._locals)}"
                lines.append(f"const {_TYPES[x.kind]} {name} = {text};")
                self._locals[id(x)] = name
        self.lines = [*lines, f"return {self._of(root, 0)};"]

    def uses(self, *ops: str) -> bool:
        return any(x.op in ops for x in self._all)

    def _of(self, x: Value, tightness: int) -> str:
        """The text of x, in brackets where it binds less tightly."""
        if id(x) in self._locals:
            return self._locals[id(x)]
        text, binds = self._plain(x)
        return f"({text})" if binds < tightness else text

    def _plain(self, x: Value) -> tuple[str, int]:
        if x.op == "score":
            return "s", _TIGHT
        if x.op == "index":
            return _INDICES[x.data], _TIGHT
        if x.op == "number" or x.op == "parameter" and x.data.literal:
            text = literal(x.data if x.op == "number" else x.data.value)
            return text, _PREFIX if text.startswith("-") else _TIGHT
        if x.op == "parameter":
            return f"p.{x.data.name}", _TIGHT
        if x.op == "load":
            return f"p.{x.data.name}({', '.join(self._index(x, axis) for axis in range(len(x.args)))})", _TIGHT
        if x.op in _CASTS:
            return f"{_CASTS[x.op]}({self._of(x.args[0], 0)})", _TIGHT
        if x.op in ("floordiv", "mod"):
            return self._divided(x)
        if x.op in _UNARY:
            return _UNARY[x.op] + self._of(x.args[0], _PREFIX + 1), _PREFIX
        if x.op in _BINARY:
            sign, binds = _BINARY[x.op]
            left, right = binds, binds + 1
            if sign in "&|^":  # as compilers want brackets
                left, right = (binds if one.op == x.op else _TIGHT for one in x.args)
            return f"{self._of(x.args[0], left)} {sign} {self._of(x.args[1], right)}", binds
        if x.op == "select":
            return f"weft::select({self._of(x.args[0], 0)}, {self._typed(x.args[1])}, {self._typed(x.args[2])})", _TIGHT
        assert x.op in _CALLS, x.op
        return f"weft::{x.op}({', '.join(self._of(one, 0) for one in x.args)})", _TIGHT

    def _typed(self, x: Value) -> str:
        """A real number as `real`, which a literal is only in kernels."""
        text = self._of(x, 0)
        is_plain = x.kind == REAL and x.op in ("number", "parameter") and text.endswith("f")
        return f"real({text[:-1]})" if is_plain else text

    def _index(self, load: Value, axis: int) -> str:
        """Never below 0, as keys that nobody sees are computed with, too; the last axis takes an int."""
        x, is_last = load.args[axis], axis == len(load.args) - 1
        text = self._of(x, 0)
        if is_last and x.kind == LONG:
            text = f"int({text})"
        if is_at_least_0(x):
            return text
        return f"weft::max({text}, 0)"

    def _divided(self, x: Value) -> tuple[str, int]:
        """Rounded down, where C++ rounds to 0; divisors are literals above 0."""
        a, divisor = x.args[0], x.args[1].data
        if is_at_least_0(a):
            sign = "/" if x.op == "floordiv" else "%"
            return f"{self._of(a, 9)} {sign} {divisor}", 9
        tight = self._of(a, 9)
        below, above = {"floordiv": (f"-1 - (-1 - {tight}) / {divisor}", f"{tight} / {divisor}"),
                        "mod": (f"{divisor} - 1 - (-1 - {tight}) % {divisor}", f"{tight} % {divisor}")}[x.op]
        return f"weft::select({self._of(a, 7)} < 0, {below}, {above})", _TIGHT


def class_text(name: str, score: Optional[Value], mask: Optional[Value], use_softmax: bool) -> str:
    """A struct of the hooks that are there."""
    lines = [f"struct {name} {{"]
    if not use_softmax:
        lines.append("  static constexpr bool use_softmax = false;")
    for returns, hook, root in (("real", "logits_transform", score), ("bool", "logits_mask", mask)):
        if root is None:
            continue
        writer = Writer(root)
        arguments = "P p" if writer.uses("parameter", "load") else "P"
        arguments += ", Score c" if writer.uses("index") else ", Score"
        if hook == "logits_transform":
            arguments += ", real s" if writer.uses("score") else ", real"
        head = f"  {returns} {hook}({arguments}) {{"
        short = f"{head} {writer.lines[0]} }}"
        if len(writer.lines) == 1 and len(short) <= 120:
            lines.append(short)
        else:
            lines += [head, *(f"    {line}" for line in writer.lines), "  }"]
    return "\n".join([*lines, "};"]) + "\n"

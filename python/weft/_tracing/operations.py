"""What traced functions may call: functions and methods of torch and numpy by their names, on values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from .values import BOOL, INT, LONG, REAL, Graph, Number, StandIn, Value, refuse

_TYPE_NAMES = ("bool", "int32", "int64", "float32")


# ---------------------------------------------------------------- types and literals


def real(x: Value) -> Value:
    if x.kind == REAL:
        return x
    if x.is_literal:
        return x.graph.number(float(x.data))
    return x.graph.value("real", REAL, x)


def integer(x: Value) -> Value:
    """bool becomes int; others stay."""
    if x.kind != BOOL:
        return x
    return x.graph.number(int(x.data)) if x.is_literal else x.graph.value("int", INT, x)


def truth(x: Value) -> Value:
    if x.kind == BOOL:
        return x
    if x.is_literal:
        return x.graph.number(bool(x.data))
    return x.graph.value("ne", BOOL, x, x.graph.number(0.0 if x.kind == REAL else 0))


def known(x: Value, what: str) -> Number:
    """The number of a literal, or of a captured number, which the text then says as it is now."""
    if x.op == "parameter":
        x.data.literal = True
        number: Number = x.data.value
        return number
    if not x.is_literal:
        refuse(f"{what} is known only to kernels", f"give a number as {what}")
    literal: Number = x.data
    return literal


def _meet(*values: Value) -> tuple[list[Value], int]:
    """The same as integers or reals, all of one kind."""
    plain = [integer(x) for x in values]
    kind = max(x.kind for x in plain)
    return [real(x) for x in plain] if kind == REAL else plain, kind


# ---------------------------------------------------------------- arithmetic


def _arithmetic(op: str) -> Callable[[Value, Value], Value]:
    def make(a: Value, b: Value) -> Value:
        (a, b), kind = _meet(a, b)
        neutral = {"add": 0, "sub": 0, "mul": 1}[op]
        if b.is_literal and b.data == neutral:
            return a
        if op != "sub" and a.is_literal and a.data == neutral:
            return b
        return a.graph.value(op, kind, a, b)

    return make


add, subtract, multiply = _arithmetic("add"), _arithmetic("sub"), _arithmetic("mul")


def divide(a: Value, b: Value) -> Value:
    a, b = real(a), real(b)
    return a if b.is_literal and b.data == 1 else a.graph.value("div", REAL, a, b)


def _divisor(a: Value, b: Value, sign: str) -> int:
    if REAL in (a.kind, b.kind):
        refuse(f"{sign} of real numbers", "it is for integers: a variant's text has no rounding")
    divisor = int(known(integer(b), f"the divisor of {sign}"))
    if divisor < 1:
        refuse(f"{sign} by {divisor}", "divisors are 1 and more")
    return divisor


def floor_divide(a: Value, b: Value) -> Value:
    """Rounds down, as Python does."""
    divisor = _divisor(a, b, "//")
    a = integer(a)
    return a if divisor == 1 else a.graph.value("floordiv", a.kind, a, a.graph.number(divisor))


def remainder(a: Value, b: Value) -> Value:
    """Of the division that rounds down: never negative."""
    divisor = _divisor(a, b, "%")
    a = integer(a)
    return a.graph.value("mod", a.kind, a, a.graph.number(divisor))


def power(a: Value, b: Value) -> Value:
    graph = a.graph
    if b.op in ("number", "parameter") and b.kind != BOOL:
        exponent = known(b, "an exponent")
        if exponent == int(exponent) and 0 <= exponent <= 8:
            power_of = real(a) if b.kind == REAL else integer(a)
            made = graph.number(1.0 if power_of.kind == REAL else 1)
            for _ in range(int(exponent)):
                made = multiply(made, power_of)
            return made
        if exponent == 0.5:
            return graph.value("sqrt", REAL, real(a))
        if exponent == -0.5:
            return graph.value("rsqrt", REAL, real(a))
        if exponent == -1:
            return divide(graph.number(1.0), a)
        refuse(f"a power of {exponent}", "exponents are whole ones up to 8, 0.5, -0.5 and -1")
    base = float(known(a, "the base of a power"))
    if base <= 0:
        refuse(f"a power of the base {base}", "bases are above 0")
    return graph.value("exp2", REAL, real(b) if base == 2 else multiply(real(b), graph.number(math.log2(base))))


def negative(x: Value) -> Value:
    x = integer(x)
    return x.graph.number(-x.data) if x.is_literal else x.graph.value("neg", x.kind, x)


def absolute(x: Value) -> Value:
    x = integer(x)
    return x.graph.value("abs", x.kind, x)


def _extreme(op: str) -> Callable[[Value, Value], Value]:
    def make(a: Value, b: Value) -> Value:
        (a, b), kind = _meet(a, b)
        return a.graph.value(op, kind, a, b)

    return make


minimum, maximum = _extreme("min"), _extreme("max")


def clamp(x: Value, low: Optional[Value] = None, high: Optional[Value] = None) -> Value:
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


def _function(op: str) -> Callable[[Value], Value]:
    return lambda x: x.graph.value(op, REAL, real(x))


def softplus(x: Value) -> Value:
    """log(1 + exp(x)), without overflow."""
    x, graph = real(x), x.graph
    tail = add(graph.number(1.0), graph.value("exp", REAL, negative(absolute(x))))
    return add(maximum(x, graph.number(0.0)), graph.value("log", REAL, tail))


def sign(x: Value) -> Value:
    x = integer(x)
    zero = x.graph.number(0.0 if x.kind == REAL else 0)
    return subtract(_cast(compare("lt")(zero, x), x.kind), _cast(compare("lt")(x, zero), x.kind))


# ---------------------------------------------------------------- conditions


def compare(op: str, swapped: bool = False) -> Callable[[Value, Value], Value]:
    def make(a: Value, b: Value) -> Value:
        if not (a.kind == b.kind == BOOL and op in ("eq", "ne")):
            (a, b), _ = _meet(a, b)
        return a.graph.value(op, BOOL, *((b, a) if swapped else (a, b)))

    return make


def logical_not(x: Value) -> Value:
    x = truth(x)
    if x.is_literal:
        return x.graph.number(not x.data)
    return x.args[0] if x.op == "not" else x.graph.value("not", BOOL, x)


def _logical(op: str) -> Callable[[Value, Value], Value]:
    def make(a: Value, b: Value) -> Value:
        a, b = truth(a), truth(b)
        if op == "xor":
            return a.graph.value("ne", BOOL, a, b)
        for one, other in ((a, b), (b, a)):
            if one.is_literal:
                return other if one.data == (op == "and") else one
        return a if a is b else a.graph.value(op, BOOL, a, b)

    return make


logical_and, logical_or, logical_xor = _logical("and"), _logical("or"), _logical("xor")


def _bitwise(op: str) -> Callable[[Value, Value], Value]:
    logical = {"bitand": logical_and, "bitor": logical_or, "bitxor": logical_xor}.get(op)

    def make(a: Value, b: Value) -> Value:
        if a.kind == b.kind == BOOL and logical is not None:
            return logical(a, b)
        (a, b), kind = _meet(a, b)
        if kind == REAL:
            refuse("bits of a real number", "& | ^ << >> are for integers and conditions")
        if op in ("shl", "shr") and not 0 <= int(known(b, "the width of a shift")) < 32:
            refuse("a shift by less than 0 or more than 31 bits", "integers have 32")
        return a.graph.value(op, kind, a, b)

    return make


def invert(x: Value) -> Value:
    if x.kind == REAL:
        refuse("~ of a real number", "it is for conditions and integers")
    return logical_not(x) if x.kind == BOOL else x.graph.value("invert", x.kind, x)


def where(condition: Value, yes: Value, no: Value) -> Value:
    condition = truth(condition)
    if yes.kind == no.kind == BOOL:
        return logical_or(logical_and(condition, yes), logical_and(logical_not(condition), no))
    (yes, no), kind = _meet(yes, no)
    if condition.is_literal:
        return yes if condition.data else no
    return yes if yes is no else yes.graph.value("select", kind, condition, yes, no)


# ---------------------------------------------------------------- conversions


def _cast(x: Value, kind: int) -> Value:
    if kind == REAL:
        return real(x)
    if kind == BOOL:
        return truth(x)
    x = integer(x)
    if x.kind == kind:
        return x
    if x.is_literal:
        return x.graph.number(int(x.data))
    return x.graph.value("int" if kind == INT else "long", kind, x)


def _kind_of(dtype: Any) -> int:
    name = getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]
    kinds = {"bool": BOOL, "bool_": BOOL, "int": INT, "int32": INT, "int64": LONG, "long": LONG, "float": REAL,
             "float32": REAL, "float64": REAL, "double": REAL}
    if name not in kinds:
        refuse(f"a conversion to {name}", "there are bool, int32, int64 and float32, in which scores are computed")
    return kinds[name]


def to(x: Value, dtype: Any) -> Value:
    """Of torch's two forms of `to`, that with a device leaves a number as it is."""
    is_device = type(dtype).__name__ == "device" or str(dtype).partition(":")[0] in ("cpu", "cuda", "meta")
    return x if is_device else _cast(x, _kind_of(dtype))


def _filled(number: Optional[float]) -> Callable[..., Value]:
    """new_ones((), dtype=...) and kin: a single number."""

    def make(like: Value, *args: Any, **named: Any) -> Value:
        given = list(args)
        size = named.pop("size", given.pop(0) if given else ())
        fill = number if number is not None else named.pop("fill_value", given.pop(0) if given else 0)
        if tuple(size if isinstance(size, (tuple, list)) else (size,)) != ():
            refuse(f"an array of shape {size}", "there are single numbers: make arrays outside of the function")
        dtype = named.get("dtype")
        made = like.graph.of(fill)
        return to(made, dtype) if dtype is not None else _cast(made, like.kind)

    return make


def _filled_like(number: Optional[float]) -> Callable[..., Value]:
    def make(like: Value, *args: Any, **named: Any) -> Value:
        return _filled(number)(like, (), *args, **named)

    return make


# ---------------------------------------------------------------- by name


def _names(table: Mapping[str, Callable[..., Value]]) -> dict[str, Callable[..., Value]]:
    return {name: function for names, function in table.items() for name in names.split()}


def _same(x: Value) -> Value:
    return x


# Operands are values.
_OF_VALUES = _names({
    "add": add, "sub subtract": subtract, "rsub": lambda a, b: subtract(b, a), "mul multiply": multiply,
    "div divide true_divide": divide, "floor_divide": floor_divide, "remainder mod": remainder,
    "pow power float_power": power, "neg negative": negative, "positive": _same, "abs absolute fabs": absolute,
    "minimum fmin": minimum, "maximum fmax": maximum, "exp": _function("exp"), "exp2": _function("exp2"),
    "log": _function("log"), "log2": lambda x: multiply(_function("log")(x), x.graph.number(1 / math.log(2))),
    "tanh": _function("tanh"), "sigmoid special_expit expit": _function("sigmoid"), "sqrt": _function("sqrt"),
    "rsqrt": _function("rsqrt"), "sin": _function("sin"), "cos": _function("cos"), "square": lambda x: multiply(x, x),
    "reciprocal": lambda x: divide(x.graph.number(1.0), x),
    "relu": lambda x: maximum(x, x.graph.number(0.0 if x.kind == REAL else 0)), "sign sgn": sign,
    "less lt": compare("lt"), "less_equal le": compare("le"), "greater gt": compare("lt", swapped=True),
    "greater_equal ge": compare("le", swapped=True), "equal eq": compare("eq"), "not_equal ne": compare("ne"),
    "logical_and": logical_and, "logical_or": logical_or, "logical_xor": logical_xor, "logical_not": logical_not,
    "bitwise_and": _bitwise("bitand"), "bitwise_or": _bitwise("bitor"), "bitwise_xor": _bitwise("bitxor"),
    "left_shift bitwise_left_shift": _bitwise("shl"), "right_shift bitwise_right_shift": _bitwise("shr"),
    "invert bitwise_not": invert, "where": where,
    "float double": real, "long": lambda x: _cast(x, LONG), "int": lambda x: _cast(x, INT), "bool": truth,
    "softplus": softplus, "clone contiguous detach": _same,
})
# Others are as they were given.
_OF_ANYTHING = _names({
    "clamp": lambda x, min=None, max=None: clamp(x, _of(x, min), _of(x, max)),
    "clip": lambda x, a_min=None, a_max=None, min=None, max=None:
        clamp(x, _of(x, a_min if min is None else min), _of(x, a_max if max is None else max)),
    "to type astype": to, "new_ones": _filled(1), "new_zeros": _filled(0), "new_full": _filled(None),
    "ones_like": _filled_like(1), "zeros_like": _filled_like(0), "full_like": _filled_like(None),
})


def _of(like: Value, x: Any) -> Optional[Value]:
    return None if x is None else like.graph.of(x)


def is_known(name: str) -> bool:
    return _plain(name) in _OF_VALUES or _plain(name) in _OF_ANYTHING


def _plain(name: str) -> str:
    """torch.Tensor's operators have names as __and__, and take turns as __rand__ ."""
    return {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__rsub__": "rsub",
            "__rpow__": "rpow"}.get(name, name.strip("_") if name.startswith("__") else name)


def graph_of(*given: Any) -> Graph:
    """That of the first stand-in among the arguments of a call."""
    found = find(given)
    if found is None:
        raise TypeError("no stand-in among the arguments")
    return found.graph


def find(x: Any) -> Optional[StandIn]:
    if isinstance(x, StandIn):
        return x
    parts: Iterable[Any] = x.values() if isinstance(x, dict) else x if isinstance(x, (tuple, list)) else ()
    return next((found for found in map(find, parts) if found is not None), None)


def call(graph: Graph, name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Value:
    """What function `name` of torch or numpy gives. Raises Error(unsupported) for what a variant's text cannot say."""
    plain = _plain(name)
    if plain in _OF_ANYTHING:
        function, operands = _OF_ANYTHING[plain], [graph.of(args[0]), *args[1:]]
    elif plain in _OF_VALUES:
        function, operands = _OF_VALUES[plain], [graph.of(x) for x in args]
    else:
        refuse(f"the function {name}", "docs/variants.md lists what functions may call; compute the rest outside")
    if plain in _OF_VALUES:
        operands += [graph.of(x) for x in named.values()]
        named = {}
    try:
        inspect.signature(function).bind(*operands, **named)
    except TypeError as wrong:
        refuse(f"{name} is called with other arguments: {wrong}", "give the operands alone")
    return function(*operands, **named)

"""Python functions of FlexAttention's shape -> variants of attention."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, Optional, Union

from .. import _weft
from . import bounds
from .capture import Captures, name_of, torch_mode
from .operations import logical_and, logical_not
from .ranges import check_indices
from .text import class_text, reachable
from .values import BOOL, INT, INT_MAX, REAL, Captured, Graph, Parameter, StandIn, Value, error, refuse

# score_mod(score, b, h, q_idx, kv_idx) -> score; mask_mod(b, h, q_idx, kv_idx) -> whether the query sees the key.
ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]
MaskMod = Callable[[Any, Any, Any, Any], Any]
QueryIndex = Literal["position", "index"]


class Traced(_weft.Variant):
    """A variant made of Python functions. `captured`: the arrays that they read, which run takes as `tensors`.

    Captured numbers are scalars of the variant whose defaults are what they were: run and plan need not be given them.
    """

    captured: dict[str, Any]

    def __init__(self, arrays: list[Captured], loads: list[Value], **fields: Any) -> None:
        super().__init__(**fields)
        self.captured = {one.name: one.array for one in arrays}
        self._loads = loads

    def check(self, *, batch: int, num_qo_heads: int, qo_len: int, kv_len: int) -> None:
        """Raises Error(invalid_shape) where such a batch would read beyond a captured array.

        qo_len and kv_len are the longest of a request; queries stand at the end of the keys. Kernels read what they are
        told to, so this is for whoever does not know that the arrays are large enough.
        """
        check_indices(self._loads, {"b": (0, batch - 1), "h": (0, num_qo_heads - 1), "q_row": (0, qo_len - 1),
                                    "q_idx": (max(0, kv_len - qo_len), kv_len - 1), "kv_idx": (0, kv_len - 1)})


class Functions:
    """The values that traced functions give."""

    def __init__(self, score_mod: Optional[ScoreMod], mask_mod: Optional[MaskMod], q_idx: QueryIndex) -> None:
        if q_idx not in ("position", "index"):
            raise error(_weft.ErrorCode.invalid_argument, f"q_idx = {q_idx!r}; allowed are 'position' and 'index'")
        self.graph = Graph()
        captures = Captures(self.graph)
        indices = [self.graph.value("index", INT, data=name)
                   for name in ("b", "h", "q_idx" if q_idx == "position" else "q_row", "kv_idx")]
        self.score: Optional[Value] = None
        self.mask: Optional[Value] = None
        with torch_mode(captures) or contextlib.nullcontext():
            if score_mod is not None:
                score = self.graph.value("score", REAL)
                self.score = self._result(captures, "score_mod", score_mod, score, *indices)
            if mask_mod is not None:
                self.mask = self._result(captures, "mask_mod", mask_mod, *indices)

    def _result(self, captures: Captures, name: str, f: Callable[..., Any], *args: Value) -> Value:
        if not callable(f):
            raise TypeError(f"{name}: {type(f).__name__} is no function")
        try:
            inspect.signature(f).bind(*args)
        except TypeError as wrong:
            wanted = "score, b, h, q_idx, kv_idx" if name == "score_mod" else "b, h, q_idx, kv_idx"
            raise TypeError(f"{name}: is called as {name}({wanted}): {wrong}") from None
        except ValueError:  # of C, without a signature: the call itself says what it takes
            pass
        given = captures.rebound(f)(*args)
        if given is None:
            _refuse_result(name, f, "returns nothing", "it returns the new score, or a condition")
        made = self.graph.of(given)
        if name == "mask_mod" and made.kind != BOOL:
            _refuse_result(name, f, "returns a number", "a mask is a condition: return number != 0")
        if name == "score_mod" and made.kind == BOOL:
            _refuse_result(name, f, "returns a condition", "a score is a number: torch.where(condition, score, -inf)")
        return made if name == "mask_mod" or made.kind == REAL else self.graph.value("real", REAL, made)


def _refuse_result(name: str, f: Any, what: str, hint: str) -> None:
    code = getattr(f, "__code__", None)
    place = "" if code is None else f"{code.co_filename}:{code.co_firstlineno}: "
    raise error(_weft.ErrorCode.unsupported, f"{place}{name} {what}; {hint}")


def _without_hidden(score: Value, hidden: float) -> tuple[Value, list[Value]]:
    """Of where(condition, score, -inf): the score, and the condition, which is a mask."""
    conditions = []
    while score.op == "select":
        condition, yes, no = score.args
        if no.is_literal and no.data == hidden:
            conditions.append(condition)
            score = yes
        elif yes.is_literal and yes.data == hidden:
            conditions.append(logical_not(condition))
            score = no
        else:
            break
    return score, conditions


def _class_name(name: Optional[str], *functions: Any) -> str:
    names = [getattr(f, "__name__", type(f).__name__) for f in functions if f is not None]
    wanted = name or "".join("".join(part.capitalize() for part in re.split("[^A-Za-z0-9]+", one)) for one in names)
    return name_of("Traced" if name is None and "Lambda" in wanted else wanted, lambda made: not made[0].isalpha())


def trace(score_mod: Optional[ScoreMod] = None, mask_mod: Optional[MaskMod] = None, *, name: Optional[str] = None,
          use_softmax: bool = True, q_idx: QueryIndex = "position") -> Traced:
    """A variant of Python functions as FlexAttention takes them, which are called once, with stand-ins.

    score_mod(score, b, h, q_idx, kv_idx) -> score; `score` is already times sm_scale. mask_mod(b, h, q_idx, kv_idx) ->
    whether the query sees the key. They may use operators, functions and methods of torch and numpy, and whatever
    numbers and arrays they capture. What a mask says of kv_idx compared with q_idx and numbers becomes intervals, so
    that plans skip what nobody sees; the rest is a predicate. A text like one written by hand is `variant.text`.

    kv_idx is the key's position. q_idx is the query's position among the keys, kv_len - qo_len + its index: what
    FlexAttention's is where there are as many queries as keys; with q_idx="index" it counts the request's queries from
    0, and compared with keys it makes no intervals. b counts the batch's requests, h query heads. use_softmax=False:
    score_mod gives the weight of the value.

    Raises Error(unsupported | invalid_dtype | invalid_stride), which names file and line, for what cannot be said: a
    branch on what only kernels know, a loop over an array. What the functions raise comes out as it is.
    """
    if score_mod is None and mask_mod is None:
        raise error(_weft.ErrorCode.invalid_argument, "score_mod, mask_mod: both are None; give one of them")
    made = Functions(score_mod, mask_mod, q_idx)
    try:
        return _variant(made, _class_name(name, score_mod, mask_mod), use_softmax)
    except RecursionError:
        raise error(_weft.ErrorCode.unsupported,
                    "score_mod, mask_mod: hundreds of operations stand inside one another, more than Python's "
                    f"recursion limit of {sys.getrecursionlimit()} lets be written down; put numbers of the loop into an array, "
                    "and index it") from None


def _variant(made: Functions, title: str, use_softmax: bool) -> Traced:
    score, conditions = made.score, [made.mask] if made.mask is not None else []
    if score is not None:
        score, hidden = _without_hidden(score, float("-inf") if use_softmax else 0.0)
        conditions += hidden
        if score.op == "score" and use_softmax:
            score = None
    parts, left = _split(made.graph, conditions)
    values = list(reachable([x for x in (score, left) if x is not None]))
    parameters = [x.data for x in values if x.op == "parameter"] + bounds.scalars_of(parts)
    arrays = [x.data for x in values if x.op == "load"]
    has_text = score is not None or left is not None or not use_softmax
    return Traced(
        _once(arrays), [x for x in values if x.op == "load"], name=title if has_text else "",
        text=class_text(title, score, left, use_softmax) if has_text else "",
        scalars=[_scalar(x) for x in _once(parameters) if not x.literal],
        tensors=[_weft.TensorDecl(x.name, x.view.dtype, len(x.view.shape)) for x in _once(arrays)],
        intervals=bounds.intervals_of(parts), use_softmax=use_softmax)


def _split(graph: Graph, conditions: list[Value]) -> tuple[bounds.Parts, Optional[Value]]:
    whole = graph.number(True)
    for condition in conditions:
        whole = logical_and(whole, condition)
    parts, left = bounds.split(whole)
    bounds.prepare(parts)
    predicate: Optional[Value] = None
    for term in left:
        predicate = term if predicate is None else logical_and(predicate, term)
    return parts, predicate


def _once(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _scalar(x: Parameter) -> _weft.ScalarDecl:
    kind = _weft.ScalarKind.real if isinstance(x.value, float) else _weft.ScalarKind.integer
    return _weft.ScalarDecl(x.name, kind, float(x.value))


# ---------------------------------------------------------------- shown


def show(variant: Union[_weft.Variant, ScoreMod, MaskMod]) -> str:
    """The text of a variant, below what it declares and which keys a row sees; of functions, what trace makes of them.

    A function of five parameters is a score_mod, one of four a mask_mod.
    """
    if not isinstance(variant, _weft.Variant):
        is_score = len(inspect.signature(variant).parameters) == 5
        variant = trace(variant if is_score else None, None if is_score else variant)  # type: ignore[arg-type]
    lines = []
    for scalar in variant.scalars:
        default = "" if scalar.default_value is None else f" = {_shown(scalar)}"
        lines.append(f"// {scalar.kind.name} {scalar.name}{default}")
    lines += [f"// {tensor.dtype.name} {tensor.name} of rank {tensor.rank}" for tensor in variant.tensors]
    lines += [f"// keys [{_side('max', interval.lower, '0')}, {_side('min', interval.upper, 'kv_len')})"
              for interval in variant.intervals]
    return "\n".join([*lines, variant.text])


def _shown(scalar: _weft.ScalarDecl) -> str:
    value = scalar.default_value or 0.0
    return f"{int(value)}" if scalar.kind == _weft.ScalarKind.integer else f"{value!r}"


def _side(most: str, limits: tuple[_weft.Bound, ...], otherwise: str) -> str:
    shown = []
    for limit in limits:
        parts = [("+", "q_pos")] * limit.q_pos + [("+", "kv_len")] * limit.kv_len
        if limit.scalar:
            parts.append(("+" if limit.scalar_sign > 0 else "-", limit.scalar))
        if limit.constant or not parts:
            parts.append(("+" if limit.constant >= 0 else "-", str(abs(limit.constant))))
        text = " ".join(f"{sign} {part}" for sign, part in parts)
        shown.append(text[2:] if text.startswith("+ ") else text.replace("- ", "-", 1))
    return shown[0] if len(shown) == 1 else f"{most}({', '.join(shown)})" if shown else otherwise

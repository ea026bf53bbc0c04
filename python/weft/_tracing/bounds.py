"""Conditions that are affine in positions, as intervals of key positions that a row sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from .. import _weft
from .values import BOOL, INT, INT_MAX, REAL, Number, Parameter, Value

MAX_INTERVALS = 2
_MAX_BOUNDS = 6      # of an interval on one side
_MAX_PARTS = 16      # of a condition while it is looked at
_MAX_SCALAR = 2**30  # a larger one is a number of the bound


class Affine(NamedTuple):
    """kv * kv_idx + q * q_idx + constant + the sum of parameters times their factors."""

    kv: int = 0
    q: int = 0
    constant: int = 0
    parameters: Mapping[Parameter, int] = {}

    def plus(self, other: Affine, times: int) -> Affine:
        parameters = dict(self.parameters)
        for parameter, factor in other.parameters.items():
            parameters[parameter] = parameters.get(parameter, 0) + times * factor
        return Affine(self.kv + times * other.kv, self.q + times * other.q, self.constant + times * other.constant,
                      parameters)


class Limit(NamedTuple):
    """Key positions are at least (lower) or below (upper) what the bound says."""

    is_lower: bool
    q: int
    constant: int
    parameters: tuple[tuple[Parameter, int], ...]


# Any of some lists of limits, of which all hold; [[]] is always true.
Parts = list[list[Limit]]


def _is_whole(x: Number) -> bool:
    return abs(x) <= INT_MAX and x == int(x)  # infinities are no int


def affine(x: Value) -> Optional[Affine]:
    """None for what is not affine in the positions of query and key."""
    if x.kind not in (BOOL, INT, REAL):
        return None
    if x.op == "number":
        return Affine(constant=int(x.data)) if _is_whole(x.data) else None
    if x.op == "real":
        return affine(x.args[0])
    if x.op == "parameter":
        value = x.data.value
        if not _is_whole(value):
            return None
        return Affine(parameters={x.data: 1}) if isinstance(value, int) else Affine(constant=int(value))
    if x.op == "index":
        return {"kv_idx": Affine(kv=1), "q_idx": Affine(q=1)}.get(x.data)
    if x.op not in ("add", "sub", "neg", "mul"):
        return None
    parts = [affine(one) for one in x.args]
    if any(part is None for part in parts):
        return None
    first = parts[0] or Affine()
    if x.op == "neg":
        return Affine().plus(first, -1)
    second = parts[1] or Affine()
    if x.op != "mul":
        return first.plus(second, 1 if x.op == "add" else -1)
    for number, other in ((first, second), (second, first)):
        if number.kv == number.q == 0 and not number.parameters:
            return Affine().plus(other, number.constant)
    return None


def _at_least(difference: Affine, least: int) -> Optional[Limit]:
    """difference >= least, as a limit of key positions."""
    side = difference.kv  # of the inequality that key positions stand on
    if side not in (1, -1) or -side * difference.q not in (0, 1):
        return None
    parameters = tuple((p, -side * factor) for p, factor in difference.parameters.items() if factor)
    constant = side * (least - difference.constant)
    return Limit(side == 1, -side * difference.q, constant if side == 1 else constant + 1, parameters)


def _of_limits(*alternatives: Iterable[Optional[Limit]]) -> Optional[Parts]:
    parts: Parts = []
    for limits in alternatives:
        known = [limit for limit in limits if limit is not None]
        if len(known) != len(list(limits)):
            return None
        parts.append(known)
    return parts


def _compared(op: str, a: Value, b: Value, negated: bool) -> Optional[Parts]:
    """a < b and kin."""
    if op in ("lt", "le"):
        for x, other, outside in ((a, b, False), (b, a, True)):  # |x| <= c is -c <= x <= c
            if x.op == "abs":
                positive, negative = x.args[0], x.graph.value("neg", x.kind, x.args[0])
                sides = [_compared(op, *((other, one) if outside else (one, other)), negated)
                         for one in (positive, negative)]
                first, second = sides
                if first is None or second is None:
                    return None
                return first + second if outside != negated else _both(first, second)
    left, right = affine(a), affine(b)
    if left is None or right is None:
        return None
    difference, opposite = right.plus(left, -1), left.plus(right, -1)
    if op in ("lt", "le"):  # a < b: b - a >= 1; else: a - b >= 0
        strict = 1 if op == "lt" else 0
        return _of_limits([_at_least(opposite, 1 - strict) if negated else _at_least(difference, strict)])
    if (op == "eq") != negated:
        return _of_limits([_at_least(difference, 0), _at_least(opposite, 0)])
    return _of_limits([_at_least(difference, 1)], [_at_least(opposite, 1)])


def _both(a: Parts, b: Parts) -> Parts:
    return [x + [limit for limit in y if limit not in x] for x in a for y in b]


def parts_of(x: Value, negated: bool = False) -> tuple[Parts, bool]:
    """What the condition says of key positions: a part of it, which is all of it where True is returned, too."""
    unknown: tuple[Parts, bool] = ([[]], False)
    if x.op == "not":
        return parts_of(x.args[0], not negated)
    if x.op == "number":
        return ([[]] if x.data != negated else []), True
    if x.op in ("and", "or"):
        (a, a_exact), (b, b_exact) = (parts_of(one, negated) for one in x.args)
        made = _both(a, b) if (x.op == "and") != negated else a + [part for part in b if part not in a]
        if any(not part for part in made):
            made = [[]]
        return (made, a_exact and b_exact) if len(made) <= _MAX_PARTS else unknown
    if x.op in ("lt", "le", "eq", "ne") and x.args[0].kind != BOOL:
        # Without a NaN, which only real numbers have, the opposite of a < b is a >= b.
        found = _compared(x.op, x.args[0], x.args[1], negated)
        if found is not None:
            return found, True
    return unknown


def terms_of(x: Value) -> list[Value]:
    """Conditions that all hold where x does."""
    return terms_of(x.args[0]) + terms_of(x.args[1]) if x.op == "and" else [x]


def split(condition: Value) -> tuple[Parts, list[Value]]:
    """(what is said by intervals, at most two; what is left for a predicate)."""
    seen: Parts = [[]]
    left: list[Value] = []
    found = [(term, *parts_of(term)) for term in terms_of(condition)]
    for term, parts, exact in sorted(found, key=lambda one: not one[2]):  # sorted() keeps the order of equals
        joined = _both(seen, parts)
        if 0 < len(joined) <= MAX_INTERVALS and all(_fits(part) for part in joined):
            seen = joined
        else:
            exact = False
        if not exact:
            left.append(term)
    return seen, left


def _fits(limits: list[Limit]) -> bool:
    lower = sum(limit.is_lower for limit in limits)
    return max(lower, len(limits) - lower) <= _MAX_BOUNDS


def intervals_of(parts: Parts) -> list[_weft.Interval]:
    if any(not part for part in parts):
        return []
    return [_weft.Interval(lower=[_bound(limit) for limit in part if limit.is_lower],
                           upper=[_bound(limit) for limit in part if not limit.is_lower]) for part in parts]


def prepare(parts: Parts) -> None:
    """Numbers that a bound cannot name become literals: a bound adds or subtracts one, and -1 would switch it off."""
    for limit in (limit for part in parts for limit in part):
        for parameter, factor in limit.parameters:
            if len(limit.parameters) > 1 or abs(factor) != 1 or parameter.value == -1 or \
                    abs(parameter.value) > _MAX_SCALAR:
                parameter.literal = True


def _bound(limit: Limit) -> _weft.Bound:
    constant = limit.constant + sum(int(p.value) * factor for p, factor in limit.parameters if p.literal)
    scalar = next(((p, factor) for p, factor in limit.parameters if not p.literal), None)
    constant = max(-INT_MAX, min(constant, INT_MAX))
    if scalar is None:
        return _weft.Bound(q_pos=limit.q == 1, constant=constant)
    return _weft.Bound(q_pos=limit.q == 1, constant=constant, scalar=scalar[0].name, scalar_sign=scalar[1])


def scalars_of(parts: Parts) -> list[Parameter]:
    return [p for part in parts for limit in part for p, _ in limit.parameters if not p.literal]

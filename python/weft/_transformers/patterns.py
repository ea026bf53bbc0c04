"""What queries see by position, traced, and the kernels and plans for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor

from .. import _weft
from .._tracing.trace import QueryIndex, trace
from .._tracing.values import error

_DTYPES = {torch.float32: _weft.DType.fp32, torch.float16: _weft.DType.fp16, torch.bfloat16: _weft.DType.bf16}


def unsupported(text: str) -> NoReturn:
    raise error(_weft.ErrorCode.unsupported, text)


class _Kernel:
    """A compiled kernel and the plan that it ran last, which layers of one step share."""

    def __init__(self, spec: _weft.AttentionSpec, device: str) -> None:
        self.kernel = _weft.build(spec, device)
        self._lengths: Any = None
        self._plan: Optional[_weft.Plan] = None

    def plan(self, lengths: tuple[Any, ...], make: Callable[[], _weft.PlanInput], num_workers: int) -> _weft.Plan:
        """That of a step: brought up to date where the one before covers it. `lengths` says what `make` makes it of."""
        lengths = num_workers, *lengths
        if self._plan is not None and lengths == self._lengths:
            return self._plan
        given = make().replace(num_workers=num_workers)
        if self._plan is not None and self._plan.covers(given):
            self._plan.update(given)
        else:
            self._plan = self.kernel.plan(given)
        self._lengths = lengths
        return self._plan


class Pattern:
    """Which keys queries see by position, whatever the lengths, and the kernels for it.

    mask_mod and add, a number for each score, are traced; `examples` stand for arrays that each step brings.
    """

    def __init__(self, mask_mod: Optional[Callable[..., Any]] = None, add: Optional[Callable[..., Any]] = None,
                 q_idx: QueryIndex = "position", examples: Sequence[Tensor] = ()) -> None:
        self._mask_mod, self._add, self._q_idx, self._examples = mask_mod, add, q_idx, examples
        self._kernels: dict[tuple[Any, ...], _Kernel] = {}
        self.plain, self.arrays = self._variant(None)

    @property
    def is_causal(self) -> bool:
        """Whether intervals say that no query sees a key behind its own position."""
        return bool(self.plain.intervals) and all(
            any(limit.q_pos and not limit.scalar and limit.constant <= 1 for limit in interval.upper)
            for interval in self.plain.intervals)

    def _variant(self, softcap: Optional[float]) -> tuple[_weft.Variant, dict[str, Tensor]]:
        if softcap is None and self._add is None and self._mask_mod is None:
            return _weft.Variant(), {}
        add = self._add

        def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            if softcap is not None:
                score = softcap * torch.tanh(score / softcap)
            return score if add is None else score + add(b, h, q_idx, kv_idx)

        made = trace(score_mod, self._mask_mod, name="Transformers", q_idx=self._q_idx)
        return made, {name: x for name, x in made.captured.items() if not any(x is one for one in self._examples)}

    def kernel(self, query: Tensor, key: Tensor, value: Tensor, softcap: Optional[float], has_sinks: bool,
               form: _weft.KvForm, layout: _weft.Layout) -> _Kernel:
        where = (query.dtype, query.shape[-1], value.shape[-1], query.device, softcap, has_sinks, form)
        found = self._kernels.get(where)
        if found is None:
            if query.dtype not in _DTYPES or not query.dtype == key.dtype == value.dtype:
                unsupported(f"query {query.dtype}, key {key.dtype}, value {value.dtype}: supported are float32, "
                             "float16 and bfloat16, all the same")
            variant = self.plain if softcap is None else self._variant(softcap)[0]
            dtype = _DTYPES[query.dtype]
            spec = _weft.AttentionSpec(
                q_dtype=dtype, kv_dtype=dtype, o_dtype=dtype, head_dim_qk=query.shape[-1], head_dim_vo=value.shape[-1],
                kv_form=form, layout=layout, variant=_with_sinks(variant) if has_sinks else variant)
            found = self._kernels[where] = _Kernel(spec, str(query.device))
        return found


def _with_sinks(variant: _weft.Variant) -> _weft.Variant:
    """The variant with attention_sink's hooks: its class derives from that one."""
    sinks = _weft.variants.attention_sink()
    name, text = sinks.name, sinks.text
    if variant.text:
        name, text = variant.name, text + variant.text.replace(f"struct {variant.name} {{",
                                                               f"struct {variant.name} : {sinks.name} {{", 1)
    return variant.replace(name=name, text=text, tensors=[*variant.tensors, *sinks.tensors])


# ---------------------------------------------------------------- the patterns that masks have most


@functools.lru_cache(maxsize=64)
def causal_pattern(window: Optional[int]) -> Pattern:
    if window is None:
        return Pattern(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx)
    return Pattern(lambda b, h, q_idx, kv_idx: (kv_idx <= q_idx) & (kv_idx > q_idx - window))


@functools.lru_cache(maxsize=1)
def full_pattern() -> Pattern:
    return Pattern()


@functools.lru_cache(maxsize=4)
def dense_pattern(is_bool: bool, per_head: bool) -> Pattern:
    """An array `dense` [batch, 1 or heads, queries, keys]: whether a key is seen, or what its score is more."""
    dense = torch.zeros((1, 1, 1, 1), dtype=torch.bool if is_bool else torch.float32)

    def element(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return dense[b, h if per_head else 0, q_idx, kv_idx]

    return Pattern(element if is_bool else None, None if is_bool else element, "index", [dense])

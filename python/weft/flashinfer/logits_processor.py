"""Pipes from logits to tokens: flashinfer.logits_processor.

    pipe = LogitsPipe([Temperature(), Softmax(), TopP(), Sample()])
    ids = pipe(logits, temperature=0.8, top_p=0.9)

A processor becomes operators once the type of what comes in is known. compile joins neighbours that the functions of
flashinfer.sampling compute in one call; what a pipe computes stays the same, but for TopK(joint_topk_topp=True).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor

from . import sampling
from ._common import Invalid


class TensorType(enum.Enum):
    """What the numbers of a tensor mean."""

    LOGITS = 1
    PROBS = 2
    INDICES = 3

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class TaggedTensor:
    """A tensor and what its numbers mean."""

    data: Tensor
    type: TensorType

    @staticmethod
    def logits(t: Tensor) -> TaggedTensor:
        return TaggedTensor(t, TensorType.LOGITS)

    @staticmethod
    def probs(t: Tensor) -> TaggedTensor:
        return TaggedTensor(t, TensorType.PROBS)

    @staticmethod
    def indices(t: Tensor) -> TaggedTensor:
        return TaggedTensor(t, TensorType.INDICES)

    @property
    def shape(self) -> torch.Size:
        return self.data.shape

    @property
    def device(self) -> torch.device:
        return self.data.device

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype


class LegalizationError(ValueError):
    """A processor that cannot take what comes in."""


class CompileError(ValueError):
    """Operators that do not fit behind one another."""


# ---------------------------------------------------------------- operators


class Op:
    """A step of a pipe, from IN to OUT. Parameters are those of the call, or those that the processor was made with."""

    IN: TensorType
    OUT: TensorType

    def __init__(self, **params: Any) -> None:
        self.params = params

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        if tensor.type != self.IN:
            raise ValueError(f"{type(self).__name__} takes {self.IN}, got {tensor.type}")
        return TaggedTensor(self.apply(tensor.data, {**self.params, **kwargs}), self.OUT)

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        raise NotImplementedError


ParameterizedOp = Op
_SAMPLE_OPTIONS = ("indices", "deterministic", "generator", "check_nan", "seed", "offset")


def _needed(given: dict[str, Any], name: str, allowed: str, fits: Callable[[Any], bool]) -> Any:
    if given.get(name) is None:
        raise ValueError(f"{name} is missing; give it to the call of the pipe")
    value = given[name]
    if not isinstance(value, Tensor) and (isinstance(value, bool) or not fits(value)):
        raise ValueError(f"{name} = {value!r}; {name} must be {allowed} or a tensor array")
    return value


def _temperature(given: dict[str, Any]) -> Any:
    return _needed(given, "temperature", "a positive float", lambda x: isinstance(x, float) and x > 0)


def _top_k(given: dict[str, Any]) -> Any:
    return _needed(given, "top_k", "a positive integer", lambda x: isinstance(x, int) and x > 0)


def _share(given: dict[str, Any], name: str) -> Any:
    return _needed(given, name, "a number in (0, 1]", lambda x: isinstance(x, (float, int)) and 0 < x <= 1)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in _SAMPLE_OPTIONS if name in given}


class TemperatureOp(Op):
    IN = OUT = TensorType.LOGITS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        by = _temperature(given)
        return x / (sampling._per_row("temperature", by, x.shape[0], x.device, torch.float32) if isinstance(by, Tensor)
                    else by)


class SoftmaxOp(Op):
    IN, OUT = TensorType.LOGITS, TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        return sampling.softmax(x)


class FusedTemperatureSoftmaxOp(Op):
    IN, OUT = TensorType.LOGITS, TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        return sampling.softmax(x, _temperature(given))


class LogitsTopKOp(Op):
    IN = OUT = TensorType.LOGITS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        return sampling.top_k_mask_logits(x, _top_k(given))


class ProbsTopKOp(Op):
    IN = OUT = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        return sampling.top_k_renorm_probs(x, _top_k(given))


class TopPOp(Op):
    IN = OUT = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        return sampling.top_p_renorm_probs(x, _share(given, "top_p"))


class MinPOp(Op):
    IN = OUT = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Tensor:
        return sampling._min_p_renorm_probs(x, _share(given, "min_p"))


class _SampleOp(Op):
    OUT = TensorType.INDICES


class LogitsSampleOp(_SampleOp):
    IN = TensorType.LOGITS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Any:
        return sampling.sampling_from_logits(x, **_options(given))


class ProbsSampleOp(_SampleOp):
    IN = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Any:
        return sampling.sampling_from_probs(x, **_options(given))


class FusedProbsTopKSampleOp(_SampleOp):
    IN = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Any:
        return sampling.top_k_sampling_from_probs(x, _top_k(given), **_options(given))


class FusedProbsTopPSampleOp(_SampleOp):
    IN = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Any:
        return sampling.top_p_sampling_from_probs(x, _share(given, "top_p"), **_options(given))


class FusedProbsMinPSampleOp(_SampleOp):
    IN = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Any:
        return sampling.min_p_sampling_from_probs(x, _share(given, "min_p"), **_options(given))


class FusedProbsTopKTopPSampleOp(_SampleOp):
    """Both filters on the given distribution: TopK does not change what TopP sees."""

    IN = TensorType.PROBS

    def apply(self, x: Tensor, given: dict[str, Any]) -> Any:
        return sampling.top_k_top_p_sampling_from_probs(x, _top_k(given), _share(given, "top_p"),
                                                        filter_apply_order="joint", **_options(given))


# ---------------------------------------------------------------- processors


class LogitsProcessor:
    """What a pipe is made of. legalize says by which operators it is done on `input_type`, or raises ValueError."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    def legalize(self, input_type: TensorType) -> list[Op]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.params.items())})"


class _Processor(LogitsProcessor):
    _OPS: dict[TensorType, type[Op]] = {}

    def legalize(self, input_type: TensorType) -> list[Op]:
        if input_type not in self._OPS:
            raise ValueError(f"{type(self).__name__} can only be applied to {', '.join(map(str, self._OPS))}, got "
                             f"{input_type}")
        return [self._OPS[input_type](**self.params)]


class Temperature(_Processor):
    """logits / temperature: a number above 0, or one a row."""

    _OPS = {TensorType.LOGITS: TemperatureOp}


class Softmax(_Processor):
    """Logits become probabilities, float32."""

    _OPS = {TensorType.LOGITS: SoftmaxOp}

    def __init__(self, enable_pdl: Optional[bool] = None, **params: Any) -> None:
        super().__init__(enable_pdl=enable_pdl, **params)


class TopK(_Processor):
    """Logits below the top_k-th become -inf; probabilities below it 0, and the others' sum 1.

    joint_topk_topp: before TopP and Sample, both filters see the distribution that comes in.
    """

    _OPS = {TensorType.LOGITS: LogitsTopKOp, TensorType.PROBS: ProbsTopKOp}

    def __init__(self, joint_topk_topp: bool = False, **params: Any) -> None:
        super().__init__(joint_topk_topp=joint_topk_topp, **params)


class TopP(_Processor):
    """Probabilities behind a mass of top_p become 0, and the others' sum 1."""

    _OPS = {TensorType.PROBS: TopPOp}


class MinP(_Processor):
    """Probabilities below min_p times the largest become 0, and the others' sum 1."""

    _OPS = {TensorType.PROBS: MinPOp}


class Sample(_Processor):
    """A token of each row; the call takes indices, generator, check_nan, seed, offset as sampling_from_probs does."""

    _OPS = {TensorType.LOGITS: LogitsSampleOp, TensorType.PROBS: ProbsSampleOp}

    def __init__(self, deterministic: bool = True, **params: Any) -> None:
        super().__init__(deterministic=deterministic, **params)


def _legalize(processors: Sequence[LogitsProcessor], current: TensorType) -> list[Op]:
    ops: list[Op] = []
    for i, processor in enumerate(processors):
        try:
            made = processor.legalize(current)
        except Exception as error:
            raise LegalizationError(
                f"Failed to legalize processor {i} ({type(processor).__name__}): {error}") from error
        if not made:
            raise LegalizationError(f"Processor {type(processor).__name__} produced no ops")
        ops += made
        current = made[-1].OUT
    return ops


def _initial_type(first: LogitsProcessor) -> TensorType:
    fits = []
    for kind in (TensorType.LOGITS, TensorType.PROBS):
        try:
            first.legalize(kind)
            fits.append(kind)
        except ValueError:
            continue
    if len(fits) != 1:
        what = "can accept both LOGITS and PROBS" if fits else "accepts neither LOGITS nor PROBS"
        raise LegalizationError(f"Cannot infer input type: {type(first).__name__} {what}. Give input_type to the "
                                "LogitsPipe")
    return fits[0]


# ---------------------------------------------------------------- compilation


class FusionRule(NamedTuple):
    """Operators of the types `pattern`, one behind the other, become build(them) where guard(them) is true; rules of
    higher prio come first, and of those the longest pattern."""

    pattern: tuple[type, ...]
    guard: Callable[[list[Op]], bool]
    build: Callable[[list[Op]], Op]
    prio: int = 0


def _joined(pattern: tuple[type, ...], fused: type[Op], guard: Callable[[list[Op]], bool] = bool) -> FusionRule:
    def build(window: list[Op]) -> Op:
        return fused(**{name: value for op in window for name, value in op.params.items()})
    return FusionRule(pattern, guard, build)


_RULES = [
    _joined((TemperatureOp, SoftmaxOp), FusedTemperatureSoftmaxOp),
    _joined((ProbsTopKOp, TopPOp, ProbsSampleOp), FusedProbsTopKTopPSampleOp,
            lambda window: bool(window[0].params.get("joint_topk_topp"))),
    _joined((ProbsTopKOp, ProbsSampleOp), FusedProbsTopKSampleOp),
    _joined((TopPOp, ProbsSampleOp), FusedProbsTopPSampleOp),
    _joined((MinPOp, ProbsSampleOp), FusedProbsMinPSampleOp),
]


def _check(ops: list[Op]) -> None:
    if sum(isinstance(op, SoftmaxOp) for op in ops) > 1:
        raise CompileError("Multiple Softmax operators found. Only one Softmax is allowed per pipeline.")
    for before, after in zip(ops, ops[1:]):
        if before.OUT == TensorType.INDICES:
            raise CompileError(f"No operator may follow one that outputs Indices. Found {type(after).__name__} after "
                               f"{type(before).__name__}")
        if before.OUT != after.IN:
            raise CompileError(f"{type(after).__name__} takes {after.IN}; {type(before).__name__} gives {before.OUT}")


def _fused(ops: list[Op], rules: Sequence[FusionRule]) -> list[Op]:
    ordered = sorted(rules, key=lambda rule: (-rule.prio, -len(rule.pattern)))
    made, at = [], 0
    while at < len(ops):
        for rule in ordered:
            window = ops[at:at + len(rule.pattern)]
            if tuple(map(type, window)) == rule.pattern and rule.guard(window):
                made.append(rule.build(window))
                at += len(window)
                break
        else:
            made.append(ops[at])
            at += 1
    return made


class LogitsPipe:
    """Processors, one behind the other. input_type: what comes in, where the first one takes logits and probs."""

    def __init__(self, processors: Sequence[LogitsProcessor], compile: bool = True,
                 input_type: Optional[TensorType] = None, custom_fusion_rules: Optional[Sequence[FusionRule]] = None,
                 custom_validity_checks: Optional[Sequence[Callable[[list[Op]], None]]] = None) -> None:
        if not processors:
            raise Invalid("processors: Pipeline cannot be empty")
        self.processors = list(processors)
        self.compiled_ops: Optional[list[Op]] = None
        try:
            self._initial_type = input_type or _initial_type(self.processors[0])
            self.ops = _legalize(self.processors, self._initial_type)
            if compile:
                self.compile(custom_fusion_rules, custom_validity_checks)
        except (LegalizationError, CompileError) as error:
            raise Invalid(f"Pipeline creation failed: {error}") from error

    @property
    def initial_type(self) -> TensorType:
        return self._initial_type

    def compile(self, custom_fusion_rules: Optional[Sequence[FusionRule]] = None,
                custom_validity_checks: Optional[Sequence[Callable[[list[Op]], None]]] = None) -> None:
        """Joins neighbours, by rules of the caller's as well; checks raise CompileError."""
        for check in (_check, *(custom_validity_checks or ())):
            check(self.ops)
        self.compiled_ops = _fused(self.ops, [*_RULES, *(custom_fusion_rules or ())])

    def __call__(self, x: Union[Tensor, TaggedTensor], **kwargs: Any) -> Tensor:
        """x [rows, vocab] through the pipe; kwargs: what its operators take."""
        tensor = x if isinstance(x, TaggedTensor) else TaggedTensor(x, self._initial_type)
        for i, op in enumerate(self.ops if self.compiled_ops is None else self.compiled_ops):
            try:
                tensor = op(tensor, **kwargs)
            except Exception as error:
                raise Invalid(f"Error executing operator {i} ({type(op).__name__}): {error}") from error
        return tensor.data

    def __repr__(self) -> str:
        def chain(parts: Sequence[object]) -> str:
            return " -> ".join(type(part).__name__ for part in parts)
        return (f"LogitsPipe([{chain(self.processors)}], ops=[{chain(self.ops)}], "
                f"compiled_ops=[{chain(self.compiled_ops or [])}])")

"""The CPU in place of a card: calls of torch's that name "cuda" are answered by the CPU.

Tensors, generators, streams, events, the questions of torch.cuda, and CUDA graphs, which here are the calls that were
made while one was captured. What a case is too large for, in bytes or operations, is skipped before it begins.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Iterator
from typing import Any, Callable, Optional

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")
_FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint}
_IS_CUDA = Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_PRODUCTS = {torch.matmul, torch.bmm, torch.mm, Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.mm}


class Limits:
    """Above these a case is cut: bytes of one tensor, operations of one call."""

    def __init__(self, max_bytes: int, max_operations: float) -> None:
        self.max_bytes, self.max_operations = max_bytes, max_operations

    def check_bytes(self, count: int) -> None:
        if count > self.max_bytes:
            pytest.skip(f"cut: a tensor of {count:,} bytes; --max-bytes is {self.max_bytes:,}")

    def check_operations(self, count: float) -> None:
        if count > self.max_operations:
            pytest.skip(f"cut: a call of {count:.1e} operations; --max-operations is {self.max_operations:.1e}")


def _is_card(x: Any) -> bool:
    return isinstance(x, torch.device) and x.type == "cuda" or isinstance(x, str) and x.split(":")[0] == "cuda"


def _size_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Elements of a factory's tensor."""
    shape = kwargs.get("size", args)
    sizes = [x for x in args if isinstance(x, (tuple, list, torch.Size))]
    if sizes and "size" not in kwargs:
        shape = sizes[0]
    return math.prod(int(x) for x in shape if isinstance(x, int)) if isinstance(shape, (tuple, list)) else 0


def _einsum_operations(equation: Any, operands: tuple[Any, ...]) -> float:
    if not isinstance(equation, str) or "." in equation:
        return 0
    extents: dict[str, int] = {}
    for letters, x in zip(equation.replace(" ", "").split("->")[0].split(","), operands):
        if isinstance(x, Tensor) and len(letters) == x.dim():
            extents.update(zip(letters, x.shape))
    return 2.0 * math.prod(extents.values())


class Capture:
    """The calls made while a graph is captured; replay() makes them again and puts their results where the first ones
    went."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []
        self.inside = False

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.inside:
            return function(*args, **kwargs)
        self.inside = True
        try:
            made = function(*args, **kwargs)
        finally:
            self.inside = False
        self.calls.append((function, args, kwargs, made))
        return made

    def replay(self) -> None:
        for function, args, kwargs, before in self.calls:
            _overwrite(before, function(*args, **kwargs))


def _overwrite(before: Any, made: Any) -> None:
    if isinstance(before, Tensor) and isinstance(made, Tensor):
        if before.data_ptr() != made.data_ptr():
            before.copy_(made)
    elif isinstance(before, (tuple, list)):
        for old, new in zip(before, made):
            _overwrite(old, new)


class Mode(TorchFunctionMode):
    """Devices that calls name become the CPU; large calls are cut; calls of a captured graph are kept."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.capture: Optional[Capture] = None

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "__get__" and function == _IS_CUDA:
            return True
        if name in ("cuda", "pin_memory"):
            return args[0]
        kwargs.pop("pin_memory", None)
        if "device" in kwargs and (_is_card(kwargs["device"]) or isinstance(kwargs["device"], int)):
            kwargs["device"] = _CPU
        if any(_is_card(x) for x in args):
            args = tuple(_CPU if _is_card(x) else x for x in args)
        if name == "to" and len(args) > 1 and isinstance(args[1], int):
            args = (args[0], _CPU, *args[2:])
        self._check_size(function, name, args, kwargs)
        if self.capture is not None and name not in ("__get__", "__set__"):
            return self.capture.call(function, args, kwargs)
        return function(*args, **kwargs)

    def _check_size(self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if function in _FACTORIES:
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            if function == torch.empty and dtype == torch.uint8:
                return  # a workspace: Weft leaves it untouched, and the system gives it no memory
            self.limits.check_bytes(_size_of(args, kwargs) * getattr(dtype, "itemsize", 8))  # 8: a type of Python's
        elif name == "einsum":
            self.limits.check_operations(_einsum_operations(args[0], args[1:]))
        elif function in _PRODUCTS and all(isinstance(x, Tensor) and x.dim() > 1 for x in args[:2]):
            a, b = args[:2]
            self.limits.check_operations(2.0 * max(a.numel() * b.shape[-1], b.numel() * a.shape[-2]))


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> torch.Generator:  # type: ignore[misc]
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


class _Stream:
    """A stream that is always idle: the CPU has done a call when it returns."""

    cuda_stream = 0
    device = _CPU

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def wait_stream(self, other: Any) -> None:
        pass

    wait_event = record_event = wait_stream

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class _Event:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    wait = record

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0


class _Graph:
    """torch.cuda.CUDAGraph."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.kept: Optional[Capture] = None

    def replay(self) -> None:
        if self.kept is None:
            raise RuntimeError("CUDAGraph.replay: nothing is captured")
        self.kept.replay()

    def reset(self) -> None:
        self.kept = None


def _recorded(capture: Capture, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return capture.call(function, args, kwargs)
    return call


@contextlib.contextmanager
def _capturing(mode: Mode, package: types.ModuleType, graph: _Graph) -> Iterator[None]:
    """Keeps the calls of torch's, and those of the package's functions and of its wrappers' run and forward."""
    capture = Capture()
    changed: list[tuple[Any, str, Any]] = []
    modules = [package] + [x for x in vars(package).values() if isinstance(x, types.ModuleType)
                           and x.__name__.startswith(package.__name__ + ".")]
    for module in modules:
        for name, value in list(vars(module).items()):
            if name.startswith("_") or not getattr(value, "__module__", "").startswith(package.__name__ + "."):
                continue
            if isinstance(value, types.FunctionType):
                changed.append((module, name, value))
            elif isinstance(value, type):
                changed += [(value, method, vars(value)[method]) for method in vars(value)
                            if method.startswith(("run", "forward"))]
    changed = list({(id(owner), name): (owner, name, value) for owner, name, value in changed}.values())
    for owner, name, value in changed:
        setattr(owner, name, _recorded(capture, value))
    mode.capture = capture
    try:
        yield
    finally:
        mode.capture = None
        for owner, name, value in changed:
            setattr(owner, name, value)
    graph.kept = capture


def take_the_cards_place(package: types.ModuleType, limits: Limits) -> None:
    """From here on "cuda" is the CPU, in this process."""
    mode = Mode(limits)
    cuda: Any = torch.cuda
    idle = _Stream()
    total = limits.max_bytes
    properties = types.SimpleNamespace(name="CPU", major=8, minor=0, multi_processor_count=torch.get_num_threads(),
                                       total_memory=total, L2_cache_size=1 << 20)
    answers: dict[str, Any] = dict(
        is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0, set_device=lambda device: None,
        get_device_capability=lambda device=None: (8, 0), get_device_properties=lambda device=None: properties,
        get_device_name=lambda device=None: "CPU", mem_get_info=lambda device=None: (total, total),
        memory_reserved=lambda device=None: 0, memory_allocated=lambda device=None: 0, empty_cache=lambda: None,
        synchronize=lambda device=None: None, current_stream=lambda device=None: idle,
        default_stream=lambda device=None: idle, stream=lambda stream: contextlib.nullcontext(),
        device=lambda device: contextlib.nullcontext(), manual_seed=torch.default_generator.manual_seed,
        manual_seed_all=torch.default_generator.manual_seed, Stream=_Stream, Event=_Event, CUDAGraph=_Graph,
        graph=lambda graph, *args, **kwargs: _capturing(mode, package, graph))
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    torch.Generator = _Generator  # type: ignore[misc]
    set_default_device = torch.set_default_device
    torch.set_default_device = lambda device: set_default_device(None if _is_card(device) else device)
    mode.__enter__()  # type: ignore[no-untyped-call]

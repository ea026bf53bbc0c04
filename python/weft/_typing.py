"""What parameters take: names for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, Union


class SupportsDLPack(Protocol):
    """numpy, torch, jax and cupy arrays, weft.TensorView, and whatever else speaks DLPack."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...

    def __dlpack_device__(self) -> Any: ...


Array: TypeAlias = Union[SupportsDLPack, memoryview, bytes, bytearray]
Ints: TypeAlias = Union[SupportsDLPack, memoryview, Sequence[int]]

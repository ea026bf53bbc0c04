"""A cache of sequences that grow, written in place."""

from __future__ import annotations

import functools
from typing import Any, Optional

import torch
from torch import Tensor


def cache(config: Any, **options: Any) -> Any:
    """A DynamicCache of a model's config that writes new tokens behind the others; transformers' own copies them all.

    For any attn_implementation. Its options are DynamicCache's. Keys and values are the beginnings of arrays with room
    for more: those of tokens that a crop took away are overwritten by the next ones.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    made = DynamicCache(config=config, **options)
    made.layers = [_growing(layer) if type(layer) is DynamicLayer else layer for layer in made.layers]
    return made


class _Room:
    """Memory [batch, heads, room, dim] of which the first tokens are in use."""

    def __init__(self) -> None:
        self._all: Optional[Tensor] = None

    def append(self, tokens: Optional[Tensor], new: Tensor) -> Tensor:
        """tokens [batch, heads, tokens, dim], or none at first, with new ones behind them: copied where they are not
        here, where there is no room, and where gradients may be computed, for which tokens stay as they are."""
        assert tokens is not None
        if torch.is_grad_enabled():
            return torch.cat([tokens, new], dim=-2)
        batch, heads, count, dim = new.shape
        before = tokens.shape[2] if tokens.dim() == 4 else 0
        length, dtype = before + count, torch.promote_types(tokens.dtype, new.dtype)
        room = self._all
        if room is not None and self._begins(room, tokens, before) and self._takes(room, new, length, dtype):
            room[:, :, before:length] = new
        else:
            room = self._all = new.new_empty((batch, heads, length + max(length // 4, 256), dim), dtype=dtype)
            torch.cat([tokens, new], dim=-2, out=room[:, :, :length])
        return room[:, :, :length]

    @staticmethod
    def _begins(room: Tensor, tokens: Tensor, before: int) -> bool:
        """Whether it begins with these, which others may have put in their place."""
        return before == 0 or room.data_ptr() == tokens.data_ptr() and room.stride() == tokens.stride()

    @staticmethod
    def _takes(room: Tensor, new: Tensor, length: int, dtype: torch.dtype) -> bool:
        """Whether tokens of this shape and type may be written, `length` of them in all."""
        return room.shape[2] >= length and room.dtype == dtype and room.device == new.device and \
            room[:, :, :new.shape[2]].shape == new.shape and (torch.is_inference_mode_enabled() or
                                                              not room.is_inference())


@functools.lru_cache(maxsize=1)
def _growing_layer() -> Any:
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[misc, no-untyped-call, unused-ignore]
        __qualname__ = "GrowingLayer"  # of this module, where pickle looks for it

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
            self._of_keys, self._of_values = _Room(), _Room()

        def __getstate__(self) -> dict[str, Any]:
            """Of a copy, which writes to memory of its own."""
            return {**vars(self), "_of_keys": _Room(), "_of_values": _Room()}

        def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
            super().lazy_initialization(key_states, value_states)
            self._of_keys, self._of_values = _Room(), _Room()

        def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            self.keys = self._of_keys.append(self.keys, key_states)
            self.values = self._of_values.append(self.values, value_states)
            return self.keys, self.values

    return GrowingLayer


def __getattr__(name: str) -> Any:
    """The class of layers is made when it is first asked for: transformers takes long to load."""
    if name == "GrowingLayer":
        return _growing_layer()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _growing(layer: Any) -> Any:
    """With the tokens that the layer has."""
    made = _growing_layer()()
    vars(made).update(vars(layer))
    return made

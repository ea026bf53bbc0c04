"""transformers' mask interface: its mask functions become patterns."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import _weft
from .._tracing.values import error
from .patterns import Pattern, dense_pattern, full_pattern


class Mask(Tensor):
    """What `mask` hands to the layers of a step: a pattern, how many keys there are, and arrays of the step.

    A tensor [batch, 1, queries, keys] of a single element in memory, as transformers hands on what has this shape.
    """

    pattern: Pattern
    kv_len: int
    arrays: Mapping[str, Tensor]

    @staticmethod
    def of(shape: tuple[int, int, int], pattern: Pattern, kv_len: int, arrays: Mapping[str, Tensor]) -> Mask:
        made = torch.ones((), dtype=torch.bool).expand(shape[0], 1, *shape[1:]).as_subclass(Mask)
        made.pattern, made.kv_len, made.arrays = pattern, kv_len, arrays
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Copies are the same mask; whatever else is made of it is none."""
        if getattr(function, "__name__", "") in ("to", "clone", "contiguous", "detach"):
            return args[0]
        return super().__torch_function__(function, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
         mask_function: Optional[Callable[..., Any]] = None, attention_mask: Optional[Tensor] = None,
         device: Union[torch.device, str] = "cpu", **options: Any) -> Mask:
    """transformers' mask interface: a step's mask from the function that describes it, and from padding [batch, keys].

    A function that cannot be traced is asked for every element, as transformers itself does.
    """
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, prepare_padding_mask

    function = causal_mask_function if mask_function is None else mask_function
    shape = batch_size, q_length, kv_length
    first = int(q_offset) - kv_offset  # where the first query stands among the keys
    arrays: dict[str, Tensor] = {}
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        if padding.dim() != 2 or padding.shape[0] != batch_size:
            raise error(_weft.ErrorCode.invalid_shape,
                        f"attention_mask: has the shape {tuple(padding.shape)}; required are {batch_size} rows of keys")
        padding = padding[:, kv_offset:kv_offset + kv_length].bool()
        seen = kv_length if function is bidirectional_mask_function else first + q_length
        if not bool(padding[:, :seen].all()):
            arrays["padding"] = padding.contiguous()
    if function is bidirectional_mask_function and not arrays:
        return Mask.of(shape, full_pattern(), kv_length, {})
    try:
        pattern = _pattern(function, kv_offset, bool(arrays))
        if first + q_length == kv_length or pattern.is_causal:
            return Mask.of(shape, pattern, min(kv_length, first + q_length), {**pattern.arrays, **arrays})
    except _weft.Error as refused:
        if refused.code != _weft.ErrorCode.unsupported:
            raise
    return _dense_mask(batch_size, q_length, kv_length, q_offset, kv_offset, function, attention_mask, device,
                       bool(options.get("use_vmap", False)))


def _dense_mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any, kv_offset: int,
                function: Callable[..., Any], attention_mask: Optional[Tensor], device: Any, use_vmap: bool) -> Mask:
    from transformers.masking_utils import sdpa_mask

    seen = sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                     kv_offset=kv_offset, mask_function=function, attention_mask=attention_mask, device=device,
                     use_vmap=use_vmap, allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    assert seen is not None  # it is not skipped
    return Mask.of((batch_size, q_length, kv_length), *of_tensor(seen, (batch_size, 1, q_length, kv_length)))


def of_tensor(dense: Tensor, scores: tuple[int, int, int, int]) -> tuple[Pattern, int, dict[str, Tensor]]:
    """Of a mask that somebody has made, for scores [batch, heads, queries, keys]; it may be longer."""
    batch, _, queries, kv_len = scores
    if dense.dim() != 4 or any(n not in (1, all_of) for n, all_of in zip(dense.shape, scores[:3])) or \
            dense.shape[-1] < kv_len:
        raise error(_weft.ErrorCode.invalid_shape,
                    f"attention_mask: has the shape {tuple(dense.shape)}; required are [batch, heads, queries, keys] = "
                    f"{scores}, each of the first three or 1, and as many keys or more")
    is_bool = dense.dtype == torch.bool
    dense = (dense if is_bool else dense.to(torch.float32)).expand(batch, -1, queries, -1)
    return dense_pattern(is_bool, dense.shape[1] > 1), kv_len, {"dense": dense.contiguous()}


_patterns: dict[Any, Pattern] = {}


def _pattern(function: Callable[..., Any], kv_offset: int, has_padding: bool) -> Pattern:
    """Of a mask function of transformers', which counts from the first token, as keys do from kv_offset on."""
    signature = _signature(function)
    known = _patterns.get((signature, has_padding)) if signature is not None else None
    if known is not None:
        return known
    made = _traced(function, kv_offset, has_padding)
    if signature is not None and _traced(function, kv_offset + 12345, has_padding).plain == made.plain:
        if len(_patterns) >= 64:
            _patterns.clear()
        _patterns[signature, has_padding] = made
    return made


def _traced(function: Callable[..., Any], kv_offset: int, has_padding: bool) -> Pattern:
    padding = torch.zeros((1, 1), dtype=torch.bool)

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        seen = function(b, h, q_idx + kv_offset, kv_idx + kv_offset)
        return seen & padding[b, kv_idx] if has_padding else seen

    return Pattern(mask_mod, examples=[padding])


def _signature(x: Any) -> Any:
    """What is the same for two functions that say the same; None where that is not seen."""
    if isinstance(x, (int, float, str)):
        return x
    if isinstance(x, tuple):
        parts = tuple(map(_signature, x))
        return None if None in parts else parts
    if not isinstance(x, types.FunctionType) or x.__defaults__ or x.__kwdefaults__:
        return None
    cells = _signature(tuple(cell.cell_contents for cell in x.__closure__ or ()))
    return None if cells is None else (x.__code__, cells)

"""Weft's attention in transformers' models, on CPUs and cards (docs/python.md).

    weft.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="weft")

Grouped heads, sliding windows, soft caps, learned sinks and padding are served, with any cache. Masks are the functions
that transformers describes them by, traced into intervals (weft.variants.trace): what nobody sees is not computed, and
no mask is made. model.generate_batch reads the pages of full-attention layers where they lie.

Weft computes no gradients: models run below torch.no_grad() or torch.inference_mode().
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Optional, Union

import torch
from torch import Tensor

from . import _weft
from ._streams import num_workers_on, stream_on
from ._tracing.trace import QueryIndex, trace
from ._tracing.values import error

_DTYPES = {torch.float32: _weft.DType.fp32, torch.float16: _weft.DType.fp16, torch.bfloat16: _weft.DType.bf16}
_names: set[str] = set()


def register(name: str = "weft") -> None:
    """Makes `name` an attn_implementation of transformers' models, which generate_batch takes, too.

    Raises ImportError without transformers, and Error(unsupported) for a version without what this needs.
    """
    import transformers

    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.generation.continuous_batching.cache import PagedAttentionCache
        from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager
    except ImportError as missing:
        _unsupported(f"transformers {transformers.__version__}: supported are 5.24 and later ones like it; missing: "
                     f"{missing}")
    if "flash" in name or "paged" in name or name in ("eager", "sdpa", "flex_attention"):
        raise error(_weft.ErrorCode.invalid_argument,
                    f"name = {name!r}: means something else to transformers; choose another, as 'weft'")
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    if not _names:
        _admit(ContinuousBatchingManager)
        _leave_pages(PagedAttentionCache)
    _names.add(name)


def _unsupported(text: str) -> NoReturn:
    raise error(_weft.ErrorCode.unsupported, text)


# ---------------------------------------------------------------- kernels


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
                _unsupported(f"query {query.dtype}, key {key.dtype}, value {value.dtype}: supported are float32, "
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


# ---------------------------------------------------------------- masks


@functools.lru_cache(maxsize=64)
def _causal(window: Optional[int]) -> Pattern:
    if window is None:
        return Pattern(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx)
    return Pattern(lambda b, h, q_idx, kv_idx: (kv_idx <= q_idx) & (kv_idx > q_idx - window))


@functools.lru_cache(maxsize=1)
def _everything() -> Pattern:
    return Pattern()


@functools.lru_cache(maxsize=4)
def _dense(is_bool: bool, per_head: bool) -> Pattern:
    """An array `dense` [batch, 1 or heads, queries, keys]: whether a key is seen, or what its score is more."""
    dense = torch.zeros((1, 1, 1, 1), dtype=torch.bool if is_bool else torch.float32)

    def element(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return dense[b, h if per_head else 0, q_idx, kv_idx]

    return Pattern(element if is_bool else None, None if is_bool else element, "index", [dense])


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
        return Mask.of(shape, _everything(), kv_length, {})
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
    return Mask.of((batch_size, q_length, kv_length), *_of_tensor(seen, (batch_size, 1, q_length, kv_length)))


def _of_tensor(dense: Tensor, scores: tuple[int, int, int, int]) -> tuple[Pattern, int, dict[str, Tensor]]:
    """Of a mask that somebody has made, for scores [batch, heads, queries, keys]; it may be longer."""
    batch, _, queries, kv_len = scores
    if dense.dim() != 4 or any(n not in (1, all_of) for n, all_of in zip(dense.shape, scores[:3])) or \
            dense.shape[-1] < kv_len:
        raise error(_weft.ErrorCode.invalid_shape,
                    f"attention_mask: has the shape {tuple(dense.shape)}; required are [batch, heads, queries, keys] = "
                    f"{scores}, each of the first three or 1, and as many keys or more")
    is_bool = dense.dtype == torch.bool
    dense = (dense if is_bool else dense.to(torch.float32)).expand(batch, -1, queries, -1)
    return _dense(is_bool, dense.shape[1] > 1), kv_len, {"dense": dense.contiguous()}


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


# ---------------------------------------------------------------- attention


def attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
              attention_mask: Union[Mask, Tensor, None], dropout: float = 0.0, scaling: Optional[float] = None,
              is_causal: Optional[bool] = None, softcap: Optional[float] = None, s_aux: Optional[Tensor] = None,
              sliding_window: Optional[int] = None, position_bias: Optional[Tensor] = None,
              **options: Any) -> tuple[Tensor, None]:
    """transformers' attention interface: query [batch, heads, queries, dim], key, value [batch, KV heads, keys, dim].

    Returns ([batch, queries, heads, dim], None). Raises Error(unsupported) for gradients, dropout, position_bias and
    output_attentions.
    """
    _check(query, key, value, dropout if module.training else 0.0, position_bias, options)
    causal = is_causal if is_causal is not None else bool(getattr(module, "is_causal", True))
    sinks = {} if s_aux is None else {"sinks": s_aux.detach().float().contiguous()}
    if s_aux is not None and s_aux.shape != query.shape[1:2]:
        raise error(_weft.ErrorCode.invalid_shape,
                    f"s_aux: has the shape {tuple(s_aux.shape)}; required is one of each query head, "
                    f"({query.shape[1]},)")
    call = functools.partial(_run, softcap=softcap, scaling=scaling, sinks=sinks)
    if options.get("cu_seq_lens_q") is not None and attention_mask is None:
        pattern = _causal(sliding_window) if causal else _everything()
        return _ragged(call, pattern, query, key, value, options), None
    batch, heads, queries, _ = query.shape
    if isinstance(attention_mask, Mask):
        if not hasattr(attention_mask, "pattern"):
            _unsupported("attention_mask: the model computes with the mask of attn_implementation weft, which has no "
                         "elements; use 'sdpa', or give a mask [batch, 1 or heads, queries, keys]")
        pattern, kv_len, arrays = attention_mask.pattern, attention_mask.kv_len, attention_mask.arrays
        if arrays and (attention_mask.shape[0], attention_mask.shape[2]) != (batch, queries):
            raise error(_weft.ErrorCode.invalid_shape,
                        f"attention_mask: is of {attention_mask.shape[0]} requests with {attention_mask.shape[2]} "
                        f"queries; query has {batch} with {queries}")
    elif attention_mask is not None:
        pattern, kv_len, arrays = _of_tensor(attention_mask, (batch, heads, queries, key.shape[2]))
    else:
        pattern, kv_len, arrays = _causal(sliding_window) if causal else _everything(), key.shape[2], {}

    def lengths() -> _weft.PlanInput:
        return _weft.PlanInput(num_qo_heads=heads, num_kv_heads=key.shape[1],
                               qo_indptr=[i * queries for i in range(batch + 1)], kv_len=[kv_len] * batch,
                               max_kv_len=key.shape[2])

    rows = query.transpose(1, 2).reshape(batch * queries, heads, query.shape[-1])
    o = call(pattern, rows, key, value, arrays, _weft.KvForm.padded, _weft.Layout.hnd,
             (batch, heads, queries, kv_len, *key.shape[1:3]), lengths)
    return o.view(batch, queries, heads, value.shape[-1]), None


def _check(query: Tensor, key: Tensor, value: Tensor, dropout: float, position_bias: Any,
           options: Mapping[str, Any]) -> None:
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        _unsupported("attn_implementation weft: a gradient is required, which Weft's attention has not; run the model "
                     "below torch.no_grad(), or train with 'sdpa'")
    for name, given in (("dropout", dropout), ("position_bias", position_bias is not None),
                        ("output_attentions", options.get("output_attentions"))):
        if given:
            _unsupported(f"{name}: is given, which attn_implementation weft has not; use 'eager'")


def _run(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, arrays: Mapping[str, Tensor], form: _weft.KvForm,
         layout: _weft.Layout, lengths: tuple[Any, ...], make: Callable[[], _weft.PlanInput], *,
         softcap: Optional[float], scaling: Optional[float], sinks: Mapping[str, Tensor]) -> Tensor:
    """q [rows, heads, dim] -> [rows, heads, dim of values]."""
    kernel = pattern.kernel(q, k, v, softcap, bool(sinks), form, layout)
    plan = kernel.plan(lengths, make, num_workers_on(q.device))
    o: Tensor = kernel.kernel.run(plan, q.detach(), (k.detach(), v.detach()), sm_scale=scaling,
                                  tensors={**arrays, **sinks}, stream=stream_on(q.device))
    return o


# ---------------------------------------------------------------- the cache of sequences that grow


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


# ---------------------------------------------------------------- rows of several requests, and generate_batch


class _Pages:
    """The pages of a layer of generate_batch, and which of their slots hold the requests' tokens, one after another."""

    def __init__(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        self.k, self.v, self.slots = k, v, slots

    def table(self, kv_indptr: list[int]) -> tuple[list[int], list[int], list[int]]:
        """(indptr, page ids, tokens in the last page) of the requests."""
        size = self.k.shape[1]
        firsts = [torch.arange(begin, end, size) for begin, end in zip(kv_indptr, kv_indptr[1:])]
        ids = (self.slots[torch.cat(firsts).to(self.slots.device)] // size).tolist()
        indptr, last = [0], []
        for pages, begin, end in zip(firsts, kv_indptr, kv_indptr[1:]):
            indptr.append(indptr[-1] + len(pages))
            last.append((end - begin - 1) % size + 1 if end > begin else 0)
        return indptr, ids, last


def _ragged(call: Callable[..., Tensor], pattern: Pattern, query: Tensor, key: Tensor, value: Tensor,
            options: Mapping[str, Any]) -> Tensor:
    """One row of tokens of several requests: query [1, heads, tokens, dim]."""
    qo_indptr, kv_indptr = options["cu_seq_lens_q"].tolist(), options["cu_seq_lens_k"].tolist()
    _, heads, tokens, _ = query.shape
    q, pages = query[0].transpose(0, 1)[:qo_indptr[-1]], options.get("weft_pages")
    lengths = {"num_qo_heads": heads, "num_kv_heads": key.shape[1], "qo_indptr": qo_indptr}
    if pages is None:
        o = call(pattern, q, key[0], value[0], {}, _weft.KvForm.ragged, _weft.Layout.hnd,
                 (tuple(qo_indptr), tuple(kv_indptr), heads, key.shape[1]),
                 lambda: _weft.PlanInput(**lengths, kv_indptr=kv_indptr))
    else:
        indptr, ids, last = pages.table(kv_indptr)
        size, count = pages.k.shape[1], pages.k.shape[0]
        o = call(pattern, q, pages.k, pages.v, {}, _weft.KvForm.paged, _weft.Layout.nhd,
                 (tuple(qo_indptr), tuple(kv_indptr), tuple(ids), heads),
                 lambda: _weft.PlanInput(**lengths, pages=_weft.PageTableView(size, count, indptr, ids, last)))
    if len(q) < tokens:  # what only fills a step up to a fixed size
        o = torch.cat([o, o.new_zeros((tokens - len(q), *o.shape[1:]))])
    return o.unsqueeze(0)


def _admit(manager: Any) -> None:
    """generate_batch takes Weft's attention as it is, where it would switch to another or refuse."""
    switch = manager.switch_to_cb_friendly_attn

    @functools.wraps(switch)
    def switch_to_cb_friendly_attn(self: Any, model: Any, *args: Any, **named: Any) -> None:
        if model.config._attn_implementation not in _names:
            switch(self, model, *args, **named)

    manager.switch_to_cb_friendly_attn = switch_to_cb_friendly_attn


def _leave_pages(cache: Any) -> None:
    """A cache of generate_batch writes new tokens to their pages, and gathers none for Weft's attention."""
    update = cache.update

    @functools.wraps(update)
    def left(self: Any, key: Tensor, value: Tensor, layer_idx: int, kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        allocator = self.layer_to_allocator[layer_idx]
        slots = kwargs["read_index"][allocator.index]
        if self.config._attn_implementation not in _names or allocator.layer_type != "full_attention" or \
                kwargs.get("block_table") is not None or slots.numel() == 0:
            found: tuple[Tensor, Tensor] = update(self, key, value, layer_idx, kwargs)
            return found
        kwargs["cu_seq_lens_k"] = kwargs["cu_seq_lens_k"][allocator.layer_type].to(torch.int32)
        kwargs["max_length_k"] = kwargs["max_length_k"][allocator.layer_type]
        for tokens, new in zip(allocator._kv_token_views[layer_idx], (key, value)):
            tokens.index_copy_(0, kwargs["write_index"][allocator.index], new[0].transpose(0, 1))
        # Layers see the pool from different pages on: as many as all of them see, for one plan.
        count = min(len(v) for _, v in allocator._kv_page_views.values())
        k_pages, v_pages = allocator.get_cache_for_block_table(layer_idx)
        kwargs["weft_pages"] = _Pages(k_pages[:count], v_pages[:count], slots)
        return key, value

    cache.update = left

"""transformers' attention interface: batches of equal rows, and one row of the tokens of several requests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import _weft
from .._streams import num_workers_on, stream_on
from .._tracing.values import error
from .masks import Mask, of_tensor
from .patterns import Pattern, causal_pattern, full_pattern, unsupported


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
        pattern = causal_pattern(sliding_window) if causal else full_pattern()
        return _ragged(call, pattern, query, key, value, options), None
    batch, heads, queries, _ = query.shape
    if isinstance(attention_mask, Mask):
        if not hasattr(attention_mask, "pattern"):
            unsupported("attention_mask: the model computes with the mask of attn_implementation weft, which has no "
                         "elements; use 'sdpa', or give a mask [batch, 1 or heads, queries, keys]")
        pattern, kv_len, arrays = attention_mask.pattern, attention_mask.kv_len, attention_mask.arrays
        if arrays and (attention_mask.shape[0], attention_mask.shape[2]) != (batch, queries):
            raise error(_weft.ErrorCode.invalid_shape,
                        f"attention_mask: is of {attention_mask.shape[0]} requests with {attention_mask.shape[2]} "
                        f"queries; query has {batch} with {queries}")
    elif attention_mask is not None:
        pattern, kv_len, arrays = of_tensor(attention_mask, (batch, heads, queries, key.shape[2]))
    else:
        pattern, kv_len, arrays = causal_pattern(sliding_window) if causal else full_pattern(), key.shape[2], {}

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
        unsupported("attn_implementation weft: a gradient is required, which Weft's attention has not; run the model "
                     "below torch.no_grad(), or train with 'sdpa'")
    for name, given in (("dropout", dropout), ("position_bias", position_bias is not None),
                        ("output_attentions", options.get("output_attentions"))):
        if given:
            unsupported(f"{name}: is given, which attn_implementation weft has not; use 'eager'")


def _run(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, arrays: Mapping[str, Tensor], form: _weft.KvForm,
         layout: _weft.Layout, lengths: tuple[Any, ...], make: Callable[[], _weft.PlanInput], *,
         softcap: Optional[float], scaling: Optional[float], sinks: Mapping[str, Tensor]) -> Tensor:
    """q [rows, heads, dim] -> [rows, heads, dim of values]."""
    kernel = pattern.kernel(q, k, v, softcap, bool(sinks), form, layout)
    plan = kernel.plan(lengths, make, num_workers_on(q.device))
    o: Tensor = kernel.kernel.run(plan, q.detach(), (k.detach(), v.detach()), sm_scale=scaling,
                                  tensors={**arrays, **sinks}, stream=stream_on(q.device))
    return o


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

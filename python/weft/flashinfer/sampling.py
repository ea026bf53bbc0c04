"""Draws from probabilities and logits: flashinfer.sampling.

A draw is weft.sample_probabilities' (docs/kernels/sampling.md), by 64 random bits: of `generator` (torch's own where none
is given), or a hash of (seed, offset, row). Where FlashInfer's filters keep ties, so do these.
"""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import _weft
from . import _common as common
from ._common import Invalid

Value = Union[int, float, Tensor]

# Rows are sorted no further than so many tokens, unless they hold less than top_p.
_FIRST = 1024


def _rows(name: str, x: Any) -> Tensor:
    rows = common.tensor_of(name, x)
    common.check_rank(name, rows, 2)
    return rows


def _filtered_rows(name: str, x: Any) -> Tensor:
    """Rows that a call looks at to choose what it does."""
    rows = _rows(name, x)
    common.refuse_capture(name, rows)
    return rows


def _per_row(name: str, value: Value, rows: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """One number a row, [rows, 1]."""
    if not isinstance(value, Tensor):
        if value != value:
            raise Invalid(f"{name} = nan; give a number")
        if not dtype.is_floating_point and isinstance(value, float) and not value.is_integer():
            raise Invalid(f"{name} = {value}; give an integer")
        return torch.full((rows, 1), value, dtype=dtype, device=device)
    value = common.tensor_of(name, value)
    if value.dim() == 0:
        raise Invalid(f"{name}: Expected a 1D tensor of shape (batch_size,) or scalar, got a 0-dimensional tensor")
    if value.dim() != 1:
        raise Invalid(f"{name}: Expected a 1D tensor or scalar, got a {value.dim()}D tensor")
    if value.numel() != rows:
        raise Invalid(f"{name}: Sampling parameter tensor batch size mismatch: {value.numel()} numbers for {rows} rows")
    return value.to(device=device, dtype=dtype).unsqueeze(1)


def _bound_per_row(name: str, value: Value, rows: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same of a filter, which no NaN is the bound of. A capture cannot look: there the kernel leaves it off."""
    bound = _per_row(name, value, rows, device, dtype)
    may_be_nan = isinstance(value, Tensor) and value.is_floating_point()
    if may_be_nan and not common.is_captured(bound) and bool(bound.isnan().any()):
        raise Invalid(f"{name}: holds a NaN; give numbers")
    return bound


# ---------------------------------------------------------------- filters


def _least_of_top_k(x: Tensor, top_k: Value) -> Tensor:
    """The k-th largest of each row, [rows, 1]; with k of 0 or beyond the row, its least."""
    vocab = x.shape[1]
    k = _bound_per_row("top_k", top_k, x.shape[0], x.device, torch.int64)
    k = torch.where((k <= 0) | (k > vocab), vocab, k)
    if x.shape[0] == 0 or vocab == 0:
        return x[:, :1]
    most = int(k.max())
    if most == vocab:
        whole = k[:, 0] == vocab
        least = x.min(1, keepdim=True).values
        if bool(whole.all()):
            return least
        some = _least_of_top_k(x[~whole], k[~whole, 0])
        least[~whole] = some
        return least
    return x.topk(most, 1).values.gather(1, k - 1)


def _least_of_top_p(probs: Tensor, top_p: Value) -> Tensor:
    """The least probability that is kept: those are kept that have a mass below top_p strictly above them."""
    rows, vocab = probs.shape
    p = _bound_per_row("top_p", top_p, rows, probs.device, torch.float64)
    if rows == 0 or vocab == 0:
        return probs[:, :1]
    first = min(vocab, _FIRST)
    nothing = torch.zeros_like(p)
    least, total = _last_kept(probs.topk(first, 1).values, nothing, p)
    short = (total < p).flatten()
    if first < vocab and bool(short.any()):
        least[short] = _least_by_buckets(probs[short].float(), p[short]).to(least.dtype)
    return least


def _last_kept(values: Tensor, before: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Of values that fall along each row, with a mass of `before` above all: the last that has a mass below p strictly
    above it, and the mass of all."""
    total = before + values.double().cumsum(1)
    # Of equal values the first says how much lies above them.
    above = torch.cat([before, total[:, :-1]], 1)
    runs_on = torch.nn.functional.pad(values[:, 1:] == values[:, :-1], (1, 0))
    above = torch.where(runs_on, -1.0, above).cummax(1).values
    kept = (above < p).sum(1, keepdim=True).clamp_min(1)
    return values.gather(1, kept - 1), total[:, -1:]


def _least_by_buckets(probs: Tensor, p: Tensor) -> Tensor:
    """The same without sorting rows: masses of buckets of float32's upper bits, and then of the bucket in question."""
    bucket = (probs.view(torch.int32) >> 18).clamp_min(0).long()
    mass = torch.zeros(probs.shape[0], 1 << 13, dtype=torch.float64, device=probs.device)
    mass.scatter_add_(1, bucket, probs.double())
    above = mass.flip(1).cumsum(1).flip(1) - mass
    chosen = (above < p).to(torch.uint8).argmax(1, keepdim=True)  # the lowest with less than p above it
    inside = bucket == chosen
    values = torch.where(inside, probs, -1).topk(max(int(inside.sum(1).max()), 1), 1).values
    # Elements of other buckets stand behind as -1: what holds for the last of this one holds for the row.
    least, _ = _last_kept(values, above.gather(1, chosen), p)
    last = values.gather(1, inside.sum(1, keepdim=True).clamp_min(1) - 1)
    return torch.where(least < 0, last, least)


def _at_least(probs: Tensor, least: Tensor) -> Tensor:
    return torch.where(probs < least, 0, probs)  # NaN stays


def _renormalised(probs: Tensor) -> Tensor:
    total = probs.sum(1, keepdim=True, dtype=torch.float64)
    return torch.where(total == 0, 0, probs / total).to(probs.dtype)


def top_p_renorm_probs(probs: Tensor, top_p: Value, is_deterministic: bool = False) -> Tensor:
    """probs [rows, vocab] of the tokens that top_p keeps, 0 elsewhere, each row's sum 1."""
    probs = _filtered_rows("probs", probs).float()
    return _renormalised(_at_least(probs, _least_of_top_p(probs, top_p)))


def top_k_renorm_probs(probs: Tensor, top_k: Value, is_deterministic: bool = False) -> Tensor:
    """The same of top_k, in the type of probs; all that equal the k-th are kept."""
    probs = _filtered_rows("probs", probs)
    wide = probs.float()
    return _renormalised(_at_least(wide, _least_of_top_k(wide, top_k))).to(probs.dtype)


def _min_p_renorm_probs(probs: Tensor, min_p: Value) -> Tensor:
    """The same of tokens with min_p times the largest probability, or more."""
    probs = _filtered_rows("probs", probs).float()
    least = _bound_per_row("min_p", min_p, probs.shape[0], probs.device, torch.float32)
    return _renormalised(_at_least(probs, least * probs.amax(1, keepdim=True)) if probs.numel() else probs)


def top_k_mask_logits(logits: Tensor, top_k: Value) -> Tensor:
    """logits [rows, vocab], -inf for those below the k-th largest."""
    logits = _filtered_rows("logits", logits)
    return torch.where(logits < _least_of_top_k(logits, top_k), float("-inf"), logits)


top_p_renorm_prob, top_k_renorm_prob = top_p_renorm_probs, top_k_renorm_probs


def softmax(logits: Tensor, temperature: Union[None, float, Tensor] = None,
            enable_pdl: Optional[bool] = None) -> Tensor:
    """softmax(logits / temperature) of each row, in float32; temperature: a number above 0, or one a row."""
    logits = common.tensor_of("logits", logits).float()
    common.check_rank("logits", logits, 2)
    if temperature is None:
        return torch.softmax(logits, 1)
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise Invalid(f"temperature = {temperature}; allowed are numbers above 0")
    by = _per_row("temperature", temperature, logits.shape[0], logits.device, torch.float32)
    return torch.softmax(logits / by, 1)


# ---------------------------------------------------------------- random numbers


def _mixed(x: Tensor) -> Tensor:
    """splitmix64's finaliser, on int64 as bits."""
    def shifted(bits: Tensor, by: int) -> Tensor:
        return (bits >> by) & ((1 << (64 - by)) - 1)
    x = (x ^ shifted(x, 30)) * -4658895280553007687
    x = (x ^ shifted(x, 27)) * -7723592293110705685
    return x ^ shifted(x, 31)


def _as_int64(x: Union[int, Tensor], name: str, count: int, device: torch.device) -> Tensor:
    if not isinstance(x, Tensor):
        whole = int(x) & (2**64 - 1)
        return torch.tensor([whole - 2**64 if whole >= 2**63 else whole], device=device)
    if x.dim() != 1 or x.dtype not in (torch.int64, torch.uint64) or x.numel() not in (1, count):
        raise Invalid(f"{name}: {tuple(x.shape)} {x.dtype}; required is a 1D tensor of int64 or uint64 with 1 number "
                      f"or one a row, {count}")
    return x.to(device).view(torch.int64)


def _random_bits(shape: tuple[int, ...], device: torch.device, generator: Optional[torch.Generator],
                 seed: Union[None, int, Tensor], offset: Union[None, int, Tensor]) -> Tensor:
    """int64, all 64 bits of which are random."""
    if (seed is None) != (offset is None):
        raise Invalid("seed and offset: one is missing; they count together")
    if seed is None or offset is None:
        return torch.empty(shape, dtype=torch.int64, device=device).random_(-2**63, None, generator=generator)
    if isinstance(seed, Tensor) != isinstance(offset, Tensor):
        raise Invalid("seed and offset: one is a tensor; both are numbers, or both are")
    rows = shape[0]
    start = _mixed(_as_int64(seed, "seed", rows, device) + 1) ^ _mixed(
        _as_int64(offset, "offset", rows, device) - 7046029254386353131)
    count = 1
    for extent in shape:
        count *= extent
    element = torch.arange(count, device=device).reshape(rows, -1)
    return _mixed(_mixed(element * -7046029254386353131) ^ start.unsqueeze(1)).reshape(shape)


# ---------------------------------------------------------------- draws


def _drawn(probs: Tensor, bits: Tensor, rows: Optional[Tensor] = None, top_k: Optional[Value] = None,
           top_p: Optional[Value] = None, min_p: Optional[Value] = None, order: str = "top_k_first") -> Tensor:
    """int32 ids, a draw each of `bits`, from row rows[i] of probs (i without them); -1: the row has no mass."""
    def bound(name: str, value: Optional[Value], dtype: torch.dtype) -> Optional[Tensor]:
        if value is None:
            return None
        made = _bound_per_row(name, value, probs.shape[0], probs.device, dtype).flatten()
        return made.clamp(0, 2**31 - 1).to(torch.int32) if dtype == torch.int64 else made.contiguous()

    probs = probs.float()
    ids = torch.empty(bits.shape, dtype=torch.int32, device=probs.device)
    _weft.sample_probabilities(probs if probs.stride(1) == 1 else probs.contiguous(), bits, ids,
                               bound("top_k", top_k, torch.int64), bound("top_p", top_p, torch.float32),
                               bound("min_p", min_p, torch.float32), getattr(_weft.FilterOrder, order), rows,
                               stream=common.stream_of(probs))
    return ids


def _sampled(name: str, given: Tensor, probs: Tensor, indices: Optional[Tensor],
             generator: Optional[torch.Generator], check_nan: bool, seed: Union[None, int, Tensor],
             offset: Union[None, int, Tensor], return_valid: bool, **filters: Any) -> Any:
    """A token of each output row. probs: those of what is given; filters: as _drawn takes them."""
    looks = not common.is_captured(given)
    if check_nan and not looks:
        raise common.Unsupported("check_nan: required is a check inside of a CUDA graph's capture; supported are checks "
                                 "outside of captures; missing: answers of a card to a capture")
    if check_nan and bool(torch.isnan(given).any()):
        raise Invalid(f"Input {name} contains NaN.")
    if probs.shape[1] == 0:
        raise Invalid(f"{name}: {tuple(probs.shape)} has no tokens to draw from")
    rows = None
    if indices is not None:
        rows = common.tensor_of("indices", indices)
        if rows.dim() != 1 or rows.dtype not in (torch.int32, torch.int64):
            raise Invalid(f"indices: {tuple(rows.shape)} {rows.dtype}; required is a 1D tensor of int32 or int64")
        if looks and rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < probs.shape[0]:
            raise Invalid(f"indices: {int(rows.min())} to {int(rows.max())}; {name} has {probs.shape[0]} rows")
    count = probs.shape[0] if rows is None else rows.numel()
    bits = _random_bits((count,), probs.device, generator, seed, offset)
    ids = _drawn(probs, bits, None if rows is None else rows.to(torch.int32).contiguous(), **filters)
    made = ids.clamp_min(0).to(torch.int32 if rows is None else rows.dtype)
    return (made, ids >= 0) if return_valid else made


def sampling_from_probs(probs: Tensor, indices: Optional[Tensor] = None, deterministic: bool = True,
                        generator: Optional[torch.Generator] = None, check_nan: bool = False,
                        seed: Union[None, int, Tensor] = None, offset: Union[None, int, Tensor] = None,
                        return_valid: bool = False) -> Any:
    """A token of each row of probs [rows, vocab], int32 [rows]; with indices [n], output row i draws from probs row
    indices[i], and ids are of their type. return_valid: (ids, bool), rows without mass give 0, False."""
    probs = _rows("probs", probs)
    return _sampled("probs", probs, probs, indices, generator, check_nan, seed, offset, return_valid)


def sampling_from_logits(logits: Tensor, indices: Optional[Tensor] = None, deterministic: bool = True,
                         generator: Optional[torch.Generator] = None, check_nan: bool = False,
                         seed: Union[None, int, Tensor] = None, offset: Union[None, int, Tensor] = None) -> Any:
    """sampling_from_probs of softmax(logits)."""
    logits = _rows("logits", logits)
    return _sampled("logits", logits, torch.softmax(logits.float(), 1), indices, generator, check_nan, seed, offset,
                    False)


def top_p_sampling_from_probs(probs: Tensor, top_p: Value, indices: Optional[Tensor] = None,
                              deterministic: bool = True, generator: Optional[torch.Generator] = None,
                              check_nan: bool = False, seed: Union[None, int, Tensor] = None,
                              offset: Union[None, int, Tensor] = None, return_valid: bool = False) -> Any:
    """A token of those whose more probable ones hold less than top_p. top_p: a number, or one of each row of probs."""
    probs = _rows("probs", probs)
    return _sampled("probs", probs, probs, indices, generator, check_nan, seed, offset, return_valid, top_p=top_p,
                    order="joint")


def top_k_sampling_from_probs(probs: Tensor, top_k: Value, indices: Optional[Tensor] = None,
                              deterministic: bool = True, generator: Optional[torch.Generator] = None,
                              check_nan: bool = False, seed: Union[None, int, Tensor] = None,
                              offset: Union[None, int, Tensor] = None, return_valid: bool = False) -> Any:
    """A token of the k most probable ones, and of those that equal the k-th."""
    probs = _rows("probs", probs)
    return _sampled("probs", probs, probs, indices, generator, check_nan, seed, offset, return_valid, top_k=top_k)


def min_p_sampling_from_probs(probs: Tensor, min_p: Value, indices: Optional[Tensor] = None,
                              deterministic: bool = True, generator: Optional[torch.Generator] = None,
                              check_nan: bool = False, seed: Union[None, int, Tensor] = None,
                              offset: Union[None, int, Tensor] = None, return_valid: bool = False) -> Any:
    """A token of those that have min_p times the largest probability, or more."""
    probs = _rows("probs", probs)
    return _sampled("probs", probs, probs, indices, generator, check_nan, seed, offset, return_valid, min_p=min_p)


def _check_order(filter_apply_order: str) -> None:
    if filter_apply_order not in ("top_k_first", "joint"):
        raise Invalid(f"filter_apply_order = {filter_apply_order!r}; allowed are 'top_k_first' and 'joint'")


def top_k_top_p_sampling_from_probs(probs: Tensor, top_k: Value, top_p: Value, indices: Optional[Tensor] = None,
                                    filter_apply_order: str = "top_k_first", deterministic: bool = True,
                                    generator: Optional[torch.Generator] = None, check_nan: bool = False,
                                    seed: Union[None, int, Tensor] = None, offset: Union[None, int, Tensor] = None,
                                    return_valid: bool = False) -> Any:
    """Both filters. top_k_first: top_p is a share of what top_k left; joint: of the whole."""
    _check_order(filter_apply_order)
    probs = _rows("probs", probs)
    return _sampled("probs", probs, probs, indices, generator, check_nan, seed, offset, return_valid, top_k=top_k,
                    top_p=top_p, order=filter_apply_order)


def top_k_top_p_sampling_from_logits(logits: Tensor, top_k: Value, top_p: Value, indices: Optional[Tensor] = None,
                                     filter_apply_order: str = "top_k_first", deterministic: bool = True,
                                     generator: Optional[torch.Generator] = None, check_nan: bool = False,
                                     seed: Union[None, int, Tensor] = None,
                                     offset: Union[None, int, Tensor] = None) -> Any:
    """The same of softmax(logits)."""
    _check_order(filter_apply_order)
    logits = _rows("logits", logits)
    return _sampled("logits", logits, torch.softmax(logits.float(), 1), indices, generator, check_nan, seed, offset,
                    False, top_k=top_k, top_p=top_p, order=filter_apply_order)


def chain_speculative_sampling(draft_probs: Tensor, draft_token_ids: Tensor, target_probs: Tensor,
                               maybe_output_accepted_token_num: Optional[Tensor] = None,
                               maybe_output_emitted_draft_token_num: Optional[Tensor] = None,
                               deterministic: bool = True, generator: Optional[torch.Generator] = None,
                               seed: Union[None, int, Tensor] = None,
                               offset: Union[None, int, Tensor] = None) -> tuple[Tensor, Tensor, Tensor]:
    """draft_probs [batch, n, vocab], draft_token_ids [batch, n], target_probs [batch, n + 1, vocab] -> (ids int32
    [batch, n + 1], accepted, emitted).

    Draft tokens are emitted as long as u p_draft < p_target; then comes one token of max(target - draft, 0), or of
    target's last row, and -1 behind it. The counters, int32 [batch], are added to: accepted counts every position whose
    token alone would be accepted, emitted those that are emitted.
    """
    draft, target = common.tensor_of("draft_probs", draft_probs), common.tensor_of("target_probs", target_probs)
    tokens = common.tensor_of("draft_token_ids", draft_token_ids).long()
    common.check_rank("draft_probs", draft, 3)
    batch, n, vocab = draft.shape
    if tuple(tokens.shape) != (batch, n):
        raise Invalid(f"draft_token_ids: {tuple(tokens.shape)}; beside draft_probs {tuple(draft.shape)} it is "
                      f"{(batch, n)}")
    if tuple(target.shape) != (batch, n + 1, vocab):
        raise Invalid(f"target_probs: {tuple(target.shape)}; beside draft_probs {tuple(draft.shape)} it is "
                      f"{(batch, n + 1, vocab)}")
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab:
        raise Invalid(f"draft_token_ids: {int(tokens.min())} to {int(tokens.max())}; the vocabulary has {vocab}")
    device = draft.device
    counters = []
    for name, given in (("maybe_output_accepted_token_num", maybe_output_accepted_token_num),
                        ("maybe_output_emitted_draft_token_num", maybe_output_emitted_draft_token_num)):
        counter = common.check_out(name, given, (batch,), torch.int32, device)
        counters.append(torch.zeros(batch, dtype=torch.int32, device=device) if counter is None else counter)
    bits = _random_bits((batch, n + 1), device, generator, seed, offset)
    u = ((bits[:, :n] >> 11) & (2**53 - 1)).double() * 2.0**-53
    p = draft.gather(2, tokens.unsqueeze(2)).squeeze(2).double()
    q = target[:, :n].gather(2, tokens.unsqueeze(2)).squeeze(2).double()
    accepted = u * p < q
    emitted = accepted.long().cumprod(1).sum(1)
    row = torch.arange(batch, device=device)
    rest = target[row, emitted].float()
    stopped = emitted < n
    if n:
        beyond = (rest - draft[row, emitted.clamp_max(n - 1)].float()).clamp_min(0)
        rest = torch.where(stopped.unsqueeze(1), beyond, rest)
    last = _drawn(rest, bits[:, n].contiguous()).clamp_min(0)
    ids = torch.full((batch, n + 1), -1, dtype=torch.int32, device=device)
    ids[:, :n] = torch.where(torch.arange(n, device=device) < emitted.unsqueeze(1), tokens, -1).to(torch.int32)
    ids[row, emitted] = last
    counters[0] += accepted.sum(1).to(torch.int32)
    counters[1] += emitted.to(torch.int32)
    return ids, counters[0], counters[1]

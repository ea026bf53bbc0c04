"""A step's lengths, and the plans of Weft's that runs over them ask for: one for each mask, made when it is first used.

FlashInfer reads causal, window and cap when it runs; Weft's plans are made for a mask.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import _weft
from . import _common as common
from . import _variants
from ._common import Invalid, Unsupported

# Chunk borders of every kernel are multiples of so many tokens.
_GRANULE = 64
MOST_KEYS = 1 << 30


@dataclasses.dataclass(frozen=True)
class Form:
    """What a plan() fixes for all of its runs."""

    kv_form: str  # of weft.KvForm
    kv_layout: str
    num_qo_heads: int
    num_kv_heads: int
    head_dim_qk: int
    head_dim_vo: int
    q_dtype: torch.dtype
    kv_dtype: torch.dtype
    o_dtype: torch.dtype


@dataclasses.dataclass
class Options:
    """What FlashInfer reads when it runs."""

    causal: bool = False
    pos_encoding_mode: str = "NONE"
    window_left: int = -1
    logits_soft_cap: Optional[float] = None
    sm_scale: Optional[float] = None
    rope_scale: Optional[float] = None
    rope_theta: Optional[float] = None

    def __post_init__(self) -> None:
        common.check_pos_encoding_mode(self.pos_encoding_mode)
        self.window_left = common.whole("window_left", self.window_left, -1)
        if self.logits_soft_cap is not None and math.isnan(common.number("logits_soft_cap", self.logits_soft_cap)):
            raise Invalid("logits_soft_cap = nan; allowed are numbers, 0 and less for none")
        for name, value in (("rope_scale", self.rope_scale), ("rope_theta", self.rope_theta)):
            if value is not None and not 0 < common.number(name, value) < math.inf:
                raise Invalid(f"{name} = {value}; allowed are positive numbers")

    @property
    def has_cap(self) -> bool:
        return self.logits_soft_cap is not None and 0 < self.logits_soft_cap < math.inf


class Custom:
    """A weft.Variant of the caller's, given as jit_args; runs take its tensors and then its scalars, in their order."""

    def __init__(self, jit_args: Any) -> None:
        if not isinstance(jit_args, _weft.Variant):
            raise Unsupported(f"jit_args: required is {type(jit_args).__name__}, CUDA text of a variant; supported is "
                              "a weft.Variant; missing: CUDA text. docs/flashinfer.md shows both forms")
        self.variant = jit_args
        self.tensors = [x.name for x in jit_args.tensors]
        self.scalars = [x.name for x in jit_args.scalars]

    def arguments(self, args: Sequence[Any]) -> tuple[dict[str, float], dict[str, Tensor]]:
        names = self.tensors + self.scalars
        if len(args) != len(names):
            raise TypeError(f"run: {len(args)} arguments of the variant; it declares {len(names)}: {', '.join(names)}")
        tensors = {name: common.tensor_of(name, x) for name, x in zip(self.tensors, args)}
        return {name: float(x) for name, x in zip(self.scalars, args[len(tensors):])}, tensors


@functools.lru_cache(maxsize=1024)
def _kernel(form: Form, mask: str, window: bool, cap: bool, pos_encoding_mode: str, sinks: bool,
            custom: Optional[Custom], device: torch.device) -> _weft.AttentionKernel:
    types = common.WEFT_DTYPE
    variant = custom.variant if custom is not None else _variants.variant(cap, pos_encoding_mode, sinks)
    spec = _weft.AttentionSpec(
        q_dtype=types[form.q_dtype], kv_dtype=types[form.kv_dtype], o_dtype=types[form.o_dtype],
        head_dim_qk=form.head_dim_qk, head_dim_vo=form.head_dim_vo, kv_form=getattr(_weft.KvForm, form.kv_form),
        layout=common.LAYOUTS[form.kv_layout], mask=getattr(_weft.Mask, mask), sliding_window=window, variant=variant)
    return _weft.build(spec, str(device))


@dataclasses.dataclass
class CustomMask:
    kind: str  # of weft.Mask
    bits: Tensor
    indptr: list[int]


def custom_mask(custom: Optional[Tensor], packed: Optional[Tensor], qo_len: Tensor, kv_len: Tensor,
                device: torch.device) -> Optional[CustomMask]:
    """The requests' masks [qo_len * kv_len], one behind the other; of a packed one each begins on a byte."""
    if custom is None and packed is None:
        return None
    parts = qo_len.long() * kv_len.long()
    if packed is not None:
        name, kind, mask = "packed_custom_mask", "custom_packed", common.tensor_of("packed_custom_mask", packed)
        parts = (parts + 7) // 8
        if mask.dtype != torch.uint8:
            raise Invalid(f"packed_custom_mask: its elements are {mask.dtype}; required is torch.uint8")
    else:
        assert custom is not None
        name, kind, mask = "custom_mask", "custom", common.tensor_of("custom_mask", custom)
        if mask.dtype not in (torch.bool, torch.uint8):
            raise Invalid(f"custom_mask: its elements are {mask.dtype}; required is torch.bool")
    indptr = [0] + torch.cumsum(parts, 0).tolist()
    if mask.numel() != indptr[-1]:
        raise Invalid(f"{name}: has {mask.numel()} elements; these lengths need {indptr[-1]}")
    # Copied, as the step's other arrays are; bits are read by words.
    bits = torch.zeros(mask.numel() + 4, dtype=torch.uint8, device=device)
    bits[:mask.numel()].copy_(mask.reshape(-1).view(torch.uint8))
    return CustomMask(kind, bits, indptr)


@dataclasses.dataclass
class PageLists:
    """A page table in FlashInfer's three arrays, on the host."""

    page_size: int
    indptr: Tensor
    indices: Tensor
    last_page_len: Tensor
    kv_len: Tensor

    @property
    def num_pages(self) -> int:
        return int(self.indices.max()) + 1 if self.indices.numel() else 0

    def view(self, num_pages: int) -> _weft.PageTableView:
        return _weft.PageTableView(self.page_size, num_pages, self.indptr, self.indices, self.last_page_len)


def _counts(name: str, indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Pages of each request, and the ids that they name: arrays of ids may be longer."""
    if indptr.numel() == 0 or int(indptr[0]) != 0:
        raise Invalid(f"{name}: begins with {indptr[:1].tolist()}; it has [batch + 1] elements and starts at 0")
    counts = indptr[1:] - indptr[:-1]
    if counts.numel() and int(counts.min()) < 0:
        raise Invalid(f"{name}: {indptr.tolist()} decreases")
    used = int(indptr[-1])
    if used > indices.numel():
        raise Invalid(f"{name}: ends at {used}; there are {indices.numel()} page ids")
    return counts, indices[:used]


def page_lists(indptr: Any, indices: Any, last_page_len: Any, page_size: int, names: str = "paged_kv_") -> PageLists:
    common.whole("page_size", page_size, 1)
    indptr = common.host_ints(names + "indptr", indptr)
    last = common.host_ints(names + "last_page_len", last_page_len)
    counts, indices = _counts(names + "indptr", indptr, common.host_ints(names + "indices", indices))
    if last.numel() != counts.numel():
        raise Invalid(f"{names}last_page_len: has {last.numel()} elements; {names}indptr says {counts.numel()} "
                      "requests")
    last = torch.where(counts == 0, 0, last)
    wrong = (counts > 0) & ((last < 1) | (last > page_size))
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise Invalid(f"{names}last_page_len[{at}] = {int(last[at])}; allowed are 1 to the page size {page_size}")
    return PageLists(page_size, indptr, indices, last, (counts - 1).clamp_min(0) * page_size + last)


def page_lists_of_lengths(indptr: Any, indices: Any, kv_len: Any, page_size: int) -> PageLists:
    """The same of lengths, which say how many requests there are; one may have more pages than its length needs."""
    indptr, kv_len = common.host_ints("kv_indptr", indptr), common.host_ints("kv_len_arr", kv_len)
    common.whole("page_size", page_size, 1)
    indptr = indptr[:kv_len.numel() + 1]
    counts, indices = _counts("kv_indptr", indptr, common.host_ints("kv_indices", indices))
    if kv_len.numel() != counts.numel():
        raise Invalid(f"kv_len_arr: has {kv_len.numel()} elements; kv_indptr says {counts.numel()} requests")
    needed = (kv_len + page_size - 1) // page_size
    wrong = (kv_len < 0) | (needed > counts)
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise Invalid(f"kv_len_arr[{at}] = {int(kv_len[at])}; allowed are 0 to {int(counts[at]) * page_size}, "
                      f"the tokens of its {int(counts[at])} pages")
    if not torch.equal(needed, counts):
        kept = torch.cat([torch.arange(int(b), int(b + n)) for b, n in zip(indptr[:-1], needed)]
                         or [torch.empty(0, dtype=torch.int64)])
        indices = indices[kept]
        indptr = torch.cat([torch.zeros(1, dtype=torch.int32), torch.cumsum(needed, 0).int()])
    return PageLists(page_size, indptr, indices, torch.where(needed == 0, 0, kv_len - (needed - 1) * page_size).int(),
                     kv_len)


def split_mode(fixed_split_size: Optional[int], disable_split_kv: bool, unit: int) -> dict[str, Any]:
    """How a plan cuts its work; `unit`: tokens that fixed_split_size counts."""
    if disable_split_kv:
        return {"mode": _weft.PlanMode.no_split}
    size = 0 if fixed_split_size is None else common.whole("fixed_split_size", fixed_split_size, -2**31)
    if size <= 0:
        return {}
    return {"mode": _weft.PlanMode.fixed_split,
            "fixed_split_size": min(-(-size * unit // _GRANULE) * _GRANULE, MOST_KEYS)}


def pair_of(paged_kv_cache: Any, kv_layout: str) -> tuple[Tensor, Tensor]:
    """Keys and values [pages, ...] of a cache, which is a pair or one tensor with an axis of 2 behind the pages.

    A cache without an axis of slots has pages of one token.
    """
    if isinstance(paged_kv_cache, (tuple, list)):
        if len(paged_kv_cache) != 2:
            raise Invalid(f"paged_kv_cache: has {len(paged_kv_cache)} parts; required are (k_cache, v_cache)")
        k, v = (common.tensor_of(name, x) for name, x in zip(("k_cache", "v_cache"), paged_kv_cache))
        common.check_rank("k_cache", k, 3, 4)
        common.check_rank("v_cache", v, 3, 4)
    else:
        both = common.tensor_of("paged_kv_cache", paged_kv_cache)
        common.check_rank("paged_kv_cache", both, 4, 5)
        if both.shape[1] != 2:
            raise Invalid(f"paged_kv_cache: {tuple(both.shape)} has {both.shape[1]} behind the pages; required are 2, "
                          "keys and values")
        k, v = both.unbind(1)
    if k.dim() == 3:
        axis = 1 if kv_layout == "NHD" else 2
        k, v = k.unsqueeze(axis), v.unsqueeze(axis)
    return k, v


@dataclasses.dataclass
class HeldPlan:
    """Where CUDA graphs find the plan of one kind of run: a workspace as large as the bounds ask for, with the plan that
    was uploaded last."""

    kernel: _weft.AttentionKernel
    bounds: _weft.PlanBounds
    workspace: _weft.Workspace
    is_captured: bool = False  # by some graph: it stays
    is_used: bool = False      # since the wrapper's plan() was called last: it gets the next plan, too


Held = dict[Any, HeldPlan]  # by Batch._key


class Batch:
    """One step: its lengths, and a plan of Weft's for each mask that a run asks for.

    `lengths` are fields of weft.PlanInput. `previous`: of the step before; where its plans cover these lengths they go
    on, which is cheaper than new ones.
    """

    def __init__(self, form: Form, lengths: Mapping[str, Any], *, device: torch.device, num_rows: int,
                 first_position: int = 0, max_kv_len: int = 0, mask: Optional[CustomMask] = None,
                 split: Optional[Mapping[str, Any]] = None, custom: Optional[Custom] = None,
                 previous: Optional[Batch] = None) -> None:
        for name in ("num_qo_heads", "num_kv_heads", "head_dim_qk", "head_dim_vo"):
            common.whole(name, getattr(form, name), 1)
        if form.num_qo_heads % form.num_kv_heads:
            raise Invalid(f"num_qo_heads = {form.num_qo_heads}, num_kv_heads = {form.num_kv_heads}; the second divides "
                          "the first")
        self.form, self.device, self.num_rows, self.mask, self.custom = form, device, num_rows, mask, custom
        self.first_position, self.max_kv_len = first_position, max_kv_len
        self.lengths = {"num_qo_heads": form.num_qo_heads, "num_kv_heads": form.num_kv_heads, **lengths,
                        **(split or {})}
        if mask is not None:
            self.lengths["mask_indptr"] = mask.indptr
        self._held: Optional[Held] = None
        self._bounds: dict[str, int] = {}
        self._plans: dict[Any, tuple[_weft.AttentionKernel, _weft.Plan]] = {}
        self._previous: dict[Any, tuple[_weft.AttentionKernel, _weft.Plan]] = {}
        if previous is not None and mask is None and previous.mask is None:
            self._previous = previous._plans

    def hold(self, held: Held, bounds: Mapping[str, int], options: Options, sinks: bool) -> None:
        """From here on runs take their plans from the workspaces of `held`, which gets this step's plans: for a run of
        these options, for what graphs have captured, and for what runs of the step before have asked for."""
        self._held, self._bounds = held, dict(bounds)
        wanted = {key for key, plan in held.items() if plan.is_captured or plan.is_used} | {self._key(options, sinks)}
        for key in held.keys() - wanted:
            del held[key]
        for plan in held.values():
            plan.is_used = False
        for key in wanted:
            if key[0] == self.form:
                self._uploaded(key)

    @property
    def is_split(self) -> bool:
        """Whether requests are cut into chunks of one size."""
        return "fixed_split_size" in self.lengths

    def _key(self, options: Options, sinks: bool) -> tuple[Any, ...]:
        mask = self.mask.kind if self.mask is not None else "causal" if options.causal else "none"
        return self.form, mask, options.window_left, options.has_cap, options.pos_encoding_mode, sinks

    def _uploaded(self, key: tuple[Any, ...]) -> HeldPlan:
        """With this step's plan in its workspace."""
        assert self._held is not None
        found = self._held.get(key)
        if key in self._plans and found is not None:
            return found
        if common.captures(self.device):
            raise Unsupported("run: required is a plan for what this run asks for; supported inside of a capture is what "
                              "plan() or a run before was given; missing: uploads in captures. Run once before")
        kernel, given = self._input(key)
        if found is None:
            workers = kernel.plan(given).num_workers
            bounds = _weft.PlanBounds(num_qo_heads=self.form.num_qo_heads, num_kv_heads=self.form.num_kv_heads,
                                      workers=workers, mode=given.mode, fixed_split_size=given.fixed_split_size,
                                      **self._bounds)
            found = HeldPlan(kernel, bounds, _weft.Workspace(str(self.device), kernel.workspace_bytes(bounds)))
        plan = found.kernel.plan(given.replace(bounds=found.bounds))
        plan.upload(found.workspace, stream=common.stream_on(self.device))
        self._held[key] = found
        self._plans[key] = found.kernel, plan
        return found

    def _input(self, key: tuple[Any, ...]) -> tuple[_weft.AttentionKernel, _weft.PlanInput]:
        _, mask, window_left, has_cap, pos_encoding_mode, sinks = key
        windowed = window_left >= 0
        kernel = _kernel(self.form, mask, windowed, has_cap, pos_encoding_mode, sinks, self.custom, self.device)
        return kernel, _weft.PlanInput(**self.lengths, num_workers=common.num_workers_on(self.device),
                                       scalars={"window_left": window_left} if windowed else {})

    def plan_for(self, options: Options,
                 sinks: bool) -> tuple[_weft.AttentionKernel, Union[_weft.Plan, _weft.Workspace]]:
        key = self._key(options, sinks)
        if self._held is not None:
            held = self._uploaded(key)
            held.is_used = True
            held.is_captured |= common.captures(self.device)
            return held.kernel, held.workspace
        found = self._plans.get(key)
        if found is not None:
            return found
        kernel, given = self._input(key)
        before = self._previous.pop(key, None)
        if before is not None and before[0] is kernel and before[1].covers(given):
            plan = before[1]
            plan.update(given)
        else:
            plan = kernel.plan(given)
        self._plans[key] = kernel, plan
        return kernel, plan

    def check_q(self, q: Any) -> Tensor:
        made = common.tensor_of("q", q)
        form, required = self.form, (self.num_rows, self.form.num_qo_heads, self.form.head_dim_qk)
        if made.dtype != form.q_dtype:
            raise Invalid(f"The dtype of q {made.dtype} does not match the q_data_type {form.q_dtype} specified in "
                          "plan")
        if tuple(made.shape) != required:
            raise Invalid(f"q: {tuple(made.shape)}; the plan is for {required}, [nnz_qo, num_qo_heads, head_dim]")
        return made

    def run(self, q: Any, k: Tensor, v: Tensor, options: Options, *, sm_scale: Optional[float] = None,
            v_scale: Union[None, float, Tensor] = None, out: Optional[Tensor] = None, lse: Optional[Tensor] = None,
            return_lse: bool = False, lse_base: str = "log2", lse_layout: str = "NH", sinks: Optional[Tensor] = None,
            args: Sequence[Any] = ()) -> tuple[Tensor, Optional[Tensor]]:
        """(o, lse); lse is None where nobody asks for it. sm_scale: of options, times the scales of q and k."""
        q = self.check_q(q)
        form = self.form
        if k.dtype != form.kv_dtype or v.dtype != form.kv_dtype:
            raise Invalid(f"The dtype of k {k.dtype} and v {v.dtype} does not match the kv_data_type {form.kv_dtype} "
                          "specified in plan")
        scalars, tensors = self._parameters(options, sinks, args)
        kernel, plan = self.plan_for(options, sinks is not None)
        out = common.check_out("out", out, (*q.shape[:2], form.head_dim_vo), form.o_dtype, q.device)
        wants_lse = return_lse or lse is not None
        to_lse = self._lse_out(q, lse, lse_base, lse_layout) if wants_lse else None
        made = kernel.run(plan, q, (k, v), out, to_lse, sm_scale=sm_scale, scalars=scalars, tensors=tensors,
                          stream=common.stream_of(q))
        o = made[0] if wants_lse else made
        if v_scale is not None:
            factor = common.number("v_scale", v_scale)
            if factor != 1:
                o.mul_(factor)
        if to_lse is None:
            return o, None
        if lse_base == "log2":
            to_lse.mul_(common.LOG2_E)
        return o, to_lse if lse_layout == "NH" else to_lse.t()

    def _parameters(self, options: Options, sinks: Optional[Tensor],
                    args: Sequence[Any]) -> tuple[dict[str, float], dict[str, Tensor]]:
        if self.custom is not None:
            if options.has_cap or options.pos_encoding_mode != "NONE" or sinks is not None:
                raise Unsupported("jit_args: required is a variant beside logits_soft_cap, pos_encoding_mode or sinks; "
                                  "supported is one of them; missing: write the others into the variant's text")
            scalars, tensors = self.custom.arguments(args)
        elif args:
            raise TypeError(f"run: {len(args)} arguments too many; only a wrapper made with jit_args takes them")
        else:
            scalars, tensors = {}, {}
        if options.has_cap:
            assert options.logits_soft_cap is not None
            scalars["cap"] = options.logits_soft_cap
        if options.pos_encoding_mode == "ALIBI":
            tensors["slopes"] = _variants.slopes_on(self.form.num_qo_heads, self.device)
        if options.pos_encoding_mode == "ROPE_LLAMA":
            tensors["rope_cos"], tensors["rope_sin"], scalars["rope_base"] = _variants.rope_table(
                options.rope_theta or 1e4, options.rope_scale or 1.0, self.form.head_dim_qk, self.first_position,
                max(self.max_kv_len, 1), self.device)
        if sinks is not None:
            sinks = common.tensor_of("sinks", sinks)
            if tuple(sinks.shape) != (self.form.num_qo_heads,):
                raise Invalid(f"sinks: {tuple(sinks.shape)}; required is one of each query head, "
                              f"[{self.form.num_qo_heads}]")
            tensors["sinks"] = sinks.float().contiguous()
        if self.mask is not None:
            tensors["mask"] = self.mask.bits
        return scalars, tensors

    def _lse_out(self, q: Tensor, lse: Optional[Tensor], lse_base: str, lse_layout: str) -> Tensor:
        if lse_base not in ("log2", "ln"):
            raise Invalid(f"lse_base = {lse_base!r}; allowed are 'log2' and 'ln'")
        if lse_layout not in ("NH", "HN"):
            raise Invalid(f"lse_layout = {lse_layout!r}; allowed are 'NH' and 'HN'")
        rows, heads = q.shape[:2]
        shape = (rows, heads) if lse_layout == "NH" else (heads, rows)
        lse = common.check_out("lse", lse, shape, torch.float32, q.device)
        if lse is None:
            lse = torch.empty(shape, dtype=torch.float32, device=q.device)
        return lse if lse_layout == "NH" else lse.t()


def scale_of(options: Options, head_dim_qk: int, q_scale: Union[None, float, Tensor] = None,
             k_scale: Union[None, float, Tensor] = None) -> float:
    scale = 1 / math.sqrt(head_dim_qk) if options.sm_scale is None else common.number("sm_scale", options.sm_scale)
    return scale * common.number("q_scale", q_scale) * common.number("k_scale", k_scale)


def indptr_of(name: str, x: Any) -> tuple[Tensor, Tensor]:
    """(indptr, lengths) on the host."""
    indptr = common.host_ints(name, x)
    if indptr.numel() == 0 or int(indptr[0]) != 0:
        raise Invalid(f"{name}: begins with {indptr[:1].tolist()}; it has [batch + 1] elements and starts at 0")
    lengths = indptr[1:] - indptr[:-1]
    if lengths.numel() and int(lengths.min()) < 0:
        raise Invalid(f"{name}: {indptr.tolist()} decreases")
    return indptr, lengths


def paged(form: Form, qo_indptr: Any, pages: PageLists, device: torch.device, *, custom: Any = None,
          packed: Any = None, split: Optional[Mapping[str, Any]] = None, variant: Optional[Custom] = None,
          previous: Optional[Batch] = None) -> Batch:
    """A step over a paged or latent cache."""
    indptr, qo_len = indptr_of("qo_indptr", qo_indptr)
    if qo_len.numel() != pages.kv_len.numel():
        raise Invalid(f"qo_indptr: says {qo_len.numel()} requests, the page table {pages.kv_len.numel()}")
    return Batch(form, {"qo_indptr": indptr, "pages": pages.view(pages.num_pages)}, device=device,
                 num_rows=int(indptr[-1]), mask=custom_mask(custom, packed, qo_len, pages.kv_len, device), split=split,
                 custom=variant, previous=previous, **positions(qo_len, pages.kv_len))


def ragged(form: Form, qo_indptr: Any, kv_indptr: Any, device: torch.device, *, custom: Any = None, packed: Any = None,
           split: Optional[Mapping[str, Any]] = None, variant: Optional[Custom] = None,
           previous: Optional[Batch] = None) -> Batch:
    """A step over keys and values that lie one request behind the other."""
    indptr, qo_len = indptr_of("qo_indptr", qo_indptr)
    keys, kv_len = indptr_of("kv_indptr", kv_indptr)
    if qo_len.numel() != kv_len.numel():
        raise Invalid(f"qo_indptr: says {qo_len.numel()} requests, kv_indptr {kv_len.numel()}")
    return Batch(form, {"qo_indptr": indptr, "kv_indptr": keys}, device=device, num_rows=int(indptr[-1]),
                 mask=custom_mask(custom, packed, qo_len, kv_len, device), split=split, custom=variant,
                 previous=previous, **positions(qo_len, kv_len))


def positions(qo_len: Tensor, kv_len: Tensor) -> dict[str, Any]:
    if qo_len.numel() == 0:
        return {}
    return {"first_position": int((kv_len - qo_len).min()), "max_kv_len": int(kv_len.max())}

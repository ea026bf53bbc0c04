"""Weft's operators as those of torch: weft::run, weft::rms_norm, ... of torch.library, for torch.compile and autograd.

    attention = weft.torch.Attention(kernel, plan)         # a handle: compiled code names it, and not what it holds
    o, lse = attention(q, (k_pages, v_pages))
    attention.plan = kernel.plan(...)                      # the next step's; nothing is compiled anew

Arguments that are written are named as such, shapes are known without running (fake tensors), and spmm and sddmm have
gradients. They detach what they are given, as DLPack gives no other tensors away. Outside of them torch's tensors go
into all of Weft's calls as any array does.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from . import _weft
from ._streams import stream_of as _stream

_handles: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_next = 0


class _Handle:
    def __init__(self) -> None:
        global _next
        _next += 1
        self.handle = _next
        _handles[_next] = self


def _held(handle: int, kind: type) -> Any:
    found = _handles.get(handle)
    if not isinstance(found, kind):
        raise RuntimeError(f"handle {handle} names no {kind.__name__} that is still there: keep the object that had it")
    return found


# ---------------------------------------------------------------- attention


class Attention(_Handle):
    """A kernel with the plan of the current step, for torch.compile."""

    def __init__(self, kernel: _weft.AttentionKernel, plan: _weft.Plan) -> None:
        super().__init__()
        self.kernel, self.plan = kernel, plan
        self.head_dim_vo = kernel.spec.head_dim_vo
        self.dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[kernel.spec.o_dtype.name]

    def __call__(self, q: Tensor, kv: tuple[Tensor, Tensor] | Tensor, *, sm_scale: Optional[float] = None,
                 scalars: Optional[Mapping[str, float]] = None,
                 tensors: Optional[Mapping[str, Tensor]] = None) -> tuple[Tensor, Tensor]:
        """(o, lse) as AttentionKernel.run gives them."""
        k, v = kv if isinstance(kv, tuple) else (kv, None)
        numbers, arrays = scalars or {}, tensors or {}
        made: tuple[Tensor, Tensor] = run(self.handle, q, k, v, sm_scale, ",".join(numbers),
                                          [float(x) for x in numbers.values()], ",".join(arrays), list(arrays.values()))
        return made


@torch.library.custom_op("weft::run", mutates_args=())
def run(handle: int, q: Tensor, k: Tensor, v: Optional[Tensor], sm_scale: Optional[float], scalar_names: str,
        scalars: Sequence[float], tensor_names: str, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """As Attention calls it; names are joined by commas."""
    held = _held(handle, Attention)
    q, k = q.detach(), k.detach()
    o, lse = held.kernel.run(held.plan, q, k if v is None else (k, v.detach()), return_lse=True, sm_scale=sm_scale,
                             scalars=dict(zip(scalar_names.split(","), scalars)),
                             tensors=dict(zip(tensor_names.split(","), [x.detach() for x in tensors])),
                             stream=_stream(q))
    return o, lse


@run.register_fake
def _(handle: int, q: Tensor, k: Tensor, v: Optional[Tensor], sm_scale: Optional[float], scalar_names: str,
      scalars: Sequence[float], tensor_names: str, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    held = _held(handle, Attention)
    return (q.new_empty((q.shape[0], q.shape[1], held.head_dim_vo), dtype=held.dtype),
            q.new_empty((q.shape[0], q.shape[1]), dtype=torch.float32))


class Pages(_Handle):
    """Where new tokens of a step go: append_indptr, page table and layout of weft.append_paged_kv."""

    def __init__(self, append_indptr: Any, pages: _weft.PageTableView, layout: _weft.Layout = _weft.Layout.nhd) -> None:
        super().__init__()
        self.append_indptr, self.pages, self.layout = append_indptr, pages, layout

    def append(self, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor) -> None:
        """Writes k and v [tokens, num_kv_heads, head_dim] to their places in the caches [pages, ...]."""
        append_paged_kv(self.handle, k, v, k_cache, v_cache)


@torch.library.custom_op("weft::append_paged_kv", mutates_args=("k_cache", "v_cache"))
def append_paged_kv(handle: int, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor) -> None:
    """As Pages.append calls it."""
    held = _held(handle, Pages)
    _weft.append_paged_kv(k.detach(), v.detach(), held.append_indptr, held.pages, held.layout,
                          (k_cache.detach(), v_cache.detach()), stream=_stream(k))


@append_paged_kv.register_fake
def _(handle: int, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor) -> None:
    return None


@torch.library.custom_op("weft::merge_states", mutates_args=())
def merge_states(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """o [states, rows, heads, dim], lse [states, rows, heads] -> (o, lse) of one state a row."""
    merged, merged_lse = _weft.merge_states(o.detach(), lse.detach(), stream=_stream(o))
    return merged, merged_lse


@merge_states.register_fake
def _(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    return o.new_empty(o.shape[1:]), lse.new_empty(lse.shape[1:])


# ---------------------------------------------------------------- rows


@torch.library.custom_op("weft::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [rows, dim] / sqrt(mean of squares + eps) * weight [dim]."""
    made: Tensor = _weft.rms_norm(x.detach(), weight.detach(), eps, stream=_stream(x))
    return made


@rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("weft::add_rms_norm", mutates_args=("residual",))
def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """residual += x, in place; the norm of that."""
    made: Tensor = _weft.add_rms_norm(x.detach(), residual.detach(), weight.detach(), eps, stream=_stream(x))
    return made


@add_rms_norm.register_fake
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("weft::silu_and_mul", mutates_args=())
def silu_and_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, of equal shapes [rows, dim]."""
    made: Tensor = _weft.silu_and_mul(gate.detach(), up.detach(), stream=_stream(gate))
    return made


@silu_and_mul.register_fake
def _(gate: Tensor, up: Tensor) -> Tensor:
    return gate.new_empty(gate.shape)


@torch.library.custom_op("weft::gelu_tanh_and_mul", mutates_args=())
def gelu_tanh_and_mul(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate), by tanh, * up, of equal shapes [rows, dim]."""
    made: Tensor = _weft.gelu_tanh_and_mul(gate.detach(), up.detach(), stream=_stream(gate))
    return made


@gelu_tanh_and_mul.register_fake
def _(gate: Tensor, up: Tensor) -> Tensor:
    return gate.new_empty(gate.shape)


@torch.library.custom_op("weft::apply_rope", mutates_args=("x",))
def apply_rope(x: Tensor, positions: Tensor, halves: bool = True, theta: float = 10000.0, rotary_dim: int = 0) -> None:
    """In place on x [rows, heads, dim]; positions int32 [rows]. Scaled forms: weft.apply_rope."""
    pairs = _weft.RopePairs.halves if halves else _weft.RopePairs.adjacent
    params = _weft.RopeParams(pairs=pairs, theta=theta, rotary_dim=rotary_dim)
    _weft.apply_rope(x.detach(), positions.detach(), params, stream=_stream(x))


@apply_rope.register_fake
def _(x: Tensor, positions: Tensor, halves: bool = True, theta: float = 10000.0, rotary_dim: int = 0) -> None:
    return None


@torch.library.custom_op("weft::sample", mutates_args=())
def sample(logits: Tensor, seeds: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
           min_p: float = 0.0) -> Tensor:
    """A token a row of logits [rows, vocab] fp32 on the CPU: int64 [rows], row i drawn by seeds[i]."""
    params = _weft.SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    generators = [_weft.Generator(int(seed) & (2**64 - 1)) for seed in seeds]
    return torch.tensor(_weft.sample_rows(logits.detach(), [params] * len(generators), generators), dtype=torch.int64)


@sample.register_fake
def _(logits: Tensor, seeds: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
      min_p: float = 0.0) -> Tensor:
    return logits.new_empty((logits.shape[0],), dtype=torch.int64)


# ---------------------------------------------------------------- sparse operators


class Matrix(_Handle):
    """A structure of weft.sparse and, once a gradient asks for it, that of its transpose."""

    def __init__(self, structure: _weft.sparse.Structure) -> None:
        super().__init__()
        self.structure = structure
        self.num_rows, self.nnz = structure.num_rows, structure.nnz
        self._transposed: Optional[_weft.sparse.Transposed] = None

    @property
    def transposed(self) -> _weft.sparse.Transposed:
        if self._transposed is None:
            self._transposed = _weft.sparse.transposed(self.structure)
        return self._transposed

    def spmm(self, values: Tensor, b: Tensor) -> Tensor:
        """values [nnz], b [n, feat] -> [m, feat], with gradients of both."""
        made: Tensor = spmm(self.handle, values, b)
        return made

    def sddmm(self, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """values [nnz], x [m, feat], y [n, feat] -> [nnz], with gradients of all."""
        made: Tensor = sddmm(self.handle, values, x, y)
        return made


@torch.library.custom_op("weft::spmm", mutates_args=())
def spmm(handle: int, values: Tensor, b: Tensor) -> Tensor:
    """As Matrix.spmm calls it."""
    made: Tensor = _weft.sparse.spmm(_held(handle, Matrix).structure, values.detach(), b.detach(), stream=_stream(b))
    return made


@spmm.register_fake
def _(handle: int, values: Tensor, b: Tensor) -> Tensor:
    return b.new_empty((_held(handle, Matrix).num_rows, b.shape[1]))


@torch.library.custom_op("weft::spmm_backward", mutates_args=())
def spmm_backward(handle: int, values: Tensor, b: Tensor, d_c: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of values and b, d_c being that of spmm's result."""
    held = _held(handle, Matrix)
    d_values, d_b = values.new_empty(values.shape), b.new_empty(b.shape)
    _weft.sparse.spmm_backward(held.structure, held.transposed, values.detach(), b.detach(),
                               d_c.detach().contiguous(), d_values, d_b, stream=_stream(b))
    return d_values, d_b


@spmm_backward.register_fake
def _(handle: int, values: Tensor, b: Tensor, d_c: Tensor) -> tuple[Tensor, Tensor]:
    return values.new_empty(values.shape), b.new_empty(b.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.handle = inputs[0]
    ctx.save_for_backward(*inputs[1:])


spmm.register_autograd(lambda ctx, d_c: (None, *spmm_backward(ctx.handle, *ctx.saved_tensors, d_c)),
                       setup_context=_keep)


@torch.library.custom_op("weft::sddmm", mutates_args=())
def sddmm(handle: int, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """As Matrix.sddmm calls it."""
    made: Tensor = _weft.sparse.sddmm(_held(handle, Matrix).structure, values.detach(), x.detach(), y.detach(),
                                      stream=_stream(x))
    return made


@sddmm.register_fake
def _(handle: int, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return values.new_empty(values.shape)


@torch.library.custom_op("weft::sddmm_backward", mutates_args=())
def sddmm_backward(handle: int, values: Tensor, x: Tensor, y: Tensor,
                   d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of values, x and y, d_out being that of sddmm's result."""
    held = _held(handle, Matrix)
    d_values, d_x, d_y = values.new_empty(values.shape), x.new_empty(x.shape), y.new_empty(y.shape)
    _weft.sparse.sddmm_backward(held.structure, held.transposed, values.detach(), x.detach(), y.detach(),
                                d_out.detach().contiguous(), d_values, d_x, d_y, stream=_stream(x))
    return d_values, d_x, d_y


@sddmm_backward.register_fake
def _(handle: int, values: Tensor, x: Tensor, y: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return values.new_empty(values.shape), x.new_empty(x.shape), y.new_empty(y.shape)


sddmm.register_autograd(lambda ctx, d_out: (None, *sddmm_backward(ctx.handle, *ctx.saved_tensors, d_out)),
                        setup_context=_keep)

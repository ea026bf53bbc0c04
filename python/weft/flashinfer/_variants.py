"""The class texts of FlashInfer's options: soft caps, ALiBi, rotations and sinks, one or several at a time."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from .. import _weft

# Angles are a table of float32 made in double: a float holds no angle of position 100,000 to three digits. Row 0 is
# position -rope_base, which a request of more queries than keys has.
_ROPE = """  static real turned(P p, Vec x, int i, int pos) {
    const int half = x.size() / 2, pair = i < half ? i : i - half;
    return x[i] * p.rope_cos(pos + p.rope_base, pair) + weft::pair_halves(x, i) * p.rope_sin(pos + p.rope_base, pair);
  }
  real query_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r.pos); }
  real key_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r.pos); }
"""
_SINK = """  real lse_transform(P p, Row r) {
    const real s = p.sinks(r.head), top = weft::max(s, r.lse);
    return weft::abs(top) == weft::infinity() ? top : top + weft::log(weft::exp(s - top) + weft::exp(r.lse - top));
  }
  real output_transform(P p, Vec x, int i, Row r) {
    return r.lse == -weft::infinity() ? 0 : x[i] * weft::sigmoid(r.lse - p.sinks(r.head));
  }
"""


@functools.lru_cache(maxsize=None)
def variant(cap: bool, pos_encoding_mode: str, sinks: bool) -> _weft.Variant:
    """The built-in variant where one option is set, which needs no compiler; else one text of all."""
    alibi, rope = pos_encoding_mode == "ALIBI", pos_encoding_mode == "ROPE_LLAMA"
    if not (cap or alibi or rope or sinks):
        return _weft.variants.plain()
    if not rope and cap + alibi + sinks == 1:
        return (_weft.variants.logits_soft_cap() if cap else
                _weft.variants.alibi() if alibi else _weft.variants.attention_sink())
    name, body, scalars, tensors = "FlashInfer", "", [], []
    if rope:
        name, body = name + "Rope", body + _ROPE
        scalars.append(_weft.ScalarDecl(name="rope_base", kind=_weft.ScalarKind.integer))
        tensors += [_weft.TensorDecl(name="rope_cos", rank=2), _weft.TensorDecl(name="rope_sin", rank=2)]
    if alibi or cap:
        biased = "s + p.slopes(c.qo_head) * real(c.kv_pos - c.q_pos)" if alibi else "s"
        capped = f"p.cap * weft::tanh(({biased}) * (1 / p.cap))" if cap else biased
        body += f"  real logits_transform(P p, Score c, real s) {{ return {capped}; }}\n"
    if alibi:
        name += "Alibi"
        tensors.append(_weft.TensorDecl(name="slopes"))
    if cap:
        name += "Cap"
        scalars.append(_weft.ScalarDecl(name="cap"))
    if sinks:
        name, body = name + "Sink", body + _SINK
        tensors.append(_weft.TensorDecl(name="sinks"))
    return _weft.Variant(name=name, text=f"struct {name} {{\n{body}}};\n", scalars=scalars, tensors=tensors)


def get_alibi_slopes(n_heads: int) -> Tensor:
    """ALiBi's slope of each head, float32 [n_heads] (Press et al., section 3)."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(n_heads - power)]
    return torch.tensor(slopes, dtype=torch.float32)


@functools.lru_cache(maxsize=16)
def slopes_on(n_heads: int, device: torch.device) -> Tensor:
    return get_alibi_slopes(n_heads).to(device)


@functools.lru_cache(maxsize=16)
def _rope_table(theta: float, scale: float, half: int, base: int, end: int,
                device: torch.device) -> tuple[Tensor, Tensor]:
    positions = torch.arange(-base, end, dtype=torch.float64) / scale
    angles = torch.outer(positions, theta ** (-torch.arange(half, dtype=torch.float64) / half))
    return angles.cos().float().to(device), angles.sin().float().to(device)


def rope_table(theta: float, scale: float, head_dim: int, first: int, end: int,
               device: torch.device) -> tuple[Tensor, Tensor, int]:
    """cos and sin [positions, head_dim / 2] from position -base on, to `end` at least; and base."""
    base = 0 if first >= 0 else 1 << max(6, (-first - 1).bit_length())
    cos, sin = _rope_table(theta, scale, head_dim // 2, base, 1 << max(10, (end - 1).bit_length()), device)
    return cos, sin, base

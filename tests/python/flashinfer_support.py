"""What the tests of weft.flashinfer's attention share: attention in fp64, by definition; batches of torch's tensors."""
import math
import random

import torch

import weft.flashinfer as fi
from support import SEED

TOLERANCE = {torch.float32: 3e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
WORKSPACE = torch.empty(64, dtype=torch.uint8)


def turned(x, positions, theta=1e4, scale=1.0):
    """x [tokens, heads, dim] in fp64, halves style."""
    half = x.shape[-1] // 2
    angles = (positions.double() / scale)[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def reference(q, k, v, *, causal=False, window_left=-1, logits_soft_cap=None, sm_scale=None, pos_encoding_mode="NONE",
              mask=None, sinks=None, rope_theta=1e4, rope_scale=1.0):
    """(o, lse in base 2) of one request: q [qo_len, heads, dim], k and v [kv_len, kv_heads, dim]."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    i = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
    j = torch.arange(k.shape[0])[None]
    if pos_encoding_mode == "ROPE_LLAMA":
        q, k = turned(q, i[:, 0], rope_theta, rope_scale), turned(k, j[0], rope_theta, rope_scale)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) * (sm_scale if sm_scale is not None else 1 / math.sqrt(q.shape[2]))
    if pos_encoding_mode == "ALIBI":
        scores = scores + fi.utils.get_alibi_slopes(q.shape[1]).double()[:, None, None] * (j - i)
    if logits_soft_cap is not None and logits_soft_cap > 0:
        scores = logits_soft_cap * torch.tanh(scores / logits_soft_cap)
    seen = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool)
    if mask is not None:
        seen = mask.clone()
    elif causal:
        seen = j <= i
    if window_left >= 0:
        seen = seen & (j >= i - window_left)
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, q.shape[0], 1)], -1)
        v = torch.cat([v, torch.zeros(1, *v.shape[1:], dtype=v.dtype)])
    lse = torch.logsumexp(scores, -1)
    weights = torch.nan_to_num(torch.exp(scores - lse[..., None]), nan=0.0)
    return torch.einsum("hij,jhd->ihd", weights, v), lse.T / math.log(2)


class Batch:
    """Requests of (qo_len, kv_len) over a pool of pages in random order; slots that nobody reads hold NaN."""

    def __init__(self, lengths, heads=4, kv_heads=2, dim=64, page_size=4, layout="NHD", dtype=torch.float32,
                 kv_dtype=None, seed=SEED):
        generator = torch.Generator().manual_seed(seed)
        kv_dtype = kv_dtype or dtype
        make = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
        self.lengths, self.layout, self.page_size, self.heads, self.kv_heads, self.dim = (
            lengths, layout, page_size, heads, kv_heads, dim)
        self.q = make(sum(qo for qo, _ in lengths), heads, dim).to(dtype)
        self.k = [make(kv, kv_heads, dim).to(kv_dtype) for _, kv in lengths]
        self.v = [make(kv, kv_heads, dim).to(kv_dtype) for _, kv in lengths]
        total = lambda numbers: torch.tensor([0, *numbers]).cumsum(0).int()  # noqa: E731
        self.qo_indptr, self.kv_indptr = total(qo for qo, _ in lengths), total(kv for _, kv in lengths)
        counts = [-(-kv // page_size) for _, kv in lengths]
        self.indptr = total(counts)
        self.num_pages = sum(counts) + 3
        self.indices = torch.randperm(self.num_pages, generator=generator)[:sum(counts)].int()
        self.last_page_len = torch.tensor([kv - (n - 1) * page_size if n else 0
                                           for (_, kv), n in zip(lengths, counts)], dtype=torch.int32)
        pages = torch.full((self.num_pages, 2, page_size, kv_heads, dim), math.nan).to(kv_dtype)
        for r, (_, kv) in enumerate(lengths):
            for t in range(kv):
                page = int(self.indices[int(self.indptr[r]) + t // page_size])
                pages[page, 0, t % page_size], pages[page, 1, t % page_size] = self.k[r][t], self.v[r][t]
        self.pages = pages if layout == "NHD" else pages.transpose(2, 3).contiguous()

    def cache(self, one=True):
        return self.pages if one else tuple(x.contiguous() for x in self.pages.unbind(1))

    def ragged(self):
        k, v = torch.cat(self.k), torch.cat(self.v)
        return (k, v) if self.layout == "NHD" else tuple(x.transpose(0, 1).contiguous() for x in (k, v))

    def table(self):
        return self.indptr, self.indices, self.last_page_len

    def reference(self, masks=None, **options):
        parts = [reference(self.q[self.qo_indptr[r]:self.qo_indptr[r + 1]], self.k[r], self.v[r],
                           mask=None if masks is None else masks[r], **options) for r in range(len(self.lengths))]
        return torch.cat([o for o, _ in parts]), torch.cat([lse for _, lse in parts])


def some(count, seed=SEED, **axes):
    """`count` cases of a grid, each value of each axis in turn, in random company."""
    draw = random.Random(seed)
    columns = {}
    for name, values in axes.items():
        repeated = [values[i % len(values)] for i in range(count)]
        draw.shuffle(repeated)
        columns[name] = repeated
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]

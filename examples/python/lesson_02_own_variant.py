"""Lesson 2: an attention variant of your own, compiled when it is first built.

Attention sinks with a window: a token sees the first few tokens and those shortly before it, logits are capped, and each
head adds a learned bias to every key. The two intervals are data, so that the planner skips what nobody sees; the rest
is a class with one function. It is compiled once, and later found in the kernel cache.

The second half says the same as two Python functions in the shape of PyTorch's FlexAttention, of which
weft.variants.trace makes such a class.
"""
import numpy as np
import weft
from weft.variants import show, trace

LEN, HEADS, DIM, SINKS, WINDOW, CAP = 100, 2, 32, 3, 10, 20.0

variant = weft.Variant(
    name="SinksAndBias",
    text="""struct SinksAndBias {
  real logits_transform(P p, Score c, real s) {
    return p.cap * weft::tanh(s / p.cap) + p.bias(c.qo_head, c.kv_idx);
  }
};
""",
    scalars=[weft.ScalarDecl("cap", weft.ScalarKind.real, 30.0), weft.ScalarDecl("sinks", weft.ScalarKind.integer),
             weft.ScalarDecl("window", weft.ScalarKind.integer)],
    tensors=[weft.TensorDecl("bias", weft.DType.fp32, 2)],
    intervals=[weft.Interval(upper=[weft.Bound(scalar="sinks")]),  # positions below `sinks`
               weft.Interval(lower=[weft.Bound(q_pos=True, scalar="window", scalar_sign=-1)])])  # from q_pos - window
spec = weft.AttentionSpec(head_dim_qk=DIM, head_dim_vo=DIM, kv_form=weft.KvForm.ragged, mask=weft.Mask.causal,
                          variant=variant)

random = np.random.default_rng(2)
q, k, v = random.standard_normal((3, LEN, HEADS, DIM), dtype=np.float32)
bias = random.standard_normal((HEADS, LEN), dtype=np.float32)
o = weft.attend(spec, q, k, v, scalars={"cap": CAP, "sinks": SINKS, "window": WINDOW}, tensors={"bias": bias})

# By hand: the last token, head 1.
seen = np.array([t < SINKS or t + WINDOW >= LEN - 1 for t in range(LEN)])
scores = k[:, 1].astype(np.float64) @ q[-1, 1] / np.sqrt(DIM)
weights = np.exp(CAP * np.tanh(scores / CAP) + bias[1]) * seen
expected = weights @ v[:, 1] / weights.sum()
print(f"o[99, 1, 0] = {o[99, 1, 0]:.6f}, by hand {expected[0]:.6f}")
assert np.abs(o[-1, 1] - expected).max() < 1e-5


# As Python functions: numbers and arrays that they use are captured, comparisons of positions become the two intervals.
def score_mod(score, b, h, q_idx, kv_idx):  # type: ignore[no-untyped-def]
    return CAP * np.tanh(score / CAP) + bias[h, kv_idx]


def mask_mod(b, h, q_idx, kv_idx):  # type: ignore[no-untyped-def]
    return (kv_idx < SINKS) | (kv_idx >= q_idx - WINDOW)


traced = trace(score_mod, mask_mod)
print(show(traced))
again = weft.attend(spec.replace(variant=traced), q, k, v, tensors=traced.captured)
assert np.abs(again - o).max() < 1e-5 and traced.intervals[1].lower[0].scalar == "WINDOW"

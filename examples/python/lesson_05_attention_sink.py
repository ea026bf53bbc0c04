"""Lesson 5: learned attention sinks (gpt-oss). Each head has a logit that takes part in the softmax's denominator and has
no value: a head that finds nothing to attend may attend nothing.

The sink is added once a row, whatever parts its keys were cut into. And since it is counted by the lse, a part that has
it merges with parts that don't: the lesson computes all keys at once, and two halves that it merges.
"""
import numpy as np
import weft

LEN, HALF, HEADS, DIM = 200, 100, 2, 32

random = np.random.default_rng(5)
q = random.standard_normal((1, HEADS, DIM), dtype=np.float32)
k, v = random.standard_normal((2, LEN, HEADS, DIM), dtype=np.float32)
sinks = np.array([4.0, -1.0], np.float32)

plain = weft.AttentionSpec(head_dim_qk=DIM, head_dim_vo=DIM, kv_form=weft.KvForm.ragged)
with_sink = plain.replace(variant=weft.variants.attention_sink())
whole, whole_lse = weft.attend(with_sink, q, k, v, tensors={"sinks": sinks}, return_lse=True)

# Two halves, one of them with the sink, into one array of states.
parts, lses = np.empty((2, 1, HEADS, DIM), np.float32), np.empty((2, 1, HEADS), np.float32)
weft.attend(with_sink, q, k[:HALF], v[:HALF], out=parts[0], lse=lses[0], tensors={"sinks": sinks})
weft.attend(plain, q, k[HALF:], v[HALF:], out=parts[1], lse=lses[1])
merged, merged_lse = weft.merge_states(parts, lses)

for head in range(HEADS):
    weights = np.exp(k[:, head].astype(np.float64) @ q[0, head] / np.sqrt(DIM))
    total = weights.sum() + np.exp(float(sinks[head]))
    expected = weights @ v[:, head] / total
    print(f"head {head}: o = {whole[0, head, 0]:.6f}, merged {merged[0, head, 0]:.6f}, by hand {expected[0]:.6f}; "
          f"the sink takes {100 * np.exp(float(sinks[head])) / total:.0f} %")
    for o, lse in ((whole, whole_lse), (merged, merged_lse)):
        assert np.abs(o[0, head] - expected).max() < 1e-5 and abs(lse[0, head] - np.log(total)) < 1e-5

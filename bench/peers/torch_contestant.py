"""torch's part in the comparison: attention by SDPA and FlexAttention, linear layers by oneDNN; torch_sparse.py has the rest."""
import itertools

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torch_sparse
from protocol import Refused, mean_seconds, serve
from torch_sparse import TYPES, random_tensor

CAP = 30.0


def in_turn(operation, copies):
    """A reading that takes the next copy at every call; the first call is not timed."""
    turn = itertools.cycle(copies)

    def once():
        with torch.inference_mode():
            operation(*next(turn))

    once()
    return lambda: mean_seconds(once)


def attention(row):
    dtype, way, head_dim = TYPES[row["dtype"]], row.get("way"), row["head_dim"]
    batch, qo_len, kv_len = row["batch"], row["qo_len"], row["kv_len"]
    qo_heads, kv_heads = row["qo_heads"], row["kv_heads"]
    copies = [(random_tensor(dtype, batch, qo_heads, qo_len, head_dim),
               random_tensor(dtype, batch, kv_heads, kv_len, head_dim),
               random_tensor(dtype, batch, kv_heads, kv_len, head_dim)) for _ in range(row["copies"])]
    causal = qo_len > 1
    if way == "sdpa":
        return in_turn(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True), copies)
    if way == "sdpa_rows":
        # Query heads of a group become rows of one head: keys and values are read once for all of them.
        return in_turn(lambda q, k, v: F.scaled_dot_product_attention(
            q.view(batch, kv_heads, qo_heads // kv_heads, head_dim), k, v), copies)
    if way == "flex":
        compiled = torch.compile(flex_attention)
        mask = create_block_mask(lambda b, h, qo, kv: qo >= kv, None, None, qo_len, kv_len, device="cpu")
        soft_cap = (lambda score, b, h, qo, kv: CAP * torch.tanh(score / CAP)) if row.get("soft_cap") else None
        return in_turn(lambda q, k, v: compiled(q, k, v, score_mod=soft_cap, block_mask=mask, enable_gqa=True), copies)
    raise Refused(f"no way {way} to call attention")


def linear(row):
    if row["weights"] != "bf16":
        raise Refused("torch has no linear layer with 4-bit weights in its public API")
    layers = [(torch.nn.Linear(row["cols"], row["rows"], bias=False, dtype=torch.bfloat16),) for _ in range(row["copies"])]
    for (layer,) in layers:
        layer.weight.data = random_tensor(torch.bfloat16, row["rows"], row["cols"])
    x = random_tensor(torch.bfloat16, row["m"], row["cols"])
    return in_turn(lambda layer: layer(x), layers)


def prepare(row):
    torch.set_num_threads(row["threads"])
    if row["kind"] == "attention":
        return attention(row)
    if row["kind"] == "linear":
        return linear(row)
    return torch_sparse.prepare(row)


if __name__ == "__main__":
    serve(prepare)

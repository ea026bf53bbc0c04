"""torch's part in the comparison: attention by SDPA and FlexAttention, linear layers by oneDNN, SpMM by MKL."""
import itertools

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from protocol import Refused, mean_seconds, read_csr, serve

TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
CAP = 30.0


def random_tensor(dtype, *shape):
    """One block of random numbers, again and again: a large cache must fill quickly."""
    count = torch.Size(shape).numel()
    block = torch.randn(min(count, 1 << 20)).to(dtype)
    return block.repeat(-(-count // block.numel()))[:count].view(shape)


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


def spmm(row):
    rows, cols, indptr, indices = read_csr(row["matrix"])
    a = torch.sparse_csr_tensor(torch.from_numpy(indptr), torch.from_numpy(indices), torch.full((len(indices),), 0.5),
                                (rows, cols))
    b, c = random_tensor(torch.float32, cols, row["feat"]), torch.empty(rows, row["feat"])
    return in_turn(lambda: torch.addmm(c, a, b, beta=0, out=c), [()])  # into a kept output


def prepare(row):
    torch.set_num_threads(row["threads"])
    if row["kind"] == "attention":
        return attention(row)
    if row["kind"] == "linear":
        return linear(row)
    if row["kind"] == "spmm":
        return spmm(row)
    raise Refused("torch is measured with attention, linear layers and SpMM")


if __name__ == "__main__":
    serve(prepare)

"""FlexAttention's functions through Weft and through torch, bf16, heads of 128: cold, and run after run.

`python_variants.py cold NAME TOKENS weft|torch` prints the seconds that a process needs to its first result, from the
functions on, where no cache has anything; and the seconds of a second one.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

QO_HEADS, KV_HEADS, DIM, DOCUMENTS, WINDOW, CAP, BLOCK = 8, 2, 128, 6, 1024, 30.0, 64


def functions_of(name, tokens):
    """(score_mod, mask_mod); one of them may be None."""
    import torch

    document = (torch.arange(tokens) * DOCUMENTS // tokens).int()

    def soft_cap(score, b, h, q_idx, kv_idx):
        return CAP * torch.tanh(score / CAP)

    def causal(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    def window(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= WINDOW)

    def same_document(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (document[q_idx] == document[kv_idx])

    return {"soft cap": (soft_cap, causal), "window": (None, window), "documents": (None, same_document)}[name]


def tensors_of(tokens):
    import torch

    torch.manual_seed(1)
    return [torch.randn(tokens, heads, DIM).bfloat16() for heads in (QO_HEADS, KV_HEADS, KV_HEADS)]


def weft_call(name, q, k, v):
    """A function that runs it; what comes before is made here. A mask that is no interval becomes lists of blocks, as
    FlexAttention's does."""
    import weft
    import weft.torch

    bf16, tokens = weft.DType.bf16, q.shape[0]
    score_mod, mask_mod = functions_of(name, tokens)
    spec = weft.AttentionSpec(q_dtype=bf16, kv_dtype=bf16, o_dtype=bf16, head_dim_qk=DIM, head_dim_vo=DIM,
                              kv_form=weft.KvForm.ragged)
    lengths, tensors = {"num_qo_heads": QO_HEADS, "num_kv_heads": KV_HEADS, "qo_indptr": [0, tokens]}, {}
    if name == "documents":
        kernel = weft.build(spec.replace(kv_form=weft.KvForm.block_sparse))
        plan = kernel.plan(**lengths, blocks=weft.block_mask(mask_mod, None, None, tokens, tokens, BLOCK))
        k, v = (x.view(-1, BLOCK, KV_HEADS, DIM) for x in (k, v))
    else:
        variant = weft.variants.trace(score_mod, mask_mod)
        kernel, tensors = weft.build(spec.replace(variant=variant)), variant.captured
        plan = kernel.plan(**lengths, kv_indptr=[0, tokens])
    attention = weft.torch.Attention(kernel, plan)
    return lambda: attention(q, (k, v), tensors=tensors)[0]


def torch_call(name, q, k, v):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    score_mod, mask_mod = functions_of(name, q.shape[0])
    mask = create_block_mask(mask_mod, None, None, q.shape[0], k.shape[0], device="cpu")
    compiled = torch.compile(flex_attention)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))

    def call():
        with torch.inference_mode():
            return compiled(q, k, v, score_mod=score_mod, block_mask=mask, enable_gqa=True)[0].transpose(0, 1)
    return call


def cold(name, tokens, who):
    import torch
    import weft
    import weft.torch
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    # The library is there, its threads run, and torch has what the first of its operators in Python loads.
    weft.torch.rms_norm(torch.ones(1, 8), torch.ones(8), 1e-5)
    tensors = tensors_of(tokens)
    start = time.perf_counter()
    call = {"weft": weft_call, "torch": torch_call}[who](name, *tensors)
    call()
    first = time.perf_counter() - start
    start = time.perf_counter()
    call()
    print(first, time.perf_counter() - start)


def cold_seconds(name, tokens, who, threads):
    """Seconds to a first result over those of a run."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, pathlib.Path(__file__), "cold", name, str(tokens), who], capture_output=True, text=True,
            env={**os.environ, "WEFT_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder,
                 "OMP_NUM_THREADS": str(threads)})
    if done.returncode != 0:
        raise RuntimeError(f"{who}, {name}: {done.stderr.strip().splitlines()[-1:]}")
    first, second = map(float, done.stdout.split())
    return first - second


def measure(table, options):
    from protocol import mean_seconds

    tokens = 256 if options.quick else 4096
    tensors = tensors_of(tokens)
    for name in ("soft cap", "window", "documents"):
        ours, flex = weft_call(name, *tensors), torch_call(name, *tensors)
        apart = (ours().float() - flex().float()).abs().max().item()
        if not apart < 0.1:
            raise RuntimeError(f"{name}: Weft's and torch's answers are {apart} apart")
        table.put("variants", f"{name}, bf16 {tokens:,} hd{DIM}, cold", "ms",
                  [cold_seconds(name, tokens, "weft", options.threads) for _ in range(min(table.rounds, 3))],
                  [cold_seconds(name, tokens, "torch", options.threads)], "FlexAttention", scale=1e3)
        table.put("variants", f"{name}, bf16 {tokens:,} hd{DIM}, run", "ms",
                  *table.turns(lambda: mean_seconds(ours), lambda: mean_seconds(flex)), "FlexAttention", scale=1e3)


if __name__ == "__main__":
    cold(sys.argv[2], int(sys.argv[3]), sys.argv[4])

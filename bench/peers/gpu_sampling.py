"""The rows of `weft bench sampling` on a card: torch's softmax, sort and multinomial, and FlashInfer's sampler."""
import importlib.metadata

import torch
from gpu_rows import line
from gpu_timing import seconds_of

VOCAB = 128256
CASES = {"top_k 50, top_p 0.9": (50, 0.9), "top_p 0.9": (None, 0.9), "temperature alone": (None, None),
         "greedy": (1, None)}


def torch_draw(logits, top_k, top_p):
    if top_k == 1:
        return lambda: logits.argmax(1)

    def draw():
        probs, ids = torch.softmax(logits, 1), None
        if top_k is not None or top_p is not None:
            probs, ids = probs.sort(1, descending=True)
            if top_k is not None:
                probs = probs[:, :top_k] / probs[:, :top_k].sum(1, keepdim=True)
            if top_p is not None:
                probs = torch.where(probs.cumsum(1) - probs < top_p, probs, 0)
        drawn = torch.multinomial(probs, 1)
        return drawn if ids is None else ids.gather(1, drawn)
    return draw


def flashinfer_draw(logits, top_k, top_p):
    from flashinfer import sampling
    if top_k == 1:
        raise ValueError("has no greedy draw of its own")
    if top_k is not None:
        return lambda: sampling.top_k_top_p_sampling_from_logits(logits, top_k, top_p)
    if top_p is not None:
        return lambda: sampling.top_p_sampling_from_probs(torch.softmax(logits, 1), top_p)
    return lambda: sampling.sampling_from_logits(logits)


def measure(ceilings, wanted, results):
    for rows in (1, 64):
        logits = 2.5 * torch.randn(rows, VOCAB, device="cuda")
        size = logits.numel() * 4
        for name, (top_k, top_p) in CASES.items():
            case = f"{name}, {rows} x {VOCAB}"
            if not wanted(case):
                continue
            for peer, package, make in (("torch", "torch", torch_draw),
                                        ("FlashInfer", "flashinfer-python", flashinfer_draw)):
                try:
                    seconds = seconds_of([make(logits, top_k, top_p)])
                    version = importlib.metadata.version(package)
                except Exception as error:  # whatever a peer throws is its reason
                    torch.cuda.synchronize()
                    results.refuse(peer, error)
                    continue
                results.add(line(case, "bandwidth", size / seconds / 1e9, "GB/s", ceilings.read_rate(size) / 1e9,
                                 "sampling"), peer, version)

"""Writes a small data set of FlashInfer-Bench's form: definitions with references by definition, workloads, a solution.

    python bench_dataset.py FOLDER
"""
import json
import math
import pathlib
import sys
import textwrap

import torch

ATTENTION = """
    import math
    import torch

    def attend(q, k, v, scale, causal):
        group = q.shape[1] // k.shape[1]
        q, k, v = q.float(), k.float().repeat_interleave(group, 1), v.float().repeat_interleave(group, 1)
        scores = torch.einsum("ihd,jhd->hij", q, k) * scale
        if causal:
            i = torch.arange(q.shape[0], device=q.device)[:, None] + k.shape[0] - q.shape[0]
            scores = scores.masked_fill(torch.arange(k.shape[0], device=q.device) > i, -math.inf)
        lse = torch.logsumexp(scores, -1)
        o = torch.einsum("hij,jhd->ihd", torch.nan_to_num(torch.exp(scores - lse[..., None])), v)
        return o, lse.T / math.log(2)
"""
PAGED = ATTENTION + """
    def run({arguments}):
        rows, keys = {rows}, kv_indptr.tolist()
        o, lse = torch.zeros_like(q), torch.full(q.shape[:2], -math.inf, device=q.device)
        for b in range(len(keys) - 1):
            pages = kv_indices[keys[b]:keys[b + 1]].long()
            count = len(pages) * k_cache.shape[1]{less}
            k, v = (x[pages].flatten(0, 1)[:count] for x in (k_cache, v_cache))
            a, z = attend(q[rows[b]:rows[b + 1]], k, v, sm_scale, {causal})
            o[rows[b]:rows[b + 1]], lse[rows[b]:rows[b + 1]] = a.to(q.dtype), z
        return o, lse
"""
JOINED = PAGED.replace("    def run", "    def run_joined").replace("{arguments}", "q, k_cache, v_cache, {arguments}")
MLA = JOINED + """
    def run(q_nope, q_pe, ckv_cache, kpe_cache, {arguments}):
        q, k = torch.cat([q_nope, q_pe], -1), torch.cat([ckv_cache, kpe_cache], -1).unsqueeze(2)
        o, lse = run_joined(q, k, torch.nn.functional.pad(ckv_cache, (0, q_pe.shape[2])).unsqueeze(2), {arguments})
        return o[..., :q_nope.shape[2]].contiguous(), lse
"""
RAGGED = ATTENTION + """
    def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
        o, lse = torch.zeros_like(q), torch.zeros(q.shape[:2])
        rows, keys = qo_indptr.tolist(), kv_indptr.tolist()
        for a, b, c, d in zip(rows, rows[1:], keys, keys[1:]):
            x, lse[a:b] = attend(q[a:b], k[c:d], v[c:d], sm_scale, True)
            o[a:b] = x.to(q.dtype)
        return o, lse
"""
NORM = """
    import torch

    EPS = {eps}

    def run({arguments}):
        x = hidden_states.float(){plus}
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.float()).to(hidden_states.dtype)
"""
ROPE = """
    import torch

    def run(q, k, cos_sin_cache, positions):
        half = cos_sin_cache.shape[1] // 2
        cos, sin = (x.unsqueeze(1) for x in cos_sin_cache[positions].split(half, -1))

        def turned(x):
            made = x.float().clone()
            a, b = {pairs}
            low, high = made[..., a].clone(), made[..., b].clone()
            made[..., a], made[..., b] = low * cos - high * sin, high * cos + low * sin
            return made.to(x.dtype)
        return turned(q), turned(k)
"""
SAMPLING = """
    import torch

    def run({arguments}):
        return torch.multinomial(probs, 1).squeeze(1).int()  # what is kept does not change its time
"""
SOLUTION = """
    import torch

    def run(hidden_states, weight, output):
        x = hidden_states.float()
        output.copy_(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + {eps}) * weight.float())
"""


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        raw = x.contiguous().view(torch.uint8).numpy().tobytes()
        kind = {torch.int32: "I32", torch.int64: "I64", torch.float32: "F32"}[x.dtype]
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class Dataset:
    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        self.names = []

    def add(self, name, op_type, const, var, inputs, outputs, reference, given, tensors):
        """inputs and outputs: {name: (shape, dtype)}; given: scalars; tensors: what a file holds."""
        def specs(parts):
            return {key: {"shape": shape, "dtype": dtype} for key, (shape, dtype) in parts.items()}
        axes = {**{axis: {"type": "const", "value": value} for axis, value in const.items()},
                **{axis: {"type": "var"} for axis in var}}
        folder = self.root / "definitions" / op_type
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(
            {"name": name, "op_type": op_type, "axes": axes, "inputs": specs(inputs), "outputs": specs(outputs),
             "reference": textwrap.dedent(reference)}, indent=1))
        blob = f"blob/{name}.safetensors"
        write_safetensors(self.root / blob, tensors)
        workload = {"uuid": f"{len(self.names):04}", "axes": var, "inputs": {
            key: {"type": "scalar", "value": given[key]} if key in given
            else {"type": "safetensors", "path": blob, "tensor_key": key} if key in tensors else {"type": "random"}
            for key in inputs}}
        folder = self.root / "workloads" / op_type
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_text(json.dumps(
            {"definition": name, "workload": workload, "solution": None, "evaluation": None}) + "\n")
        self.names.append(name)


def ints(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def lengths(page_size, seed):
    """A page table of three requests: (kv_indptr, kv_indices, kv_last_page_len, pages of the cache)."""
    kv_len = [5, 131, 70]
    counts = [-(-n // page_size) for n in kv_len]
    indices = torch.randperm(sum(counts) + 2, generator=torch.Generator().manual_seed(seed))[:sum(counts)].int()
    last = [n - (count - 1) * page_size for n, count in zip(kv_len, counts)]
    return ints(0, *torch.tensor(counts).cumsum(0).tolist()), indices, ints(*last), sum(counts) + 2


def add_paged(data, form, page_size, prefill):
    indptr, indices, last, pages = lengths(page_size, page_size)
    rows = ints(0, 4, 6, 9) if prefill else None
    tensors = {"kv_indptr": indptr, "kv_indices": indices}
    index = {"kv_indptr": (["len_indptr"], "int32"), "kv_indices": (["num_kv_indices"], "int32")}
    var = {"total_q": 9 if prefill else 3, "num_pages": pages, "len_indptr": 4, "num_kv_indices": len(indices)}
    if prefill:
        tensors["qo_indptr"], index = rows, {"qo_indptr": (["len_indptr"], "int32"), **index}
    if page_size > 1:
        tensors["kv_last_page_len"] = last
        index["kv_last_page_len"] = (["batch_size"], "int32")
        var["batch_size"] = 3
    names = ", ".join([*index, "sm_scale"])
    text = dict(rows="qo_indptr.tolist()" if prefill else "list(range(q.shape[0] + 1))", causal=prefill,
                less=" - k_cache.shape[1] + int(kv_last_page_len[b])" if page_size > 1 else "")
    kind = "prefill_causal" if prefill else "decode"
    if form == "gqa":
        const = {"num_qo_heads": 8, "num_kv_heads": 2, "head_dim": 64, "page_size": page_size}
        cache = (["num_pages", "page_size", "num_kv_heads", "head_dim"], "bfloat16")
        q = (["total_q", "num_qo_heads", "head_dim"], "bfloat16")
        inputs = {"q": q, "k_cache": cache, "v_cache": cache}
        name, out = f"gqa_paged_{kind}_h8_kv2_d64_ps{page_size}", q
        reference = PAGED.format(arguments=f"q, k_cache, v_cache, {names}", **text)
    else:
        const = {"num_qo_heads": 4, "head_dim_ckv": 128, "head_dim_kpe": 64, "page_size": page_size}
        inputs = {"q_nope": (["total_q", "num_qo_heads", "head_dim_ckv"], "bfloat16"),
                  "q_pe": (["total_q", "num_qo_heads", "head_dim_kpe"], "bfloat16"),
                  "ckv_cache": (["num_pages", "page_size", "head_dim_ckv"], "bfloat16"),
                  "kpe_cache": (["num_pages", "page_size", "head_dim_kpe"], "bfloat16")}
        name, out = f"mla_paged_{kind}_h4_ckv128_kpe64_ps{page_size}", inputs["q_nope"]
        reference = MLA.format(arguments=names, **text)
    data.add(name, f"{form}_paged", const, var, {**inputs, **index, "sm_scale": (None, "float32")},
             {"output": out, "lse": (["total_q", "num_qo_heads"], "float32")}, reference, {"sm_scale": 0.125}, tensors)


def write(folder):
    """Writes it all; the names of its definitions. The last one is of a kind that Weft has not."""
    data = Dataset(folder)
    for form in ("gqa", "mla"):
        for page_size in (1, 64):
            for prefill in (False, True):
                add_paged(data, form, page_size, prefill)
    q, kv = (["total_q", "num_qo_heads", "head_dim"], "float16"), (["total_kv", "num_kv_heads", "head_dim"], "float16")
    data.add("gqa_ragged_prefill_causal_h8_kv4_d128", "gqa_ragged",
             {"num_qo_heads": 8, "num_kv_heads": 4, "head_dim": 128}, {"total_q": 40, "total_kv": 90, "len_indptr": 4},
             {"q": q, "k": kv, "v": kv, "qo_indptr": (["len_indptr"], "int32"), "kv_indptr": (["len_indptr"], "int32"),
              "sm_scale": (None, "float32")},
             {"output": q, "lse": (["total_q", "num_qo_heads"], "float32")}, RAGGED, {"sm_scale": 1 / math.sqrt(128)},
             {"qo_indptr": ints(0, 7, 8, 40), "kv_indptr": ints(0, 20, 50, 90)})
    for hidden in (256, 1000):
        for add in (False, True):
            rows, eps = (["batch_size", "hidden_size"], "bfloat16"), 1e-5 if add else 1e-2
            inputs = {"hidden_states": rows, **({"residual": rows} if add else {}),
                      "weight": (["hidden_size"], "bfloat16")}
            data.add(f"{'fused_add_' if add else ''}rmsnorm_h{hidden}", "rmsnorm", {"hidden_size": hidden},
                     {"batch_size": 5}, inputs, {"output": rows},
                     NORM.format(eps=eps, arguments=", ".join(inputs), plus=" + residual.float()" if add else ""), {},
                     {})
    for style in ("neox", "gptj"):
        for rotary in (32, 64):
            heads = [(["num_tokens", axis, "head_size"], "bfloat16") for axis in ("num_qo_heads", "num_kv_heads")]
            angles = torch.outer(torch.arange(50.0), 1e4 ** (-torch.arange(rotary // 2) / (rotary // 2)))
            data.add(f"rope_with_cos_sin_cache_{style}_style_d64_rd{rotary}", "rope",
                     {"head_size": 64, "rotary_dim": rotary},
                     {"num_tokens": 6, "num_qo_heads": 4, "num_kv_heads": 2, "max_seq_len": 50},
                     {"q": heads[0], "k": heads[1], "cos_sin_cache": (["max_seq_len", "rotary_dim"], "float32"),
                      "positions": (["num_tokens"], "int64")}, {"q_out": heads[0], "k_out": heads[1]},
                     ROPE.format(pairs="slice(0, half), slice(half, 2 * half)" if style == "neox"
                                 else "slice(0, 2 * half, 2), slice(1, 2 * half, 2)"), {},
                     {"cos_sin_cache": torch.cat([angles.cos(), angles.sin()], 1),
                      "positions": torch.tensor([0, 1, 49, 7, 7, 30])})
    filters = {"top_k": ints(3, 40, 1, 7), "top_p": torch.tensor([0.9, 0.3, 0.5, 0.99])}
    for chosen in ([], ["top_k"], ["top_p"], ["top_k", "top_p"]):
        inputs = {"probs": (["batch_size", "vocab_size"], "float32"),
                  **{name: (["batch_size"], "int32" if name == "top_k" else "float32") for name in chosen}}
        data.add(f"{'_'.join([*chosen, 'sampling'])}_from_probs_v300", "sampling", {"vocab_size": 300},
                 {"batch_size": 4}, inputs, {"samples": (["batch_size"], "int32")},
                 SAMPLING.format(arguments=", ".join(inputs)), {}, {name: filters[name] for name in chosen})
    data.add("gemm_n16_k16", "gemm", {"N": 16, "K": 16}, {"M": 4},
             {"A": (["M", "K"], "float16"), "B": (["N", "K"], "float16")}, {"C": (["M", "N"], "float16")},
             "def run(A, B):\n    return A @ B.T\n", {}, {})
    (data.root / "solutions").mkdir()
    for name, eps in (("good", 1e-2), ("bad", 10.0)):
        (data.root / "solutions" / f"{name}.json").write_text(json.dumps(
            {"name": name, "definition": "rmsnorm_h256", "author": "weft", "description": "in place",
             "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"},
             "sources": [{"path": "main.py", "content": textwrap.dedent(SOLUTION.format(eps=eps))}]}))
    return data.names


if __name__ == "__main__":
    write(sys.argv[1])

"""The rows of the comparison: what is measured, in which unit, by whom."""
import dataclasses
import pathlib

import edges
import matrices

WEFT = ("Weft", "Weft fast")
WHOLE_MODELS = ("llama.cpp", "OpenVINO GenAI")
TIMES = {"ms": 1e3, "us": 1e6, "ns": 1e9}  # units that are better when lower, and how many make a second
PROMPT = ("Write one short paragraph about how rivers shape the land they cross, and why people settle near them")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str           # for --only
    what: str           # for the table
    unit: str           # one of TIMES is better when lower, every other unit when higher
    work: float         # value = work / seconds; a time is its seconds in its unit
    fields: dict        # what contestants are told
    contestants: tuple  # names of contestants.py

    def value(self, seconds):
        return TIMES[self.unit] * seconds if self.unit in TIMES else self.work / seconds

    def seconds(self, value):
        return value / TIMES[self.unit] if self.unit in TIMES else self.work / value

    def ratio(self, weft, peer):
        """How many times faster Weft is: above 1 it wins, whatever the unit."""
        return peer / weft if self.unit in TIMES else weft / peer


def l3_bytes():
    size = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    return int(size.read_text().rstrip("K\n")) << 10 if size.exists() else 32 << 20


def copies_beyond_caches(bytes_each, quick):
    """So many copies in turn that none is in a cache when it comes again."""
    span = 512 << 20 if quick else min(max(8 * l3_bytes(), 256 << 20), 2 << 30)
    return max(1, -(-span // bytes_each))


def model_rows(model, quick):
    def prefill(prompt):
        return Row(f"prefill-{prompt}", f"prefill of {prompt:,} tokens", "tok/s", prompt,
                   {"kind": "prefill", "model": model, "prompt": prompt}, WEFT + WHOLE_MODELS)

    def decode(name, what, prompt, sequences=1, shared=False, others=()):
        steps = 32 if quick else 64
        return Row(name, what, "tok/s", steps * sequences,
                   {"kind": "decode", "model": model, "prompt": prompt, "steps": steps, "sequences": sequences,
                    "shared": shared}, WEFT + WHOLE_MODELS + others)

    plain = ("llama.cpp, no flash attention",)
    first = Row("first-token", "first token from process start, 19-token prompt", "ms", 1,
                {"kind": "first_token", "model": model, "prompt": PROMPT}, ("Weft",) + WHOLE_MODELS)
    return [decode("decode-short", "decode, 1 request after 26 tokens", 26), prefill(486), first,
            decode("decode-8192", "decode, 1 request up to 8,192 tokens", 8128, others=plain), prefill(4106),
            decode("decode-16x128", "decode, 16 requests after 128 tokens", 128, 16),
            decode("decode-16x1024", "decode, 16 requests after 1,024 tokens", 1024, 16),
            decode("decode-16-shared", "decode, 16 requests sharing 4,096 tokens", 4096, 16, True, plain)]


def attention_rows(quick):
    def attention(name, what, unit, fields, contestants):
        shape = {"kind": "attention", "qo_heads": 32, "kv_heads": 8, "batch": 1, "qo_len": 1, "copies": 1, **fields}
        pairs = shape["kv_len"] if shape["qo_len"] == 1 else shape["kv_len"] * (shape["kv_len"] + 1) / 2
        kv_bytes = (2 * shape["batch"] * shape["kv_len"] * shape["kv_heads"] * shape["head_dim"]
                    * (2 if shape["dtype"] == "bf16" else 4))
        work = kv_bytes if unit == "GB/s" else 4 * shape["batch"] * shape["qo_heads"] * shape["head_dim"] * pairs
        if unit == "GB/s":
            shape["copies"] = copies_beyond_caches(kv_bytes, quick)
        return Row(name, what, unit, work / 1e9, shape, contestants)

    rows = []
    for dtype in ("bf16", "fp32"):
        onnx = ("onnxruntime", "onnxruntime in fp16") if dtype == "bf16" else ("onnxruntime",)
        for qo_heads, kv_heads, head_dim in ((32, 8, 128), (9, 3, 64)):
            for batch in (1, 16):
                rows.append(attention(
                    f"attention-decode-{qo_heads}x{kv_heads}x{head_dim}-batch{batch}-{dtype}",
                    f"decode attention {qo_heads}q/{kv_heads}kv hd{head_dim} kv 8,192 batch {batch} {dtype}", "GB/s",
                    {"qo_heads": qo_heads, "kv_heads": kv_heads, "head_dim": head_dim, "kv_len": 8192, "batch": batch,
                     "dtype": dtype}, ("Weft", "torch SDPA", "torch SDPA, groups as rows") + onnx))
        for head_dim in (64, 128):
            rows.append(attention(
                f"attention-prefill-{head_dim}-{dtype}", f"prefill attention causal 4,096 hd{head_dim} {dtype}",
                "GFLOP/s", {"head_dim": head_dim, "kv_len": 4096, "qo_len": 4096, "dtype": dtype},
                ("Weft", "torch SDPA", "torch FlexAttention") + onnx))
        rows.append(attention(
            f"attention-softcap-{dtype}", f"prefill attention causal 4,096 hd128 {dtype}, soft cap", "GFLOP/s",
            {"head_dim": 128, "kv_len": 4096, "qo_len": 4096, "dtype": dtype, "soft_cap": True},
            ("Weft", "Weft, no cap", "torch FlexAttention", "torch FlexAttention, no cap") + onnx))
    return rows


def linear_rows(quick):
    def linear(weights, rows, cols, m, weft, contestants):
        count = rows * cols
        stored = count * 2 if weights == "bf16" else count * 9 // 16
        unit, work = ("GB/s", stored) if m == 1 else ("GOP/s", 2 * count * m)
        copies = 1 if m > 8 else copies_beyond_caches(stored, quick)
        return Row(f"linear-{weights}-m{m}", f"linear {weights} weights {rows:,} x {cols:,}, M = {m}", unit, work / 1e9,
                   {"kind": "linear", "weights": weights, "rows": rows, "cols": cols, "m": m, "copies": copies},
                   weft + contestants)

    return [linear("int4", 4096, 14336, m, WEFT, ("onnxruntime", "torch")) for m in (1, 8, 512)] + \
           [linear("bf16", 14336, 4096, m, ("Weft",), ("torch", "onnxruntime")) for m in (512, 1)]


def has_amx():
    return "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()


def sparse_rows(data):
    """Sparse operators over what matrices.py and edges.py make, and over the files of the folders `data`."""
    def spmm(name, feat, source=None):
        fields = {"kind": "spmm", "matrix": name, "feat": feat, **({"source": str(source)} if source else {})}
        return Row(f"spmm-{name}-F{feat}", f"SpMM fp32 {name.replace('-', ' ')}, {feat} features", "us", 1, fields,
                   ("Weft", "nested loops", "Eigen", "MKL", "torch", "scipy"))

    def blocks(op, pattern, dtype):
        what = {"pruned": "pruned weights 4,096 x 4,096, block 32, density 0.1, by 512 features"}.get(
            pattern, f"{pattern} attention 4,096 x 12 heads hd64")
        return Row(f"blocks-{op}-{pattern}-{dtype}", f"{'SpMM' if op == 'spmm' else 'SDDMM'} {dtype} {what}", "us", 1,
                   {"kind": "blocks", "op": op, "pattern": pattern, "dtype": dtype},
                   ("Weft", "torch", *(("torch without AMX",) if has_amx() else ())))

    def rgms(name, what, feat, source=None, disjoint=1):
        copies = f"-x{disjoint}" if disjoint > 1 else ""
        fields = {"kind": "rgms", "edges": name, "feat_in": feat, "feat_out": feat,
                  **({"source": str(source)} if source else {}), **({"disjoint": disjoint} if copies else {})}
        return Row(f"{what.split()[0].lower()}-{name}{copies}",
                   f"{what} fp32 {name.replace('-', ' ')}{f', {disjoint} side by side' if copies else ''}, "
                   f"{feat} -> {feat} features", "us", 1, fields, ("Weft", "torch, all nodes", "torch, gathered"))

    def graphsage(name, source=None):
        fields = {"kind": "graphsage", "matrix": name, "feat": 500, "hidden": 128, "classes": 3,
                  **({"source": str(source)} if source else {})}
        return Row(f"graphsage-{name}", f"GraphSAGE epoch {name.replace('-', ' ')}, 500 features, hidden 128", "ms", 1,
                   fields, ("Weft", "torch"))

    files, (graphs, voxels) = matrices.files_of(data), edges.files_of(data)
    rows = [spmm(name, feat) for name in ("uniform-32k", "uniform-256k", "power-law-100k") for feat in (64, 128)]
    rows += [spmm(name, feat, path) for name, path in files.items() for feat in (64, 128)]
    rows += [blocks(op, pattern, dtype) for dtype in ("bf16", "fp32") for op in ("spmm", "sddmm")
             for pattern in ("longformer", "butterfly", "pruned") if op == "spmm" or pattern != "pruned"]
    rows += [rgms("typed-graph-8k", "RGCN", 32)]
    rows += [rgms(name, "RGCN", 32, path, copies) for name, path in graphs.items() for copies in (1, 32)]
    rows += [rgms("voxels-80k", "Convolution 3 x 3 x 3", 64)]
    rows += [rgms(name, "Convolution 3 x 3 x 3", 64, path) for name, path in voxels.items()]
    return rows + [graphsage("graph-20k")] + [graphsage(name, path) for name, path in files.items() if name == "pubmed"]


def all_rows(model, quick, data=None):
    return model_rows(model, quick) + attention_rows(quick) + linear_rows(quick) + sparse_rows(data)


def bench_rows():
    """Lines of `weft bench`, of which no peer has the like: for two builds of Weft."""
    def row(name, what, unit, bench, case, metric="time"):
        return Row(f"{bench}-{name}", what, unit, 1, {"kind": "bench", "bench": bench, "case": case, "metric": metric},
                   ("Weft",))

    def plan(kv, ids):
        words = f"page ids {ids.replace('-', ' ')}"
        return row(f"{kv}-{ids}", f"plan of 256 decode requests, kv {kv}, {words}", "us", "plan",
                   f"256 decode requests, kv {kv}, page 16, 132 workers", f"plan, {words}")

    def upload(kv):
        return row(f"{kv}-upload", f"upload of that plan, kv {kv}", "GB/s", "plan",
                   f"256 decode requests, kv {kv}, page 16, 132 workers", "upload")

    plans = [make for kv in ("1024", "4096", "uniform")
             for make in (*(plan(kv, f"{ids}{unchecked}") for ids in ("borrowed", "copied")
                            for unchecked in ("", "-and-not-checked")), upload(kv))]
    return [*plans, row("prefill", "plan of a causal prompt of 16,384 tokens", "us", "plan",
                        "16384 causal prefill, 132 workers", "plan"),
            row("cold", "variant's text to callable code, by the compiler", "ms", "jit", "source to callable: cold"),
            row("disk", "variant's text to callable code, from disk", "us", "jit", "source to callable: from disk"),
            row("memory-text", "variant's text to callable code, from memory", "us", "jit",
                "source to callable: from memory, by text"),
            row("memory-spec", "variant's spec to callable code, from memory", "us", "jit",
                "source to callable: from memory, by spec"),
            row("fork-join", "fork and join of the team", "ns", "threads", "weft: fork/join, median"),
            row("barrier", "barrier of the team", "ns", "threads", "weft: barrier, median"),
            row("region", "region of 40 us on all workers", "us", "threads", "weft: region of 40 us, alone"),
            row("neighbour", "the same beside a busy thread", "us", "threads", "weft: the same beside a busy thread")]

"""Who is measured on a card. `prepare(row, pool)` gives functions that do the row's work, each with data of its own."""
import importlib
import importlib.metadata

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_rows import ROPE, WINDOW, Refused

CAP = 30.0
LATENT_SCALE = 192 ** -0.5


def dense(row, pool):
    """q, k and v of each copy as [batch, heads, tokens, dim]."""
    if row.latent:
        raise Refused("keys and values are tensors of their own")
    if len(set(row.kv_lens)) > 1 or row.prefix:
        raise Refused("dense tensors hold requests of one length, and share nothing")
    batch, n, length = len(row.kv_lens), row.qo_lens[0], row.kv_lens[0]
    q = torch.randn(batch, row.qo_heads, n, row.head_dim, device="cuda").bfloat16()
    half = row.bytes // 4
    shape = (batch, row.kv_heads, length, row.head_dim)
    return [(q, pool.view(begin, *shape), pool.view(begin + half, *shape)) for begin in pool.copies(row.bytes)]


class Sdpa:
    def __init__(self, name, backend):
        self.name, self.backend, self.version = f"torch {name}", backend, torch.__version__

    def prepare(self, row, pool):
        if row.variant:
            raise Refused("SDPA takes no function of scores")
        return [lambda copy=copy: self.call(copy, row) for copy in dense(row, pool)]

    def call(self, copy, row):
        with sdpa_kernel(self.backend):
            return F.scaled_dot_product_attention(*copy, is_causal=row.causal, enable_gqa=row.qo_heads != row.kv_heads)


class Flex:
    name, version = "torch FlexAttention", torch.__version__

    def prepare(self, row, pool):
        if not row.causal or row.head_dim != 128 or row.kv_lens[0] not in (1024, 4096, 16384):
            raise Refused("it compiles anew for each shape, and is measured with few")
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        masks = {"window": lambda b, h, q, k: (q >= k) & (q - k <= WINDOW)}
        slopes = torch.exp2(-torch.arange(1, row.qo_heads + 1, device="cuda") * 8 / row.qo_heads)
        scores = {"soft-cap": lambda score, b, h, q, k: CAP * torch.tanh(score / CAP),
                  "alibi": lambda score, b, h, q, k: score + slopes[h] * (k - q)}
        n = row.kv_lens[0]
        mask = create_block_mask(masks.get(row.variant, lambda b, h, q, k: q >= k), None, None, n, n, device="cuda")
        compiled = torch.compile(flex_attention, dynamic=False)
        return [lambda copy=copy: compiled(*copy, score_mod=scores.get(row.variant), block_mask=mask)
                for copy in dense(row, pool)]


class Bmm:
    """Latent rows by two products of cuBLAS with a softmax between them."""
    name, version = "torch bmm", torch.__version__

    def prepare(self, row, pool):
        if not row.latent or row.causal:
            raise Refused("measured with latent rows and one token of each request")
        batch, length, dim = len(row.kv_lens), row.kv_lens[0], row.head_dim
        q = torch.randn(batch, row.qo_heads, dim, device="cuda").bfloat16() * LATENT_SCALE
        return [lambda kv=pool.view(begin, batch, length, dim): self.call(q, kv) for begin in pool.copies(row.bytes)]

    @staticmethod
    def call(q, kv):
        return torch.bmm(torch.softmax(torch.bmm(q, kv.transpose(1, 2)), -1), kv[:, :, :-ROPE])


def int32(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def indptr_of(lens):
    total = [0]
    for length in lens:
        total.append(total[-1] + length)
    return int32(total)


class FlashInfer:
    """Its wrappers, planned once: a step of decode, of prefill, or a cascade."""

    def __init__(self, name, **how):
        self.how, self.name = how, f"FlashInfer {name}"
        self.flashinfer = importlib.import_module("flashinfer")
        self.version = importlib.metadata.version("flashinfer-python")
        self.space = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")

    def prepare(self, row, pool):
        if row.variant:
            raise Refused("measured without variants")
        if row.latent:
            return self.latent(row, pool)
        wrapper = self.cascade(row) if row.prefix else self.prefill(row) if row.causal else self.decode(row)
        q = torch.randn(sum(row.qo_lens), row.qo_heads, row.head_dim, device="cuda").bfloat16()
        pages = row.prefix // row.page + sum(map(lambda n: self.pages_of(n, row), row.kv_lens))
        shape = (pages, 2, row.page, row.kv_heads, row.head_dim)
        size = torch.Size(shape).numel() * 2
        return [lambda begin=begin: wrapper.run(q, pool.view(begin, *shape)) for begin in pool.copies(size)]

    def latent(self, row, pool):
        if "backend" not in self.how:
            raise Refused("latent rows are measured with FA2 and FA3")
        wrapper = self.flashinfer.mla.BatchMLAPagedAttentionWrapper(self.space, backend=self.how["backend"])
        indptr, indices, _ = self.table(row)
        dim = row.head_dim - ROPE
        wrapper.plan(indptr_of(row.qo_lens), indptr, indices, int32(row.kv_lens), row.qo_heads, dim, ROPE, row.page,
                     True, LATENT_SCALE, torch.bfloat16, torch.bfloat16)
        q = torch.randn(sum(row.qo_lens), row.qo_heads, row.head_dim, device="cuda").bfloat16()
        q_nope, q_pe = q[..., :dim].contiguous(), q[..., dim:].contiguous()
        pages = int(indptr[-1])
        of_values = pages * row.page * dim
        return [lambda begin=begin: wrapper.run(q_nope, q_pe, pool.view(begin, pages, row.page, dim),
                                                pool.view(begin + of_values, pages, row.page, ROPE))
                for begin in pool.copies(row.bytes)]

    @staticmethod
    def pages_of(length, row):
        return -(-length // row.page)

    def table(self, row):
        pages = [self.pages_of(n, row) for n in row.kv_lens]
        last = [(n - 1) % row.page + 1 for n in row.kv_lens]
        return indptr_of(pages), torch.randperm(sum(pages), device="cuda").int(), int32(last)

    def decode(self, row):
        if "tensor_cores" not in self.how:
            raise Refused("measured with prefill alone")
        wrapper = self.flashinfer.BatchDecodeWithPagedKVCacheWrapper(self.space, "NHD",
                                                                     use_tensor_cores=self.how["tensor_cores"])
        wrapper.plan(*self.table(row), row.qo_heads, row.kv_heads, row.head_dim, row.page,
                     q_data_type=torch.bfloat16, data_type=torch.bfloat16)
        return wrapper

    def prefill(self, row):
        if "backend" not in self.how:
            raise Refused("measured with decode alone")
        wrapper = self.flashinfer.BatchPrefillWithPagedKVCacheWrapper(self.space, "NHD", backend=self.how["backend"])
        wrapper.plan(indptr_of(row.qo_lens), *self.table(row), row.qo_heads, row.kv_heads, row.head_dim, row.page,
                     causal=True, q_data_type=torch.bfloat16)
        return wrapper

    def cascade(self, row):
        if not self.how.get("tensor_cores"):
            raise Refused("its cascade is measured once")
        batch, own, shared = len(row.kv_lens), self.pages_of(row.kv_lens[0], row), row.prefix // row.page
        wrapper = self.flashinfer.MultiLevelCascadeAttentionWrapper(2, self.space, "NHD")
        wrapper.plan([int32([0, batch]), int32(list(range(batch + 1)))],
                     [int32([0, shared]), int32([i * own for i in range(batch + 1)])],
                     [int32(list(range(shared))), int32(list(range(shared, shared + batch * own)))],
                     [int32([row.page]), int32([(row.kv_lens[0] - 1) % row.page + 1] * batch)],
                     row.qo_heads, row.kv_heads, row.head_dim, row.page, q_data_type=torch.bfloat16)
        return wrapper


def all_peers():
    """(name, a function that makes the peer, or throws where it is not installed)."""
    backends = (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION),
                ("efficient", SDPBackend.EFFICIENT_ATTENTION))
    peers = [(f"torch {name}", lambda name=name, backend=backend: Sdpa(name, backend)) for name, backend in backends]
    peers += [(Flex.name, Flex), (Bmm.name, Bmm)]
    for name, how in (("decode", {"tensor_cores": False}), ("decode, tensor cores", {"tensor_cores": True}),
                      ("FA2", {"backend": "fa2"}), ("FA3", {"backend": "fa3"})):
        peers.append((f"FlashInfer {name}", lambda name=name, how=how: FlashInfer(name, **how)))
    return peers

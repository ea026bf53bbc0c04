"""The work that peers on a card are measured with, under the names that `weft bench attention --device cuda:0` gives it."""
import dataclasses

WINDOW = 1024  # tokens to the left of a row's own
ROPE = 64  # elements of a latent row that are no value


class Refused(Exception):
    """This contestant cannot do the row; the message says why."""


@dataclasses.dataclass(frozen=True)
class Row:
    case: str
    qo_lens: tuple  # tokens of each request
    kv_lens: tuple
    qo_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    page: int = 16
    variant: str = ""  # "soft-cap", "alibi" or "window"
    prefix: int = 0    # tokens that all requests share, in front of their own
    latent: bool = False  # a token is one row of head_dim elements for all heads

    @property
    def causal(self):
        return self.qo_lens[0] > 1

    @property
    def bytes(self):
        """Of keys and values, each once."""
        return (sum(self.kv_lens) + self.prefix) * self.kv_heads * self.head_dim * (2 if self.latent else 4)

    @property
    def operations(self):
        """By the pairs that are seen, of a causal prefill n^2 / 2, of a window w n - w^2 / 2."""
        if self.latent:
            seen = sum(n * (length - (n - 1) / 2) for n, length in zip(self.qo_lens, self.kv_lens))
            return 2 * seen * self.qo_heads * (2 * self.head_dim - ROPE)
        seen = sum(n * n / 2 if self.variant != "window" else min(n, WINDOW) * (n - min(n, WINDOW) / 2)
                   for n in self.qo_lens)
        return 4 * seen * self.head_dim * self.qo_heads

    def lines(self, seconds, read_rate, product_rate):
        """What `weft bench` would say of so many seconds: a rate by its ceiling, and where that says little the time."""
        products = line(self.case, "rate", self.operations / seconds / 1e12, "TFLOP/s", product_rate / 1e12)
        if self.causal and not self.latent:
            return [products]
        rate = line(self.case, "bandwidth", self.bytes / seconds / 1e9, "GB/s", read_rate / 1e9)
        if self.latent:
            time = [line(self.case, "time", seconds * 1e6, "us")] if len(self.kv_lens) == 1 else []
            return [rate, products, *time]
        if len(self.kv_lens) > 1 and not self.prefix:
            return [rate]
        return [rate, line(self.case, "time", seconds * 1e6, "us")]


def line(case, metric, value, unit, ceiling=None, bench="attention"):
    share = value / ceiling if ceiling else None
    return {"bench": bench, "case": case, "metric": metric, "value": value, "unit": unit, "ceiling": ceiling,
            "share": share}


def zipf(requests, mean):
    harmonic = sum(1 / i for i in range(1, requests + 1))
    return tuple(max(int(requests * mean / harmonic / i), 1) for i in range(1, requests + 1))


def decode_rows():
    def row(what, kv_lens, qo_heads=32, kv_heads=8, head_dim=128, page=16, prefix=0):
        case = f"decode {qo_heads}q/{kv_heads}kv hd{head_dim} page{page} bf16 {what}"
        return Row(case, (1,) * len(kv_lens), tuple(kv_lens), qo_heads, kv_heads, head_dim, page, "", prefix)

    rows = [row(f"batch{n} kv{length}", [length] * n)
            for n, length in ((1, 1024), (1, 8192), (16, 1024), (16, 8192), (64, 1024), (64, 4096))]
    rows += [row(f"batch16 kv8192 page{page}", [8192] * 16, page=page) for page in (1, 64)]
    rows += [row(f"batch16 kv8192 group{group}", [8192] * 16, qo_heads=8 * group) for group in (3, 5, 7, 16)]
    rows += [row("batch16 zipf mean1024", zipf(16, 1024)),
             row("one 128k, 31 kv1024", [128 << 10] + [1024] * 31),
             row("batch16 kv8192 hd64", [8192] * 16, head_dim=64)]
    rows += [row(f"batch{n} prefix{prefix} kv128", [128] * n, kv_heads=32, prefix=prefix)
             for n, prefix in ((16, 1024), (16, 32768), (64, 32768))]
    return rows


def latent_rows():
    def row(heads, n, length, page=64, tokens=1):
        of_tokens = f" {tokens} tokens" if tokens > 1 else ""
        case = f"decode latent {heads}q 512+64 page{page} bf16 batch{n} kv{length}{of_tokens}"
        return Row(case, (tokens,) * n, (length,) * n, heads, 1, 512 + ROPE, page, latent=True)

    rows = [row(128, 128, 8192), row(16, 128, 4096), row(64, 128, 4096)]
    rows += [row(128, n, length) for n, length in ((1, 8192), (16, 1024), (16, 8192), (64, 4096))]
    return rows + [row(16, 1, 8192), row(128, 128, 8192, page=1), row(16, 128, 4096, page=1),
                   row(16, 128, 4096, tokens=4), row(128, 64, 4096, tokens=2)]


def prefill_rows():
    def row(what, lens, head_dim=128, variant=""):
        case = f"prefill causal 16q/16kv hd{head_dim} page16 bf16 {what}" + (f" {variant}" if variant else "")
        return Row(case, tuple(lens), tuple(lens), 16, 16, head_dim, 16, variant)

    def same(length):
        return [length] * max(16384 // length, 1)

    rows = [row(f"batch{len(same(n))} n{n}", same(n), head_dim)
            for head_dim in (128, 64) for n in (512, 1024, 2048, 4096, 8192, 16384)]
    rows += [row("batch16 zipf mean1024", zipf(16, 1024))]
    return rows + [row("batch4 n4096", same(4096), variant=variant) for variant in ("soft-cap", "alibi", "window")]


def all_rows():
    return decode_rows() + latent_rows() + prefill_rows()

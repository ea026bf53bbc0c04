"""Timing on a card as `weft bench --device cuda:0` times: runs over different data are the nodes of a graph, and a figure is
the median of several launches of it; and what the card can do at most, in the same process."""
import itertools
import statistics

import torch

REPEATS, MOST_RUNS = 9, 256


def graph_of(runs):
    """A graph of the runs; each was made once before, so that kernels are compiled."""
    for run in runs:
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in runs:
            run()
    return graph


def seconds_of(copies):
    """Median seconds of one run; `copies` do the same with different data, and take turns."""
    runs = list(itertools.islice(itertools.cycle(copies), max(len(copies), 8)))
    graph = graph_of(runs)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    readings = []
    for _ in range(REPEATS):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        readings.append(begin.elapsed_time(end) / 1e3 / len(runs))
    return statistics.median(readings)


def plain_seconds_of(runs):
    """Median seconds of one run, for what no graph is sure to take: the host is in it."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    readings = []
    for at in range(-1, REPEATS):
        begin.record()
        for run in runs * 4:
            run()
        end.record()
        torch.cuda.synchronize()
        if at >= 0:  # the first one allocates
            readings.append(begin.elapsed_time(end) / 1e3 / (4 * len(runs)))
    return statistics.median(readings)


class Pool:
    """Random numbers far beyond the card's cache; data of copies lie side by side in it."""

    def __init__(self, gigabytes=2):
        block = torch.randn(32 << 20, device="cuda").bfloat16()
        self.data = block.repeat(gigabytes * 16)
        self.bytes = self.data.numel() * 2

    def copies(self, size):
        """Where copies of so many bytes begin."""
        if size > self.bytes:
            raise MemoryError(f"a copy takes {size} bytes, the pool has {self.bytes}")
        return [i * (size // 2) for i in range(max(1, min(self.bytes // size, MOST_RUNS)))]

    def view(self, begin, *shape):
        return self.data[begin:begin + torch.Size(shape).numel()].view(shape)


def triton_read():
    import triton
    import triton.language as tl

    @triton.jit
    def read(data, out, count, size: tl.constexpr, together: tl.constexpr):
        at = tl.program_id(0) * size
        step = tl.num_programs(0) * size
        total = tl.zeros([size], tl.float32)
        while at < count:
            for i in tl.static_range(together):
                offsets = at + i * step + tl.arange(0, size)
                total += tl.load(data + offsets, mask=offsets < count, other=0.0)
            at += together * step
        tl.store(out + tl.program_id(0) * size + tl.arange(0, size), total)

    # As weft's: 512 threads a CTA, each with 8 loads of 16 bytes on their way.
    ctas, size = 4 * torch.cuda.get_device_properties(0).multi_processor_count, 2048
    out = torch.empty(ctas * size, device="cuda")
    return lambda data: read[(ctas,)](data, out, data.numel(), size, 8, num_warps=16)


class Ceilings:
    def __init__(self, pool):
        self.pool, self.known = pool, {}
        try:
            self.read, self.how = triton_read(), "a plain read in Triton"
        except ImportError:
            self.read, self.how = torch.sum, "torch.sum, as Triton is not installed"

    def read_rate(self, size):
        """Bytes a second of reading so many; of more than the pool, as of the pool."""
        size = min(size, self.pool.bytes) // 4 * 4
        if size not in self.known:
            words = self.pool.data.view(torch.float32)
            copies = [words[begin // 2:][:size // 4] for begin in self.pool.copies(size)]
            self.known[size] = size / seconds_of([lambda copy=copy: self.read(copy) for copy in copies])
        return self.known[size]

    def copy_rate(self):
        """Bytes a second, read and written, of a copy within the pool."""
        half = self.pool.data.numel() // 2
        return 4 * half / seconds_of([lambda: self.pool.data[:half].copy_(self.pool.data[half:])])

    def product_rate(self):
        """Operations a second of a large product."""
        if "products" not in self.known:
            n = 8192
            a, b = self.pool.view(0, n, n), self.pool.view(n * n, n, n)
            out = torch.empty_like(a)
            self.known["products"] = 2 * n ** 3 / seconds_of([lambda: torch.mm(a, b, out=out)])
        return self.known["products"]

    def node_seconds(self):
        """Of the smallest kernel, in a graph of many."""
        word = torch.zeros(1, device="cuda")
        return seconds_of([lambda: word.add_(1)] * 64)

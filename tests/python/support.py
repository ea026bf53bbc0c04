"""What the tests of the Python package share: attention in fp64, and small batches."""
import os
import pathlib
import sys
import threading
import unittest

import numpy as np

import weft

if not os.environ.get("WEFT_PYTHON_MAY_LEAK"):
    weft._weft._warn_of_leaks()
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = str(ROOT / "tests/data/stories260K.gguf")
SEED = int(os.environ.get("WEFT_PYTHON_SEED", "1"))


def reference(q, k, v, causal=False, window_left=-1, cap=0.0, scale=None, bias=None):
    """(o, lse) of one request: q [qo_len, heads, dim], k and v [kv_len, kv_heads, dim], in fp64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) * (1 / np.sqrt(q.shape[2]) if scale is None else scale)
    if cap:
        scores = cap * np.tanh(scores / cap)
    i = np.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
    j = np.arange(k.shape[0])[None]
    if bias is not None:
        scores = scores + bias(i, j)
    seen = np.ones((q.shape[0], k.shape[0]), bool)
    if causal:
        seen &= j <= i
    if window_left >= 0:
        seen &= j >= i - window_left
    scores = np.where(seen, scores, -np.inf)
    most = np.where(seen.any(1), scores.max(-1, initial=-np.inf), 0)
    weights = np.where(seen, np.exp(scores - most[..., None]), 0)
    total = weights.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        o = np.where(total[..., None] > 0, np.einsum("hij,jhd->hid", weights, v) / total[..., None], 0)
        lse = np.log(total) + most
    return o.transpose(1, 0, 2), lse.T


def assert_memory_stays_flat(calls, watched, repeats, warm_up=2000):
    """`repeats` calls by two threads, in turns, behind some that warm up: no reference of `watched` and no memory stay."""
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def some(count):
        for i in range(count):
            calls[i % len(calls)]()

    def on_threads(count):
        threads = [threading.Thread(target=some, args=(count // 2,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    on_threads(warm_up)
    owned, before = [sys.getrefcount(x) for x in watched], resident()
    on_threads(repeats)
    assert owned == [sys.getrefcount(x) for x in watched], owned
    assert resident() - before < 4 << 20, resident() - before


class Batch:
    """Requests of (qo_len, kv_len) over a pool of pages in random order."""

    def __init__(self, lengths, heads=4, kv_heads=2, dim=32, page_size=4, seed=SEED):
        random = np.random.default_rng(seed)
        normal = lambda *shape: random.standard_normal(shape, dtype=np.float32)  # noqa: E731
        self.lengths, self.heads, self.kv_heads, self.page_size = lengths, heads, kv_heads, page_size
        self.q = normal(sum(qo for qo, _ in lengths), heads, dim)
        self.k = [normal(kv, kv_heads, dim) for _, kv in lengths]
        self.v = [normal(kv, kv_heads, dim) for _, kv in lengths]
        self.qo_indptr = np.cumsum([0] + [qo for qo, _ in lengths]).astype(np.int32)
        self.kv_indptr = np.cumsum([0] + [kv for _, kv in lengths]).astype(np.int32)
        counts = [-(-kv // page_size) for _, kv in lengths]
        self.page_indptr = np.cumsum([0] + counts).astype(np.int32)
        self.num_pages = sum(counts) + 3
        self.page_indices = random.permutation(self.num_pages)[: sum(counts)].astype(np.int32)
        self.last_page_len = np.array([kv - (count - 1) * page_size if count else 0
                                       for (_, kv), count in zip(lengths, counts)], np.int32)
        self.k_pages = np.full((self.num_pages, page_size, kv_heads, dim), np.nan, np.float32)
        self.v_pages = self.k_pages.copy()
        for r, (_, kv) in enumerate(lengths):
            for t in range(kv):
                page = self.page_indices[self.page_indptr[r] + t // page_size]
                self.k_pages[page, t % page_size] = self.k[r][t]
                self.v_pages[page, t % page_size] = self.v[r][t]

    def pages(self):
        return weft.PageTableView(self.page_size, self.num_pages, self.page_indptr, self.page_indices,
                                  self.last_page_len)

    def plan_input(self, **more):
        return weft.PlanInput(num_qo_heads=self.heads, num_kv_heads=self.kv_heads, qo_indptr=self.qo_indptr,
                              pages=self.pages()).replace(**more)

    def reference(self, **options):
        parts = [reference(self.q[self.qo_indptr[r]:self.qo_indptr[r + 1]], self.k[r], self.v[r], **options)
                 for r in range(len(self.lengths))]
        return np.concatenate([o for o, _ in parts]), np.concatenate([lse for _, lse in parts])


class TestCase(unittest.TestCase):
    def assert_close(self, made, expected, tolerance=2e-5):
        made, expected = np.asarray(made, np.float64), np.asarray(expected, np.float64)
        self.assertEqual(made.shape, expected.shape)
        with np.errstate(invalid="ignore"):  # inf - inf
            apart = np.where(made == expected, 0, np.abs(made - expected))
        wrong = ~(apart <= tolerance * (1 + np.abs(expected)))
        self.assertFalse(wrong.any(), f"{wrong.sum()} of {made.size} differ, by up to {apart.max(initial=0)}")

    def assert_refused(self, code, says, call, *args, **kwargs):
        with self.assertRaises(weft.Error) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.code, getattr(weft.ErrorCode, code), str(caught.exception))
        self.assertTrue(str(caught.exception).startswith(code + ": "), str(caught.exception))
        self.assertIn(says, str(caught.exception))

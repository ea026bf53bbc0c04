"""weft.flashinfer's attention over shared and latent keys against fp64: cascades, shared prefixes, MLA."""
import itertools
import math
import unittest

import torch

import weft.flashinfer as fi
from flashinfer_support import TOLERANCE, WORKSPACE, reference, some
from test_flashinfer_functions import FlashInferTestCase, ints


class Pool:
    """Pages handed out in random order; what nobody has written is NaN."""

    def __init__(self, num_pages, page_size, kv_heads, dim, dtype=torch.float32):
        self.cache = torch.full((num_pages, 2, page_size, kv_heads, dim), math.nan).to(dtype)
        self.free, self.page_size = torch.randperm(num_pages).tolist(), page_size

    def lists(self, parts):
        """(indptr, indices, last_page_len) of parts, each (k, v) [tokens, kv_heads, dim]."""
        indptr, indices, last = [0], [], []
        for k, v in parts:
            count = -(-len(k) // self.page_size)
            pages = [self.free.pop() for _ in range(count)]
            for t in range(len(k)):
                self.cache[pages[t // self.page_size], :, t % self.page_size] = torch.stack([k[t], v[t]])
            indices += pages
            indptr.append(len(indices))
            last.append(len(k) - (count - 1) * self.page_size if count else 0)
        return ints(*indptr), ints(*indices), ints(*last)


class Cascade(FlashInferTestCase):
    def make(self, lengths, levels, heads, kv_heads, dim, page_size, dtype):
        """lengths: (qo_len, own keys) of each request; levels: (entries' first requests, their keys), widest first."""
        pool = Pool(200, page_size, kv_heads, dim, dtype)
        new = lambda n: tuple(torch.randn(2, n, kv_heads, dim).to(dtype))  # noqa: E731
        rows = torch.tensor([0] + [qo for qo, _ in lengths]).cumsum(0)
        keys = [[] for _ in lengths]
        qo, tables = [], []
        for firsts, counts in levels:
            parts = [new(n) for n in counts]
            ends = [*firsts[1:], len(lengths)]
            for first, end, part in zip(firsts, ends, parts):
                for r in range(first, end):
                    keys[r].append(part)
            qo.append(ints(*[int(rows[x]) for x in (*firsts, len(lengths))]))
            tables.append(pool.lists(parts))
        own = [new(n) for _, n in lengths]
        for r, part in enumerate(own):
            keys[r].append(part)
        qo.append(rows.int())
        tables.append(pool.lists(own))
        q = torch.randn(int(rows[-1]), heads, dim).to(dtype)
        whole = [tuple(torch.cat([part[x] for part in parts]) for x in (0, 1)) for parts in keys]

        def expected(**options):
            return torch.cat([reference(q[rows[r]:rows[r + 1]], *kv, **options)[0] for r, kv in enumerate(whole)])
        return q, qo, list(zip(*tables)), pool.cache, expected

    def test_levels(self):
        forms = [([], 1), ([([0], [64])], 2), ([([0], [48]), ([0, 2], [16, 33])], 3), ([([0, 1], [20, 7])], 2)]
        for case in some(24, dtype=list(TOLERANCE), heads=[(4, 4), (6, 2), (10, 2), (7, 1)], page_size=[1, 4, 16],
                         form=forms, causal=[False, True], window=[-1, -1, 30], mode=["NONE", "NONE", "ROPE_LLAMA"],
                         qo=[[1, 1, 1, 1], [5, 3, 1, 9]], own=[[9, 17, 30, 11], [9, 17, 30, 11]]):
            with self.subTest(**case):
                levels, number = case["form"]
                q, qo, tables, cache, expected = self.make(list(zip(case["qo"], case["own"])), levels, *case["heads"],
                                                           64, case["page_size"], case["dtype"])
                options = dict(causal=case["causal"], window_left=case["window"], pos_encoding_mode=case["mode"])
                wrapper = fi.MultiLevelCascadeAttentionWrapper(number, WORKSPACE)
                wrapper.plan(qo, *tables, *case["heads"], 64, case["page_size"], q_data_type=case["dtype"], **options)
                self.assert_close(wrapper.run(q, cache), expected(**options), TOLERANCE[case["dtype"]])

    def test_entries_without_keys(self):
        q, qo, tables, cache, expected = self.make([(2, 5), (1, 0), (0, 7)], [([0], [0])], 4, 2, 64, 4, torch.float32)
        wrapper = fi.MultiLevelCascadeAttentionWrapper(2, WORKSPACE)
        wrapper.begin_forward(qo, *tables, 4, 2, 64, 4, causal=True, q_data_type="float32")
        self.assert_close(wrapper.forward(q, cache), expected(causal=True))

    def test_refusals(self):
        q, qo, tables, cache, _ = self.make([(1, 5), (1, 6)], [([0], [8])], 4, 2, 64, 4, torch.float32)
        wrapper = fi.MultiLevelCascadeAttentionWrapper(2, WORKSPACE)
        self.assert_invalid("qo_indptr_arr: has 1 arrays", wrapper.plan, qo[1:], *tables, 4, 2, 64, 4)
        self.assert_invalid(r"qo_indptr_arr\[0\]: has 3", wrapper.plan, [qo[1], qo[1]], *tables, 4, 2, 64, 4)
        with self.assertRaisesRegex(AttributeError, "plan"):
            wrapper.run(q, cache)

    def test_shared_prefixes(self):
        for layout, (heads, kv_heads), qo_lens in itertools.product(("NHD", "HND"), ((4, 2), (9, 3)),
                                                                    ([1, 1, 1], [5, 1, 3])):
            q, qo, tables, cache, expected = self.make(list(zip(qo_lens, (9, 17, 30))), [], heads, kv_heads, 64, 4,
                                                       torch.float16)
            shared = torch.randn(2, 40, kv_heads, 64).half()
            indptr, indices, last = (x[0] for x in tables)
            if layout == "HND":
                cache, given = cache.transpose(2, 3).contiguous(), shared.transpose(1, 2).contiguous()
            else:
                given = shared
            parts = []
            for r in range(3):
                own = cache[indices[indptr[r]:indptr[r + 1]].long()]
                own = own.transpose(2, 3) if layout == "HND" else own
                own = own.transpose(0, 1).reshape(2, -1, kv_heads, 64)[:, :(9, 17, 30)[r]]
                both = torch.cat([shared, own], 1)
                parts.append(reference(q[qo[0][r]:qo[0][r + 1]], *both, causal=True)[0])
            if qo_lens[0] == 1:
                wrapper = fi.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(WORKSPACE, layout)
                wrapper.begin_forward(indptr, indices, last, heads, kv_heads, 64, 4)
                self.assert_close(wrapper.forward(q, *given, cache), torch.cat(parts), 3e-3)
            wrapper = fi.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(WORKSPACE, layout)
            wrapper.begin_forward(qo[0], indptr, indices, last, heads, kv_heads, 64, 4)
            self.assert_close(wrapper.forward(q, *given, cache, causal=True), torch.cat(parts), 3e-3)


class Latent(FlashInferTestCase):
    def make(self, lengths, heads, ckv_dim, kpe_dim, page_size, dtype, spare_pages=0):
        counts = [-(-kv // page_size) + spare_pages for _, kv in lengths]
        indptr = torch.tensor([0, *counts]).cumsum(0).int()
        indices = torch.randperm(int(indptr[-1]) + 2)[:int(indptr[-1])].int()
        latent = torch.full((len(indices) + 2, page_size, ckv_dim + kpe_dim), math.nan).to(dtype)
        rows = [torch.randn(kv, ckv_dim + kpe_dim).to(dtype) for _, kv in lengths]
        for r, x in enumerate(rows):
            for t in range(len(x)):
                latent[int(indices[int(indptr[r]) + t // page_size]), t % page_size] = x[t]
        qo_indptr = torch.tensor([0] + [qo for qo, _ in lengths]).cumsum(0).int()
        q = torch.randn(int(qo_indptr[-1]), heads, ckv_dim + kpe_dim).to(dtype)

        def expected(**options):
            parts = [reference(q[qo_indptr[r]:qo_indptr[r + 1]], x[:, None], x[:, None, :ckv_dim], **options)
                     for r, x in enumerate(rows)]
            return tuple(torch.cat(x) for x in zip(*parts))
        lens = ints(*[kv for _, kv in lengths])
        return q, qo_indptr, (indptr, indices, lens), latent, expected

    def test_the_grid(self):
        for case in some(16, dtype=list(TOLERANCE), heads=[1, 5, 16, 128], dims=[(512, 64), (512, 64), (256, 32)],
                         page_size=[1, 16, 64], causal=[False, True], spare=[0, 2],
                         lengths=[[(1, 17), (1, 33), (1, 96)], [(1, 96), (3, 97), (0, 5), (17, 96), (1, 0)]]):
            with self.subTest(**case):
                ckv_dim, kpe_dim = case["dims"]
                q, qo_indptr, table, latent, expected = self.make(case["lengths"], case["heads"], *case["dims"],
                                                                  case["page_size"], case["dtype"], case["spare"])
                scale = 1 / math.sqrt(128 + kpe_dim)
                wrapper = fi.BatchMLAPagedAttentionWrapper(WORKSPACE)
                wrapper.plan(qo_indptr, *table, case["heads"], *case["dims"], case["page_size"], case["causal"], scale,
                             case["dtype"], case["dtype"])
                ckv, kpe = (x.contiguous() for x in latent.split([ckv_dim, kpe_dim], -1))
                o, lse = wrapper.run(q[..., :ckv_dim], q[..., ckv_dim:], ckv, kpe, return_lse=True)
                expected_o, expected_lse = expected(causal=case["causal"], sm_scale=scale)
                self.assert_close(o, expected_o, TOLERANCE[case["dtype"]])
                self.assert_close(lse, expected_lse, TOLERANCE[case["dtype"]])
                again, natural = wrapper.run(query=q, kv_cache=latent, return_lse=True, return_lse_base_on_e=True)
                self.assertTrue(torch.equal(again, o))
                self.assert_close(natural, expected_lse * math.log(2), TOLERANCE[case["dtype"]])

    def test_lengths_say_how_many_requests_there_are(self):
        q, qo_indptr, (indptr, *table), latent, expected = self.make([(1, 17), (1, 33)], 4, 64, 32, 16, torch.float32)
        wrapper = fi.BatchMLAPagedAttentionWrapper(WORKSPACE)
        wrapper.plan(qo_indptr, torch.cat([indptr, ints(99)]), *table, 4, 64, 32, 16, False, 0.1, torch.float32,
                     torch.float32)
        self.assert_close(wrapper.run(query=q, kv_cache=latent), expected(sm_scale=0.1)[0])

    def test_refusals(self):
        q, qo_indptr, table, latent, _ = self.make([(1, 17), (1, 33)], 4, 64, 32, 16, torch.float32)
        wrapper = fi.BatchMLAPagedAttentionWrapper(WORKSPACE)
        rest = 4, 64, 32, 16, False, 0.1, torch.float32, torch.float32
        self.assert_invalid("kv_indptr: its elements are torch.int64", wrapper.plan, qo_indptr, table[0].long(),
                            *table[1:], *rest)
        self.assert_invalid(r"kv_len_arr\[0\] = 33; allowed are 0 to 32", wrapper.plan, qo_indptr, *table[:2],
                            ints(33, 33), *rest)
        self.assert_unsupported("output_scale", wrapper.plan, qo_indptr, *table, *rest, output_scale="fp8")
        with self.assertRaisesRegex(RuntimeError, "plan"):
            wrapper.run(query=q, kv_cache=latent)
        wrapper.plan(qo_indptr, *table, *rest)
        self.assert_invalid("q_nope and q_pe", wrapper.run, q)
        self.assert_unsupported("ckv_scale", wrapper.run, query=q, kv_cache=latent, ckv_scale=2.0)


if __name__ == "__main__":
    unittest.main()

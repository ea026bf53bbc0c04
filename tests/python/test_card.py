"""The package on a card: torch's tensors there, streams and graphs, against torch's arithmetic in fp64.

WEFT_PYTHON_DEVICE=cpu runs what needs no card on the CPU, which tests this file.
"""
import math
import os
import sys
import unittest

import numpy as np
import torch

import weft
import weft.flashinfer as fi
import weft.torch
from flashinfer_support import Batch, reference
from support import ROOT

DEVICE = os.environ.get("WEFT_PYTHON_DEVICE", "cuda:0")
ON_CARD = DEVICE.startswith("cuda")
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
WEFT = {torch.float16: weft.DType.fp16, torch.bfloat16: weft.DType.bf16}
BOTH = (torch.float16, torch.bfloat16)


def setUpModule():
    if ON_CARD and not torch.cuda.is_available():
        raise unittest.SkipTest("no card here")
    torch.manual_seed(1)


def there(*tensors):
    moved = tuple(x.to(DEVICE) for x in tensors)
    return moved if len(moved) > 1 else moved[0]


def stream():
    return weft.Stream.cuda(torch.cuda.current_stream().cuda_stream, torch.device(DEVICE).index) if ON_CARD else None


class TestCase(unittest.TestCase):
    def close(self, made, expected, tolerance):
        made, expected = made.detach().double().cpu(), expected.detach().double().cpu()
        self.assertEqual(made.shape, expected.shape)
        apart = torch.where(made == expected, 0.0, (made - expected).abs())
        wrong = ~(apart <= tolerance * (1 + expected.abs().nan_to_num(posinf=0)))
        self.assertFalse(bool(wrong.any()),
                         f"{int(wrong.sum())} of {made.numel()} differ, by up to {float(apart.max())}")

    def states(self, made, expected, dtype):
        self.close(made[0], expected[0], TOLERANCE[dtype])
        self.close(made[1], expected[1], 1e-2)


class Wrappers(TestCase):
    def setUp(self):
        self.workspace = torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)

    def test_single_calls(self):
        for dtype in BOTH:
            for layout in ("NHD", "HND"):
                batch = Batch([(37, 301)], heads=8, kv_heads=2, dim=128, layout=layout, dtype=dtype)
                q, k, v = there(batch.q, *batch.ragged())
                mask = torch.rand(37, 301) < 0.7
                for given in ({"causal": True}, {"causal": True, "window_left": 50}, {"logits_soft_cap": 20.0},
                              {"pos_encoding_mode": "ALIBI"}, {"custom_mask": mask}):
                    with self.subTest(dtype=dtype, layout=layout, given=list(given)):
                        wanted = {("mask" if name == "custom_mask" else name): x for name, x in given.items()}
                        made = fi.single_prefill_with_kv_cache(
                            q, k, v, kv_layout=layout, return_lse=True,
                            **{name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in given.items()})
                        expected = reference(batch.q, batch.k[0], batch.v[0], **wanted)
                        self.states(made, expected, dtype)
                o, lse = fi.single_decode_with_kv_cache(q[-1], k, v, kv_layout=layout, return_lse=True)
                expected = reference(batch.q[-1:], batch.k[0], batch.v[0])
                self.states((o[None], lse[None]), expected, dtype)

    def test_decode_step_after_step(self):
        for dtype, kv_dtype in ((torch.float16, None), (torch.bfloat16, None), (torch.float16, torch.float8_e4m3fn)):
            wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(self.workspace)
            for more in (0, 1, 2, 130):  # plans that go on, and one that does not
                lengths = [(1, 1 + more), (1, 17 + more), (1, 900 + more), (1, 64 + more)]
                batch = Batch(lengths, heads=8, kv_heads=2, dim=128, page_size=16, dtype=dtype, kv_dtype=kv_dtype)
                wrapper.plan(*there(*batch.table()), 8, 2, 128, 16, q_data_type=dtype, kv_data_type=kv_dtype)
                packed = torch.zeros(len(lengths), 10, 128, dtype=dtype, device=DEVICE)
                packed[:, :8] = batch.q.to(DEVICE)
                out = torch.empty(len(lengths), 8, 128, dtype=dtype, device=DEVICE)
                lse = torch.empty(len(lengths), 8, device=DEVICE)
                made = wrapper.run(packed[:, :8], batch.cache().to(DEVICE), out=out, lse=lse, return_lse=True)
                self.assertEqual((made[0].data_ptr(), made[1].data_ptr()), (out.data_ptr(), lse.data_ptr()))
                self.states(made, batch.reference(), dtype)
                pair = tuple(x.to(DEVICE) for x in batch.cache(one=False))
                self.close(wrapper.run(packed[:, :8], pair), made[0], 0)

    def test_prefill(self):
        lengths = [(1, 40), (130, 130), (5, 300), (64, 1000)]
        for dtype in BOTH:
            for layout in ("NHD", "HND"):
                batch = Batch(lengths, heads=8, kv_heads=2, dim=128, page_size=16, layout=layout, dtype=dtype)
                q, (k, v) = batch.q.to(DEVICE), batch.ragged()
                paged = fi.BatchPrefillWithPagedKVCacheWrapper(self.workspace, layout)
                ragged = fi.BatchPrefillWithRaggedKVCacheWrapper(self.workspace, layout)
                for given in ({"causal": True}, {"causal": True, "window_left": 33}, {"logits_soft_cap": 30.0}):
                    with self.subTest(dtype=dtype, layout=layout, given=list(given)):
                        expected = batch.reference(**given)
                        paged.plan(*there(batch.qo_indptr, *batch.table()), 8, 2, 128, 16, q_data_type=dtype, **given)
                        self.states(paged.run(q, batch.cache().to(DEVICE), return_lse=True), expected, dtype)
                        ragged.plan(*there(batch.qo_indptr, batch.kv_indptr), 8, 2, 128, q_data_type=dtype, **given)
                        self.states(ragged.run(q, *there(k, v), return_lse=True), expected, dtype)
                masks = [torch.rand(qo, kv) < 0.8 for qo, kv in lengths]
                flat = torch.cat([x.reshape(-1) for x in masks])
                paged.plan(*there(batch.qo_indptr, *batch.table()), 8, 2, 128, 16, custom_mask=flat.to(DEVICE),
                           q_data_type=dtype)
                self.states(paged.run(q, batch.cache().to(DEVICE), return_lse=True), batch.reference(masks), dtype)

    def test_latent(self):
        for dtype in BOTH:
            lengths, heads, ckv, kpe, page = [(1, 33), (1, 500), (3, 64)], 16, 512, 64, 16
            batch = Batch(lengths, heads=heads, kv_heads=1, dim=ckv + kpe, page_size=page, dtype=dtype)
            wrapper = fi.mla.BatchMLAPagedAttentionWrapper(self.workspace)
            kv_len = torch.tensor([kv for _, kv in lengths], dtype=torch.int32)
            scale = 1 / math.sqrt(192)
            wrapper.plan(*there(batch.qo_indptr, batch.indptr, batch.indices, kv_len), heads, ckv, kpe, page, True,
                         scale, dtype, dtype)
            cache = batch.pages[:, 0, :, 0].nan_to_num()  # the keys' first numbers are the values
            q, rows = there(batch.q, cache)
            made = wrapper.run(q[..., :ckv].contiguous(), q[..., ckv:].contiguous(), rows[..., :ckv].contiguous(),
                               rows[..., ckv:].contiguous(), return_lse=True)
            parts = [reference(batch.q[a:b], k, k[..., :ckv], causal=True, sm_scale=scale)
                     for a, b, k in zip(batch.qo_indptr, batch.qo_indptr[1:], batch.k)]
            self.states(made, [torch.cat(x) for x in zip(*parts)], dtype)

    def test_levels_and_states(self):
        batch = Batch([(1, 100), (1, 70), (1, 65)], heads=8, kv_heads=2, dim=64, page_size=16, dtype=torch.float16)
        wrapper = fi.MultiLevelCascadeAttentionWrapper(2, self.workspace)
        # All begin with the first request's first two pages.
        shared, own = batch.indices[:2], [batch.indices[a + 2:b] for a, b in zip(batch.indptr, batch.indptr[1:])]
        counts = torch.tensor([0] + [len(x) for x in own]).cumsum(0).int()
        wrapper.plan([there(x) for x in (torch.tensor([0, 3], dtype=torch.int32), batch.qo_indptr)],
                     [there(x) for x in (torch.tensor([0, 2], dtype=torch.int32), counts)],
                     [there(shared), there(torch.cat(own))],
                     [there(torch.tensor([16], dtype=torch.int32)), there(batch.last_page_len)], 8, 2, 64, 16)
        made = wrapper.run(batch.q.to(DEVICE), batch.cache().to(DEVICE))
        for r in range(3):
            k, v = (torch.cat([x[0][:32], x[r][32:]]) for x in (batch.k, batch.v))
            self.close(made[r:r + 1], reference(batch.q[r:r + 1], k, v)[0], 4e-3)
        parts = [fi.single_prefill_with_kv_cache_return_lse(*there(batch.q[:1], batch.k[0][x], batch.v[0][x]))
                 for x in (slice(0, 60), slice(60, 100))]
        expected = reference(batch.q[:1], batch.k[0], batch.v[0])
        self.states(fi.merge_state(*parts[0], *parts[1]), expected, torch.float16)
        stacked = [torch.stack(x, 1) for x in zip(*parts)]
        self.states(fi.merge_states(*stacked), expected, torch.float16)

    def test_blocks(self):
        wrapper = fi.BlockSparseAttentionWrapper(self.workspace)
        q, k, v = (torch.randn(64, heads, 64).half() for heads in (4, 2, 2))
        indptr, indices = torch.tensor([0, 2, 3, 5, 6]), torch.tensor([0, 2, 1, 0, 3, 2])
        wrapper.plan(*there(indptr.int(), indices.int()), 64, 64, 16, 16, 4, 2, 64)
        made = wrapper.run(*there(q, k, v))
        for row in range(4):
            at = torch.cat([torch.arange(16) + 16 * int(c) for c in indices[indptr[row]:indptr[row + 1]]])
            expected = reference(q[16 * row:16 * row + 16], k[at], v[at])[0]
            self.close(made[16 * row:16 * row + 16], expected, 4e-3)

    def test_wrong_calls_leave_the_card_as_it_was(self):
        batch = Batch([(1, 40)], heads=4, kv_heads=2, dim=64, page_size=16, dtype=torch.float16)
        wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(self.workspace)
        wrapper.plan(*there(*batch.table()), 4, 2, 64, 16)
        q, cache = there(batch.q, batch.cache())
        for wrong in (lambda: wrapper.run(q, cache[:1]), lambda: wrapper.run(q[:, :2], cache),
                      lambda: wrapper.run(q, cache, out=q), lambda: wrapper.run(q.bfloat16(), cache),
                      lambda: wrapper.run(q, batch.cache() if ON_CARD else cache[:, :, :, :1])):
            with self.assertRaises(weft.Error):
                wrong()
        self.close(wrapper.run(q, cache), batch.reference()[0], 4e-3)


class Functions(TestCase):
    def test_pages(self):
        for layout in ("NHD", "HND"):
            batch = Batch([(3, 20), (5, 5), (1, 33)], heads=4, kv_heads=2, dim=64, page_size=16, layout=layout,
                          dtype=torch.float16)
            table = there(*batch.table())
            lens = fi.get_seq_lens(table[0], table[2], 16)
            self.assertEqual(lens.tolist(), [20, 5, 33])
            rows, positions = fi.get_batch_indices_positions(there(batch.kv_indptr), lens, 58)
            cache = torch.zeros_like(batch.cache()).to(DEVICE)
            fi.append_paged_kv_cache(*there(torch.cat(batch.k), torch.cat(batch.v)), rows, positions, cache, table[1],
                                     table[0], table[2], layout)
            self.close(cache, batch.cache().nan_to_num(), 0)
            places = weft.empty([1], weft.DType.int32, DEVICE)  # the core's append: to the ends of the tables
            self.assertEqual(torch.from_dlpack(places).device, torch.device(DEVICE))
            cache.zero_()
            new = there(torch.cat(batch.k).float(), torch.cat(batch.v).float())
            weft.append_paged_kv(*new, batch.kv_indptr, weft.PageTableView(16, batch.num_pages, *batch.table()),
                                 getattr(weft.Layout, layout.lower()), tuple(cache.unbind(1)), stream=stream())
            self.close(cache, batch.cache().nan_to_num(), 0)

    def test_rows(self):
        for dtype in BOTH:
            x, weight, residual = there(torch.randn(33, 256).to(dtype), torch.randn(256).to(dtype),
                                        torch.randn(33, 256).to(dtype))
            normed = lambda x: x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()  # noqa: E731
            self.close(fi.rmsnorm(x, weight), normed(x.double()), TOLERANCE[dtype])
            total, own = x.double() + residual.double(), x.clone()
            fi.fused_add_rmsnorm(own, residual, weight)
            self.close(own, normed(total), TOLERANCE[dtype])
            self.close(residual, total, TOLERANCE[dtype])
            gate, up = x.double().chunk(2, -1)
            self.close(fi.silu_and_mul(x), torch.nn.functional.silu(gate) * up, TOLERANCE[dtype])
            self.close(fi.gelu_tanh_and_mul(x), torch.nn.functional.gelu(gate, approximate="tanh") * up,
                       TOLERANCE[dtype])

    def test_rotations(self):
        q, k = torch.randn(40, 4, 64).half(), torch.randn(40, 2, 64).half()
        positions = torch.randint(0, 5000, (40,), dtype=torch.int32)
        for interleave in (False, True):
            made = fi.apply_rope_pos_ids(*there(q, k, positions), interleave=interleave)
            angles = positions.double()[:, None] * 1e4 ** (-torch.arange(32).double() / 32)
            cos, sin = angles.cos()[:, None], angles.sin()[:, None]
            for x, turned in zip((q, k), made):
                low, high = (x[..., ::2], x[..., 1::2]) if interleave else x.chunk(2, -1)
                low, high = low.double(), high.double()
                parts = low * cos - high * sin, high * cos + low * sin
                self.close(turned, torch.stack(parts, -1).flatten(-2) if interleave else torch.cat(parts, -1), 4e-3)

    def test_samples(self):
        logits = torch.randn(64, 5000) * 3
        probs = fi.softmax(there(logits))
        self.close(probs, torch.softmax(logits.double(), 1), 1e-5)
        kept = logits.double().topk(20).values[:, -1:] <= logits
        wanted = torch.where(kept, torch.softmax(logits.double(), 1), 0)
        self.close(fi.top_k_renorm_probs(probs, 20), wanted / wanted.sum(1, keepdim=True), 1e-5)
        for draw, allowed in ((lambda **given: fi.top_k_sampling_from_probs(probs, 20, **given), kept),
                              (lambda **given: fi.sampling_from_probs(probs, **given), torch.ones_like(kept)),
                              (lambda **given: fi.top_k_top_p_sampling_from_logits(there(logits), 20, 0.9, **given),
                               kept)):
            ids = draw(seed=7, offset=3)
            self.assertEqual(ids.device.type, torch.device(DEVICE).type)
            self.assertTrue(torch.equal(ids, draw(seed=7, offset=3)))
            self.assertTrue(bool(allowed.gather(1, ids.long().cpu()[:, None]).all()))
            generator = torch.Generator(DEVICE).manual_seed(5)
            self.assertTrue(bool(allowed.gather(1, draw(generator=generator).long().cpu()[:, None]).all()))
        if ON_CARD:
            with self.assertRaisesRegex(weft.Error, "a CUDA graph captures"), torch.cuda.graph(torch.cuda.CUDAGraph()):
                fi.top_k_renorm_probs(probs, 20)
        renormed = fi.top_p_renorm_probs(probs, 0.5)
        self.close(renormed.sum(1), torch.ones(64), 1e-4)
        self.close(fi.top_k(there(logits), 5, sorted=True)[0], logits.topk(5).values, 0)


class Core(TestCase):
    def setUp(self):
        self.batch = Batch([(3, 40), (1, 300)], heads=8, kv_heads=2, dim=64, page_size=16, dtype=torch.float16)
        self.spec = weft.AttentionSpec(q_dtype=weft.DType.fp16, kv_dtype=weft.DType.fp16, o_dtype=weft.DType.fp16,
                                       head_dim_qk=64, head_dim_vo=64, mask=weft.Mask.causal)
        self.kernel = weft.build(self.spec, DEVICE)
        self.input = self.input_of(self.batch)
        self.q, cache = there(self.batch.q, self.batch.cache())
        self.cache = cache.unbind(1)
        self.expected = self.batch.reference(causal=True)[0]

    def input_of(self, batch, **more):
        return weft.PlanInput(num_qo_heads=8, num_kv_heads=2, qo_indptr=batch.qo_indptr,
                              pages=weft.PageTableView(16, batch.num_pages, *batch.table())).replace(**more)

    def test_calls_without_a_stream(self):
        plan = self.kernel.plan(self.input)
        o, lse = self.kernel.run(plan, self.q, self.cache, return_lse=True)
        self.assertEqual((o.device, lse.dtype), (self.q.device, torch.float32))
        self.close(o, self.expected, 4e-3)
        parameter = torch.nn.Parameter(self.q, requires_grad=False)  # a class of its own, which has no short way
        self.close(self.kernel.run(plan, parameter, self.cache), o, 0)

    def test_functions_of_ones_own(self):
        def score(score, b, h, q_idx, kv_idx):
            return 20 * torch.tanh(score / 20)

        def window(b, h, q_idx, kv_idx):
            return (kv_idx <= q_idx) & (q_idx - kv_idx <= 30)

        spec = self.spec.replace(mask=weft.Mask.none, variant=weft.variants.trace(score, window))
        kernel = weft.build(spec, DEVICE)
        made = kernel.run(kernel.plan(self.input), self.q, self.cache, stream=stream())
        self.close(made, self.batch.reference(causal=True, window_left=30, logits_soft_cap=20.0)[0], 4e-3)

    def test_torchs_operators(self):
        attention = weft.torch.Attention(self.kernel, self.kernel.plan(self.input))
        weight = torch.randn(64, device=DEVICE)

        def layer(q, k, v):
            o = attention(q, (k, v))[0]
            return weft.torch.rms_norm(o.float().reshape(-1, 64), weight, 1e-5)

        made = torch.compile(layer, fullgraph=True, backend="aot_eager")(self.q, *self.cache)
        o = self.expected.reshape(-1, 64)
        self.close(made, o / (o.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double().cpu(), 2e-2)

    @unittest.skipUnless(ON_CARD, "streams of a card")
    def test_side_streams(self):
        side = torch.cuda.Stream()
        plan = self.kernel.plan(self.input)
        wrapper = fi.BatchPrefillWithPagedKVCacheWrapper(torch.empty(256, dtype=torch.uint8, device=DEVICE))
        wrapper.plan(self.batch.qo_indptr, *self.batch.table(), 8, 2, 64, 16, causal=True)
        late, busy = torch.zeros_like(self.q), torch.randn(4096, 4096, device=DEVICE)
        for repeat in range(5):
            late.zero_()
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                for _ in range(10):
                    busy = (busy @ busy).clamp(-1, 1)  # q is there long after the calls that read it were made
                late.copy_(self.q)
                made = self.kernel.run(plan, late, self.cache, stream=stream())
                wrapped = wrapper.run(late, torch.stack(self.cache, 1))
            # Without a stream: Weft works on the default one, behind what the side stream was given.
            with torch.cuda.stream(side):
                waits = self.kernel.run(plan, late, self.cache)
            torch.cuda.synchronize()
            for name, o in (("run", made), ("wrapper", wrapped), ("default stream", waits)):
                with self.subTest(name, repeat=repeat):
                    self.close(o, self.expected, 4e-3)

    @unittest.skipUnless(ON_CARD, "graphs of a card")
    def test_a_graph_runs_the_plan_that_was_uploaded_last(self):
        steps = [[(1, 40), (1, 300)], [(1, 41), (1, 301)], [(1, 200), (1, 17)]]
        batches = [Batch(x, heads=8, kv_heads=2, dim=64, page_size=16, dtype=torch.float16) for x in steps]
        bounds = weft.PlanBounds(max_requests=2, max_rows=2, max_qo_len=1, max_pages=64, max_kv_len=1024, page_size=16,
                                 num_qo_heads=8, num_kv_heads=2, workers=132)
        workspace = weft.Workspace(DEVICE, self.kernel.workspace_bytes(bounds))
        q = torch.zeros(2, 8, 64, dtype=torch.float16, device=DEVICE)
        caches = [torch.zeros(64, 16, 2, 64, dtype=torch.float16, device=DEVICE) for _ in range(2)]
        out, graph = torch.empty_like(q), None
        for batch in batches:
            plan = self.kernel.plan(self.input_of(batch, bounds=bounds))
            q.copy_(batch.q)
            for to, x in zip(caches, batch.cache().unbind(1)):
                to[:len(x)] = x.to(DEVICE)
            torch.cuda.synchronize()
            plan.upload(workspace)
            if graph is None:
                self.kernel.run(workspace, q, tuple(caches), out)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self.kernel.run(workspace, q, tuple(caches), out, stream=stream())
            weft.Stream.cuda().synchronize()
            out.zero_()
            graph.replay()
            torch.cuda.synchronize()
            self.close(out, batch.reference(causal=True)[0], 4e-3)

    @unittest.skipUnless(ON_CARD, "graphs of a card")
    def test_graphs_of_wrappers_run_the_next_plan(self):
        buffers = lambda *sizes: [torch.zeros(n, dtype=torch.int32, device=DEVICE) for n in sizes]  # noqa: E731
        workspace = torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
        decode = fi.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace, *buffers(3, 64, 2))
        prefill = fi.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", True, *buffers(3, 3, 64, 2))
        cases = [(decode, [[(1, 40), (1, 300)], [(1, 41), (1, 301)], [(1, 200), (1, 17)]]),
                 (prefill, [[(30, 40), (90, 300)], [(41, 41), (2, 301)], [(1, 200), (17, 17)]])]
        for wrapper, steps in cases:
            rows = sum(qo for qo, _ in steps[0])
            q = torch.zeros(rows, 8, 64, dtype=torch.float16, device=DEVICE)
            cache = torch.zeros(64, 2, 16, 2, 64, dtype=torch.float16, device=DEVICE)
            out, graph = torch.empty_like(q), None
            for lengths in steps:
                batch = Batch(lengths, heads=8, kv_heads=2, dim=64, page_size=16, dtype=torch.float16)
                if wrapper is decode:
                    wrapper.plan(*batch.table(), 8, 2, 64, 16)
                else:
                    wrapper.plan(batch.qo_indptr, *batch.table(), 8, 2, 64, 16, causal=True)
                q[:len(batch.q)] = batch.q.to(DEVICE)
                cache[:len(batch.cache())] = batch.cache().to(DEVICE)
                if graph is None:  # no run before: plan() has uploaded all that the capture needs
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        wrapper.run(q, cache, out=out)
                out.zero_()
                graph.replay()
                torch.cuda.synchronize()
                self.close(out[:len(batch.q)], batch.reference(causal=True)[0], 4e-3)

    @unittest.skipUnless(ON_CARD, "graphs of a card")
    def test_a_graph_draws_from_probabilities(self):
        probs = torch.softmax(torch.randn(6, 5000), 1)
        there_probs, seed, offset = there(probs, torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        graph, made = torch.cuda.CUDAGraph(), None
        draw = lambda x, s, o: fi.top_k_top_p_sampling_from_probs(x, 50, 0.8, seed=s, offset=o)  # noqa: E731
        draw(there_probs, seed, offset)  # the kernel is there
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            made = draw(there_probs, seed, offset)
        for position in range(5):
            offset.fill_(position)
            graph.replay()
            torch.cuda.synchronize()
            self.assertEqual(made.tolist(), draw(probs, torch.tensor([0]), torch.tensor([position])).tolist())

    def test_draws_are_those_of_the_cpu(self):
        probs = torch.softmax(3 * torch.randn(8, 40000), 1)
        probs[2, :300] = probs[2, 0]
        top_k = torch.tensor([1, 50, 40000, 3, 2000, 7, 0, 400], dtype=torch.int32)
        top_p = torch.linspace(0.1, 1.0, 8)
        seeds = dict(seed=5, offset=7)
        for call, given in ((fi.sampling_from_probs, ()), (fi.top_k_sampling_from_probs, (top_k,)),
                            (fi.top_p_sampling_from_probs, (top_p,)), (fi.min_p_sampling_from_probs, (top_p,)),
                            (fi.top_k_top_p_sampling_from_probs, (top_k, top_p))):
            with self.subTest(call.__name__):
                made = call(there(probs), *(x.to(DEVICE) for x in given), **seeds)
                self.assertEqual(made.tolist(), call(probs, *given, **seeds).tolist())

    @unittest.skipUnless(ON_CARD and torch.cuda.device_count() > 1, "two cards")
    def test_a_card_that_is_not_the_current_one(self):
        other = "cuda:1"
        kernel = weft.build(self.spec, other)
        q, cache = self.batch.q.to(other), tuple(x.to(other) for x in self.cache)
        given = weft.Stream.cuda(torch.cuda.current_stream(other).cuda_stream, 1)
        made = kernel.run(kernel.plan(self.input), q, cache, stream=given)
        self.assertEqual(str(made.device), other)
        torch.cuda.synchronize(other)
        self.close(made, self.expected, 4e-3)
        self.assertEqual(torch.cuda.current_device(), 0)
        self.close(self.kernel.run(self.kernel.plan(self.input), self.q, self.cache), self.expected, 4e-3)
        with self.assertRaises(weft.Error):  # tensors of two cards
            kernel.run(kernel.plan(self.input), q, self.cache, stream=given)

    @unittest.skipUnless(ON_CARD, "memory of a card")
    def test_memory_of_the_host_is_refused(self):
        plan = self.kernel.plan(self.input)
        for wrong in (lambda: self.kernel.run(plan, self.q, tuple(x.cpu() for x in self.cache)),
                      lambda: self.kernel.run(plan, self.q.cpu(), self.cache, stream=stream()),
                      lambda: self.kernel.run(plan, self.q, self.cache, torch.empty_like(self.q, device="cpu")),
                      lambda: weft.rms_norm(torch.ones(2, 8, device=DEVICE), torch.ones(8), 1e-5)):
            with self.assertRaises(weft.Error):
                wrong()
        self.close(self.kernel.run(plan, self.q, self.cache), self.expected, 4e-3)
        view = weft.TensorView(self.q)
        self.assertEqual(str(view.device), DEVICE)
        self.assertEqual(torch.from_dlpack(view).data_ptr(), self.q.data_ptr())
        with self.assertRaises((BufferError, RuntimeError, TypeError)):
            np.from_dlpack(view)


class Sparse(TestCase):
    def setUp(self):
        self.dense = (torch.rand(200, 150) < 0.1) * torch.randn(200, 150)
        self.structure, self.values = weft.sparse.matrix(self.dense.to_sparse_csr())
        self.rows, self.columns = self.dense.nonzero().T

    def test_products(self):
        b, x, y = torch.randn(150, 64), torch.randn(200, 64), torch.randn(150, 64)
        dense = self.dense.double()
        made = weft.sparse.spmm(self.structure, *there(self.values, b), stream=stream())
        self.assertEqual(made.device, torch.device(DEVICE))
        self.close(made, dense @ b.double(), 1e-4)
        made = weft.sparse.sddmm(self.structure, *there(self.values, x, y), stream=stream())
        dots = (x.double() @ y.double().T)[self.rows, self.columns]
        self.close(made, self.values.double() * dots, 1e-4)
        made = weft.sparse.graph_attention(self.structure, *there(x, y, y), 0.125, stream=stream())
        scores = torch.where(dense != 0, x.double() @ y.double().T * 0.125, -math.inf)
        self.close(made, torch.softmax(scores, 1).nan_to_num() @ y.double(), 1e-4)

        for formats in ("csr", "hyb(1, 3)"):
            made = weft.sparse.spmm(self.structure, *there(self.values, b), format=formats, stream=stream())
            self.close(made, dense @ b.double(), 1e-4)
        made = weft.sparse.spmm(self.structure, *there(self.values.bfloat16(), b.bfloat16()), stream=stream())
        self.close(made, self.dense.bfloat16().double() @ b.bfloat16().double(), TOLERANCE[torch.bfloat16])

    def test_matrices_are_taken_where_they_lie(self):
        dense, b = there(self.dense, torch.randn(150, 64))
        expected = dense.double() @ b.double()
        for matrix in (dense.to_sparse_csr(), dense.to_sparse_coo().coalesce()):
            structure, values = weft.sparse.matrix(matrix)
            self.assertEqual(values.data_ptr(), matrix.values().data_ptr())
            self.close(weft.sparse.spmm(structure, values, b, stream=stream()), expected, 1e-4)
        structure, values = weft.sparse.matrix(dense[:, :144].to_sparse_bsr((8, 8)), "bsr")
        made = weft.sparse.block_spmm(structure, values, b[:144], torch.empty(200, 64, device=DEVICE), stream=stream())
        self.close(made, dense[:, :144].double() @ b[:144].double(), 1e-4)

    def test_relations(self):
        relations = torch.arange(len(self.rows)) % 3
        x, w = torch.randn(150, 32), torch.randn(3, 32, 16)
        places = [each.contiguous() for each in (relations, self.rows, self.columns)]
        edges = weft.sparse.CooTensor([3, 200, 150], places)
        made = weft.sparse.rgms(weft.sparse.relational_from_coo(edges).structure, None,
                                *there(x, w, torch.empty(200, 16)), stream=stream())
        messages = torch.einsum("ef,efo->eo", x.double()[self.columns], w.double()[relations])
        self.close(made, torch.zeros(200, 16).double().index_add(0, self.rows, messages), 1e-4)

    def test_programs(self):
        lesson = (ROOT / "examples/python/lesson_10_sparse_program.py").read_text()
        text = lesson.split('sparse.parse("""')[1].split('"""')[0]
        program = weft.sparse.parse(text + "schedule:\n  lower()\n  parallel(largest.i)\n")
        x, y = torch.randn(150, 64), torch.empty(200, 64, device=DEVICE)
        operator = weft.sparse.compile(program, device=DEVICE)
        operator.run({"J": self.structure}, {"X": there(x), "Y": y}, stream=stream())
        seen = torch.where(self.dense[..., None] != 0, x, -math.inf)
        self.close(y, seen.amax(1), 0)

    @unittest.skipUnless(ON_CARD, "a CPU has no streams of torch's")
    def test_torch_s_own_streams(self):
        matrix = weft.torch.Matrix(self.structure)
        values, b = there(self.values, torch.randn(150, 64))
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            made = matrix.spmm(values, b * 2) + 1  # each waits for the one before
        torch.cuda.synchronize()
        self.close(made, self.dense.double() @ (2 * b).double().cpu() + 1, 1e-4)

    @unittest.skipUnless(ON_CARD, "two places are a card and the host")
    def test_tensors_of_two_places_are_refused(self):
        for call in (lambda: weft.sparse.spmm(self.structure, self.values, there(torch.randn(150, 8))),
                     lambda: weft.sparse.csr(1, 2, *there(torch.tensor([0, 1]), torch.tensor([0])))):
            with self.assertRaisesRegex(weft.Error, "invalid_device: .*lies on"):
                call()

    def test_gradients(self):
        matrix = weft.torch.Matrix(self.structure)
        values, b = (x.to(DEVICE).requires_grad_() for x in (self.values.clone(), torch.randn(150, 32)))
        weight = torch.randn(200, 32, device=DEVICE)
        (matrix.spmm(values, b) * weight).sum().backward()
        self.close(b.grad, self.dense.double().T @ weight.double().cpu(), 1e-3)
        dots = (weight.double().cpu() @ b.detach().double().cpu().T)[self.rows, self.columns]
        self.close(values.grad, dots, 1e-3)


if __name__ == "__main__":
    print(f"weft on {torch.cuda.get_device_name(0) if ON_CARD and torch.cuda.is_available() else 'the CPU'}",
          file=sys.stderr)
    unittest.main()

"""weft.flashinfer's attention against fp64: single calls and batch wrappers, over FlashInfer's grids, sampled."""
import functools
import math
import unittest
import unittest.mock

import torch

import weft
import weft.flashinfer as fi
from flashinfer_support import TOLERANCE, WORKSPACE, Batch, reference, some
from test_flashinfer_functions import FlashInferTestCase, ints
from weft.flashinfer._batch import split_mode

MODES = ["NONE", "NONE", "ROPE_LLAMA", "ALIBI"]
HEADS = [(1, 1), (4, 1), (4, 4), (32, 8), (12, 4), (10, 2), (7, 1)]  # groups of 1, 3, 4, 5, 7
DTYPES = list(TOLERANCE)


class Single(FlashInferTestCase):
    def inputs(self, qo_len, kv_len, heads, kv_heads, dim, layout, dtype):
        q = torch.randn(qo_len, heads, dim).to(dtype)
        k, v = torch.randn(2, kv_len, kv_heads, dim).to(dtype)
        given = (k, v) if layout == "NHD" else (k.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous())
        return q, k, v, given

    def test_prefill(self):
        for case in some(60, dtype=DTYPES, heads=HEADS, dim=[64, 128, 256, 80], layout=["NHD", "HND"], mode=MODES,
                         causal=[False, True], window=[-1, -1, 0, 13], cap=[None, None, 0.0, 8.0],
                         lengths=[(1, 1), (17, 54), (37, 37), (54, 17), (5, 0), (128, 501), (0, 4)]):
            with self.subTest(**case):
                qo_len, kv_len = case["lengths"]
                q, k, v, given = self.inputs(qo_len, kv_len, *case["heads"], case["dim"], case["layout"], case["dtype"])
                options = dict(causal=case["causal"], window_left=case["window"], logits_soft_cap=case["cap"],
                               pos_encoding_mode=case["mode"])
                o, lse = fi.single_prefill_with_kv_cache(q, *given, kv_layout=case["layout"], return_lse=True,
                                                         **options)
                expected, expected_lse = reference(q, k, v, **options)
                self.assertEqual((o.dtype, lse.dtype), (q.dtype, torch.float32))
                self.assert_close(o, expected, TOLERANCE[case["dtype"]])
                self.assert_close(lse, expected_lse, TOLERANCE[case["dtype"]])
                again = fi.single_prefill_with_kv_cache(q, *given, kv_layout=case["layout"], **options)
                self.assertTrue(torch.equal(o, again))

    def test_decode(self):
        for case in some(30, dtype=DTYPES, heads=HEADS, dim=[64, 128, 256], layout=["NHD", "HND"], mode=MODES,
                         window=[-1, -1, 33], cap=[None, 8.0], kv_len=[1, 54, 127, 2049, 0]):
            with self.subTest(**case):
                q, k, v, given = self.inputs(1, case["kv_len"], *case["heads"], case["dim"], case["layout"],
                                             case["dtype"])
                options = dict(window_left=case["window"], logits_soft_cap=case["cap"], pos_encoding_mode=case["mode"])
                o, lse = fi.single_decode_with_kv_cache(q[0], *given, case["layout"], return_lse=True, **options)
                expected, expected_lse = reference(q, k, v, **options)
                self.assert_close(o, expected[0], TOLERANCE[case["dtype"]])
                self.assert_close(lse, expected_lse[0], TOLERANCE[case["dtype"]])

    def test_masks(self):
        for qo_len, kv_len, window in ((1, 7, -1), (13, 29, -1), (16, 64, 5), (5, 130, 40)):
            q, k, v, given = self.inputs(qo_len, kv_len, 6, 2, 64, "NHD", torch.float32)
            mask = torch.rand(qo_len, kv_len) < 0.4
            mask[0] = False
            expected, expected_lse = reference(q, k, v, mask=mask, window_left=window)
            packed = fi.packbits(mask.flatten(), bitorder="little")
            for given_mask in ({"custom_mask": mask}, {"packed_custom_mask": packed},
                               {"custom_mask": ~mask, "packed_custom_mask": packed}):
                o, lse = fi.single_prefill_with_kv_cache(q, *given, causal=True, window_left=window, return_lse=True,
                                                         **given_mask)
                self.assert_close(o, expected)
                self.assert_close(lse, expected_lse)
        self.assert_invalid("custom_mask: has 4 elements; these lengths need 650", fi.single_prefill_with_kv_cache, q,
                            k, v, custom_mask=torch.ones(2, 2, dtype=torch.bool))

    def test_scales_and_rotations(self):
        q, k, v, given = self.inputs(9, 40, 4, 2, 64, "NHD", torch.float32)
        o = fi.single_decode_with_kv_cache(q[0], k, v, q_scale=2.0, k_scale=torch.tensor([0.5]), v_scale=3.0,
                                           sm_scale=0.2)
        self.assert_close(o, reference(q[:1], k, v, sm_scale=0.2)[0][0] * 3)
        rope = dict(pos_encoding_mode="ROPE_LLAMA", rope_scale=2.0, rope_theta=5e5)
        self.assert_close(fi.single_prefill_with_kv_cache(q, k, v, causal=True, **rope),
                          reference(q, k, v, causal=True, **rope)[0])
        for wrong in ({"rope_scale": 0.0}, {"rope_theta": -1e4}, {"rope_scale": math.inf},
                      {"logits_soft_cap": math.nan}):
            self.assert_invalid(next(iter(wrong)) + " = ", fi.single_prefill_with_kv_cache, q, k, v,
                                **{**rope, **wrong})
        everything = dict(pos_encoding_mode="ALIBI", logits_soft_cap=3.0, window_left=11, causal=True, sm_scale=0.3)
        self.assert_close(fi.single_prefill_with_kv_cache(q, k, v, **everything),
                          reference(q, k, v, **everything)[0])

    def test_views_are_read_in_place(self):
        packed = torch.randn(20, 8, 64)
        q, k, v = packed[:, :4], packed[:, 4:6], packed[:, 6:]
        self.assert_close(fi.single_prefill_with_kv_cache(q, k, v, causal=True),
                          reference(q, k, v, causal=True)[0])

    def test_fp8_caches(self):
        q, k, v, _ = self.inputs(5, 40, 4, 2, 64, "NHD", torch.bfloat16)
        for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
            small_k, small_v = (k / 0.25).to(kind), (v / 0.5).to(kind)
            o = fi.single_prefill_with_kv_cache(q, small_k, small_v, causal=True, k_scale=0.25, v_scale=0.5)
            expected = reference(q, small_k.float() * 0.25, small_v.float() * 0.5, causal=True)[0]
            self.assert_close(o, expected, 2e-2)

    def test_variants_of_ones_own(self):
        variant = weft.Variant(
            name="Biased", text="struct Biased { real logits_transform(P p, Score c, real s) "
                                "{ return p.weight * s + p.bias(c.qo_head); } };",
            scalars=[weft.ScalarDecl("weight")], tensors=[weft.TensorDecl("bias")])
        q, k, v, _ = self.inputs(5, 40, 4, 2, 64, "NHD", torch.float32)
        bias = torch.randn(4)
        o, lse = fi.prefill.single_prefill_with_kv_cache_with_jit_module(variant, q, k, v, bias, 0.5, mask_mode=1,
                                                                         return_lse=True)
        expected, expected_lse = reference(q, k, v, causal=True, sm_scale=0.5 / 8)
        self.assert_close(o, expected)
        self.assert_close(lse, expected_lse + bias / math.log(2))
        with self.assertRaisesRegex(TypeError, "bias, weight"):
            fi.decode.single_decode_with_kv_cache_with_jit_module(variant, q[0], k, v, bias)
        self.assert_unsupported("jit_args", fi.prefill.single_prefill_with_kv_cache_with_jit_module, "text", q, k, v)

    def test_refusals(self):
        q, k, v, _ = self.inputs(5, 40, 4, 2, 64, "NHD", torch.float32)
        call = fi.single_prefill_with_kv_cache
        for name in ("kv_layout", "pos_encoding_mode"):
            with self.assertRaisesRegex(KeyError, f"{name} = 'other'"):
                call(q, k, v, **{name: "other"})
        self.assert_invalid("window_left = -2", call, q, k, v, window_left=-2)
        self.assert_unsupported("backend: required is 'trtllm'", call, q, k, v, backend="trtllm")
        self.assert_unsupported("scale_k: given is", call, q, k, v, scale_k=torch.ones(2))
        self.assert_unsupported("kv_cache_sf", call, q, k, v, kv_cache_sf=torch.ones(2))
        self.assert_unsupported("k.dtype: required is torch.uint8", call, q, k.to(torch.uint8), v.to(torch.uint8))
        self.assert_invalid("v: ", call, q, k, v[:3])
        self.assert_invalid("num_kv_heads = 3", call, q, torch.randn(40, 3, 64), torch.randn(40, 3, 64))
        with self.assertRaisesRegex(TypeError, "q: list"):
            call([1], k, v)
        with self.assertRaisesRegex(TypeError, "o_dtype"):
            call(q, k, v, o_dtype="bf16")


class Decode(FlashInferTestCase):
    LENGTHS = [1, 54, 0, 97, 33, 16]

    def planned(self, batch, **options):
        wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, batch.layout)
        wrapper.plan(*batch.table(), batch.heads, batch.kv_heads, batch.dim, batch.page_size,
                     q_data_type=batch.q.dtype, kv_data_type=batch.k[0].dtype, **options)
        return wrapper

    def test_the_grid(self):
        for case in some(40, dtype=DTYPES, heads=HEADS, dim=[64, 128, 256], layout=["NHD", "HND"], mode=MODES,
                         window=[-1, -1, 20], cap=[None, 8.0], page_size=[1, 5, 8, 16], one=[False, True]):
            with self.subTest(**case):
                batch = Batch([(1, n) for n in self.LENGTHS], *case["heads"], case["dim"], case["page_size"],
                              case["layout"], case["dtype"])
                options = dict(window_left=case["window"], logits_soft_cap=case["cap"], pos_encoding_mode=case["mode"])
                wrapper = self.planned(batch, **options)
                o, lse = wrapper.run(batch.q, batch.cache(case["one"]), return_lse=True)
                expected, expected_lse = batch.reference(**options)
                self.assert_close(o, expected, TOLERANCE[case["dtype"]])
                self.assert_close(lse, expected_lse, TOLERANCE[case["dtype"]])
                self.assertTrue((o[2] == 0).all() and (lse[2] == -math.inf).all())

    def test_outputs_and_scales(self):
        batch = Batch([(1, n) for n in self.LENGTHS], dtype=torch.float16)
        wrapper = self.planned(batch, sm_scale=0.1)
        out, lse = torch.empty_like(batch.q), torch.empty(6, 4)
        self.assertIs(wrapper.run(batch.q, batch.cache(), out=out, lse=lse, q_scale=2.0, k_scale=0.5, v_scale=2.0), out)
        expected, expected_lse = batch.reference(sm_scale=0.1)
        self.assert_close(out, expected * 2, 5e-3)
        self.assert_close(lse, expected_lse, 3e-3)
        self.assert_invalid("Invalid shape of out: expected", wrapper.run, batch.q, batch.cache(), out=out[:3])
        self.assert_invalid("Invalid dtype of lse", wrapper.run, batch.q, batch.cache(), lse=lse.half())

    def test_sinks_are_applied(self):
        batch = Batch([(1, n) for n in self.LENGTHS])
        sinks = torch.randn(4)
        o, lse = self.planned(batch, window_left=30).run(batch.q, batch.cache(), sinks=sinks, return_lse=True)
        expected, expected_lse = batch.reference(sinks=sinks, window_left=30)
        self.assert_close(o, expected)
        self.assert_close(lse, expected_lse)
        self.assert_invalid("sinks", self.planned(batch).run, batch.q, batch.cache(), sinks=sinks[:2])

    def test_several_query_tokens_a_request(self):
        batch = Batch([(3, n) for n in (5, 54, 3)])
        wrapper = self.planned(batch, q_len_per_req=3)
        self.assert_close(wrapper.run(batch.q, batch.cache(), q_len_per_req=3), batch.reference(causal=True)[0])
        wrapper = self.planned(batch, q_len_per_req=3, is_causal=False)
        self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])
        short = Batch([(3, 5), (3, 2)])
        self.assert_invalid("empty KV range", self.planned, short, q_len_per_req=3)
        self.assert_invalid("q_len_per_req = 2 at run", wrapper.run, batch.q, batch.cache(), q_len_per_req=2)

    def test_steps_go_on(self):
        """Plans of a step are brought up to date, and arrays of the caller may change after plan()."""
        wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE)
        for step in range(6):
            batch = Batch([(1, 30 + step), (1, 7 + step), (1, 0)], seed=step)
            table = [x.clone() for x in batch.table()]
            plan = wrapper.plan if step == 0 else functools.partial(fi.fast_decode_plan, wrapper)
            plan(*table, 4, 2, 64, 4, data_type="float32")
            for x in table:
                x.fill_(-1)
            self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])
            self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])
        other = fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE)
        self.assert_invalid("prior plan", fi.fast_decode_plan, other, *table, 4, 2, 64, 4)

    def test_plans_have_as_many_workers_as_torch_has_threads(self):
        batch, before = Batch([(1, 4000)]), torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            wrapper = self.planned(batch)
            self.assertEqual(wrapper._planned().plan_for(wrapper._options(), False)[1].num_workers, 3)
            self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])
        finally:
            torch.set_num_threads(before)

    def test_forward_replaces_what_was_planned(self):
        batch = Batch([(1, n) for n in self.LENGTHS])
        wrapper = self.planned(batch, window_left=5)
        self.assertEqual((wrapper._window_left, wrapper._logits_soft_cap), (5, 0.0))
        self.assert_close(wrapper.run(batch.q, batch.cache(), window_left=5), batch.reference(window_left=5)[0])
        with self.assertRaises(AssertionError):
            wrapper.run(batch.q, batch.cache(), window_left=6)
        self.assert_close(wrapper.forward(batch.q, batch.cache(), logits_soft_cap=4.0),
                          batch.reference(logits_soft_cap=4.0)[0])
        o, lse = wrapper.forward_return_lse(batch.q, batch.cache())
        self.assert_close(lse, batch.reference()[1])
        self.assertEqual(wrapper._window_left, -1)
        self.assert_close(wrapper.run_return_lse(batch.q, batch.cache())[0], batch.reference()[0])

    def test_bits_do_not_depend_on_the_batch(self):
        batch = Batch([(1, n) for n in (400, 1000, 77)], page_size=16)
        alone = fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE)
        for how in (dict(fixed_split_size=8), dict(disable_split_kv=True)):
            together = self.planned(batch, **how).run(batch.q, batch.cache())
            for r in range(3):
                first, last = int(batch.indptr[r]), int(batch.indptr[r + 1])
                alone.plan(ints(0, last - first), batch.indices[first:last], batch.last_page_len[r:r + 1], 4, 2, 64, 16,
                           data_type="float32", **how)
                self.assertTrue(torch.equal(alone.run(batch.q[r:r + 1], batch.cache())[0], together[r]))

    def test_chunks_are_rounded_up(self):
        for size, page_size, tokens in ((1, 16, 64), (4, 16, 64), (5, 16, 128), (100, 1, 128)):
            self.assertEqual(split_mode(size, False, page_size),
                             {"mode": weft.PlanMode.fixed_split, "fixed_split_size": tokens})

    def test_buffers_of_graphs(self):
        batch = Batch([(1, n) for n in self.LENGTHS])
        buffers = [torch.zeros(n, dtype=torch.int32) for n in (7, 100, 6)]
        wrapper = fi.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(WORKSPACE, *buffers)
        self.assertTrue(wrapper.is_cuda_graph_enabled)
        wrapper.plan(*batch.table(), 4, 2, 64, 4, data_type="float32")
        self.assertEqual(buffers[0].tolist(), batch.indptr.tolist())
        self.assertEqual(buffers[1][:len(batch.indices)].tolist(), batch.indices.tolist())
        self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])
        self.assert_invalid("batch size 1", wrapper.plan, ints(0, 1), ints(0), ints(1), 4, 2, 64, 4,
                            data_type="float32")
        self.assert_invalid("paged_kv_indices_buffer: is missing", fi.BatchDecodeWithPagedKVCacheWrapper, WORKSPACE,
                            use_cuda_graph=True, paged_kv_indptr_buffer=buffers[0])

    def test_what_a_graph_captured_runs_the_next_plan(self):
        """Calls of the first step's run, made again behind the plans of later ones, which nothing else is told of."""
        def check(wrapper, plan, steps, **how):
            rows = sum(qo for qo, _ in steps[0])
            q, out = torch.zeros(rows, 4, 64), torch.zeros(rows, 4, 64)
            first = None
            for lengths in steps:
                batch = Batch(lengths)
                plan(wrapper, batch)
                kernel, workspace = wrapper._planned().plan_for(wrapper._options(), False)
                first = first or (kernel, workspace)
                self.assertTrue(kernel is first[0] and workspace is first[1])
                q[:len(batch.q)] = batch.q
                is_ragged = isinstance(wrapper, fi.BatchPrefillWithRaggedKVCacheWrapper)
                keys = batch.ragged() if is_ragged else batch.cache().unbind(1)
                kernel.run(workspace, q[:len(batch.q)], keys, out[:len(batch.q)])
                self.assert_close(out[:len(batch.q)], batch.reference(**how)[0])
                run = wrapper.run(batch.q, *keys) if is_ragged else wrapper.run(batch.q, batch.cache())
                self.assert_close(run, batch.reference(**how)[0])

        buffers = lambda *sizes: [torch.zeros(n, dtype=torch.int32) for n in sizes]  # noqa: E731
        check(fi.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(WORKSPACE, *buffers(3, 100, 2)),
              lambda wrapper, batch: wrapper.plan(*batch.table(), 4, 2, 64, 4, data_type="float32"),
              [[(1, 40), (1, 170)], [(1, 41), (1, 171)], [(1, 200), (1, 3)], [(1, 0), (1, 9)]])
        check(fi.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NHD", True, *buffers(3, 3, 100, 2)),
              lambda wrapper, batch: wrapper.plan(batch.qo_indptr, *batch.table(), 4, 2, 64, 4, causal=True,
                                                  q_data_type="float32"),
              [[(9, 40), (30, 170)], [(30, 41), (2, 171)], [(1, 200), (3, 3)]], causal=True)
        check(fi.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD", True, *buffers(3, 3)),
              lambda wrapper, batch: wrapper.plan(batch.qo_indptr, batch.kv_indptr, 4, 2, 64, causal=True,
                                                  q_data_type="float32"),
              [[(9, 40), (30, 170)], [(30, 41), (2, 171)], [(1, 200), (3, 3)]], causal=True)

    def test_graphs_keep_the_plans_that_they_captured(self):
        """And others only as long as steps use them."""
        batch, later = Batch([(1, 40), (1, 170)]), Batch([(1, 41), (1, 3)])
        wrapper = fi.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(
            WORKSPACE, *(torch.zeros(n, dtype=torch.int32) for n in (3, 100, 2)))

        def plan(batch, **options):
            wrapper.plan(*batch.table(), 4, 2, 64, 4, **{"data_type": "float32", **options})

        def kept():
            return sorted((key[2], key[5]) for key in wrapper._held)  # window_left, sinks
        sinks = torch.tensor([1.0, 2.0, 3.0, 4.0])
        for window_left in range(4):
            plan(batch, window_left=window_left)
            wrapper.run(batch.q, batch.cache())
        self.assertEqual(kept(), [(2, False), (3, False)])
        plan(batch)
        wrapper.run(batch.q, batch.cache(), sinks=sinks)
        self.assertEqual(kept(), [(-1, False), (-1, True), (3, False)])
        plan(batch)  # what the step before has used can be captured
        with unittest.mock.patch.object(fi._common, "captures", return_value=True):
            wrapper.run(batch.q, batch.cache(), sinks=sinks)
            with self.assertRaisesRegex(weft.Error, "Run once before"):
                wrapper.forward(batch.q, batch.cache(), window_left=2)
        held = wrapper._held[wrapper._planned()._key(fi._batch.Options(), True)]
        for step in (batch, later, later):
            plan(step)
            wrapper.plan(*batch.table(), 8, 2, 64, 4, data_type="float16")  # for no graph
        plan(later)
        plan(later)
        self.assertEqual(kept(), [(-1, False), (-1, True)])
        made = held.kernel.run(held.workspace, later.q, later.cache().unbind(1), tensors={"sinks": sinks})
        self.assert_close(made, later.reference(sinks=sinks)[0])

    def test_a_plan_that_fails_leaves_the_wrapper_as_it_was(self):
        batch, table = Batch([(1, 40), (1, 70)]), Batch([(1, 400), (1, 70)]).table()
        graph = fi.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(
            WORKSPACE, *(torch.zeros(n, dtype=torch.int32) for n in (3, 100, 2)))
        for wrapper in (fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE), graph):
            wrapper.plan(*batch.table(), 4, 2, 64, 4, data_type="float32")
            if wrapper is graph:
                self.assert_invalid("has 100 elements", wrapper.plan, *table, 4, 2, 64, 4, data_type="float32")
            self.assert_invalid("num_qo_heads = 5", wrapper.plan, *batch.table(), 5, 2, 64, 4, window_left=2)
            self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])

    def test_options_are_named(self):
        batch = Batch([(1, 5)])
        for name in ("window_left", "logits_soft_cap", "rope_scale", "rope_theta", "fixed_split_size"):
            for wrong in ("x", object()):
                with self.assertRaisesRegex(TypeError, f"^{name} = "):
                    self.planned(batch, **{name: wrong})
        with self.assertRaisesRegex(TypeError, "^window_left = 1.5"):
            self.planned(batch, window_left=1.5)
        self.assert_invalid("window_left = -2", self.planned, batch, window_left=-2)
        wrapper = self.planned(batch, fixed_split_size=2**31 - 1)
        self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])

    def test_types_default_to_float16(self):
        batch = Batch([(1, 5)], dtype=torch.float16)
        wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE)
        wrapper.plan(*batch.table(), 4, 2, 64, 4)
        self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0], 3e-3)
        sizes = wrapper.workspace_size(*batch.table(), 4, 2, 64, 4)
        wrapper.reset_workspace_buffer(*(torch.empty(n, dtype=torch.uint8) for n in sizes))
        self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0], 3e-3)
        mixed = Batch([(1, 5)], dtype=torch.bfloat16, kv_dtype=torch.float16)
        self.assertEqual(self.planned(mixed, o_data_type="float32").run(mixed.q, mixed.cache()).dtype, torch.float32)
        self.assert_invalid("does not match the q_data_type", wrapper.run, batch.q.float(), batch.cache())
        self.assert_invalid("does not match the kv_data_type", wrapper.run, batch.q, batch.cache().float())

    def test_refusals(self):
        batch = Batch([(1, n) for n in (5, 0, 9)])
        wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE)
        with self.assertRaisesRegex(AttributeError, "plan"):
            wrapper.run(batch.q, batch.cache())
        indptr, indices, last = batch.table()
        rest = 4, 2, 64, 4

        def plan(*table, **more):
            wrapper.plan(*table, *rest, data_type="float32", **more)
        self.assert_invalid(r"last_page_len\[0\] = 5", plan, indptr, indices, last + 4)
        self.assert_invalid("decreases", plan, ints(0, 3, 2, 5), indices, last)
        self.assert_invalid("there are 1 page ids", plan, indptr, indices[:1], last)
        self.assert_invalid("its elements are torch.float32", plan, indptr.float(), indices, last)
        self.assert_invalid("int32's range", plan, indptr, indices.long() + 2**31, last)
        self.assert_refused("invalid_page", "kv_page_indices[0] = -1", lambda: (
            plan(indptr, indices * 0 - 1, last), wrapper.run(batch.q, batch.cache())))
        self.assert_unsupported("window_right", plan, indptr, indices, last, window_right=1)
        plan(indptr, indices, last)
        self.assert_refused("invalid_shape", "pages", wrapper.run, batch.q, batch.cache()[:1])
        self.assert_invalid("q: ", wrapper.run, batch.q[:2], batch.cache())
        self.assert_unsupported("skip_softmax", wrapper.run, batch.q, batch.cache(),
                                skip_softmax_threshold_scale_factor=1.0)
        with self.assertRaises(TypeError):
            wrapper.run(batch.q, batch.cache(), batch.q)
        with self.assertRaises(TypeError):
            wrapper.plan(*batch.table(), *rest, data_type="float33")
        # int64 arrays are read as what they are.
        plan(indptr.long(), indices.long(), last.long())
        self.assert_close(wrapper.run(batch.q, batch.cache()), batch.reference()[0])


class Prefill(FlashInferTestCase):
    LENGTHS = [(1, 9), (17, 54), (3, 0), (0, 12), (37, 37), (54, 17), (8, 130)]

    def paged(self, batch, **options):
        wrapper = fi.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, batch.layout)
        wrapper.plan(batch.qo_indptr, *batch.table(), batch.heads, batch.kv_heads, batch.dim, batch.page_size,
                     q_data_type=batch.q.dtype, **options)
        return wrapper

    def ragged(self, batch, **options):
        wrapper = fi.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, batch.layout)
        wrapper.plan(batch.qo_indptr, batch.kv_indptr, batch.heads, batch.kv_heads, batch.dim,
                     q_data_type=batch.q.dtype, **options)
        return wrapper

    def test_the_grid(self):
        for case in some(40, dtype=DTYPES, heads=HEADS, dim=[64, 128, 256], layout=["NHD", "HND"], mode=MODES,
                         causal=[False, True], window=[-1, -1, 20], cap=[None, 8.0], page_size=[1, 5, 16],
                         one=[False, True]):
            with self.subTest(**case):
                batch = Batch(self.LENGTHS, *case["heads"], case["dim"], case["page_size"], case["layout"],
                              case["dtype"])
                options = dict(causal=case["causal"], window_left=case["window"], logits_soft_cap=case["cap"],
                               pos_encoding_mode=case["mode"])
                expected, expected_lse = batch.reference(**options)
                for o, lse in (self.paged(batch, **options).run(batch.q, batch.cache(case["one"]), return_lse=True),
                               self.ragged(batch, **options).run(batch.q, *batch.ragged(), return_lse=True)):
                    self.assert_close(o, expected, TOLERANCE[case["dtype"]])
                    self.assert_close(lse, expected_lse, TOLERANCE[case["dtype"]])

    def test_masks(self):
        batch = Batch(self.LENGTHS, heads=6)
        masks = [torch.rand(qo, kv) < 0.5 for qo, kv in batch.lengths]
        flat = torch.cat([x.flatten() for x in masks])
        starts = torch.tensor([0] + [x.numel() for x in masks]).cumsum(0).int()
        packed, _ = fi.segment_packbits(flat, starts, "little")
        for window in (-1, 10):
            expected, expected_lse = batch.reference(masks, window_left=window)
            for given in ({"custom_mask": flat}, {"packed_custom_mask": packed}):
                given = {**given, "causal": True, "window_left": window}
                for o, lse in (self.paged(batch, **given).run(batch.q, batch.cache(), return_lse=True),
                               self.ragged(batch, **given).run(batch.q, *batch.ragged(), return_lse=True)):
                    self.assert_close(o, expected)
                    self.assert_close(lse, expected_lse)
        self.assert_invalid("custom_mask: has 5", self.paged, batch, custom_mask=flat[:5])
        self.assert_invalid("packed_custom_mask: has", self.ragged, batch, packed_custom_mask=packed[:-1])
        # A plan without a mask forgets the one before.
        wrapper = self.ragged(batch, custom_mask=flat)
        wrapper.plan(batch.qo_indptr, batch.kv_indptr, 6, 2, 64, causal=True, q_data_type=torch.float32)
        self.assert_close(wrapper.run(batch.q, *batch.ragged()), batch.reference(causal=True)[0])

    def test_options_are_read_when_it_runs(self):
        batch = Batch(self.LENGTHS)
        for wrapper, kv in ((self.paged(batch), (batch.cache(),)), (self.ragged(batch), batch.ragged())):
            self.assert_close(wrapper.run(batch.q, *kv), batch.reference()[0])
            self.assert_close(wrapper.forward(batch.q, *kv, causal=True), batch.reference(causal=True)[0])
            o, lse = wrapper.forward_return_lse(batch.q, *kv, causal=True, window_left=4, logits_soft_cap=2.0,
                                                sm_scale=0.3)
            expected, expected_lse = batch.reference(causal=True, window_left=4, logits_soft_cap=2.0, sm_scale=0.3)
            self.assert_close(o, expected)
            self.assert_close(lse, expected_lse)
            self.assertEqual((wrapper._causal, wrapper._window_left), (True, 4))

    def test_forms_of_the_lse(self):
        batch = Batch(self.LENGTHS)
        wrapper, expected = self.paged(batch, causal=True), batch.reference(causal=True)[1]
        run = functools.partial(wrapper.run, batch.q, batch.cache(), return_lse=True)
        self.assert_close(run(lse_base="ln")[1], expected * math.log(2))
        turned = run(lse_layout="HN")[1]
        self.assertTrue(turned.is_contiguous())
        self.assert_close(turned, expected.T)
        lse = torch.empty(4, len(batch.q))
        self.assertEqual(run(lse_layout="HN", lse=lse)[1].data_ptr(), lse.data_ptr())
        self.assert_close(lse, expected.T)
        self.assert_invalid("lse_base = 'log10'", run, lse_base="log10")

    def test_head_dims_may_differ(self):
        q, k = torch.randn(12, 8, 192), torch.randn(30, 8, 192)
        v = torch.randn(30, 8, 128)
        wrapper = fi.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE)
        wrapper.plan(ints(0, 5, 12), ints(0, 10, 30), 8, 8, 192, 128, causal=True, q_data_type="float32")
        o = wrapper.run(q, k, v)
        expected = [reference(q[a:b], k[c:d], v[c:d], causal=True)[0]
                    for a, b, c, d in ((0, 5, 0, 10), (5, 12, 10, 30))]
        self.assert_close(o, torch.cat(expected))

    def test_variants_of_ones_own(self):
        variant = weft.Variant(name="Far", text="struct Far { real logits_transform(P p, Score c, real s) "
                                                "{ return s - p.slope * real(c.q_pos - c.kv_pos); } };",
                               scalars=[weft.ScalarDecl("slope")])
        batch = Batch(self.LENGTHS, heads=4, kv_heads=4)
        wrapper = fi.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, jit_args=variant)
        wrapper.plan(batch.qo_indptr, *batch.table(), 4, 4, 64, 4, causal=True, q_data_type="float32")
        o = wrapper.run(batch.q, batch.cache(), 2.0**-2)
        expected = batch.reference(causal=True, pos_encoding_mode="ALIBI")[0]
        self.assert_close(o[:, 0], expected[:, 0])  # the first of four slopes
        self.assert_unsupported("jit_args: required is a variant beside", wrapper.forward, batch.q, batch.cache(),
                                logits_soft_cap=3.0)

    def test_an_empty_step(self):
        wrapper = fi.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE)
        wrapper.plan(ints(0), ints(0), ints(0)[:0], ints(0)[:0], 4, 2, 64, 4, q_data_type="float32")
        o, lse = wrapper.run(torch.empty(0, 4, 64), torch.empty(5, 2, 4, 2, 64), return_lse=True)
        self.assertEqual((o.shape, lse.shape), ((0, 4, 64), (0, 4)))

    def test_refusals(self):
        batch = Batch(self.LENGTHS)
        self.assert_unsupported("prefix_len_ptr", self.paged, batch, prefix_len_ptr=ints(1))
        self.assert_unsupported("v_indptr", self.ragged, batch, v_indptr=ints(0))
        self.assert_unsupported("uses_spcompress", self.paged(batch).run, batch.q, batch.cache(), uses_spcompress=True)
        self.assert_unsupported("o_scale", self.ragged(batch).run, batch.q, *batch.ragged(), o_scale=2.0)
        self.assert_invalid("q: ", self.paged(batch).run, batch.q[:5], batch.cache())
        batch.qo_indptr = batch.qo_indptr[:-1]
        self.assert_invalid("qo_indptr: says 6 requests", self.paged, batch)
        self.assert_invalid("qo_indptr: says 6 requests", self.ragged, batch)


if __name__ == "__main__":
    unittest.main()

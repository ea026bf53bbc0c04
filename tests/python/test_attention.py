"""Specs, kernels, plans and runs from Python, with numpy's arrays, against fp64."""
import copy
import pickle
import threading
import unittest

import numpy as np

import weft
from support import Batch, TestCase, reference

SPEC = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, mask=weft.Mask.causal)
LENGTHS = [(1, 9), (3, 3), (2, 0), (5, 40)]


class Attend(TestCase):
    def test_one_request_in_one_call(self):
        batch = Batch([(5, 12)])
        spec = SPEC.replace(kv_form=weft.KvForm.ragged)
        o, lse = weft.attend(spec, batch.q, batch.k[0], batch.v[0], return_lse=True)
        expected, expected_lse = batch.reference(causal=True)
        self.assert_close(o, expected)
        self.assert_close(lse, expected_lse)
        self.assertIs(type(o), np.ndarray)
        given = np.empty_like(o)
        self.assertIs(weft.attend(spec, batch.q, batch.k[0], batch.v[0], out=given), given)
        self.assertTrue((given == o).all())

    def test_own_variant(self):
        batch = Batch([(4, 9)])
        variant = weft.Variant(name="Near", text="""
struct Near {
  real logits_transform(P p, Score c, real s) { return s - p.weight * (c.q_pos - c.kv_pos); }
};
""", scalars=[weft.ScalarDecl(name="weight", kind=weft.ScalarKind.real)])
        spec = SPEC.replace(kv_form=weft.KvForm.ragged, variant=variant)
        o = weft.attend(spec, batch.q, batch.k[0], batch.v[0], scalars={"weight": 0.25})
        self.assert_close(o, batch.reference(causal=True, bias=lambda i, j: -0.25 * (i - j))[0])
        self.assert_refused("invalid_argument", "weight", weft.attend, spec, batch.q, batch.k[0], batch.v[0])
        wrong = variant.replace(text=variant.text.replace("weight", "wait"))
        self.assert_refused("compile_failed", "wait", weft.attend, spec.replace(variant=wrong), batch.q, batch.k[0],
                            batch.v[0], scalars={"weight": 0.25})

    def test_specs_are_copied_and_pickled(self):
        variant = weft.Variant(name="Near", text="struct Near {};", use_softmax=False,
                               scalars=[weft.ScalarDecl(name="weight", kind=weft.ScalarKind.real, default_value=2)],
                               intervals=[weft.Interval(lower=[weft.Bound(constant=3)])])
        for spec in (SPEC, SPEC.replace(variant=variant, compute=weft.DType.fp32), variant, weft.PlanBounds(max_rows=7),
                     weft.SamplingParams(top_k=3), weft.variants.alibi()):
            for made in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec), copy.copy(spec)):
                self.assertEqual((type(made), repr(made)), (type(spec), repr(spec)))
        self.assertEqual(pickle.loads(pickle.dumps(SPEC)), SPEC)

    def test_tensors_of_variants(self):
        batch = Batch([(4, 9)])
        slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
        spec = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.ragged,
                                  variant=weft.variants.alibi())
        o = weft.attend(spec, batch.q, batch.k[0], batch.v[0], tensors={"slopes": slopes})
        expected = batch.reference(bias=lambda i, j: slopes[:, None, None] * (j - i))[0]
        self.assert_close(o, expected)


class Kernel(TestCase):
    def check(self, spec, cache, plan_input, batch, **options):
        kernel = weft.build(spec)
        plan = kernel.plan(plan_input)
        o, lse = kernel.run(plan, batch.q, cache, return_lse=True)
        expected, expected_lse = batch.reference(causal=True, **options)
        self.assert_close(o, expected)
        self.assert_close(lse, expected_lse)
        workspace = weft.Workspace("cpu", plan.workspace_bytes)
        plan.upload(workspace)
        again, lse_again = np.full_like(o, 7), np.full_like(lse, 7)
        kernel.run(workspace, batch.q, cache, out=again, lse=lse_again)
        self.assertTrue((again == o).all() and (lse_again == lse).all())

    def test_paged(self):
        batch = Batch(LENGTHS)
        self.check(SPEC, (batch.k_pages, batch.v_pages), batch.plan_input(), batch)

    def test_paged_in_one_array_and_hnd(self):
        batch = Batch(LENGTHS)
        self.check(SPEC, np.stack([batch.k_pages, batch.v_pages], 1), batch.plan_input(), batch)
        hnd = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (batch.k_pages, batch.v_pages)]
        self.check(SPEC.replace(layout=weft.Layout.hnd), tuple(hnd), batch.plan_input(), batch)
        # The same memory with its axes in the other order: strides, no copy.
        seen = tuple(x.transpose(0, 2, 1, 3) for x in (batch.k_pages, batch.v_pages))
        self.check(SPEC.replace(layout=weft.Layout.hnd), seen, batch.plan_input(), batch)

    def test_ragged_and_padded(self):
        batch = Batch(LENGTHS)
        heads = dict(num_qo_heads=4, num_kv_heads=2, qo_indptr=batch.qo_indptr)
        self.check(SPEC.replace(kv_form=weft.KvForm.ragged), (np.concatenate(batch.k), np.concatenate(batch.v)),
                   weft.PlanInput(**heads, kv_indptr=batch.kv_indptr), batch)
        padded = [np.full((4, 40, 2, 32), np.nan, np.float32) for _ in range(2)]
        for r, (_, kv) in enumerate(LENGTHS):
            padded[0][r, :kv], padded[1][r, :kv] = batch.k[r], batch.v[r]
        self.check(SPEC.replace(kv_form=weft.KvForm.padded), tuple(padded),
                   weft.PlanInput(**heads, kv_len=[kv for _, kv in LENGTHS], max_kv_len=40), batch)

    def test_window_and_modes(self):
        batch = Batch(LENGTHS)
        spec = SPEC.replace(sliding_window=True)
        for mode, size in [("balanced", 0), ("no_split", 0), ("fixed_split", 64)]:
            given = batch.plan_input(scalars={"window_left": 5}, mode=getattr(weft.PlanMode, mode),
                                     fixed_split_size=size)
            self.check(spec, (batch.k_pages, batch.v_pages), given, batch, window_left=5)
        self.assert_refused("invalid_argument", "window_left", weft.build(spec).plan, batch.plan_input())

    def test_page_table(self):
        batch = Batch(LENGTHS)
        table = weft.PageTable(4, 64)
        requests = [table.add() for _ in LENGTHS]
        for request, (_, kv) in zip(requests, LENGTHS):
            table.append(request, kv)
        k = np.full((64, 4, 2, 32), np.nan, np.float32)
        v = k.copy()
        all_k, all_v = np.concatenate(batch.k), np.concatenate(batch.v)
        weft.append_paged_kv(all_k, all_v, batch.kv_indptr, table.view(requests), weft.Layout.nhd, (k, v))
        view = table.view(requests)
        self.assertEqual(view.kv_page_indptr, [0, 3, 4, 4, 14])
        self.check(SPEC, (k, v), weft.PlanInput(num_qo_heads=4, num_kv_heads=2, qo_indptr=batch.qo_indptr, pages=view),
                   batch)
        table.append(requests[0], 1)
        self.assert_refused("invalid_argument", "ask for it anew", weft.build(SPEC).plan, num_qo_heads=4, num_kv_heads=2,
                            qo_indptr=batch.qo_indptr, pages=view)
        fork = table.fork(requests[3], 37)
        self.assertEqual((fork.copied_slots, table.length(fork.request)), (1, 37))
        self.assert_refused("context_full", "pages", table.append, requests[0], 10000)

    def test_latent(self):
        random = np.random.default_rng(3)
        q = random.standard_normal((2, 4, 40), dtype=np.float32)
        cache = random.standard_normal((2, 8, 40), dtype=np.float32)
        kernel = weft.build(weft.AttentionSpec(head_dim_qk=40, head_dim_vo=32, kv_form=weft.KvForm.latent))
        plan = kernel.plan(num_qo_heads=4, num_kv_heads=1, qo_indptr=[0, 2],
                           pages=weft.PageTableView(8, 2, [0, 2], [1, 0], [3]))
        rows = np.concatenate([cache[1], cache[0, :3]])[:, None]
        expected = reference(q, rows, rows[..., :32])[0]
        self.assert_close(kernel.run(plan, q, weft.KvCache.latent(cache)), expected)
        self.assert_close(kernel.run(plan, q, weft.KvCache.latent(cache[..., :32], cache[..., 32:])), expected)

    def test_levels_and_merge(self):
        batch = Batch([(1, 64)] * 8)
        shared = batch.page_indices.copy()
        for r in range(1, 8):
            shared[batch.page_indptr[r]:batch.page_indptr[r] + 12] = shared[:12]
        pages = weft.PageTableView(4, batch.num_pages, batch.page_indptr, shared, batch.last_page_len)
        kernel = weft.build(SPEC)
        given = batch.plan_input(pages=pages)
        levels = weft.levels_from_page_tables(kernel, given)
        self.assertEqual(levels.num_levels, 2)
        cache = (batch.k_pages, batch.v_pages)
        plain = kernel.run(kernel.plan(given), batch.q, cache)
        self.assert_close(kernel.run(kernel.plan(levels.apply(given)), batch.q, cache), plain)
        tree = weft.levels_from_prefix_tree(
            page_size=4, num_pages=batch.num_pages, parent=[-1] + [0] * 8, page_indptr=[0, *range(12, 45, 4)],
            page_indices=[*shared[:12], *np.concatenate([shared[batch.page_indptr[r] + 12:batch.page_indptr[r + 1]]
                                                         for r in range(8)])],
            last_page_len=[4] * 9, node_of_request=list(range(1, 9)), qo_indptr=batch.qo_indptr)
        self.assertEqual(tree.num_levels, 2)
        self.assert_close(kernel.run(kernel.plan(tree.apply(given)), batch.q, cache), plain)
        # The same by hand: the state over the shared pages merged with the one over each request's own.
        first = weft.PageTableView(4, batch.num_pages, [0, 12], shared[:12], [4])
        own = np.concatenate([shared[batch.page_indptr[r] + 12:batch.page_indptr[r + 1]] for r in range(8)])
        second = weft.PageTableView(4, batch.num_pages, np.arange(0, 33, 4, dtype=np.int32), own, [4] * 8)
        none = weft.build(SPEC.replace(mask=weft.Mask.none))
        heads = dict(num_qo_heads=4, num_kv_heads=2)
        states = [none.run(none.plan(**heads, qo_indptr=qo, pages=pages), batch.q, cache, return_lse=True)
                  for qo, pages in (([0, 8], first), (list(range(9)), second))]
        o, _ = weft.merge_states(np.stack([o for o, _ in states]), np.stack([lse for _, lse in states]))
        self.assert_close(o, plain)

    def test_plans_are_kept_while_they_cover(self):
        batch = Batch([(1, 5), (1, 9)])
        kernel = weft.build(SPEC)
        plan = kernel.plan(batch.plan_input())
        o = kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages))
        grown = batch.plan_input(pages=weft.PageTableView(4, batch.num_pages, batch.page_indptr, batch.page_indices,
                                                          batch.last_page_len + 1))
        self.assertTrue(plan.covers(grown))
        batch.k_pages[np.isnan(batch.k_pages)] = batch.v_pages[np.isnan(batch.v_pages)] = 0
        plan.update(grown)
        other = kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages))
        self.assertFalse((o == other).all())
        fresh = kernel.run(kernel.plan(grown), batch.q, (batch.k_pages, batch.v_pages))
        self.assertTrue((other == fresh).all())
        more = batch.plan_input(qo_indptr=[0, 1, 3])
        self.assertFalse(plan.covers(more))
        self.assert_refused("plan_mismatch", "", plan.update, more)

    def test_borrowed_page_ids(self):
        batch = Batch(LENGTHS)
        kernel = weft.build(SPEC)
        ids = batch.page_indices.copy()
        view = weft.PageTableView(4, batch.num_pages, batch.page_indptr, ids, batch.last_page_len)
        plan = kernel.plan(batch.plan_input(pages=view, borrow_page_ids=True))
        del view, ids  # the plan keeps them
        o = kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages))
        self.assert_close(o, batch.reference(causal=True)[0])
        ids = batch.page_indices.copy()
        view = weft.PageTableView(4, batch.num_pages, batch.page_indptr, ids, batch.last_page_len)
        plan = kernel.plan(batch.plan_input(pages=view, borrow_page_ids=True))
        ids.resize(len(ids) * 100, refcheck=False)
        self.assert_refused("invalid_argument", "plan", plan.upload, weft.Workspace("cpu", plan.workspace_bytes))
        for wrong in (-1, batch.num_pages):
            ids = batch.page_indices.copy()
            view = weft.PageTableView(4, batch.num_pages, batch.page_indptr, ids, batch.last_page_len)
            plan = kernel.plan(batch.plan_input(pages=view, borrow_page_ids=True))
            ids[-1] = wrong
            self.assert_refused("invalid_page", f"is {wrong} now", kernel.run, plan, batch.q,
                                (batch.k_pages, batch.v_pages))
        # Of lists the ids of pages alone matter.
        ids = batch.page_indices.copy()
        view = weft.PageTableView(4, batch.num_pages, batch.page_indptr.tolist(), ids, batch.last_page_len.tolist())
        plan = kernel.plan(batch.plan_input(pages=view, borrow_page_ids=True))
        self.assert_close(kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages)), batch.reference(causal=True)[0])
        lists = weft.PageTableView(4, batch.num_pages, batch.page_indptr, list(batch.page_indices), batch.last_page_len)
        self.assert_refused("invalid_argument", "borrow_page_ids", kernel.plan,
                            batch.plan_input(pages=lists, borrow_page_ids=True))

    def test_custom_masks(self):
        batch = Batch([(3, 7)])
        random = np.random.default_rng(5)
        mask = random.random((3, 7)) < 0.5
        expected = reference(batch.q, batch.k[0], batch.v[0], bias=lambda i, j: np.where(mask, 0, -np.inf))[0]
        heads = dict(num_qo_heads=4, num_kv_heads=2, qo_indptr=[0, 3], kv_indptr=[0, 7])
        spec = SPEC.replace(kv_form=weft.KvForm.ragged, mask=weft.Mask.custom)
        kernel = weft.build(spec)
        plan = kernel.plan(**heads, mask_indptr=np.array([0, 21]))
        cache = (batch.k[0], batch.v[0])
        self.assert_close(kernel.run(plan, batch.q, cache, tensors={"mask": mask.reshape(-1)}), expected)
        bits, indptr = weft.pack_mask(mask.reshape(-1), np.array([0, 21]))
        kernel = weft.build(spec.replace(mask=weft.Mask.custom_packed))
        plan = kernel.plan(**heads, mask_indptr=indptr)
        self.assert_close(kernel.run(plan, batch.q, cache, tensors={"mask": bits}), expected)

    def test_block_sparse_is_paged_of_all_blocks(self):
        batch = Batch(LENGTHS)
        blocks = weft.blocks_from_page_table(batch.pages(), batch.qo_indptr)
        kernel = weft.build(SPEC.replace(kv_form=weft.KvForm.block_sparse))
        plan = kernel.plan(num_qo_heads=4, num_kv_heads=2, qo_indptr=batch.qo_indptr, blocks=blocks)
        self.assert_close(kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages)), batch.reference(causal=True)[0])

    def test_bounds_and_graph_sized_workspaces(self):
        batch = Batch(LENGTHS)
        kernel = weft.build(SPEC)
        bounds = weft.PlanBounds(max_requests=8, max_rows=32, max_pages=64, max_kv_len=64, page_size=4, num_qo_heads=4,
                                 num_kv_heads=2, workers=2)
        plan = kernel.plan(batch.plan_input(bounds=bounds, num_workers=2))
        self.assertEqual(plan.workspace_bytes, kernel.workspace_bytes(bounds))
        self.assert_close(kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages)), batch.reference(causal=True)[0])


class Objects(TestCase):
    def test_specs_compare_and_print(self):
        self.assertEqual(SPEC, weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, mask=weft.Mask.causal))
        self.assertNotEqual(SPEC, SPEC.replace(head_dim_qk=64))
        self.assertEqual(hash(SPEC), hash(SPEC.replace()))
        self.assertEqual(repr(SPEC), "AttentionSpec(head_dim_qk=32, head_dim_vo=32, mask=Mask.causal)")
        self.assertNotEqual(SPEC, None)
        with self.assertRaises(AttributeError):
            SPEC.head_dim_qk = 64
        self.assertIsInstance(weft.variants.sliding_window().intervals, tuple)
        with self.assertRaises(TypeError):
            SPEC.replace(head_dim=64)

    def test_plans_print(self):
        plan = weft.build(SPEC).plan(Batch(LENGTHS).plan_input())
        self.assertIn("makespan", str(plan))
        self.assertTrue(plan.to_svg().startswith("<svg"))
        self.assertGreaterEqual(plan.makespan, plan.lower_bound * 0.999)

    def test_devices(self):
        self.assertEqual(str(weft.Device("cuda:1")), "cuda:1")
        self.assertEqual(weft.Device.cpu(), weft.Device("cpu"))
        self.assert_refused("invalid_device", "'gpu'", weft.build, SPEC, "gpu")
        team = weft.WorkerTeam(2)
        batch = Batch(LENGTHS)
        kernel = weft.build(SPEC)
        plan = kernel.plan(batch.plan_input(num_workers=2))
        stream = weft.Stream.cpu(team)
        del team
        o = kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages), stream=stream)
        self.assert_close(o, batch.reference(causal=True)[0])

    def test_threads_share_kernels_plans_and_workspaces(self):
        batch = Batch(LENGTHS)
        kernel = weft.build(SPEC)
        plan = kernel.plan(batch.plan_input())
        expected = kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages))
        wrong = []

        def work():
            for _ in range(200):
                if not (kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages)) == expected).all():
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()

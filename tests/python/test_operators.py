"""Operators around attention, sampling and Quest from Python."""
import unittest

import numpy as np

import weft
from support import Batch, TestCase, reference

random = np.random.default_rng(7)


def normal(*shape):
    return random.standard_normal(shape, dtype=np.float32)


class Rows(TestCase):
    def test_norms(self):
        x, weight = normal(5, 48), normal(48)
        expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * weight
        self.assert_close(weft.rms_norm(x, weight, 1e-5), expected)
        own = x.copy()
        self.assertIs(weft.rms_norm(own, weight, 1e-5, out=own), own)
        self.assert_close(own, expected)
        residual = normal(5, 48)
        total = x + residual
        y = weft.add_rms_norm(x, residual, weight, 1e-5)
        self.assert_close(residual, total)
        self.assert_close(y, weft.rms_norm(total, weight, 1e-5))
        self.assert_refused("invalid_argument", "shares memory", weft.rms_norm, own[:4], weight, 1e-5, out=own[1:])
        self.assert_refused("invalid_shape", "weight", weft.rms_norm, x, weight[:4], 1e-5)

    def test_gates_and_caps(self):
        gate, up = normal(3, 16), normal(3, 16)
        self.assert_close(weft.silu_and_mul(gate, up), gate / (1 + np.exp(-gate.astype(np.float64))) * up)
        inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate.astype(np.float64) ** 3)
        self.assert_close(weft.gelu_tanh_and_mul(gate, up), gate / 2 * (1 + np.tanh(inner)) * up)
        expected = 2 * np.tanh(up.astype(np.float64) / 2)
        weft.soft_cap(up, 2.0)
        self.assert_close(up, expected)
        self.assert_refused("invalid_argument", "cap", weft.soft_cap, up, 0.0)

    def test_rope(self):
        x = normal(4, 2, 16)
        angles = np.arange(3, 7)[:, None] * 10000.0 ** (-np.arange(8) / 8)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        low, high = x[..., :8].astype(np.float64), x[..., 8:].astype(np.float64)
        expected = np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)
        params = weft.RopeParams(pairs=weft.RopePairs.halves)
        weft.apply_rope(x, np.arange(3, 7, dtype=np.int32), params)
        self.assert_close(x, expected)
        self.assert_refused("invalid_argument", "factor", weft.apply_rope, x, [0, 1, 2, 3], params.replace(factor=-1.0))

    def test_quantise(self):
        x = normal(6, 2, 16)
        q, scales = np.zeros((6, 2, 16), np.int8), np.zeros((6, 2, 1), np.float32)
        weft.quantize(x, q, scales)
        back = np.zeros_like(x)
        weft.dequantize(q, scales, back)
        self.assertLess(np.abs(back - x).max(), np.abs(x).max() / 127)


class Sampling(TestCase):
    def test_draws(self):
        logits = normal(3, 100)
        greedy = weft.SamplingParams(temperature=0.0)
        self.assertEqual(weft.sample(logits[0], greedy, weft.Generator(1)), logits[0].argmax())
        params = weft.SamplingParams(top_k=5, top_p=0.9)
        made = [weft.sample_rows(logits, [params] * 3, [weft.Generator(s) for s in range(3)]) for _ in range(2)]
        self.assertEqual(made[0], made[1])
        for row, token in zip(logits, made[0]):
            self.assertIn(token, np.argsort(row)[-5:])
        generator = weft.Generator(1)
        self.assert_refused("invalid_argument", "generators[0]", weft.sample_rows, logits, [params] * 3, [generator] * 3)

    def test_processors(self):
        logits = normal(64)
        expected = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
        self.assertAlmostEqual(weft.log_probability(logits, 5), expected[5], places=5)
        top = weft.top_log_probabilities(logits, 3)
        self.assertEqual([token for token, _ in top], list(np.argsort(-logits)[:3]))
        weft.apply_token_mask(logits, np.array([0xFF, 0], np.int32))
        self.assertTrue(np.isneginf(logits[8:]).all() and np.isfinite(logits[:8]).all())
        weft.apply_logit_bias(logits, [(3, float("-inf"))])
        self.assertTrue(np.isneginf(logits[3]))
        weft.apply_penalties(logits, weft.Penalties(presence=1.0), [1], [2])
        self.assert_refused("invalid_token", "", weft.apply_logit_bias, logits, [(64, 1.0)])


class Quest(TestCase):
    def test_pages_that_matter_most(self):
        batch = Batch([(1, 40)])
        summaries = [np.zeros((batch.num_pages, 2, 32), np.float32) for _ in range(2)]
        view = batch.pages()
        weft.update_page_summaries(batch.k_pages, batch.kv_indptr, view, weft.Layout.nhd, *summaries)
        self.assert_close(summaries[1][batch.page_indices[0]], batch.k[0][:4].max(0))
        chosen = weft.choose_pages(batch.q, *summaries, batch.qo_indptr, view, 2, 10)
        self.assertEqual(chosen, list(range(10)) * 2)
        blocks = weft.select_pages(view, batch.qo_indptr, 2, chosen, 10)
        spec = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.block_sparse)
        kernel = weft.build(spec)
        plan = kernel.plan(num_qo_heads=4, num_kv_heads=2, qo_indptr=batch.qo_indptr, blocks=blocks)
        self.assert_close(kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages)), batch.reference()[0])


    def test_pages_set_in_a_plan(self):
        batch = Batch([(1, 40), (1, 11)])
        summaries = [np.zeros((batch.num_pages, 2, 32), np.float32) for _ in range(2)]
        places = np.stack([np.repeat(batch.page_indices, 4), np.tile(np.arange(4), 13)], 1).astype(np.int32)[:51]
        weft.update_page_summaries_at(batch.k_pages, places, weft.Layout.nhd, *summaries)
        self.assert_close(summaries[0][batch.page_indices[12]], batch.k[1][8:].min(0))
        kernel = weft.build(weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.block_sparse))
        plan = kernel.plan(num_qo_heads=4, num_kv_heads=2, qo_indptr=batch.qo_indptr,
                           blocks=weft.pages_to_set(batch=2, page_size=4, num_pages=batch.num_pages, num_kv_heads=2,
                                                    budget=10))
        workspace = weft.Workspace("cpu", plan.workspace_bytes)
        plan.upload(workspace)
        table = np.zeros((2, 10), np.int32)
        table[0], table[1, :3] = batch.page_indices[:10], batch.page_indices[10:]
        step = dict(kv_len=np.array([40, 11], np.int32), page_table=table, num_pages=batch.num_pages)
        scratch = weft.Workspace("cpu", weft.choose_pages_bytes(2, 2, 10))
        weft.choose_planned_pages(kernel, workspace, batch.q, *summaries, **step, scratch=scratch)
        self.assert_close(kernel.run(workspace, batch.q, (batch.k_pages, batch.v_pages)), batch.reference()[0])
        # Without the first page of the first request.
        selected = np.full((2, 2, 10), -1, np.int32)
        selected[0, :, :9], selected[1, :, :3] = np.arange(1, 10), np.arange(3)
        weft.set_planned_pages(kernel, workspace, selected, **step)
        without = reference(batch.q[:1], batch.k[0][4:], batch.v[0][4:])[0]
        self.assert_close(kernel.run(workspace, batch.q, (batch.k_pages, batch.v_pages))[:1], without)
        selected[1, 0, 1] = 0
        self.assert_refused("invalid_page", "selected", weft.set_planned_pages, kernel, workspace, selected, **step)


class Cache(TestCase):
    def test_entries(self):
        self.assertIsInstance(weft.jit.cache_dir(), str)
        for entry in weft.jit.list()[:1]:
            self.assertEqual(weft.jit.find(entry.key[:12]).name, entry.name)
        self.assert_refused("invalid_argument", "", weft.jit.source, "0123456789")


if __name__ == "__main__":
    unittest.main()

"""The calls that vLLM and SGLang make of FlashInfer, in their order and with their arguments, against fp64."""
import functools
import importlib
import math
import subprocess
import sys
import unittest

import torch

import weft.flashinfer as flashinfer
from flashinfer_support import WORKSPACE, Batch, reference
from test_flashinfer_functions import FlashInferTestCase, ints

PREFILL, DECODE = [(17, 54), (3, 20), (37, 37)], [(1, 9), (1, 54), (1, 130)]
TYPES = dict(q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)


class VLLM(FlashInferTestCase):
    """v1/attention/backends/flashinfer.py: pages of 16, HND strides, plans by name with host arrays, outputs given."""

    def test_names_that_it_imports(self):
        for module, names in {
                "": "BatchDecodeWithPagedKVCacheWrapper BatchPrefillWithPagedKVCacheWrapper "
                    "BatchPrefillWithRaggedKVCacheWrapper BatchAttentionWithAttentionSinkWrapper "
                    "MultiLevelCascadeAttentionWrapper",
                ".page": "get_seq_lens nvfp4_quantize_append_paged_kv_cache_with_slot_mapping",
                ".decode": "fast_decode_plan trtllm_batch_decode_with_kv_cache",
                ".prefill": "trtllm_batch_context_with_kv_cache", ".utils": "FP4Tensor", ".mla": "",
                ".sampling": "top_p_sampling_from_probs top_k_sampling_from_probs top_k_top_p_sampling_from_logits",
                ".rope": "apply_rope_with_cos_sin_cache_inplace",
                ".norm": "gemma_rmsnorm gemma_fused_add_rmsnorm"}.items():
            found = importlib.import_module("weft.flashinfer" + module)
            for name in names.split():
                self.assertTrue(callable(getattr(found, name)), (module, name))
        text = "import weft.flashinfer; weft.flashinfer.install(); from flashinfer.jit.core import check_cuda_arch"
        subprocess.run([sys.executable, "-c", text], check=True)

    def cache_of(self, batch):
        """[blocks, 2, block, heads, dim] whose memory is HND, as vLLM permutes it."""
        return batch.cache().transpose(2, 3).contiguous().transpose(2, 3)

    def plan_decode(self, wrapper, batch, **more):
        indptr, indices, last = batch.table()
        wrapper.plan(indptr=indptr, indices=indices, last_page_len=last, num_qo_heads=8, num_kv_heads=2, head_dim=64,
                     page_size=16, pos_encoding_mode="NONE", sm_scale=0.1, non_blocking=True, seq_lens=None,
                     block_tables=None, fixed_split_size=-1, disable_split_kv=False, o_data_type=torch.bfloat16,
                     **TYPES, **more)

    def test_decode(self):
        """Padding of a captured batch: requests without pages, whose last_page_len is 0."""
        for cap, window in ((None, -1), (30.0, 40)):
            batch = Batch([*DECODE, (1, 0), (1, 0)], 8, 2, 64, 16, dtype=torch.bfloat16)
            self.assertEqual(batch.last_page_len[-2:].tolist(), [0, 0])
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, "NHD", use_tensor_cores=True)
            self.plan_decode(wrapper, batch, window_left=window, logits_soft_cap=cap)
            self.assertEqual((wrapper._window_left, wrapper._logits_soft_cap, wrapper._sm_scale),
                             (window, cap or 0.0, 0.1))
            out = torch.full_like(batch.q, math.nan)
            wrapper.run(batch.q, self.cache_of(batch), q_scale=0.5, k_scale=2.0, v_scale=3.0, out=out)
            expected, _ = batch.reference(sm_scale=0.1, window_left=window, logits_soft_cap=cap)
            self.assert_close(out, 3 * expected, 6e-2)

    def test_steps_of_a_captured_decode(self):
        """One wrapper a batch size; after the first plan its plan is fast_decode_plan, and buffers hold the arrays."""
        buffers = dict(paged_kv_indptr_buffer=torch.zeros(4, dtype=torch.int32),
                       paged_kv_indices_buffer=torch.zeros(64, dtype=torch.int32),
                       paged_kv_last_page_len_buffer=torch.zeros(3, dtype=torch.int32))
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, "NHD", use_cuda_graph=True,
                                                                use_tensor_cores=True, **buffers)
        for step in range(3):
            batch = Batch([(1, kv + 15 * step) for _, kv in DECODE], 8, 2, 64, 16, dtype=torch.bfloat16)
            if step == 0:
                self.plan_decode(wrapper, batch)
                wrapper.plan = functools.partial(flashinfer.fast_decode_plan, wrapper)
                self.assertIs(wrapper.plan.func, flashinfer.decode.fast_decode_plan)
            else:
                indptr, indices, last = batch.table()
                buffers["paged_kv_indices_buffer"][:len(indices)] = indices
                wrapper.plan(indptr_cpu := indptr, buffers["paged_kv_indices_buffer"][:len(indices)], last, 8, 2, 64,
                             16, sm_scale=0.1, q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
                             data_type=torch.bfloat16, fixed_split_size=-1, global_override_indptr_cpu=indptr_cpu)
            self.assertTrue(wrapper.is_cuda_graph_enabled)
            self.assert_close(wrapper.run(batch.q, self.cache_of(batch)), batch.reference(sm_scale=0.1)[0], 2e-2)

    def test_prefill(self):
        batch = Batch(PREFILL, 8, 2, 64, 16, dtype=torch.bfloat16)
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NHD")
        indptr, indices, last = batch.table()
        wrapper.plan(qo_indptr=batch.qo_indptr, paged_kv_indptr=indptr, paged_kv_indices=indices,
                     paged_kv_last_page_len=last, num_qo_heads=8, num_kv_heads=2, head_dim_qk=64, page_size=16,
                     causal=True, sm_scale=0.1, window_left=-1, logits_soft_cap=None, fixed_split_size=-1,
                     disable_split_kv=False, o_data_type=torch.bfloat16, **TYPES)
        self.assertTrue(wrapper._causal)
        out = torch.empty_like(batch.q)
        wrapper.run(batch.q, self.cache_of(batch), k_scale=1.0, v_scale=1.0, out=out)
        self.assert_close(out, batch.reference(causal=True, sm_scale=0.1)[0], 2e-2)

    def test_sinks(self):
        batch, sinks = Batch(PREFILL, 8, 2, 64, 16, dtype=torch.bfloat16), torch.randn(8)
        wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(
            WORKSPACE, "NHD", window_left=20, head_dim_qk=64, head_dim_vo=64, **TYPES)
        wrapper.plan(batch.qo_indptr, *batch.table(), 8, 2, 64, 16, causal=True, sm_scale=0.1, window_left=20, **TYPES)
        out = torch.empty_like(batch.q)
        wrapper.run(batch.q, self.cache_of(batch), sinks, 0.1 * 1.0 * 1.0, v_scale=1.0, out=out)
        self.assert_close(out, batch.reference(causal=True, sm_scale=0.1, window_left=20, sinks=sinks)[0], 2e-2)

    def test_shared_prefix(self):
        """use_cascade: a level of the common pages for all query rows, and one of each request's own."""
        batch = Batch([(2, 50), (1, 41), (3, 70)], 8, 2, 64, 16, dtype=torch.bfloat16)
        shared = batch.indices[:2].clone()  # two pages, 32 tokens, of which all requests read the first one's
        own = []
        for r in range(3):
            pages = batch.indices[int(batch.indptr[r]):int(batch.indptr[r + 1])]
            own.append(pages[2:])
            batch.k[r][:32], batch.v[r][:32] = batch.k[0][:32], batch.v[0][:32]
        counts = torch.tensor([0, *map(len, own)]).cumsum(0).int()
        wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, WORKSPACE, "NHD")
        wrapper.plan([ints(0, 6), batch.qo_indptr], [ints(0, 2), counts], [shared, torch.cat(own)],
                     [ints(16), batch.last_page_len], 8, 2, 64, 16, causal=True, sm_scale=0.1, window_left=-1,
                     logits_soft_cap=None, **TYPES)
        self.assert_close(wrapper.run(batch.q, self.cache_of(batch)), batch.reference(causal=True, sm_scale=0.1)[0],
                          2e-2)

    def test_context_parallel(self):
        """New tokens ragged and causal, the context paged and whole, lse in base 2, which it turns to ln itself."""
        whole = Batch(PREFILL, 8, 2, 64, 16, dtype=torch.float32)
        context = Batch([(qo, kv - qo) for qo, kv in PREFILL], 8, 2, 64, 16, dtype=torch.float32)
        for r, (qo, kv) in enumerate(PREFILL):
            for t in range(kv - qo):
                page = int(context.indices[int(context.indptr[r]) + t // 16])
                context.pages[page, 0, t % 16], context.pages[page, 1, t % 16] = whole.k[r][t], whole.v[r][t]
        new_k, new_v = (torch.cat([x[r][kv - qo:] for r, (qo, kv) in enumerate(PREFILL)]) for x in (whole.k, whole.v))
        types = dict(q_data_type=torch.float32, kv_data_type=torch.float32)
        paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NHD")
        paged.plan(whole.qo_indptr, *context.table(), 8, 2, 64, 16, causal=False, **types)
        ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD")
        ragged.plan(whole.qo_indptr, whole.qo_indptr, 8, 2, 64, causal=True, **types)
        a, b = paged.run(whole.q, context.cache(), return_lse=True), ragged.run(whole.q, new_k, new_v, return_lse=True)
        lse = [x * math.log(2) for _, x in (a, b)]
        most = torch.maximum(*lse)
        weights = [torch.exp(x - most) for x in lse]
        made = (a[0] * weights[0][..., None] + b[0] * weights[1][..., None]) / sum(weights)[..., None]
        self.assert_close(made, whole.reference(causal=True)[0])

    def test_sampler_and_layers(self):
        logits = torch.randn(5, 100) * 3
        k, p = ints(1, 5, 100, 7, 2), torch.tensor([0.9, 0.5, 1.0, 0.1, 0.8])
        ids = flashinfer.sampling.top_k_top_p_sampling_from_logits(logits, k, p, deterministic=True)
        self.assertEqual(int(ids[0]), int(logits[0].argmax()))
        for row in range(5):
            self.assertLess(int((logits[row] > logits[row, int(ids[row])]).sum()), int(k[row]))
        probs = torch.softmax(logits, -1)
        for call, value in ((flashinfer.sampling.top_p_sampling_from_probs, p),
                            (flashinfer.sampling.top_k_sampling_from_probs, k)):
            self.assertEqual(call(probs, value, deterministic=True).dtype, torch.int32)
        x, residual, weight = torch.randn(4, 64).bfloat16(), torch.randn(4, 64).bfloat16(), torch.randn(64).bfloat16()
        total = x.float() + residual.float()
        flashinfer.norm.gemma_fused_add_rmsnorm(x, residual, weight, 1e-6)
        normed = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * (1 + weight.float())
        self.assert_close(x, normed, 2e-2)
        self.assert_close(residual, total, 2e-2)
        query, key = torch.randn(6, 8 * 64), torch.randn(6, 2 * 64)
        table = torch.cat([torch.ones(20, 32), torch.zeros(20, 32)], 1)
        before = query.clone()
        flashinfer.rope.apply_rope_with_cos_sin_cache_inplace(torch.arange(6), query, key, 64, table, True)
        self.assert_close(query, before)  # no angle


class SGLang(FlashInferTestCase):
    """srt/layers/attention/flashinfer_backend.py: pages of one token, begin_forward and forward with options."""

    def batch(self, lengths):
        return Batch(lengths, 8, 2, 64, 1, dtype=torch.bfloat16)

    def cache_of(self, batch):
        """The pools [tokens, heads, dim] of keys and values."""
        return tuple(x.squeeze(1) for x in batch.cache(one=False))

    def test_prefill(self):
        batch = self.batch(PREFILL)
        indptr, indices, last = batch.table()
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NHD", backend="fa2")
        wrapper.begin_forward(batch.qo_indptr, indptr, indices, last, 8, 2, 64, 1, q_data_type=torch.bfloat16,
                              kv_data_type=torch.bfloat16, custom_mask=None, non_blocking=True, fixed_split_size=None)
        for causal, window, cap in ((True, -1, 0.0), (False, -1, 0.0), (True, 20, 30.0)):
            o = wrapper.forward(batch.q, self.cache_of(batch), causal=causal, sm_scale=0.1, window_left=window,
                                logits_soft_cap=cap, k_scale=None, v_scale=None)
            self.assert_close(o, batch.reference(causal=causal, sm_scale=0.1, window_left=window,
                                                 logits_soft_cap=cap)[0], 2e-2)
        mask = torch.cat([(torch.rand(qo * kv) < 0.5) for qo, kv in PREFILL])
        wrapper.begin_forward(batch.qo_indptr, indptr, indices, last, 8, 2, 64, 1, custom_mask=mask, **TYPES)
        o = wrapper.forward(batch.q, self.cache_of(batch), causal=False, sm_scale=0.1)  # verification of a draft tree
        parts = [x.view(qo, kv) for x, (qo, kv) in zip(mask.split([a * b for a, b in PREFILL]), PREFILL)]
        self.assert_close(o, batch.reference(parts, sm_scale=0.1)[0], 2e-2)

    def test_extend(self):
        """New tokens ragged, the prefix paged, and their states merged."""
        lengths = [(17, 54), (3, 20), (5, 5)]
        batch = self.batch(lengths)
        indptr, indices, _ = batch.table()
        prefix = torch.cat([indices[int(indptr[r]):int(indptr[r]) + kv - qo] for r, (qo, kv) in enumerate(lengths)])
        counts = torch.tensor([0] + [kv - qo for qo, kv in lengths]).cumsum(0).int()
        ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD")
        ragged.begin_forward(batch.qo_indptr, batch.qo_indptr, 8, 2, 64, q_data_type=torch.bfloat16)
        paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NHD", backend="fa2")
        paged.begin_forward(batch.qo_indptr, counts, prefix, torch.ones(3, dtype=torch.int32), 8, 2, 64, 1, **TYPES)
        k, v = (torch.cat([x[r][kv - qo:] for r, (qo, kv) in enumerate(lengths)]) for x in (batch.k, batch.v))
        o1, s1 = ragged.forward_return_lse(batch.q, k, v, causal=True, sm_scale=0.1, logits_soft_cap=0.0)
        o2, s2 = paged.forward_return_lse(batch.q, self.cache_of(batch), causal=False, sm_scale=0.1,
                                          logits_soft_cap=0.0)
        o, _ = flashinfer.merge_state(o1, s1, o2, s2)
        self.assert_close(o, batch.reference(causal=True, sm_scale=0.1)[0], 2e-2)

    def test_decode(self):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, "NHD", use_tensor_cores=True)
        for step in range(3):
            batch = self.batch([(1, kv + step) for _, kv in DECODE])
            arguments = (*batch.table(), 8, 2, 64, 1)
            given = dict(data_type=torch.bfloat16, q_data_type=torch.bfloat16, non_blocking=True,
                         fixed_split_size=None, disable_split_kv=False)
            if step == 0:
                wrapper.begin_forward(*arguments, **given)
                wrapper.begin_forward = functools.partial(flashinfer.fast_decode_plan, wrapper)
            else:
                self.assertIs(wrapper.begin_forward.func, flashinfer.fast_decode_plan)
                wrapper.begin_forward(*arguments, global_override_indptr_cpu=batch.indptr.clone(), **given)
            o = wrapper.forward(batch.q, self.cache_of(batch), sm_scale=0.1, logits_soft_cap=0.0, k_scale=1.0,
                                v_scale=1.0)
            self.assert_close(o, batch.reference(sm_scale=0.1)[0], 2e-2)

    def test_latent_attention(self):
        """flashinfer_mla_backend.py: prefill ragged with heads of 192 and 128, decode over latent rows, pages of 1."""
        q, k, v = torch.randn(20, 4, 192), torch.randn(20, 4, 192), torch.randn(20, 4, 128)
        ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD")
        ragged.plan(qo_indptr=ints(0, 20), kv_indptr=ints(0, 20), num_qo_heads=4, num_kv_heads=4, head_dim_qk=192,
                    head_dim_vo=128, q_data_type=torch.float32, causal=True)
        o = ragged.forward(q, k, v, causal=True, sm_scale=0.07, logits_soft_cap=0.0)
        self.assert_close(o, reference(q, k, v, causal=True, sm_scale=0.07)[0])
        pool, lens = torch.randn(60, 1, 128 + 64), ints(9, 33)
        indices = torch.randperm(60)[:42].int()
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper(WORKSPACE, backend="fa2")
        wrapper.plan(ints(0, 1, 2), ints(0, 9, 42), indices, lens, 4, 128, 64, 1, False, 0.1, torch.float32,
                     torch.float32)
        q = torch.randn(2, 4, 192)
        o = wrapper.run(q[..., :128], q[..., 128:], pool[:, :, :128], pool[:, :, 128:])
        for row, (a, b) in enumerate(((0, 9), (9, 42))):
            rows = pool[indices[a:b].long()]
            self.assert_close(o[row:row + 1], reference(q[row:row + 1], rows, rows[..., :128], sm_scale=0.1)[0])

    def test_sampler(self):
        probs = torch.softmax(torch.randn(5, 100) * 3, -1)
        k, p = ints(1, 5, 100, 7, 2), torch.tensor([0.9, 0.5, 1.0, 0.1, 0.8])
        renormed = flashinfer.sampling.top_p_renorm_prob(flashinfer.sampling.top_k_renorm_prob(probs, k), p)
        self.assert_close(renormed.sum(-1), torch.ones(5))
        kept = probs * (renormed > 0)
        for _ in range(20):
            joint = flashinfer.sampling.top_k_top_p_sampling_from_probs(probs, k, p, filter_apply_order="joint",
                                                                        check_nan=True)
            for row, token in enumerate(joint.tolist()):
                above = probs[row] > probs[row, token]
                self.assertLess(int(above.sum()), int(k[row]))
                self.assertLess(float(probs[row][above].sum()), float(p[row]) + 1e-6)
            drawn = flashinfer.sampling.min_p_sampling_from_probs(kept, torch.full((5,), 0.1))
            for row, token in enumerate(drawn.tolist()):
                self.assertGreaterEqual(float(kept[row, token]), 0.1 * float(kept[row].max()))
        with self.assertRaisesRegex(ValueError, "contains NaN"):
            flashinfer.sampling.top_k_top_p_sampling_from_probs(probs * math.nan, k, p, filter_apply_order="joint",
                                                                check_nan=True)


if __name__ == "__main__":
    unittest.main()

"""weft.flashinfer's other wrappers against fp64: mixed batches, sinks, POD, block-sparse; top-k; what is missing."""
import math
import os
import re
import subprocess
import sys
import types
import unittest
import unittest.mock

import torch

import weft
import weft.flashinfer as fi
from flashinfer_support import TOLERANCE, WORKSPACE, Batch, reference, some
from support import ROOT
from test_flashinfer_functions import FlashInferTestCase, ints

LENGTHS = [(1, 9), (17, 54), (3, 0), (0, 12), (37, 37), (1, 130)]


class Mixed(FlashInferTestCase):
    def test_batch_attention(self):
        for case in some(12, dtype=list(TOLERANCE), layout=["NHD", "HND"], cap=[None, 8.0], causal=[False, True],
                         heads=[(4, 4), (7, 1), (10, 2)], page_size=[1, 8], scale=[None, 2.0]):
            with self.subTest(**case):
                batch = Batch(LENGTHS, *case["heads"], 64, case["page_size"], case["layout"], case["dtype"])
                wrapper = fi.BatchAttention(case["layout"], "cpu")
                wrapper.plan(batch.qo_indptr, batch.indptr, batch.indices, batch.kv_indptr.diff(), *case["heads"], 64,
                             64, case["page_size"], case["causal"], logits_soft_cap=case["cap"],
                             q_data_type=case["dtype"], kv_data_type=case["dtype"])
                o, lse = wrapper.run(batch.q, batch.cache(), k_scale=case["scale"], v_scale=case["scale"])
                scale = case["scale"] or 1.0
                expected, expected_lse = batch.reference(causal=case["causal"], logits_soft_cap=case["cap"],
                                                         sm_scale=scale / 8)
                self.assert_close(o, expected * scale, 2 * TOLERANCE[case["dtype"]])
                self.assert_close(lse, expected_lse, 2 * TOLERANCE[case["dtype"]])
        wrapper.run(batch.q, batch.cache(), logits_soft_cap=8.0)
        self.assert_invalid("logits_soft_cap = 4.0 at run; the plan has 8.0", wrapper.run, batch.q, batch.cache(),
                            logits_soft_cap=4.0)

    def test_sinks(self):
        for window in (-1, 10):
            batch = Batch(LENGTHS, dtype=torch.bfloat16)
            sinks, scale = torch.randn(4), 0.2
            expected = batch.reference(causal=True, window_left=window, sinks=sinks, sm_scale=scale)[0]
            wrapper = fi.BatchAttentionWithAttentionSinkWrapper(WORKSPACE, q_data_type=torch.bfloat16, head_dim_qk=64,
                                                                head_dim_vo=64, window_left=window)
            wrapper.plan(batch.qo_indptr, *batch.table(), 4, 2, 64, 4, causal=True, window_left=window,
                         q_data_type="bfloat16")
            self.assert_close(wrapper.run(batch.q, batch.cache(), sinks, scale), expected, 2e-2)
            text = ("batch_prefill_attention_sink_bf16_swa_False_fa2", torch.bfloat16, "...")
            ragged = fi.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, jit_args=text)
            ragged.plan(batch.qo_indptr, batch.kv_indptr, 4, 2, 64, causal=True, window_left=window,
                        q_data_type="bfloat16")
            self.assert_close(ragged.run(batch.q, *batch.ragged(), sinks, scale), expected, 2e-2)
        with self.assertRaisesRegex(TypeError, "sinks and sm_scale"):
            wrapper.run(batch.q, batch.cache())

    def test_pod(self):
        decode, prefill = Batch([(1, 9), (1, 54), (1, 0)]), Batch([(17, 40)], seed=5)
        wrapper = fi.PODWithPagedKVCacheWrapper(WORKSPACE)
        wrapper.plan(*decode.table(), 4, 2, 64, 4, data_type="float32", window_left=20)
        for mask in (None, torch.rand(17, 40) < 0.5):
            out_p, out_d = wrapper.run(prefill.q, prefill.k[0], prefill.v[0], decode.q, decode.cache(), causal_p=True,
                                       custom_mask_p=mask)
            self.assert_close(out_p, reference(prefill.q, prefill.k[0], prefill.v[0], causal=True, mask=mask)[0])
            self.assert_close(out_d, decode.reference(window_left=20)[0])
        self.assert_invalid("window_left_d = 3; the plan has 20", wrapper.run, prefill.q, prefill.k[0], prefill.v[0],
                            decode.q, decode.cache(), window_left_d=3)
        self.assert_unsupported("return_lse_d", wrapper.run, prefill.q, prefill.k[0], prefill.v[0], decode.q,
                                decode.cache(), return_lse_d=True)

    def test_batched_pod(self):
        decode, prefill = Batch([(1, 9), (1, 54), (1, 0)]), Batch([(17, 40), (3, 3)], seed=5)
        wrapper = fi.BatchPODWithPagedKVCacheWrapper(WORKSPACE)
        wrapper.plan(prefill.qo_indptr, *prefill.table(), decode.qo_indptr, *decode.table(), 4, 2, 64, 4,
                     q_data_type="float32")
        masks = [torch.rand(17, 40) < 0.5, torch.rand(3, 3) < 0.5]
        for chosen in (None, masks, None):
            flat = None if chosen is None else torch.cat([x.flatten() for x in chosen])
            (out_p, out_d), (lse_p, lse_d) = wrapper.run(prefill.q, prefill.cache(), decode.q, decode.cache(), flat,
                                                         causal_p=True, return_lse=True)
            for made, expected in zip((out_p, lse_p), prefill.reference(chosen, causal=True)):
                self.assert_close(made, expected)
            for made, expected in zip((out_d, lse_d), decode.reference()):
                self.assert_close(made, expected)


class Sparse(FlashInferTestCase):
    def test_blocks(self):
        for case in some(16, dtype=list(TOLERANCE), R=[1, 4, 16], C=[1, 4, 16], M=[64, 70],
                         heads=[(4, 4), (6, 2), (5, 1)], mask=["none", "mask", "packed"], cap=[None, None, 8.0]):
            with self.subTest(**case):
                rows, keys, R, C = case["M"], 96, case["R"], case["C"]
                heads, kv_heads = case["heads"]
                listed = torch.rand(-(-rows // R), keys // C) < 0.4
                listed[1] = False  # a row block that lists nothing
                indptr = torch.cat([torch.zeros(1), listed.sum(1).cumsum(0)]).int()
                indices = listed.nonzero()[:, 1].int()
                seen = listed.repeat_interleave(R, 0)[:rows].repeat_interleave(C, 1)
                given = {}
                if case["mask"] != "none":
                    blocks = torch.rand(len(indices), R, C) < 0.6
                    whole = torch.zeros(len(listed) * R, keys, dtype=torch.bool)
                    for at, (i, j) in enumerate(listed.nonzero().tolist()):
                        whole[i * R:i * R + R, j * C:j * C + C] = blocks[at]
                    seen = whole[:rows]
                    given["mask"] = blocks
                if case["mask"] == "packed":
                    if rows % R:
                        continue
                    flat = fi.sparse.convert_bsr_mask_layout(blocks, indptr)
                    given = {"packed_mask": fi.segment_packbits(flat, indptr * R * C, "little")[0]}
                q, k, v = (torch.randn(n, h, 64).to(case["dtype"]) for n, h in ((rows, heads), (keys, kv_heads),
                                                                               (keys, kv_heads)))
                wrapper = fi.BlockSparseAttentionWrapper(WORKSPACE)
                wrapper.plan(indptr, indices, rows, keys, R, C, heads, kv_heads, 64, logits_soft_cap=case["cap"],
                             q_data_type=case["dtype"], **given)
                o, lse = wrapper.run(q, k, v, return_lse=True)
                expected, expected_lse = reference(q, k, v, mask=seen, logits_soft_cap=case["cap"])
                self.assert_close(o, expected, TOLERANCE[case["dtype"]])
                self.assert_close(lse, expected_lse, TOLERANCE[case["dtype"]])

    def test_blocks_of_any_size(self):
        for heads, kv_heads, dtype in ((4, 4, torch.float32), (6, 2, torch.float16), (5, 1, torch.bfloat16)):
            rows = torch.tensor([[5, 20, 7]] * kv_heads)
            cols = torch.stack([torch.tensor([3, 30, 8, 9])[torch.randperm(4)] for _ in range(kv_heads)])
            seen = torch.rand(kv_heads, 3, 4) < 0.5
            seen[0, 1] = False
            q, k, v = torch.randn(heads, 32, 64).to(dtype), *torch.randn(2, kv_heads, 50, 64).to(dtype)
            wrapper = fi.VariableBlockSparseAttentionWrapper(WORKSPACE)
            wrapper.plan(seen, rows, cols, heads, kv_heads, 64, q_data_type=dtype)
            o, lse = wrapper.run(q, k, v, return_lse=True)
            group = heads // kv_heads
            for h in range(kv_heads):
                mask = seen[h].repeat_interleave(rows[h], 0).repeat_interleave(cols[h], 1)
                mine = slice(h * group, h * group + group)
                expected, expected_lse = reference(q[mine].transpose(0, 1), k[h, :, None], v[h, :, None], mask=mask)
                self.assert_close(o[mine].transpose(0, 1), expected, TOLERANCE[dtype])
                self.assert_close(lse[mine].T, expected_lse, TOLERANCE[dtype])
        self.assert_unsupported("out: given", wrapper.run, q, k, v, out=o)
        self.assert_invalid("sums", wrapper.plan, torch.ones(2, 1, 1), ints(3, 3)[:, None], ints(3, 4)[:, None], 2, 2,
                            64)

    def test_refusals(self):
        wrapper = fi.BlockSparseAttentionWrapper(WORKSPACE)
        self.assert_invalid("C divides N", wrapper.plan, ints(0, 1), ints(0), 4, 9, 4, 4, 2, 2, 64)
        self.assert_invalid("indices: 0 to 2; N = 8 has 2 blocks", wrapper.plan, ints(0, 2), ints(0, 2), 4, 8, 4, 4, 2,
                            2, 64)
        self.assert_invalid("indptr: has 2 elements", wrapper.plan, ints(0, 1), ints(0), 5, 8, 4, 4, 2, 2, 64)
        self.assert_unsupported("use_clc", wrapper.plan, ints(0, 1), ints(0), 4, 8, 4, 4, 2, 2, 64, use_clc=True)


class Names(FlashInferTestCase):
    def test_top_k(self):
        x = torch.randint(0, 9, (5, 40)).float()
        for tie_break in fi.TopKTieBreak:
            values, indices = fi.top_k(x, 7, sorted=True, tie_break=tie_break)
            self.assertEqual(indices.dtype, torch.int64)
            self.assertTrue(torch.equal(values, x.sort(1, descending=True).values[:, :7]))
            self.assertTrue(torch.equal(values, x.gather(1, indices)))
            if tie_break != fi.TopKTieBreak.NONE:
                sign = 1 if tie_break == fi.TopKTieBreak.SMALL else -1
                for row in range(5):
                    order = sorted(range(40), key=lambda i: (-float(x[row, i]), sign * i))[:7]
                    self.assertEqual(indices[row].tolist(), order)
        self.assert_invalid("k = 41", fi.top_k, x, 41)

    def test_captures(self):
        """Calls that look at a card's numbers say so, where a CUDA graph captures them."""
        card = types.SimpleNamespace(device=torch.device("cuda"))
        for captures in (False, True):
            with unittest.mock.patch("torch.cuda.is_current_stream_capturing", lambda: captures):
                fi._common.refuse_capture("x", torch.zeros(1))
                if captures:
                    with self.assertRaisesRegex(weft.Error, "^x: required is a call that a CUDA graph captures"):
                        fi._common.refuse_capture("x", card)
                else:
                    fi._common.refuse_capture("x", card)

    def test_top_k_of_windows(self):
        """Against each row's own sort: lengths above and below k, starts, pages, ties, windows of -inf alone."""
        rows, width, k = 12, 40, 9
        lengths = torch.tensor([0, 1, 8, 9, 10, 25, 30, 30, 30, 12, 11, 30], dtype=torch.int32)
        starts = torch.tensor([0, 39, 3, 0, 30, 15, 0, 5, 10, 7, 2, 10], dtype=torch.int32)
        x = torch.randint(0, 6, (rows, width)).float()
        x[6] = -math.inf
        x[7, 5:30] = -math.inf
        offsets, batch = 100 * torch.arange(rows, dtype=torch.int32), torch.arange(rows).flip(0).int()
        table = torch.randint(0, 1000, (rows, 60), dtype=torch.int32)
        for tie_break, deterministic in ((0, False), (0, True), (1, True), (2, False), (2, True)):
            for page_size, given in ((1, {}), (4, dict(page_table_row_starts=starts // 2))):
                raw = torch.empty(rows, k, dtype=torch.int32)
                ragged = fi.top_k_ragged_transform(x, offsets, lengths, k, deterministic, tie_break, row_starts=starts)
                out = fi.top_k_page_table_transform(x, table, lengths, k, batch, deterministic, tie_break,
                                                    row_starts=starts, page_size=page_size, out_raw_indices=raw,
                                                    out=torch.empty(rows, k, dtype=torch.int32), **given)
                for row in range(rows):
                    length, start = int(lengths[row]), int(starts[row])
                    window, count = x[row, start:start + length].tolist(), min(length, k)
                    chosen = raw[row, :count].tolist()
                    self.assertEqual(raw[row, count:].tolist(), [-1] * (k - count))
                    self.assertEqual(ragged[row, count:].tolist(), [-1] * (k - count))
                    self.assertEqual((ragged[row, :count] - offsets[row]).tolist(), chosen)
                    sign = -1 if tie_break == fi.TopKTieBreak.LARGE else 1
                    expected = sorted(range(length), key=lambda i: (-window[i], sign * i))[:k]
                    if length <= k:
                        self.assertEqual(chosen, list(range(length)))
                    elif tie_break == fi.TopKTieBreak.NONE:
                        self.assertEqual(len(set(chosen)), k)
                        self.assertTrue(chosen == sorted(chosen) or not deterministic, chosen)
                        self.assertTrue(all(0 <= i < length for i in chosen), (row, chosen))
                        self.assertEqual(sorted(window[i] for i in chosen), sorted(window[i] for i in expected))
                    else:
                        self.assertEqual(chosen, sorted(expected))
                    first = int(given.get("page_table_row_starts", starts)[row])
                    self.assertEqual(out[row].tolist(), [
                        int(table[batch[row], first + i // page_size]) * page_size + i % page_size
                        for i in chosen] + [-1] * (k - count))
        self.assert_invalid(r"lengths\[0\] = 41", fi.top_k_ragged_transform, x, offsets, lengths + 41, k)
        self.assert_invalid(r"src_page_table: \(12, 60\)", fi.top_k_page_table_transform, x, table, lengths, k,
                            batch + 1)
        self.assert_invalid("page_size = 3", fi.top_k_page_table_transform, x, table, lengths, k, page_size=3)
        self.assert_invalid("page_table_row_starts is required", fi.top_k_page_table_transform, x, table, lengths, k,
                            row_starts=starts, page_size=4)

    def test_workspaces_are_aligned(self):
        odd = torch.empty(65, dtype=torch.uint8)[1:]
        wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE)
        self.assertIsNone(wrapper._plan_info)
        self.assert_invalid("float_workspace_buffer must be 16-byte aligned",
                            fi.BatchDecodeWithPagedKVCacheWrapper, odd)
        self.assert_invalid("float_workspace_buffer must be", wrapper.reset_workspace_buffer, odd)
        self.assert_invalid("int_workspace_buffer must be", wrapper.reset_workspace_buffer, WORKSPACE, odd)

    def test_what_is_missing_refuses_when_it_is_called(self):
        from weft.flashinfer.decode import trtllm_batch_decode_with_kv_cache  # vLLM imports it from there
        self.assert_unsupported("trtllm_batch_decode_with_kv_cache", trtllm_batch_decode_with_kv_cache)
        self.assert_unsupported("SegmentGEMMWrapper.run", fi.SegmentGEMMWrapper.run)
        with self.assertRaises(AttributeError):
            fi.decode.no_such_name
        self.assert_unsupported("cutlass_fused_moe", fi.cutlass_fused_moe, 1, 2)
        self.assert_unsupported("weft.flashinfer.comm.all_reduce", fi.comm.all_reduce)
        self.assertIsNotNone(fi.jit.JitSpec | None)  # in annotations
        with self.assertRaises(AttributeError):
            fi.no_such_name
        with self.assertRaises(NotImplementedError):
            fi.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, backend="trtllm-gen")

    def test_every_public_name_is_documented(self):
        bare = [name for name in fi.__all__ if callable(getattr(fi, name)) and not getattr(fi, name).__doc__]
        self.assertEqual([name for name in bare if not name.endswith(("_inplace", "_pos_ids"))], [])

    def test_the_document(self):
        """Its examples run one after another, and every name in its tables is there."""
        text = (ROOT / "docs/flashinfer.md").read_text()
        names = {}
        for match in re.finditer(r"```py\n(.*?)```", text, re.DOTALL):
            exec(compile("\n" * text.count("\n", 0, match.start(1)) + match[1], "docs/flashinfer.md", "exec"), names)
        self.assertEqual(names["o"].shape, (8, 8, 64))
        rows = re.findall(r"^\| (`.*?) \|", text[:text.index("## What differs")], re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"`([A-Za-z][\w.]*[A-Za-z0-9])`", row)}
        self.assertGreater(len(named), 50)
        for name in named:
            found = fi
            for part in name.split("."):
                found = getattr(found, part)
        told = ("_pos_ids", "_inplace", "_quant", "_return_lse", "_from_probs", "_from_logits")  # as `..._inplace`
        self.assertEqual([name for name in fi.__all__ if callable(getattr(fi, name)) and name not in named
                          and not name.endswith(told)], ["install"])

    def test_install(self):
        text = ("import weft.flashinfer; weft.flashinfer.install(); import flashinfer, flashinfer.decode; "
                "from flashinfer.cascade import merge_state; from flashinfer.comm import anything; "
                "assert flashinfer.decode is weft.flashinfer.decode and merge_state is weft.flashinfer.merge_state")
        made = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=os.environ)
        self.assertEqual((made.returncode, made.stderr), (0, ""))

    def test_slopes(self):
        self.assertEqual(fi.utils.get_alibi_slopes(8).tolist(), [2.0 ** -i for i in range(1, 9)])
        self.assert_close(fi.utils.get_alibi_slopes(12)[8:], torch.tensor([2 ** (-i / 2) for i in (1, 3, 5, 7)]))
        self.assertEqual([fi.next_positive_power_of_2(x) for x in (0, 1, 3, 64, 65)], [1, 1, 4, 64, 128])
        self.assertTrue(math.isfinite(float(fi.utils.get_alibi_slopes(1)[0])))


if __name__ == "__main__":
    unittest.main()

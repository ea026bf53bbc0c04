"""Traced functions of torch's, against torch's own flex_attention."""
import unittest
import warnings

import torch
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, noop_mask, or_masks

import weft
from support import TestCase
from weft.variants import show, trace

HEADS, KV_HEADS, DIM = 4, 2, 32
SPEC = weft.AttentionSpec(head_dim_qk=DIM, head_dim_vo=DIM, kv_form=weft.KvForm.padded, layout=weft.Layout.hnd)
torch.manual_seed(1)
cap = 7.0
slopes = torch.exp2(-torch.arange(1, HEADS + 1, dtype=torch.float32))
documents = torch.tensor([[0] * 9 + [1] * 20 + [2] * 11, [0] * 30 + [1] * 10])
lengths = torch.tensor([33, 40], dtype=torch.int32)
offset = torch.tensor(6)


def soft_cap(score, b, h, q_idx, kv_idx):
    score = score / cap
    return torch.tanh(score) * cap


def alibi(score, b, h, q_idx, kv_idx):
    return score + slopes[h] * (kv_idx - q_idx).to(torch.float32)


def tricks(score, b, h, q_idx, kv_idx):
    near = torch.where((q_idx - kv_idx).abs() < 5, torch.sigmoid(score), score.clamp(-1, 1) + 0.1)
    return torch.where(kv_idx % 7 == 3, torch.zeros_like(score), near.square() - torch.rsqrt(kv_idx + 1.5))


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def same_document(b, h, q_idx, kv_idx):
    return documents[b, q_idx] == documents[b, kv_idx]


def shorter(b, h, q_idx, kv_idx):
    return kv_idx < lengths[b]


def window(b, h, q_idx, kv_idx):
    return q_idx - kv_idx <= 11


class Flex(TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")  # it is slow without torch.compile, says torch

    def check(self, score_mod=None, mask_mod=None, qo=40, kv=40, **options):
        q, k, v = (torch.randn(2, heads, n, DIM) for heads, n in ((HEADS, qo), (KV_HEADS, kv), (KV_HEADS, kv)))
        mask = create_block_mask(mask_mod, 2, HEADS, qo, kv, device="cpu", BLOCK_SIZE=16) if mask_mod else None
        want, want_lse = flex_attention(q, k, v, score_mod, mask, enable_gqa=True, return_lse=True)
        variant = trace(score_mod, mask_mod, **options)
        kernel = weft.build(SPEC.replace(variant=variant))
        plan = kernel.plan(num_qo_heads=HEADS, num_kv_heads=KV_HEADS, qo_indptr=[0, qo, 2 * qo], kv_len=[kv, kv],
                           max_kv_len=kv)
        o, lse = kernel.run(plan, q.transpose(1, 2).reshape(-1, HEADS, DIM), (k, v), return_lse=True,
                            tensors=variant.captured)
        self.assert_close(o.view(2, qo, HEADS, DIM).transpose(1, 2), want)
        self.assert_close(lse.view(2, qo, HEADS).transpose(1, 2), want_lse)
        return variant

    def test_functions(self):
        self.check(soft_cap)
        self.check(alibi, causal)
        self.check(tricks)
        self.check(None, and_masks(causal, same_document, shorter))

    def test_masks_of_masks(self):
        variant = self.check(None, and_masks(causal, window))
        self.assertEqual((variant.text, len(variant.intervals)), ("", 1))
        self.check(None, or_masks(and_masks(causal, window), lambda b, h, q, kv: kv < 3))
        self.assertEqual(trace(None, noop_mask).intervals, ())

    def test_fewer_queries_than_keys(self):
        # FlexAttention counts queries from 0; whoever wants positions adds an offset, as Weft does.
        self.check(alibi, causal, qo=9, kv=40, q_idx="index")
        q, k, v = torch.randn(1, HEADS, 34, DIM), *torch.randn(2, 1, KV_HEADS, 40, DIM)
        want = flex_attention(q, k, v, None, create_block_mask(
            lambda b, h, q, kv: q + offset >= kv, 1, None, 34, 40, device="cpu", BLOCK_SIZE=16), enable_gqa=True)
        o = weft.attend(SPEC.replace(kv_form=weft.KvForm.ragged, variant=trace(None, causal)),
                        q[0].transpose(0, 1), k[0], v[0])
        self.assert_close(o.transpose(0, 1), want[0])

    def test_lists_of_blocks(self):
        mask = and_masks(causal, same_document)
        q, k, v = (torch.randn(2, heads, 40, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
        want = flex_attention(q, k, v, alibi, create_block_mask(mask, 2, None, 40, 40, device="cpu", BLOCK_SIZE=8),
                              enable_gqa=True)
        blocks = weft.block_mask(mask, 2, None, 40, 40, 8)
        variant = trace(alibi)
        kernel = weft.build(SPEC.replace(kv_form=weft.KvForm.block_sparse, variant=variant))
        plan = kernel.plan(num_qo_heads=HEADS, num_kv_heads=KV_HEADS, qo_indptr=[0, 40, 80], blocks=blocks)
        pages = tuple(x.view(2, KV_HEADS, 5, 8, DIM).transpose(1, 2).reshape(10, KV_HEADS, 8, DIM) for x in (k, v))
        o = kernel.run(plan, q.transpose(1, 2).reshape(-1, HEADS, DIM), pages, tensors=variant.captured)
        self.assert_close(o.view(2, 40, HEADS, DIM).transpose(1, 2), want)


class Captures(TestCase):
    def test_tensors_of_attributes_and_of_the_function(self):
        class Bias:
            table = torch.randn(HEADS, 40)

            def score_mod(self, score, b, h, q_idx, kv_idx):
                scale = torch.tensor(0.5)
                return score + self.table[h][kv_idx] * scale + torch.tensor([1.0, 2.0])[b]

        bias = Bias()
        variant = trace(bias.score_mod)
        self.assertIs(variant.captured["tensor"], bias.table)
        self.assertIn("s + p.tensor(c.qo_head, c.kv_pos) * 0.5f + p.tensor_1(c.batch)", variant.text)

    def test_numbers_and_refusals(self):
        zero_d = torch.tensor(3.0)
        self.assertIn("real zero_d = 3.0", show(lambda s, b, h, q, kv: s * zero_d))
        rows, halves = torch.randn(4, 40, requires_grad=True), slopes.bfloat16()
        for says, f in (("the function softmax", lambda s, b, h, q, kv: torch.softmax(s, 0)),
                        ("a whole array of shape", lambda s, b, h, q, kv: s + slopes),
                        ("halves, a captured array, is bfloat16", lambda s, b, h, q, kv: s + halves[h]),
                        ("rows, a captured array, needs a gradient", lambda s, b, h, q, kv: s + rows[h, kv]),
                        ("a number is wanted", lambda s, b, h, q, kv: torch.tensor(s)),
                        ("a loop over", lambda s, b, h, q, kv: sum(slopes[h]))):
            with self.subTest(says), self.assertRaises(weft.Error) as caught:
                trace(f)
            self.assertIn(says, str(caught.exception))
            self.assertIn("test_traces_torch.py:", str(caught.exception))


if __name__ == "__main__":
    unittest.main()

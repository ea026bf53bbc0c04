"""weft.flashinfer's functions around attention, against plain fp64: states, pages, RoPE, norms, gates, bits."""
import itertools
import math
import unittest

import numpy as np
import torch

import weft
import weft.flashinfer as fi
from support import SEED, TestCase

HALF = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
torch.manual_seed(SEED)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


class FlashInferTestCase(TestCase):
    def assert_close(self, made, expected, tolerance=2e-5):
        super().assert_close(*(x.double().numpy() if isinstance(x, torch.Tensor) else x for x in (made, expected)),
                             tolerance)

    def assert_invalid(self, says, call, *args, **kwargs):
        with self.assertRaisesRegex(ValueError, says) as caught:
            call(*args, **kwargs)
        self.assertIsInstance(caught.exception, weft.Error)
        self.assertEqual(caught.exception.code, weft.ErrorCode.invalid_argument)

    def assert_unsupported(self, says, call, *args, **kwargs):
        with self.assertRaisesRegex(NotImplementedError, says) as caught:
            call(*args, **kwargs)
        self.assertIsInstance(caught.exception, weft.Error)
        self.assertEqual(caught.exception.code, weft.ErrorCode.unsupported)


class States(FlashInferTestCase):
    def states(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, 32).to(dtype), torch.randn(*shape) * 3

    def expected(self, v, s):
        """v [rows, states, heads, dim], s in base 2."""
        s = s.double()
        most = s.amax(1, keepdim=True).clamp_min(-1e300)
        weights = torch.exp2(s - most)
        total = weights.sum(1)
        o = (weights.unsqueeze(-1) * v.double()).sum(1) / total.clamp_min(1e-300).unsqueeze(-1)
        return o, torch.log2(total) + most[:, 0]

    def test_states_merge_in_base_2(self):
        for dtype, states, heads in itertools.product(HALF, (1, 2, 9), (1, 3, 7)):
            v, s = self.states(17, states, heads, dtype=dtype)
            o, lse = fi.merge_states(v, s)
            expected, expected_lse = self.expected(v, s)
            self.assertEqual(o.dtype, dtype)
            self.assert_close(o, expected, HALF[dtype])
            self.assert_close(lse, expected_lse)

    def test_two_states(self):
        (a, s_a), (b, s_b) = self.states(5, 3), self.states(5, 3)
        expected, expected_lse = self.expected(torch.stack([a, b], 1), torch.stack([s_a, s_b], 1))
        o, lse = fi.merge_state(a, s_a, b, s_b)
        self.assert_close(o, expected)
        self.assert_close(lse, expected_lse)
        mine, own = a.clone(), s_a.clone()
        fi.merge_state_in_place(mine, own, b, s_b)
        self.assert_close(mine, expected)
        self.assert_close(own, expected_lse)
        mine, own = a.clone(), s_a.clone()
        mask = torch.tensor([True, False, True, False, False])
        fi.merge_state_in_place(mine, own, b, s_b, mask)
        self.assert_close(mine, torch.where(mask[:, None, None], expected, a.double()))
        self.assert_close(own, torch.where(mask[:, None], expected_lse, s_a.double()))

    def test_empty_states(self):
        v, s = torch.zeros(2, 3, 32), torch.full((2, 3), -math.inf)
        o, lse = fi.merge_state(v, s, v, s)
        self.assertTrue((o == 0).all() and (lse == -math.inf).all())
        b, s_b = self.states(2, 3)
        o, lse = fi.merge_state(v, s, b, s_b)
        self.assert_close(o, b)
        self.assert_close(lse, s_b)

    def test_refusals(self):
        (a, s_a), (b, s_b) = self.states(5, 3), self.states(4, 3)
        self.assert_invalid("v_b", fi.merge_state, a, s_a, b, s_b)
        self.assert_invalid("s_a", fi.merge_state, a, s_b, b, s_b)
        self.assert_invalid("s: is torch.float16", fi.merge_state_in_place, a, s_a.half(), a, s_a)
        self.assert_invalid("mask", fi.merge_state_in_place, a, s_a, a, s_a, torch.ones(4, dtype=torch.bool))


class Pages(FlashInferTestCase):
    def test_lengths_and_positions(self):
        self.assertEqual(fi.get_seq_lens(ints(0, 3, 3, 4), ints(2, 0, 4), 4).tolist(), [10, 0, 4])
        for kind in (torch.int32, torch.int64):
            requests, positions = fi.get_batch_indices_positions(ints(0, 2, 2, 5).to(kind), ints(10, 0, 4), 7)
            self.assertEqual(requests.tolist(), [0, 0, 2, 2, 2, -1, -1])
            self.assertEqual(positions.tolist(), [8, 9, 1, 2, 3, 0, 0])
            self.assertEqual((requests.dtype, positions.dtype), (torch.int32, torch.int32))
        mine = torch.empty(5, dtype=torch.int32), torch.empty(5, dtype=torch.int32)
        made = fi.get_batch_indices_positions(ints(0, 2, 2, 5), ints(10, 0, 4), 5, *mine)
        self.assertIs(made[0], mine[0])
        self.assertEqual(mine[1].tolist(), [8, 9, 1, 2, 3])

    def test_append(self):
        indptr, indices, last = ints(0, 3, 3, 4), ints(4, 1, 6, 0), ints(2, 0, 4)
        requests, positions = ints(0, 2, -1, 0, 2), ints(9, 0, 0, 3, 2)
        for layout, dtype, one in itertools.product(("NHD", "HND"), HALF, (False, True)):
            shape = (8, 4, 3, 16) if layout == "NHD" else (8, 3, 4, 16)
            both = torch.randn(8, 2, *shape[1:]).to(dtype)
            before = both.clone()
            k, v = torch.randn(5, 3, 16).to(dtype), torch.randn(5, 3, 16).to(dtype)
            fi.append_paged_kv_cache(k, v, requests, positions, both if one else tuple(both.unbind(1)), indices, indptr,
                                     last, layout)
            for row, (page, slot) in {0: (6, 1), 1: (0, 0), 3: (4, 3), 4: (0, 2)}.items():
                for part, new in enumerate((k, v)):
                    at = before[page, part]
                    at[(slot,) if layout == "NHD" else (slice(None), slot)] = new[row]
            self.assertTrue(torch.equal(both, before))

    def test_append_of_latent_rows_and_of_fp8(self):
        indptr, indices, last = ints(0, 2), ints(3, 1), ints(2)
        ckv, kpe = torch.zeros(4, 4, 32), torch.zeros(4, 4, 8)
        new_ckv, new_kpe = torch.randn(2, 32), torch.randn(2, 8)
        fi.append_paged_mla_kv_cache(new_ckv, new_kpe, ints(0, 0), ints(5, 0), ckv, None, indices, indptr, last)
        self.assertTrue(torch.equal(ckv[1, 1], new_ckv[0]) and torch.equal(ckv[3, 0], new_ckv[1]) and not kpe.any())
        fi.append_paged_mla_kv_cache(new_ckv, new_kpe, ints(0, 0), ints(5, 0), ckv, kpe, indices, indptr, last)
        self.assertTrue(torch.equal(kpe[1, 1], new_kpe[0]))
        cache = torch.zeros(4, 2, 4, 1, 8).to(torch.float8_e4m3fn)
        new = torch.randn(1, 1, 8).to(torch.float8_e4m3fn)
        fi.append_paged_kv_cache(new, new, ints(0), ints(4), cache, indices, indptr, last)
        self.assertTrue(torch.equal(cache[1, 1, 0].float(), new[0].float()))

    def test_refusals_leave_the_cache_as_it_was(self):
        indptr, indices, last = ints(0, 1), ints(0), ints(2)
        cache = torch.zeros(2, 2, 4, 1, 8)
        new = torch.ones(1, 1, 8)
        append = fi.append_paged_kv_cache
        self.assert_invalid(r"positions\[0\] = 2", append, new, new, ints(0), ints(2), cache, indices, indptr, last)
        self.assert_invalid("batch_indices: 1", append, new, new, ints(1), ints(0), cache, indices, indptr, last)
        self.assert_invalid("kv_indices: name pages 7", append, new, new, ints(0), ints(0), cache, ints(7), indptr,
                            last)
        self.assert_invalid("append_value", append, new, new.half(), ints(0), ints(0), cache, indices, indptr, last)
        self.assert_invalid("append_key", append, new.half(), new, ints(0), ints(0), cache, indices, indptr, last)
        self.assert_invalid("kv_layout = 'NDH'", append, new, new, ints(0), ints(0), cache, indices, indptr, last,
                            "NDH")
        self.assertFalse(cache.any())


def rotated(x, positions, rotary_dim, interleave, frequencies):
    """x [nnz, heads, dim] in fp64; frequencies [rotary_dim / 2]."""
    x = x.double()
    angles = positions.double()[:, None] * frequencies
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    half = rotary_dim // 2
    first = slice(0, rotary_dim, 2) if interleave else slice(0, half)
    second = slice(1, rotary_dim, 2) if interleave else slice(half, rotary_dim)
    y = x.clone()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def plain_frequencies(rotary_dim, theta, scale=1.0):
    return theta ** (-torch.arange(rotary_dim // 2, dtype=torch.float64) * 2 / rotary_dim) / scale


def llama31_frequencies(rotary_dim, theta=5e5, factor=8.0, low=1.0, high=4.0, context=8192):
    plain = plain_frequencies(rotary_dim, theta)
    smooth = ((context * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * plain / factor + smooth * plain


class Rope(FlashInferTestCase):
    def setUp(self):
        self.indptr, self.offsets = ints(0, 3, 3, 4, 9), ints(0, 5, 20000, 7)
        self.positions = ints(0, 1, 2, 20000, 7, 8, 9, 10, 11)

    def inputs(self, dtype, dim, heads=6):
        packed = torch.randn(9, heads + 4, dim).to(dtype)
        return packed[:, :heads], packed[:, heads:heads + 2]

    def test_all_forms(self):
        for dtype, dim, rotary, interleave in itertools.product(HALF, (64, 80), (None, 32), (False, True)):
            q, k = self.inputs(dtype, dim)
            used = rotary or dim
            for llama in (False, True):
                frequencies = llama31_frequencies(used) if llama else plain_frequencies(used, 1e4, 2.0)
                expected = [rotated(x, self.positions, used, interleave, frequencies) for x in (q, k)]
                options = dict(rotary_dim=rotary, interleave=interleave) | ({} if llama else {"rope_scale": 2.0})
                name = "apply_llama31_rope" if llama else "apply_rope"
                for where, given in (("", (self.indptr, self.offsets)), ("_pos_ids", (self.positions,))):
                    made = getattr(fi, name + where)(q, k, *given, **options)
                    in_place = q.clone(), k.clone()
                    self.assertIsNone(getattr(fi, name + where + "_inplace")(*in_place, *given, **options))
                    for x, y, z in zip(made, in_place, expected):
                        self.assertEqual(x.dtype, dtype)
                        self.assert_close(x, z, HALF[dtype])
                        self.assertTrue(torch.equal(x, y))

    def test_tables(self):
        table = torch.randn(40, 32)
        for dtype, neox in itertools.product(HALF, (False, True)):
            q, k = torch.randn(9, 3 * 48).to(dtype), torch.randn(9, 48).to(dtype)
            positions = torch.tensor([0, 39, 3, 3, 7, 8, 9, 10, 11])
            cos, sin = (x[positions].double()[:, None] for x in table.split(16, 1))
            expected = []
            for x in (q, k):
                heads = x.double().reshape(9, -1, 48)
                first, second = (slice(0, 16), slice(16, 32)) if neox else (slice(0, 32, 2), slice(1, 32, 2))
                y = heads.clone()
                y[..., first] = heads[..., first] * cos - heads[..., second] * sin
                y[..., second] = heads[..., second] * cos + heads[..., first] * sin
                expected.append(y.reshape(x.shape))
            made = fi.apply_rope_with_cos_sin_cache(positions, q, k, 48, table, neox)
            fi.apply_rope_with_cos_sin_cache_inplace(positions, q, k, 48, table, neox)
            for x, y, z in zip(made, (q, k), expected):
                self.assert_close(x, z, HALF[dtype])
                self.assertTrue(torch.equal(x, y))
        self.assert_invalid("float32", fi.apply_rope_with_cos_sin_cache, positions, q, k, 48, table.half())
        self.assert_invalid("positions: 0 to 40", fi.apply_rope_with_cos_sin_cache, positions + (positions == 39), q, k,
                            48, table)

    def test_refusals(self):
        q, k = self.inputs(torch.float32, 64)
        self.assert_invalid("offsets", fi.apply_rope, q, k, self.indptr, self.offsets[:2])
        self.assert_invalid("indptr: ends at .9.; q .4", fi.apply_rope, q[:4], k[:4], self.indptr, self.offsets)
        self.assert_invalid("pos_ids", fi.apply_rope_pos_ids, q, k, self.positions.float())
        self.assert_refused("invalid_argument", "rotary_dim", fi.apply_rope_pos_ids, q, k, self.positions, 66)


class Rows(FlashInferTestCase):
    def norm(self, x, weight, eps=1e-6):
        x = x.double()
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight.double()

    def test_norms(self):
        for dtype, shape in itertools.product(HALF, ((1, 8), (7, 111), (5, 3, 64), (0, 64))):
            x, weight = torch.randn(shape).to(dtype), torch.nn.Parameter(torch.randn(shape[-1]).to(dtype))
            for function, offset in ((fi.rmsnorm, 0), (fi.gemma_rmsnorm, 1)):
                expected = self.norm(x, weight.detach().double() + offset)
                self.assert_close(function(x, weight), expected, HALF[dtype])
                out = torch.empty_like(x)
                self.assertIs(function(x, weight, out=out), out)
                self.assert_close(out, expected, HALF[dtype])
            if len(shape) == 2:
                for function, offset in ((fi.fused_add_rmsnorm, 0), (fi.gemma_fused_add_rmsnorm, 1)):
                    y, residual = x.clone(), torch.randn(shape).to(dtype)
                    total = x.float() + residual.float()
                    self.assertIsNone(function(y, residual, weight))
                    self.assertTrue(torch.equal(residual, total.to(dtype)))
                    self.assert_close(y, self.norm(total, weight.detach().double() + offset), HALF[dtype])
        self.assert_invalid("weight", fi.rmsnorm, x, weight[:4])
        self.assert_invalid("Invalid shape of out", fi.rmsnorm, x, weight, out=x[:, :4])
        residual = torch.ones(3, 8)
        self.assert_invalid("weight", fi.fused_add_rmsnorm, torch.ones(3, 8), residual, torch.ones(7))
        self.assertTrue((residual == 1).all())

    def test_layernorm_and_quantised_norms(self):
        x, gemma, beta = torch.randn(5, 64).bfloat16(), torch.randn(64), torch.randn(64)
        wide = x.double()
        expected = ((wide - wide.mean(-1, keepdim=True)) / torch.sqrt(wide.var(-1, correction=0, keepdim=True) + 1e-6)
                    * gemma + beta)
        self.assert_close(fi.layernorm(x, gemma, beta), expected, 2e-2)
        for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8):
            step = 1 if kind == torch.int8 else 0.13
            out, weight = torch.empty(5, 64, dtype=kind), torch.randn(64).bfloat16() * 100
            fi.rmsnorm_quant(out, x, weight, torch.tensor([0.5]))
            most = 127 if kind == torch.int8 else torch.finfo(kind).max
            expected = (self.norm(x, weight) / 0.5).clamp(-most - (kind == torch.int8), most)
            self.assertTrue(((out.double() - expected).abs() <= step * (1 + expected.abs())).all())
            residual = torch.randn(5, 64).bfloat16()
            expected = (self.norm(x.float() + residual.float(), weight) / 2).clamp(-most - (kind == torch.int8), most)
            fi.fused_add_rmsnorm_quant(out, x.clone(), residual, weight, 2.0)
            self.assertTrue(((out.double() - expected).abs() <= step * (1 + expected.abs())).all())
            fi.layernorm_quant(out, x, gemma, beta, 0.1)
        self.assert_unsupported("out: required is torch.float16", fi.rmsnorm_quant, x.half(), x, weight, 1.0)

    def test_gates(self):
        gates = {
            fi.silu_and_mul: lambda a: a / (1 + torch.exp(-a)),
            fi.gelu_tanh_and_mul: lambda a: a / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a ** 3))),
            fi.gelu_and_mul: lambda a: a / 2 * (1 + torch.erf(a / math.sqrt(2))),
        }
        for (function, gate), dtype, shape in itertools.product(gates.items(), HALF, ((3, 16), (2, 3, 222), (0, 8))):
            x = torch.randn(shape).to(dtype)
            a, b = x.double().chunk(2, -1)
            self.assert_close(function(x), gate(a) * b, HALF[dtype])
            out = torch.empty_like(x[..., :shape[-1] // 2])
            self.assertIs(function(x, out), out)
            self.assert_close(out, gate(a) * b, HALF[dtype])
        self.assert_invalid("even", fi.silu_and_mul, torch.ones(3, 7))
        with self.assertRaises(AssertionError):
            fi.silu_and_mul(torch.ones(3, 8), torch.ones(3, 8))

    def test_bits(self):
        for count, order in itertools.product((0, 1, 7, 8, 65, 1000), ("big", "little")):
            x = torch.rand(count) < 0.5
            self.assertEqual(fi.packbits(x, order).tolist(), np.packbits(x.numpy(), bitorder=order).tolist())
        x, indptr = torch.rand(40) < 0.5, ints(0, 3, 3, 20, 40)
        made, starts = fi.segment_packbits(x, indptr, "little")
        self.assertEqual(starts.tolist(), [0, 1, 1, 4, 7])
        expected = [np.packbits(x[a:b].numpy(), bitorder="little") for a, b in ((0, 3), (3, 3), (3, 20), (20, 40))]
        self.assertEqual(made.tolist(), np.concatenate(expected).tolist())
        self.assert_invalid("bitorder = 'middle'", fi.packbits, x, "middle")


if __name__ == "__main__":
    unittest.main()

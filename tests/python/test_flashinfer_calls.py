"""Random bad calls of weft.flashinfer: each ends in an exception, or in a result, and never in anything else."""
import os
import random
import unittest

import torch

import weft
import weft.flashinfer as fi
from flashinfer_support import WORKSPACE
from support import SEED
from test_flashinfer_functions import FlashInferTestCase, ints

CASES = int(os.environ.get("WEFT_PYTHON_CASES", "1500"))
# What torch itself raises where values, not arrays, are of a wrong type.
ALLOWED = (weft.Error, TypeError, ValueError, AssertionError, RuntimeError)

OF_TENSORS = [
    lambda x: x[:0], lambda x: x[1:], lambda x: x[None], lambda x: x.reshape(-1), lambda x: x.flip(0),
    lambda x: x.double(), lambda x: x.half(), lambda x: x.int(), lambda x: x.long(), lambda x: x.to(torch.complex64),
    lambda x: x.to("meta"), lambda x: x[..., ::2], lambda x: torch.cat([x, x]), lambda x: x.expand(2, *x.shape),
    lambda x: x.transpose(0, -1), lambda x: x.new_empty(0), lambda x: x * 0 - 1, lambda x: x + 1000,
    lambda x: x.float() * float("nan"),
]
VALUES = [None, -1, 0, 3, "x", 1.5, [1], (1,), object(), float("nan"), 2**40, True, b"a", torch.zeros(3)]


def planned(cls, num_plan, of_plan):
    """A call that plans with its first arguments and runs with the others."""
    def call(*args, **kwargs):
        wrapper = cls(WORKSPACE)
        wrapper.plan(*args[:num_plan], **{name: x for name, x in kwargs.items() if name in of_plan})
        return wrapper.run(*args[num_plan:], **{name: x for name, x in kwargs.items() if name not in of_plan})
    return call


def calls():
    """(function, arguments, named arguments), each of them good."""
    q, k, kv = torch.randn(4, 4, 64), torch.randn(9, 2, 64), torch.randn(8, 2, 4, 2, 64)
    table, probs = (ints(0, 2, 3), ints(1, 5, 0), ints(3, 4)), torch.softmax(torch.randn(4, 50), 1)
    true = torch.ones(64, dtype=torch.bool)
    latent = torch.randn(2, 4, 64), torch.randn(2, 4, 32), torch.randn(8, 4, 64), torch.randn(8, 4, 32)
    return [
        (fi.single_prefill_with_kv_cache, (q, k, k.clone()),
         dict(causal=True, kv_layout="NHD", pos_encoding_mode="NONE", window_left=3, logits_soft_cap=2.0, sm_scale=0.1,
              custom_mask=true[:36], return_lse=True, o_dtype="float32")),
        (fi.single_decode_with_kv_cache, (q[0], k, k.clone()), dict(window_left=3, q_scale=1.0, v_scale=2.0)),
        (planned(fi.BatchDecodeWithPagedKVCacheWrapper, 7,
                 ("window_left", "q_data_type", "fixed_split_size", "sm_scale", "q_len_per_req")),
         (*table, 4, 2, 64, 4, q[:2], kv),
         dict(window_left=2, q_data_type="float32", fixed_split_size=2, sm_scale=0.1, q_len_per_req=1,
              out=torch.empty(2, 4, 64), lse=torch.empty(2, 4), sinks=torch.zeros(4), v_scale=1.0)),
        (planned(fi.BatchPrefillWithPagedKVCacheWrapper, 8, ("causal", "q_data_type", "custom_mask")),
         (ints(0, 1, 4), *table, 4, 2, 64, 4, q, kv),
         dict(causal=True, q_data_type="float32", custom_mask=true[:19], out=torch.empty(4, 4, 64), lse_base="ln")),
        (planned(fi.BatchPrefillWithRaggedKVCacheWrapper, 5, ("causal", "q_data_type", "head_dim_vo")),
         (ints(0, 1, 4), ints(0, 5, 9), 4, 2, 64, q, k, k.clone()),
         dict(causal=True, q_data_type="float32", head_dim_vo=64, out=torch.empty(4, 4, 64))),
        (planned(fi.BatchMLAPagedAttentionWrapper, 12, ()),
         (ints(0, 1, 2), *table[:2], ints(7, 4), 4, 64, 32, 4, False, 0.1, torch.float32, torch.float32, *latent),
         dict(out=torch.empty(2, 4, 64))),
        (fi.merge_state, (q, q[..., 0], q.clone(), q[..., 1]), {}),
        (fi.merge_state_in_place, (q, q[..., 0], q.clone(), q[..., 1]), dict(mask=true[:4])),
        (fi.merge_states, (torch.randn(3, 2, 4, 32), torch.randn(3, 2, 4)), {}),
        (fi.append_paged_kv_cache,
         (k[:3], k[:3].clone(), ints(0, 0, 1), ints(1, 6, 2), kv, table[1], table[0], table[2]),
         dict(kv_layout="NHD")),
        (fi.get_batch_indices_positions, (ints(0, 2, 3), ints(5, 6), 3), {}),
        (fi.get_seq_lens, (table[0], table[2], 4), {}),
        (fi.apply_rope, (q, k[:4], ints(0, 1, 4), ints(3, 2)), dict(rotary_dim=32, interleave=True, rope_scale=2.0)),
        (fi.apply_rope_pos_ids, (q, k[:4], ints(0, 1, 4, 2)), dict(rotary_dim=32)),
        (fi.apply_rope_with_cos_sin_cache,
         (ints(0, 1, 2, 3), torch.randn(4, 128), torch.randn(4, 64), 64, torch.randn(9, 32)), {}),
        (fi.rmsnorm, (q[:, 0], torch.ones(64)), dict(eps=1e-5, out=torch.empty(4, 64))),
        (fi.fused_add_rmsnorm, (torch.randn(4, 64), torch.randn(4, 64), torch.ones(64)), {}),
        (fi.silu_and_mul, (q,), dict(out=torch.empty(4, 4, 32))),
        (fi.segment_packbits, (true[:9], ints(0, 4, 9)), dict(bitorder="little")),
        (fi.top_k_top_p_sampling_from_probs, (probs, 5, 0.9), dict(indices=ints(0, 1, 3), seed=1, offset=2)),
        (fi.top_p_renorm_probs, (probs, 0.5), {}), (fi.min_p_sampling_from_probs, (probs, 0.5), {}),
        (fi.softmax, (probs,), dict(temperature=0.5)),
        (fi.chain_speculative_sampling,
         (torch.rand(2, 3, 9), torch.zeros(2, 3, dtype=torch.int32), torch.rand(2, 4, 9)), {}),
        (fi.top_k, (probs, 3), dict(sorted=True, tie_break=1)),
    ]


def fresh(x):
    return x.clone() if isinstance(x, torch.Tensor) else x


class Calls(FlashInferTestCase):
    def test_good_ones(self):
        for function, args, kwargs in calls():
            function(*map(fresh, args), **{name: fresh(x) for name, x in kwargs.items()})

    def test_bad_ones(self):
        draw, all_calls, refused = random.Random(SEED), calls(), 0
        for case in range(CASES):
            function, args, kwargs = draw.choice(all_calls)
            args, kwargs = [fresh(x) for x in args], {name: fresh(x) for name, x in kwargs.items()}
            where = draw.choice([*range(len(args)), *kwargs])
            held = args if isinstance(where, int) else kwargs
            if isinstance(held[where], torch.Tensor) and draw.random() < 0.8:
                held[where] = draw.choice(OF_TENSORS)(held[where])
            else:
                held[where] = draw.choice(VALUES)
            with self.subTest(seed=SEED, case=case, function=getattr(function, "__name__", "?"), where=where):
                try:
                    function(*args, **kwargs)
                except ALLOWED as error:
                    refused += 1
                    self.assertTrue(str(error))
        self.assertGreater(refused, CASES // 3)


if __name__ == "__main__":
    unittest.main()

"""weft.flashinfer.sampling: what filters keep, by definition; draws follow the probabilities; seeds, refusals."""
import itertools
import math
import unittest

import torch

import weft
import weft.flashinfer as fi
from support import SEED
from test_flashinfer_functions import FlashInferTestCase, ints

torch.manual_seed(SEED)


def distributions(rows, vocab):
    """Peaked and flat rows, and rows with many ties."""
    probs = torch.softmax(torch.randn(rows, vocab) * torch.logspace(-1, 1, rows)[:, None], 1)
    probs[0] = torch.randint(1, 4, (vocab,)).float()
    return probs / probs.sum(1, keepdim=True)


def kept(probs, top_k=None, top_p=None, min_p=None):
    """By definition: count, mass or multiple of what lies strictly above."""
    keep = torch.ones(probs.shape, dtype=torch.bool)
    for row, p in enumerate(probs.double()):
        above = p[None] > p[:, None]
        if top_k is not None:
            keep[row] &= above.sum(1) < top_k
        if top_p is not None:
            keep[row] &= (above * p).sum(1) < top_p - 1e-12
        if min_p is not None:
            keep[row] &= p >= min_p * p.max()
    return keep


class Filters(FlashInferTestCase):
    def test_what_is_kept(self):
        for rows, vocab in ((1, 7), (5, 111), (6, 300)):
            probs = distributions(rows, vocab)
            for k in (1, 3, vocab - 1, vocab, 10 * vocab):
                keep = kept(probs, top_k=k)
                made = fi.top_k_renorm_probs(probs, k)
                self.assertTrue(torch.equal(made > 0, keep), (vocab, k))
                self.assert_close(made, probs * keep / (probs * keep).sum(1, keepdim=True))
                self.assertTrue(torch.equal(fi.top_k_mask_logits(probs.log(), k) > -math.inf, keep))
                self.assertEqual(fi.top_k_renorm_probs(probs.bfloat16(), k).dtype, torch.bfloat16)
            for p in (0.0, 0.1, 0.5, 0.9):
                made = fi.top_p_renorm_probs(probs, p)
                keep = kept(probs, top_p=p) | (probs == probs.amax(1, keepdim=True))
                self.assertTrue(torch.equal(made > 0, keep), (vocab, p))
                self.assert_close(made, probs * keep / (probs * keep).sum(1, keepdim=True))

    def test_long_rows(self):
        """Rows whose first 1,024 tokens hold less than top_p, and rows whose do."""
        probs = torch.softmax(torch.randn(4, 5000) * torch.tensor([0.1, 1, 4, 8])[:, None], 1)
        for p in (0.3, 0.95):
            made = fi.top_p_renorm_probs(probs, torch.tensor([p, p, 0.2, p]))
            for row, share in enumerate((p, p, 0.2, p)):
                values = probs[row].sort(descending=True).values.double()
                count = int((values.cumsum(0) - values < share).sum())
                self.assertLessEqual(abs(int((made[row] > 0).sum()) - count), 1)

    def test_flat_rows(self):
        """Rows of which top_p takes far more than 1,024 tokens, with ties and without."""
        probs = torch.softmax(torch.randn(4, 9000) * torch.tensor([0, 0.01, 0.5, 1])[:, None], 1)
        probs[1, :4000] = probs[1, 0]
        probs /= probs.sum(1, keepdim=True)
        for p in (0.3, 0.9, 0.9999):
            made = fi.top_p_renorm_probs(probs, p)
            for row, x in enumerate(probs.double()):
                values = x.sort(descending=True).values
                first = torch.searchsorted(-values, -x)  # how many are strictly above
                above = torch.nn.functional.pad(values.cumsum(0), (1, 0))[first]
                sure = (above - p).abs() > 1e-9
                self.assertTrue(torch.equal((made[row] > 0)[sure], (above < p)[sure]), (p, row))

    def test_values_a_row(self):
        probs = distributions(3, 50)
        made = fi.top_k_renorm_probs(probs, ints(1, 50, 7))
        for row, k in enumerate((1, 50, 7)):
            self.assertTrue(torch.equal(made[row] > 0, kept(probs[row:row + 1], top_k=k)[0]))

    def test_softmax(self):
        logits = torch.randn(3, 40).half()
        self.assert_close(fi.softmax(logits), torch.softmax(logits.double(), 1))
        temperature = torch.tensor([0.5, 1.0, 3.0])
        self.assert_close(fi.softmax(logits, temperature), torch.softmax(logits.double() / temperature[:, None], 1))
        self.assert_invalid("temperature = 0", fi.softmax, logits, 0.0)


class Draws(FlashInferTestCase):
    COUNT = 40000

    def check_frequencies(self, ids, probs):
        """Within six deviations, token by token."""
        count = torch.bincount(ids.long(), minlength=len(probs)).double() / ids.numel()
        bound = 6 * torch.sqrt(probs.double() * (1 - probs.double()) / ids.numel()) + 1e-9
        self.assertTrue(((count - probs.double()).abs() <= bound).all(), (count, probs))

    def test_draws_follow_the_probabilities(self):
        probs = distributions(3, 20)
        probs[1, 5:9] = 0
        probs[1] /= probs[1].sum()
        rows = torch.arange(3, dtype=torch.int32).repeat_interleave(self.COUNT)
        top_k, top_p, min_p = ints(1, 4, 20), torch.tensor([0.9, 0.2, 0.6]), torch.tensor([0.1, 0.9, 0.5])
        k_weights = torch.stack([p * m for p, m in zip(probs, (kept(probs[i:i + 1], top_k=int(k))[0]
                                                               for i, k in enumerate(top_k)))])
        k_probs = k_weights / k_weights.sum(1, keepdim=True)
        cases = {
            "sampling_from_probs": ((), probs),
            "top_k_sampling_from_probs": ((top_k,), k_weights),
            "top_p_sampling_from_probs": ((top_p,), fi.top_p_renorm_probs(probs, top_p)),
            "min_p_sampling_from_probs": ((min_p,), torch.stack([
                p * kept(probs[i:i + 1], min_p=float(m))[0] for i, (p, m) in enumerate(zip(probs, min_p))])),
            "top_k_top_p_sampling_from_probs": ((top_k, top_p), fi.top_p_renorm_probs(k_probs, top_p)),
        }
        for (name, (values, weights)), seeded in itertools.product(cases.items(), (False, True)):
            options = dict(seed=5, offset=9) if seeded else dict(generator=torch.Generator().manual_seed(3))
            ids, valid = getattr(fi, name)(probs, *values, indices=rows, return_valid=True, **options)
            self.assertEqual(ids.dtype, torch.int32)
            self.assertTrue(valid.all())
            for row in range(3):
                self.check_frequencies(ids[row * self.COUNT:(row + 1) * self.COUNT],
                                       weights[row] / weights[row].sum())
        joint = fi.top_k_top_p_sampling_from_probs(probs, top_k, top_p, rows, "joint", seed=1, offset=2)
        for row in range(3):
            allowed = kept(probs[row:row + 1], int(top_k[row]), float(top_p[row]))[0] | (probs[row] == probs[row].max())
            self.assertTrue(allowed[joint[row * self.COUNT:(row + 1) * self.COUNT].long()].all())

    def test_logits(self):
        logits = torch.randn(200, 50) * 3
        probs = torch.softmax(logits, 1)
        for order in ("joint", "top_k_first"):
            a = fi.top_k_top_p_sampling_from_logits(logits, 7, 0.6, filter_apply_order=order, seed=3, offset=0)
            b = fi.top_k_top_p_sampling_from_probs(probs, 7, 0.6, filter_apply_order=order, seed=3, offset=0)
            self.assertGreaterEqual(int((a == b).sum()), 190 if order == "top_k_first" else 200)
        self.assertTrue(torch.equal(fi.sampling_from_logits(logits, seed=3, offset=0),
                                    fi.sampling_from_probs(probs, seed=3, offset=0)))

    def test_generators_and_seeds(self):
        probs = distributions(8, 1000)
        draw = fi.sampling_from_probs
        first, second = (torch.Generator().manual_seed(1) for _ in range(2))
        a, b = draw(probs, generator=first), draw(probs, generator=first)
        self.assertFalse(torch.equal(a, b))
        self.assertTrue(torch.equal(a, draw(probs, generator=second)))
        a = draw(probs, seed=1, offset=4)
        self.assertTrue(torch.equal(a, draw(probs, seed=1, offset=4)))
        self.assertFalse(torch.equal(a, draw(probs, seed=1, offset=5)))
        self.assertFalse(torch.equal(a, draw(probs, seed=2, offset=4)))
        many = [torch.tensor([x]) for x in (1, 4)]
        self.assertTrue(torch.equal(a, draw(probs, seed=many[0], offset=many[1])))
        self.assertTrue(torch.equal(a, draw(probs, seed=many[0].repeat(8), offset=many[1].repeat(8))))
        ids = torch.arange(8)
        self.assertEqual(draw(probs, indices=ids).dtype, torch.int64)

    def test_rows_without_mass(self):
        probs = torch.tensor([[0.0, 0, 0], [0.2, math.nan, 0.3], [0, 1, 0]])
        for call in (fi.sampling_from_probs, lambda p, **more: fi.top_p_sampling_from_probs(p, 0.5, **more),
                     lambda p, **more: fi.top_k_sampling_from_probs(p, 2, **more)):
            ids, valid = call(probs, return_valid=True)
            self.assertEqual((ids.tolist(), valid.tolist()), ([0, 0, 1], [False, False, True]))
            self.assert_invalid("Input probs contains NaN", call, probs, check_nan=True)

    def test_rows_by_themselves(self):
        """A row's token depends on its own probabilities, filters and bits: alone or in a batch, in any order."""
        probs = distributions(6, 3000)
        top_k, top_p = ints(1, 40, 3000, 7, 0, 900), torch.tensor([0.9, 0.5, 0.3, 1.0, 0.8, 0.99])
        bits = torch.empty(6, dtype=torch.int64).random_(-2**63, None)
        for order in ("joint", "top_k_first"):
            def draw(of, at):
                ids = torch.empty(len(at), dtype=torch.int32)
                weft.sample_probabilities(probs[of], bits[at], ids, top_k=top_k[of], top_p=top_p[of],
                                          filter_order=getattr(weft.FilterOrder, order))
                return ids.tolist()

            ids = torch.empty(6, dtype=torch.int32)
            rows = ints(5, 3, 1, 0, 2, 4)
            weft.sample_probabilities(probs, bits, ids, top_k, top_p, rows=rows,
                                      filter_order=getattr(weft.FilterOrder, order))
            self.assertEqual(ids.tolist(), draw(rows, torch.arange(6)))
            self.assertEqual(ids.tolist(), [draw(rows[i:i + 1], torch.tensor([i]))[0] for i in range(6)])
        self.assert_refused("invalid_dtype", "bits", weft.sample_probabilities, probs, bits.int(), ids)
        self.assert_refused("invalid_argument", "ids", weft.sample_probabilities, probs, bits, bits.view(torch.int32)[:6])

    def test_refusals(self):
        probs = distributions(3, 10)
        call = fi.top_p_sampling_from_probs
        self.assert_invalid("Expected a 1D tensor", call, probs, torch.ones(3, 1))
        self.assert_invalid("0-dimensional tensor", call, probs, torch.tensor(0.5))
        self.assert_invalid("Sampling parameter tensor batch size mismatch", call, probs, torch.ones(2))
        for bound in (math.nan, torch.tensor([0.5, math.nan, 1])):
            for of_bound, name in ((call, "top_p"), (fi.min_p_sampling_from_probs, "min_p")):
                self.assert_invalid(f"{name}.* (?i:nan)", of_bound, probs, bound)
        for k in (2.5, math.inf):
            self.assert_invalid("give an integer", fi.top_k_sampling_from_probs, probs, k)
        chosen = fi.top_k_sampling_from_probs(probs, 1.0).long()
        self.assertEqual(probs.gather(1, chosen[:, None])[:, 0].tolist(), probs.amax(1).tolist())
        self.assert_invalid("seed and offset", call, probs, 0.5, seed=1)
        self.assert_invalid("seed", call, probs, 0.5, seed=ints(1), offset=ints(1))
        self.assert_invalid("indices: 0 to 3", call, probs, 0.5, indices=ints(0, 3))
        self.assert_invalid("filter_apply_order = 'top_p_first'", fi.top_k_top_p_sampling_from_probs, probs, 1, 0.5,
                            filter_apply_order="top_p_first")


class Chains(FlashInferTestCase):
    def test_equal_distributions_accept_all(self):
        probs = distributions(6, 40)[None].repeat(5, 1, 1)
        tokens = torch.randint(0, 40, (5, 5), dtype=torch.int32)
        accepted, emitted = torch.full((5,), 2, dtype=torch.int32), torch.full((5,), 3, dtype=torch.int32)
        ids, a, e = fi.chain_speculative_sampling(probs[:, :5], tokens, probs, accepted, emitted)
        self.assertTrue(torch.equal(ids[:, :5], tokens) and (ids[:, 5] >= 0).all())
        self.assertIs(a, accepted)
        self.assertEqual((a.tolist(), e.tolist()), ([7] * 5, [8] * 5))

    def test_the_first_token_follows_the_target(self):
        """Speculative sampling's promise: whatever drafts are, what comes out is the target's (Leviathan et al.)."""
        draft, target = (torch.softmax(torch.randn(1, 1, 8), 2) for _ in range(2))
        count = 40000
        tokens = fi.sampling_from_probs(draft[0], torch.zeros(count, dtype=torch.int32), seed=1, offset=0)[:, None]
        both = torch.cat([target, torch.softmax(torch.randn(1, 1, 8), 2)], 1)
        ids, accepted, emitted = fi.chain_speculative_sampling(draft.expand(count, -1, -1), tokens,
                                                               both.expand(count, -1, -1), seed=2, offset=0)
        Draws.check_frequencies(self, ids[:, 0], target[0, 0])
        Draws.check_frequencies(self, ids[:, 1][ids[:, 1] >= 0], both[0, 1])
        self.assertTrue(torch.equal(emitted, (ids[:, 1] >= 0).int()) and torch.equal(accepted, emitted))

    def test_refusals(self):
        probs = distributions(6, 40)[None]
        tokens = torch.zeros(1, 5, dtype=torch.int32)
        self.assert_invalid("target_probs", fi.chain_speculative_sampling, probs[:, :5], tokens, probs[:, :5])
        self.assert_invalid("draft_token_ids: 40", fi.chain_speculative_sampling, probs[:, :5], tokens + 40, probs)


if __name__ == "__main__":
    unittest.main()

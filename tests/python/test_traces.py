"""Variants and block lists of Python functions, against the same functions over numpy's arrays."""
import functools
import math
import sys
import time
import types
import unittest

import numpy as np

import weft
from support import SEED, Batch, TestCase
from weft.variants import show, trace

SPEC = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32)
LENGTHS = [(5, 37), (1, 61), (20, 20)]
HEADS, LONGEST = 4, 61
random = np.random.default_rng(SEED)

cap, window, near, prefix_len, heads = 5.0, 8, 2, 6, HEADS
documents = np.sort(random.integers(0, 4, (len(LENGTHS), LONGEST))).astype(np.int32)
prefixes = np.array([3, 0, 9], np.int64)
bias = random.standard_normal((HEADS, LONGEST, LONGEST)).astype(np.float32)
shown = random.integers(0, 2, (LONGEST, LONGEST)).astype(bool)


def soft_cap(score, b, h, q_idx, kv_idx):
    return cap * np.tanh(score / cap)


def alibi(score, b, h, q_idx, kv_idx):
    slope = 2.0 ** (-8 * (h + 1) / heads)
    return score + (kv_idx - q_idx) * slope


def add_bias(score, b, h, q_idx, kv_idx):
    return score + bias[h, q_idx, kv_idx]


def gate(score, b, h, q_idx, kv_idx):
    return 1 / (1 + np.exp(-(score - 0.5)))


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & (q_idx - kv_idx <= window)


def same_document(b, h, q_idx, kv_idx):
    return (documents[b, q_idx] == documents[b, kv_idx]) & (kv_idx <= q_idx)


def prefix_lm(b, h, q_idx, kv_idx):
    return (kv_idx < prefix_len) | (q_idx >= kv_idx)


def own_prefix(b, h, q_idx, kv_idx):
    return np.logical_or(kv_idx < prefixes[b], causal(b, h, q_idx, kv_idx))


def dilated(b, h, q_idx, kv_idx):
    return ((q_idx - kv_idx) % 3 == 0) | ((kv_idx - q_idx) // 4 == -1) | (kv_idx == h)


def table(b, h, q_idx, kv_idx):
    return shown[q_idx, kv_idx]


def expected(batch, score_mod=None, mask_mod=None, use_softmax=True):
    """(o, lse) in fp64, the functions being called with whole arrays."""
    outs, lses = [], []
    for b, (qo_len, kv_len) in enumerate(batch.lengths):
        q = batch.q[batch.qo_indptr[b]:batch.qo_indptr[b + 1]].astype(np.float64)
        group = batch.heads // batch.kv_heads
        k, v = (np.repeat(x[b], group, 1).astype(np.float64) for x in (batch.k, batch.v))
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[2])
        where = (b, np.arange(batch.heads)[:, None, None], np.arange(kv_len - qo_len, kv_len)[None, :, None],
                 np.arange(kv_len)[None, None])
        if score_mod:
            scores = np.broadcast_to(score_mod(scores, *where), scores.shape)
        seen = np.broadcast_to(True if mask_mod is None else mask_mod(*where), scores.shape) & (scores > -np.inf)
        weights = np.where(seen, np.exp(np.where(seen, scores, 0)) if use_softmax else scores, 0)
        total = weights.sum(-1) if use_softmax else np.ones(weights.shape[:2])
        with np.errstate(divide="ignore", invalid="ignore"):
            o = np.where(total[..., None] > 0, np.einsum("hij,jhd->hid", weights, v) / total[..., None], 0)
            lses.append(np.log(total).T)
        outs.append(o.transpose(1, 0, 2))
    return np.concatenate(outs), np.concatenate(lses)


class Results(TestCase):
    def check(self, score_mod=None, mask_mod=None, **options):
        batch = Batch(LENGTHS, heads=HEADS)
        variant = trace(score_mod, mask_mod, **options)
        variant.check(batch=3, num_qo_heads=HEADS, qo_len=20, kv_len=LONGEST)
        use_softmax = options.get("use_softmax", True)
        want, want_lse = expected(batch, score_mod, mask_mod, use_softmax)
        ragged = [np.concatenate(x) for x in (batch.k, batch.v)]
        lists = weft.blocks_from_page_table(batch.pages(), batch.qo_indptr)
        clean = [np.nan_to_num(x) for x in (batch.k_pages, batch.v_pages)]
        for form, cache, lengths in (
                ("ragged", tuple(ragged), {"kv_indptr": batch.kv_indptr, "pages": None}),
                ("paged", (batch.k_pages, batch.v_pages), {}),
                ("block_sparse", tuple(clean), {"pages": None, "blocks": lists})):
            kernel = weft.build(SPEC.replace(kv_form=getattr(weft.KvForm, form), variant=variant))
            plan = kernel.plan(batch.plan_input(**lengths))
            if use_softmax:
                o, lse = kernel.run(plan, batch.q, cache, return_lse=True, tensors=variant.captured)
                self.assert_close(lse, want_lse)
            else:
                o = kernel.run(plan, batch.q, cache, tensors=variant.captured)
            self.assert_close(o, want)
        return variant

    def test_scores(self):
        self.assertIn("p.cap * weft::tanh(s / p.cap)", self.check(soft_cap).text)
        self.check(alibi)
        self.check(gate, use_softmax=False)

    def test_arrays(self):
        variant = self.check(add_bias, same_document)
        self.assertEqual(list(variant.captured), ["bias", "documents"])
        self.assertIs(variant.captured["bias"], bias)
        self.assertEqual(len(variant.intervals), 1)
        self.check(None, table)

    def test_masks_that_are_intervals_need_no_text(self):
        self.assertEqual(self.check(None, causal).intervals, weft.variants.causal().intervals)
        for mask in (causal, sliding, prefix_lm):
            variant = self.check(None, mask)
            self.assertEqual((variant.name, variant.text), ("", ""))

    def test_masks_that_are_not(self):
        self.assertIn("logits_mask", self.check(None, own_prefix).text)
        self.check(lambda score, b, h, q_idx, kv_idx: np.where(kv_idx == q_idx - 3, -np.inf, score), dilated)

    def test_plan_takes_other_numbers(self):
        batch = Batch([(20, 20)])
        kernel = weft.build(SPEC.replace(variant=trace(soft_cap, sliding)))
        plan = kernel.plan(batch.plan_input(scalars={"window": 2}))
        o = kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages), scalars={"cap": 1.0})
        self.assert_close(o, batch.reference(causal=True, window_left=2, cap=1.0)[0])
        long = Batch([(2000, 2000)]).plan_input()
        self.assertLess(kernel.plan(long).makespan, 0.2 * weft.build(SPEC).plan(long).makespan)

    def test_index_of_the_query(self):
        batch = Batch([(3, 9)])
        variant = trace(None, causal, q_idx="index")
        o = weft.attend(SPEC.replace(kv_form=weft.KvForm.ragged, variant=variant), batch.q, batch.k[0], batch.v[0])
        want, _ = expected(batch, None, lambda b, h, q, kv: q - 6 >= kv)
        self.assert_close(o, want)
        self.assertEqual(variant.intervals, ())
        self.assert_refused("invalid_argument", "'index'", trace, None, causal, q_idx="rows")

    def test_cost(self):
        trace(soft_cap)  # loads what traces
        begin = time.perf_counter()
        for _ in range(10):
            trace(soft_cap, same_document)
        self.assertLess((time.perf_counter() - begin) / 10, 0.02)  # 5 ms, on a machine that others use, too


class Text(TestCase):
    def test_show(self):
        self.assertEqual(show(soft_cap), """\
// real cap = 5.0
struct SoftCap {
  real logits_transform(P p, Score, real s) { return p.cap * weft::tanh(s / p.cap); }
};
""")
        self.assertEqual(weft.show(sliding), "// integer window = 8\n// keys [q_pos - window, q_pos + 1)\n")
        self.assertEqual(show(weft.variants.alibi()).splitlines()[0], "// fp32 slopes of rank 1")
        both = show(trace(None, lambda b, h, q, kv: (kv < 3) | (q - kv < near)))
        self.assertEqual(both, "// integer near = 2\n// keys [0, 3)\n// keys [q_pos - near + 1, kv_len)\n")

    def test_equal_parts_are_computed_once(self):
        def deep(score, b, h, q, kv):
            for _ in range(40):
                score = score * score + 1
            return score

        self.assertLess(len(show(deep)), 4000)

    def test_integers_that_may_be_negative(self):
        text = show(dilated)
        self.assertIn("const int x0 = c.q_pos - c.kv_pos;", text)
        self.assertIn("weft::select(x0 < 0, 2 - ", text.replace("3 - 1", "2"))
        self.assertIn("c.kv_pos / 4", show(lambda b, h, q, kv: kv // 4 == h))
        self.assertIn(f"p.bias({HEADS - 1}, 0, {LONGEST - 2})", show(lambda s, b, h, q, kv: s + bias[-1, 0, -2]))
        self.assertIn("p.bias(c.qo_head, 0, weft::max(c.q_pos - c.kv_pos, 0))",
                      show(lambda s, b, h, q, kv: s + bias[h][0, q - kv]))

    def test_names(self):
        def make(real, _x, x):
            return lambda score, b, h, q, kv: score * real + _x * h + x

        variant = trace(make(2.0, 3.0, 4.0))
        self.assertEqual([(x.name, x.default_value) for x in variant.scalars],
                         [("real_1", 2.0), ("x", 3.0), ("x_1", 4.0)])
        self.assertEqual(variant.name, "Traced")
        self.assertEqual(trace(soft_cap, name="Own").name, "Own")
        both = trace(None, lambda b, h, q, kv: functools.partial(self.within, 2)(q, kv) & self.within(3, q, kv))
        self.assertEqual([(x.lower[0].constant, x.upper[0].constant) for x in both.intervals], [(-2, 1)])

    @staticmethod
    def within(n, q, kv):
        return (kv <= q) & (q - kv <= n)

    def test_functions_may_call_each_other_and_keep_numbers(self):
        def window_of(size):
            return lambda b, h, q, kv: q - kv < size

        def all_of(*masks):
            def mask(b, h, q, kv):
                seen = b.new_ones((), dtype=bool)
                for one in masks:
                    seen = seen & one(b, h, q, kv)
                return seen
            return mask

        variant = trace(None, all_of(causal, window_of(4), window_of(9)))
        self.assertEqual([x.name for x in variant.scalars], ["size", "size_1"])
        self.assertEqual(weft.show(variant).splitlines()[-1],
                         "// keys [max(q_pos - size + 1, q_pos - size_1 + 1), q_pos + 1)")

        class Masks:
            size = 7

            def __call__(self, b, h, q, kv):
                return kv > q - self.size

        self.assertEqual(trace(None, Masks()).intervals[0].lower[0].constant, -6)

    def test_numbers_that_bounds_cannot_name(self):
        off, half = -1, 0.5
        variant = trace(None, lambda b, h, q, kv: (kv <= q + off) & (kv >= 2 * window - 20) & (kv * half < q))
        self.assertEqual([x.name for x in variant.scalars], ["half"])
        self.assertEqual(variant.intervals, (weft.Interval(lower=[weft.Bound(constant=-4)],
                                                           upper=[weft.Bound(q_pos=True, constant=0)]),))
        self.assertIn("real(c.kv_pos) * p.half < real(c.q_pos)", variant.text)
        endless = math.inf
        variant = trace(None, lambda b, h, q, kv: (kv <= q) & (q - kv < endless) & (kv - q < math.inf))
        self.assertEqual(variant.intervals, (weft.Interval(upper=[weft.Bound(q_pos=True, constant=1)]),))
        self.assertIn("real(c.q_pos - c.kv_pos) < p.endless", variant.text)


class Intervals(TestCase):
    """What is said by intervals and predicates together is what the function says."""

    ATOMS = (lambda q, kv, n: kv <= q + n, lambda q, kv, n: q - kv < n, lambda q, kv, n: kv < n,
             lambda q, kv, n: abs(q - kv) <= n, lambda q, kv, n: abs(kv - q) > n, lambda q, kv, n: kv == q - n,
             lambda q, kv, n: kv != q, lambda q, kv, n: n >= abs(q - 2 * kv), lambda q, kv, n: 3 - kv <= -(n - q) + q,
             lambda q, kv, n: documents[0, kv] == documents[0, q], lambda q, kv, n: (kv + q) % 3 == 1,
             lambda q, kv, n: kv * -2 + kv < n - q, lambda q, kv, n: 2 * kv <= q)

    def mask_of(self, draw):
        def build(depth):
            kind = draw.integers(0, 5) if depth else 4
            if kind < 2:
                parts = [build(depth - 1), build(depth - 1)]
                return lambda q, kv: parts[0](q, kv) & parts[1](q, kv)
            if kind == 2:
                parts = [build(depth - 1), build(depth - 1)]
                return lambda q, kv: parts[0](q, kv) | parts[1](q, kv)
            if kind == 3:
                part = build(depth - 1)
                return lambda q, kv: ~part(q, kv)
            atom, number = self.ATOMS[draw.integers(0, len(self.ATOMS))], int(draw.integers(-3, 12))
            return lambda q, kv: atom(q, kv, number)

        part = build(draw.integers(1, 4))
        return lambda b, h, q, kv: part(q, kv)

    def test_random_masks(self):
        from weft._tracing import bounds
        from weft._tracing.evaluate import Evaluation
        from weft._tracing.trace import Functions

        draw, with_intervals = np.random.default_rng(SEED), 0
        q, kv = np.arange(9, 30, dtype=np.int32)[:, None], np.arange(30, dtype=np.int32)[None]
        for case in range(400):
            mask = self.mask_of(draw)
            want = np.broadcast_to(mask(0, 0, q, kv), (21, 30))
            made = Functions(None, mask, "position")
            parts, left = bounds.split(made.mask)
            bounds.prepare(parts)
            seen = np.ones((21, 30), bool)
            intervals = bounds.intervals_of(parts)
            with_intervals += len(intervals) > 0
            self.assertLessEqual(len(intervals), 2)
            if intervals:
                seen &= False
                for interval in intervals:
                    at = lambda bound: bound.constant + q * bound.q_pos + (  # noqa: E731
                        0 if not bound.scalar else bound.scalar_sign * next(
                            x.value for x in made.graph.parameters if x.name == bound.scalar))
                    seen |= functools.reduce(np.logical_and, [kv >= at(x) for x in interval.lower] +
                                             [kv < at(x) for x in interval.upper], np.ones((21, 30), bool))
            self.assertTrue((seen | ~want).all(), f"case {case}: intervals hide what is seen")
            for term in left:
                seen = seen & Evaluation(term)({"b": 0, "h": 0, "q_idx": q, "kv_idx": kv})
            self.assertTrue((seen == want).all(), f"case {case}")
        self.assertGreater(with_intervals, 100)


class Refusals(TestCase):
    def refused(self, says, f, code="unsupported", is_mask=False):
        self.assert_refused(code, says, trace, *((None, f) if is_mask else (f,)))

    def test_each_names_its_line(self):
        def branches(score, b, h, q, kv):
            if q > kv:
                return score
            return 0.0

        line = branches.__code__.co_firstlineno + 1
        self.refused(f"test_traces.py:{line}: a branch on what only kernels know in `if q > kv:`; write torch.where",
                     branches)
        self.refused(f"test_traces.py:{line}:", lambda score, b, h, q, kv: branches(score, b, h, q, kv))

    def test_what_cannot_be_said(self):
        wide, letters, holder = np.zeros((2, 2, 2, 2, 2), np.float32), [1, 2], types.SimpleNamespace(bias=bias)
        for says, f in (
                ("a branch", lambda s, b, h, q, kv: s if 0 < q < kv else s),
                ("a branch", lambda s, b, h, q, kv: min(s, 0)),
                ("a number is wanted", lambda s, b, h, q, kv: math.tanh(s)),
                ("torch's or numpy's functions instead of math's", lambda s, b, h, q, kv: math.exp(s)),
                ("index arrays, not lists", lambda s, b, h, q, kv: letters[h]),
                ("(bias = self.bias outside of it)", lambda s, b, h, q, kv: s + holder.bias[h, q, kv]),
                ("test_traces.py:", lambda s, b, h, q, kv: np.max([s, 1.0])),
                ("a loop over what only kernels know", lambda s, b, h, q, kv: sum(x for x in bias[h])),
                ("bias has 3 axes, of which 1 are indexed", lambda s, b, h, q, kv: s + bias[h]),
                ("bias has 3 axes and is indexed by more", lambda s, b, h, q, kv: bias[h, q, kv, 0]),
                ("indexed by None, ... or a slice", lambda s, b, h, q, kv: s + bias[h, :, kv]),
                ("bias is indexed by a real number", lambda s, b, h, q, kv: s + bias[h, q * 0.5, kv]),
                ("index 4 of axis 0 of bias, which has 4 elements", lambda s, b, h, q, kv: s + bias[4, q, kv]),
                ("a captured array or a stand-in is written to",
                 lambda s, b, h, q, kv: bias.__setitem__((h, q, kv), s)),
                ("wide, a captured array, has 5 axes", lambda s, b, h, q, kv: s + wide[b, h, 0, 0, 0]),
                ("the function cumsum", lambda s, b, h, q, kv: np.cumsum(s)),
                ("numpy.add.reduce", lambda s, b, h, q, kv: np.add.reduce(s)),
                ("the function arctan2", lambda s, b, h, q, kv: np.arctan2(s, 1)),
                ("item of a stand-in", lambda s, b, h, q, kv: s.item()),
                ("a whole array of shape (3,)", lambda s, b, h, q, kv: s + np.ones(3, np.float32)),
                ("str is no number", lambda s, b, h, q, kv: s + "1"), ("a NaN", lambda s, b, h, q, kv: s + np.nan),
                ("// of real numbers", lambda s, b, h, q, kv: s // 2), ("% by -3", lambda s, b, h, q, kv: s + q % -3),
                ("the divisor of % is known only to kernels", lambda s, b, h, q, kv: s + q % (kv + 1)),
                ("a power of 2.7", lambda s, b, h, q, kv: s ** 2.7),
                ("a power of the base -2", lambda s, b, h, q, kv: (-2) ** s),
                ("the integer 4294967296 has more than 32 bits", lambda s, b, h, q, kv: s + q * 2**32),
                ("a conversion to float16", lambda s, b, h, q, kv: s.to(np.float16)),
                ("~ of a real number", lambda s, b, h, q, kv: ~s), ("bits of a real", lambda s, b, h, q, kv: s & 1),
                ("an array of shape (2,)", lambda s, b, h, q, kv: s + b.new_ones((2,))),
                ("tanh is called with other arguments", lambda s, b, h, q, kv: s.tanh(1, 2)),
                ("score_mod returns nothing", lambda s, b, h, q, kv: None),
                ("score_mod returns a condition", lambda s, b, h, q, kv: q > kv)):
            with self.subTest(says):
                self.refused(says, f)
        self.refused("mask_mod returns a number", lambda b, h, q, kv: q - kv, is_mask=True)
        self.assert_refused("invalid_argument", "both are None", trace)

    def test_arrays(self):
        halves, columns = bias.astype(np.float16), bias[0].T
        self.refused("halves, a captured array, is float16", lambda s, b, h, q, kv: s + halves[h, q, kv],
                     "invalid_dtype")
        self.refused("columns, a captured array, has a last axis whose elements are 61 apart",
                     lambda s, b, h, q, kv: s + columns[q, kv], "invalid_stride")
        unused = columns
        trace(lambda s, b, h, q, kv: s * (1 if unused is None else 2))

    def test_types_and_exceptions(self):
        with self.assertRaisesRegex(TypeError, r"score_mod\(score, b, h, q_idx, kv_idx\)"):
            trace(causal)
        with self.assertRaisesRegex(TypeError, "mask_mod: int is no function"):
            trace(None, 3)
        with self.assertRaisesRegex(TypeError, "add"):
            trace(np.add)  # inspect finds no signature
        kept = []
        trace(None, lambda b, h, q, kv: kept.append(q) or (q >= kv))
        self.refused("a stand-in of another trace", lambda s, b, h, q, kv: s + kept[0])
        with self.assertRaisesRegex(ZeroDivisionError, "own"):
            trace(None, lambda b, h, q, kv: (_ for _ in ()).throw(ZeroDivisionError("own")))

    def test_functions_too_deep_for_python(self):
        def sums(score, b, h, q, kv):
            for _ in range(sys.getrecursionlimit()):
                score = score + 0.5
            return score

        self.refused("operations stand inside one another", sums)

    def test_arrays_that_are_too_small(self):
        variant = trace(add_bias)
        variant.check(batch=9, num_qo_heads=4, qo_len=61, kv_len=61)
        for says, lengths in (("its axis 1 is read up to 61", {"kv_len": 62}),
                              ("axis 0 is read up to 7", {"num_qo_heads": 8})):
            self.assert_refused("invalid_shape", says, variant.check,
                                **{"batch": 1, "num_qo_heads": 4, "qo_len": 5, "kv_len": 61, **lengths})
        ids = np.array([0, 7, 2], np.int32)
        through = trace(lambda s, b, h, q, kv: s + bias[ids[kv % 3], 0, np.minimum(abs(q - kv), 60)])
        self.assert_refused("invalid_shape", "axis 0 is read up to 7", through.check, batch=1, num_qo_heads=1,
                            qo_len=99, kv_len=99)


class BlockMask(TestCase):
    def check(self, mask_mod, lengths, block_size, kv_heads=2, given_heads=None, score_mod=None, **options):
        batch = Batch(lengths, heads=HEADS, kv_heads=kv_heads, page_size=block_size[1])
        qo, kv = zip(*lengths)
        blocks = weft.block_mask(mask_mod, len(lengths), given_heads, qo, kv, block_size, pages=batch.pages(),
                                 **options)
        variant = trace(score_mod) if score_mod else weft.Variant()
        kernel = weft.build(SPEC.replace(kv_form=weft.KvForm.block_sparse, variant=variant))
        plan = kernel.plan(batch.plan_input(pages=None, blocks=blocks))
        cache = tuple(np.nan_to_num(x) for x in (batch.k_pages, batch.v_pages))
        o, lse = kernel.run(plan, batch.q, cache, return_lse=True, tensors=variant.captured if score_mod else {})
        want, want_lse = expected(batch, score_mod, mask_mod)
        self.assert_close(o, want)
        self.assert_close(lse, want_lse)
        return blocks

    def test_against_the_mask_itself(self):
        for mask_mod in (causal, sliding, same_document, table, own_prefix):
            with self.subTest(mask_mod.__name__):
                self.check(mask_mod, LENGTHS, (8, 4))
        self.check(same_document, LENGTHS, (4, 16), score_mod=add_bias)
        self.check(dilated, [(9, 9), (3, 30)], (2, 8), kv_heads=4, given_heads=4)
        by_pair = self.check(lambda b, h, q, kv: kv % 2 == h // 2, [(9, 9)], (4, 4), given_heads=4, num_kv_heads=2)
        self.assertEqual(by_pair.block_rows, 4)

    def test_pool_of_its_own(self):
        blocks = weft.block_mask(lambda b, h, q, kv: (kv // 8 == b) & (q >= kv), 2, None, 16, (16, 20), 8)
        self.assertEqual((blocks.block_rows, blocks.block_cols, blocks.num_blocks), (8, 8, 5))
        random = np.random.default_rng(SEED)
        k, v = random.standard_normal((2, 5, 8, 1, 32), dtype=np.float32)
        q = random.standard_normal((32, 1, 32), dtype=np.float32)
        kernel = weft.build(SPEC.replace(kv_form=weft.KvForm.block_sparse))
        plan = kernel.plan(num_qo_heads=1, num_kv_heads=1, qo_indptr=[0, 16, 32], blocks=blocks)
        o = kernel.run(plan, q, (k, v))
        self.assert_close(o[0], v[0, 0])      # the first query of request 0 sees its first key alone
        self.assert_close(o[16 + 4], v[3, 0])  # query 4 of request 1 stands at position 8
        self.assert_close(o[16:20], np.zeros((4, 1, 32)))
        whole = weft.block_mask(lambda b, h, q, kv: kv >= 0, None, None, 4, 8, 4)
        self.assertEqual(whole.num_blocks, 2)

    def test_refusals(self):
        def refused(says, *args, code="invalid_argument", **named):
            self.assert_refused(code, says, weft.block_mask, *args, **named)

        refused("H = None, and mask_mod reads h", lambda b, h, q, kv: kv == h, 1, None, 4, 4)
        refused("query heads 0 and 1 share KV head 0", lambda b, h, q, kv: kv == h, 1, 2, 4, 4, num_kv_heads=1)
        refused("num_kv_heads = 3; allowed are divisors of H", lambda b, h, q, kv: kv == h, 1, 4, 4, 4, num_kv_heads=3)
        refused("B = 0", causal, 0, None, 4, 4)
        refused("Q_LEN = [1, 2, 3]", causal, 2, None, [1, 2, 3], 4)
        refused("BLOCK_SIZE = 0", causal, 1, None, 4, 4, 0)
        refused("axis 0 is read up to 69", table, 1, None, 4, 70, code="invalid_shape")
        pages = Batch([(4, 20)], page_size=4).pages()
        refused("pages: have 4 tokens, and blocks 8 columns", causal, 1, None, 4, 20, 8, pages=pages)
        refused("pages: list [5] pages", causal, 1, None, 4, 16, 4, pages=pages)


if __name__ == "__main__":
    unittest.main()

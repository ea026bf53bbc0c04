"""Any array, seen where it lies: strides, offsets, types, read-only memory, lifetimes; and what is refused."""
import gc
import sys
import unittest
import warnings
import weakref

import numpy as np

import weft
from support import Batch, TestCase

try:
    import ml_dtypes
except ImportError:  # Debian 12 has none
    ml_dtypes = None

SPEC = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.ragged)


class Foreign:
    """An array of another library: DLPack and no more, of version 0 or 1."""

    def __init__(self, array, version=1):
        self.array, self.version, self.calls = array, version, []
        self.view = weft.TensorView(array)

    def __dlpack_device__(self):
        return self.view.__dlpack_device__()

    def __dlpack__(self, **given):
        self.calls.append(given)
        if self.version == 0 and "max_version" in given:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.view.__dlpack__(**given)


class Views(TestCase):
    def setUp(self):
        self.batch = Batch([(6, 11)])
        self.expected = self.batch.reference()[0]

    def attend(self, q=None, k=None, v=None, **more):
        own = self.batch
        return weft.attend(SPEC, own.q if q is None else q, own.k[0] if k is None else k,
                           own.v[0] if v is None else v, **more)

    def test_slices_of_one_array(self):
        packed = np.zeros((11, 8, 40), np.float32)  # q, k and v side by side, heads of 40 of which 32 are used
        packed[:6, :4, 8:], packed[:, 4:6, 8:], packed[:, 6:, 8:] = self.batch.q, self.batch.k[0], self.batch.v[0]
        q, k, v = packed[:6, :4, 8:], packed[:, 4:6, 8:], packed[:, 6:, 8:]
        self.assert_close(self.attend(q, k, v), self.expected)
        out = np.zeros((6, 4, 64), np.float32)[..., 32:]
        self.assertIs(self.attend(q, k, v, out=out), out)
        self.assert_close(out, self.expected)

    def test_rows_that_hold_q_and_out_side_by_side_do_not_meet(self):
        both = np.zeros((6, 2, 4, 32), np.float32)
        both[:, 0] = self.batch.q
        self.assert_close(self.attend(both[:, 0], out=both[:, 1]), self.expected)
        self.assert_close(both[:, 0], self.batch.q, 0)
        self.assert_refused("invalid_argument", "out: shares memory with q", self.attend, both[:, 0], out=both[:, 0])
        wide = np.zeros((7, 4, 32), np.float32)
        self.assert_refused("invalid_argument", "shares memory", self.attend, wide[:6], out=wide[1:])
        lse = self.batch.k[0].reshape(-1)[:24].reshape(6, 4)
        self.assert_refused("invalid_argument", "lse: shares memory with k", self.attend, lse=lse)

    def test_strides_that_no_kernel_reads(self):
        q = self.batch.q
        self.assert_refused("invalid_stride", "stride -128 along axis 0", self.attend, q[::-1])
        self.assert_refused("invalid_stride", "stride 0 along axis 0", self.attend, np.broadcast_to(q[:1], (6, 4, 32)))
        self.assert_refused("invalid_stride", "last axis", self.attend, np.asfortranarray(q))
        odd = np.zeros(q.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(q.shape)
        self.assert_refused("invalid_stride", "aligned", self.attend, odd)
        uneven = np.lib.stride_tricks.as_strided(np.zeros(2000, np.float32), (6, 4, 32), (514, 128, 4))
        self.assert_refused("invalid_stride", "whole elements", self.attend, uneven)

    def test_types_that_weft_does_not_read(self):
        q = self.batch.q
        self.assert_refused("invalid_dtype", "big-endian", self.attend, q.astype(">f4"))
        for dtype in ("complex64", "int16", "uint32", "longdouble", "datetime64[s]"):
            self.assert_refused("invalid_dtype", dtype.replace("longdouble", "float128"), self.attend, q.astype(dtype))
        self.assert_refused("invalid_dtype", "q: is fp64", self.attend, q.astype(np.float64))
        with self.assertRaises(TypeError):
            self.attend(q.tolist())
        with self.assertRaises(TypeError):
            self.attend(np.ndarray)
        self.assert_refused("invalid_dtype", "object", self.attend, np.full((6, 4, 32), None))
        self.assert_refused("invalid_shape", "q:", self.attend, np.zeros((1,) * 9, np.float32))

    def test_masked_arrays(self):
        masked = np.ma.masked_array(self.batch.q, mask=self.batch.q > 0)
        self.assert_refused("invalid_argument", "q: is a masked array", self.attend, masked)
        self.assert_close(self.attend(masked.data), self.expected)

    def test_arrays_without_elements(self):
        # numpy's strides of these are 0.
        self.assertEqual(weft.TensorView(np.zeros((3, 0), np.float32)).shape, (3, 0))

    def test_objects_that_were_never_made(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in (lambda: weft.build(SPEC, weft.Device.__new__(weft.Device)),
                         lambda: self.attend(weft.TensorView.__new__(weft.TensorView))):
                with self.assertRaises(TypeError):
                    call()

    def test_what_dlpack_is_asked(self):
        view = weft.TensorView(self.batch.q)
        for named in ({"copy": "yes"}, {"max_version": "1"}, {"max_version": (1,)}, {"dl_device": "cpu"}):
            with self.assertRaises(TypeError, msg=named):
                view.__dlpack__(**named)
        for named in ({"copy": True}, {"stream": 1}, {"stream": "1"}, {"dl_device": (2, 0)}):
            with self.assertRaises(BufferError, msg=named):
                view.__dlpack__(**named)
        view.__dlpack__(stream=-1, max_version=(1, 0), dl_device=(1, 0), copy=False)

    def test_read_only(self):
        q = self.batch.q.copy()
        q.setflags(write=False)
        self.assert_close(self.attend(q), self.expected)
        out = np.zeros_like(q)
        out.setflags(write=False)
        self.assert_refused("invalid_argument", "out: is read-only", self.attend, out=out)
        self.assert_refused("invalid_argument", "out: is read-only", self.attend, out=weft.TensorView(out))
        self.assertTrue(weft.TensorView(out).read_only)
        with self.assertRaises(BufferError):
            weft.TensorView(out).__dlpack__()
        frozen = Foreign(out)
        self.assert_refused("invalid_argument", "out: is read-only", self.attend, out=frozen)
        self.assertTrue(weft.TensorView(b"1234").read_only)
        # jax's arrays, whose capsules do not say so.
        immutable = type("ArrayImpl", (Foreign,), {"__module__": "jaxlib._jax"})(np.zeros_like(self.batch.q), 0)
        self.assert_refused("invalid_argument", "out: is read-only", self.attend, out=immutable)
        self.assert_close(self.attend(type(immutable)(self.batch.q, 0)), self.expected)
        self.attend(out=Foreign(np.zeros_like(self.batch.q), 0))

    def test_shapes(self):
        self.assert_refused("invalid_shape", "q:", self.attend, self.batch.q[0])
        self.assert_refused("invalid_shape", "k:", self.attend, k=self.batch.k[0][:, :, :16])
        self.assert_refused("invalid_shape", "o:", self.attend, out=np.zeros((5, 4, 32), np.float32))
        self.assert_refused("invalid_dtype", "o:", self.attend, out=np.zeros((6, 4, 32), np.float16))
        self.assert_close(self.attend(self.batch.q[:0]), np.zeros((0, 4, 32)))

    def test_dlpack_of_both_versions(self):
        q = Foreign(self.batch.q, version=1)
        self.assert_close(self.attend(q).numpy(), self.expected)  # no library to make an array of: weft's own
        self.assertEqual([sorted(call) for call in q.calls], [["max_version"]])

        class Old(Foreign):
            pass

        old = Old(self.batch.q, version=0)
        out = np.zeros_like(self.batch.q)
        self.attend(old, out=out)
        self.attend(old, out=out)
        self.assert_close(out, self.expected)
        self.assertEqual([sorted(call) for call in old.calls], [["max_version"], [], []])

    def test_arrays_of_cards_alone_are_told_a_stream(self):
        host = Foreign(self.batch.q)
        with self.assertRaises(weft.Error):  # no stream of a card works on it
            self.attend(host, stream=weft.Stream.cuda(64))
        self.assertEqual([sorted(call) for call in host.calls], [["max_version"]])

        class OfCard:
            def __init__(self):
                self.told = []

            def __dlpack_device__(self):
                return 2, 0

            def __dlpack__(self, *, stream, max_version):
                self.told.append(stream)
                raise BufferError("no memory of a card here")

        card = OfCard()
        for stream in (None, weft.Stream.cuda(), weft.Stream.cuda(64)):  # 1: the legacy default stream
            with self.assertRaisesRegex(BufferError, "no memory of a card here"):
                self.attend(card, stream=stream)
        self.assertEqual(card.told, [1, 1, 64])

    def test_what_dlpack_raises_comes_through(self):
        class Tracer:
            def __dlpack__(self, **given):
                raise RuntimeError("a tracer has no memory")

        with self.assertRaisesRegex(RuntimeError, "a tracer has no memory"):
            self.attend(Tracer())

        class NoCapsule:
            def __dlpack__(self, **given):
                return 3

        with self.assertRaisesRegex(TypeError, "no capsule"):
            self.attend(NoCapsule())


class TensorViews(TestCase):
    def test_round_trips(self):
        x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)[:, 1:]
        view = weft.TensorView(x)
        self.assertEqual((view.shape, view.strides, view.dtype, str(view.device)),
                         ((2, 2, 4), (12, 4, 1), weft.DType.int32, "cpu"))
        self.assertTrue((np.from_dlpack(view) == x).all())
        back = np.asarray(view)
        self.assertTrue((back == x).all())
        back[0, 0, 0] = 99
        self.assertEqual(x[0, 0, 0], 99)
        own = weft.empty([2, 3], weft.DType.fp64)
        self.assertTrue((own.numpy() == 0).all())
        self.assertEqual(memoryview(own).shape, (2, 3))
        self.assert_refused("invalid_shape", "", weft.empty, [-1])
        self.assert_refused("invalid_shape", "64 bits", weft.empty, [2**40, 2**40])
        self.assert_refused("out_of_memory", "", weft.empty, [2**50])

    def test_bytes_under_another_name(self):
        raw = np.arange(16, dtype=np.uint8).reshape(2, 8)
        self.assertEqual(weft.TensorView(raw, weft.DType.int4).shape, (2, 16))
        self.assertEqual(weft.TensorView(raw, weft.DType.fp8_e4m3).shape, (2, 8))
        self.assertEqual(weft.TensorView(raw.view(np.float16), weft.DType.bf16).dtype, weft.DType.bf16)
        self.assert_refused("invalid_dtype", "8 bits", weft.TensorView, raw, weft.DType.fp32)
        self.assert_refused("invalid_stride", "side by side", weft.TensorView, raw[:, ::2], weft.DType.int4)

    def test_quantised_caches(self):
        batch = Batch([(1, 16)] * 2)
        view = batch.pages()
        for dtype, width in ((weft.DType.int8, 32), (weft.DType.int4, 16), (weft.DType.fp8_e4m3, 32)):
            raw = [np.zeros((batch.num_pages, 4, 2, width), np.uint8) for _ in range(2)]
            k, v = (weft.TensorView(x.view(np.int8), dtype) if dtype == weft.DType.int8 else weft.TensorView(x, dtype)
                    for x in raw)
            scales = [np.zeros((batch.num_pages, 4, 2, 1), np.float32) for _ in range(2)]
            cache = weft.KvCache(k, v, *scales)
            weft.append_paged_kv(np.concatenate(batch.k), np.concatenate(batch.v), batch.kv_indptr, view,
                                 weft.Layout.nhd, cache, weft.KvScales.token)
            kernel = weft.build(weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_dtype=dtype,
                                                   kv_scales=weft.KvScales.token))
            o = kernel.run(kernel.plan(batch.plan_input()), batch.q, cache)
            self.assert_close(o, batch.reference()[0], 0.3 if dtype == weft.DType.int4 else 0.05)

    def test_half_types(self):
        batch = Batch([(2, 9)])
        spec = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.ragged, q_dtype=weft.DType.fp16,
                                  kv_dtype=weft.DType.fp16, o_dtype=weft.DType.fp16)
        o = weft.attend(spec, *(x.astype(np.float16) for x in (batch.q, batch.k[0], batch.v[0])))
        self.assertEqual(o.dtype, np.float16)
        self.assert_close(o, batch.reference()[0], 5e-3)

    @unittest.skipUnless(ml_dtypes, "no ml_dtypes here")
    def test_ml_dtypes(self):
        batch = Batch([(2, 9)])
        spec = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.ragged, q_dtype=weft.DType.bf16,
                                  kv_dtype=weft.DType.bf16, o_dtype=weft.DType.bf16)
        arrays = [x.astype(ml_dtypes.bfloat16) for x in (batch.q, batch.k[0], batch.v[0])]
        o = weft.attend(spec, *arrays)
        self.assertEqual(o.dtype, ml_dtypes.bfloat16)
        self.assert_close(o.astype(np.float32), batch.reference()[0], 3e-2)
        self.assertEqual(weft.TensorView(arrays[0]).numpy().dtype, ml_dtypes.bfloat16)
        with self.assertRaisesRegex(weft.Error, "two a byte"):
            weft.TensorView(np.zeros(4, ml_dtypes.int4))


class Lifetimes(TestCase):
    def test_views_keep_their_array(self):
        x = np.arange(1000.0)
        alive = weakref.ref(x)
        view = weft.TensorView(x)
        del x
        gc.collect()
        self.assertIsNotNone(alive())
        array = np.from_dlpack(view)
        del view
        gc.collect()
        self.assertIsNotNone(alive())
        self.assertEqual(array[999], 999)
        del array
        gc.collect()
        self.assertIsNone(alive())

    def test_resized_and_moved_owners(self):
        x = np.zeros(100, np.float32)
        view = weft.TensorView(x)
        x.resize(100000, refcheck=False)
        self.assert_refused("invalid_argument", "changed its size", weft.soft_cap, view, 1.0)
        raw = bytearray(64)
        view = weft.TensorView(raw)
        with self.assertRaises(BufferError):
            raw.extend(b"more")

    def test_capsules_that_nobody_takes(self):
        x = np.zeros(8, np.float32)
        before = sys.getrefcount(x)
        for version in (None, (1, 0)):
            weft.TensorView(x).__dlpack__(max_version=version)
        gc.collect()
        self.assertEqual(sys.getrefcount(x), before)

    def test_reference_counts_stay_even(self):
        batch = Batch([(6, 11)])
        kernel = weft.build(SPEC)
        plan = kernel.plan(num_qo_heads=4, num_kv_heads=2, qo_indptr=batch.qo_indptr, kv_indptr=batch.kv_indptr)
        out = np.zeros_like(batch.q)
        foreign = Foreign(batch.q)
        arrays = [batch.q, batch.k[0], batch.v[0], out, batch.qo_indptr, foreign, foreign.view, plan, kernel]
        before = [sys.getrefcount(x) for x in arrays]
        for _ in range(100):
            foreign.calls.clear()
            kernel.run(plan, foreign, (batch.k[0], batch.v[0]), out=out)
            kernel.run(plan, batch.q, (batch.k[0], batch.v[0]), out=out)
            with self.assertRaises(weft.Error):
                kernel.run(plan, batch.q, (batch.k[0], batch.q), out=out)
            with self.assertRaises(weft.Error):
                kernel.plan(num_qo_heads=4, num_kv_heads=3, qo_indptr=batch.qo_indptr)
        gc.collect()
        self.assertEqual([sys.getrefcount(x) for x in arrays], before)


if __name__ == "__main__":
    unittest.main()

"""jax's arrays: read where they lie, never written; and calls with arrays of three libraries, whose memory stays flat."""
import unittest

import jax
import jax.numpy as jnp
import numpy as np

import weft
from support import TestCase
from test_calls import REPEATS, run

SPEC = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.ragged)
random = np.random.default_rng(3)


def normal(*shape):
    return jnp.asarray(random.standard_normal(shape, dtype=np.float32))


class Arrays(TestCase):
    def test_read_where_they_lie(self):
        x = normal(5, 64)
        self.assertEqual(np.from_dlpack(weft.TensorView(x)).ctypes.data, x.unsafe_buffer_pointer())
        self.assertTrue(weft.TensorView(x).read_only)
        for dtype, name in ((jnp.bfloat16, "bf16"), (jnp.float8_e4m3fn, "fp8_e4m3"), (bool, "uint8")):
            self.assertEqual(weft.TensorView(jnp.ones(4, dtype)).dtype.name, name)

    def test_results(self):
        q, k, v = normal(6, 4, 32), normal(11, 2, 32), normal(11, 2, 32)
        made = weft.attend(SPEC, q, k, v)
        self.assertIsInstance(made, weft.TensorView)
        self.assert_close(jnp.from_dlpack(made), weft.attend(SPEC, *map(np.asarray, (q, k, v))))
        a = weft.sparse.csr(2, 3, jnp.array([0, 1, 2], jnp.int32), jnp.array([0, 2], jnp.int32))
        made = weft.sparse.spmm(a, jnp.array([2.0, 3.0]), jnp.ones((3, 4)))
        self.assertEqual(made.numpy().tolist(), [[2.0] * 4, [3.0] * 4])

    def test_never_written(self):
        x, weight = normal(5, 64), jnp.ones(64)
        before = np.array(x)
        self.assert_refused("invalid_argument", "out: is read-only", weft.rms_norm, x, weight, 1e-5, out=x)
        self.assert_refused("invalid_argument", "is read-only", weft.soft_cap, x, 1.0)
        self.assertTrue((np.asarray(x) == before).all())

    def test_tracers_are_refused(self):
        weight = jnp.ones(64)
        for transform in (jax.jit, jax.vmap, jax.grad):
            with self.assertRaises(jax.errors.ConcretizationTypeError):
                transform(lambda x: weft.rms_norm(x, weight, 1e-5).numpy().sum())(normal(5, 64))


class Memory(TestCase):
    def test_stays_flat(self):
        """REPEATS calls by two threads."""
        ended = run(f"    repeats = {REPEATS}\n" + """
    import jax.numpy as jnp, torch
    kernel = weft.build(weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32))
    batch = Batch([(3, 40)])
    plan = kernel.plan(batch.plan_input())
    arrays = batch.q, batch.k_pages, batch.v_pages
    kinds = arrays, tuple(map(torch.from_numpy, arrays)), tuple(map(jnp.asarray, arrays))
    mixed = kinds[2][0], kinds[1][1], kinds[0][2]
    def refused():
        try:
            kernel.run(plan, kinds[1][0], kinds[0][1:], out=kinds[2][0])
        except weft.Error as error:
            return str(error)
        raise AssertionError("not refused")
    calls = [lambda own=own: kernel.run(plan, own[0], own[1:]) for own in (*kinds, mixed)]
    calls += [refused, lambda: jnp.from_dlpack(kernel.run(plan, kinds[2][0], kinds[2][1:]))]
    assert_memory_stays_flat(calls, [x for own in kinds for x in own], repeats, warm_up=3000)
    """, WEFT_PYTHON_MAY_LEAK="1")
        self.assertEqual(ended.returncode, 0, ended.stderr)


if __name__ == "__main__":
    unittest.main()

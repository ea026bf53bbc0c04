"""torch's tensors in Weft's calls, and Weft's operators in torch: opcheck, torch.compile, gradients."""
import gc
import os
import re
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
import torch

import weft
import weft.torch
from support import ROOT, Batch, TestCase

SPEC = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, mask=weft.Mask.causal)
torch.manual_seed(1)


class Arrays(TestCase):
    def setUp(self):
        self.batch = Batch([(3, 12), (1, 5)])
        self.q, self.k, self.v = (torch.from_numpy(x) for x in (self.batch.q, self.batch.k_pages, self.batch.v_pages))
        self.kernel = weft.build(SPEC)
        self.plan = self.kernel.plan(self.batch.plan_input())
        self.expected = self.batch.reference(causal=True)

    def test_tensors_in_and_out(self):
        o, lse = self.kernel.run(self.plan, self.q, (self.k, self.v), return_lse=True)
        self.assertIsInstance(o, torch.Tensor)
        self.assert_close(o, self.expected[0])
        self.assert_close(lse, self.expected[1])
        out = torch.empty_like(o)
        self.assertIs(self.kernel.run(self.plan, self.q, (self.k, self.v), out=out), out)
        packed = torch.zeros(4, 3, 4, 32)
        packed[:, 1] = self.q
        self.assert_close(self.kernel.run(self.plan, packed[:, 1], (self.k, self.v), out=packed[:, 2]), self.expected[0])
        with self.assertRaisesRegex(weft.Error, "shares memory"):
            self.kernel.run(self.plan, self.q, (self.k, self.v), out=self.q)

    def test_bf16_and_views(self):
        spec = SPEC.replace(q_dtype=weft.DType.bf16, kv_dtype=weft.DType.bf16, o_dtype=weft.DType.bf16)
        kernel = weft.build(spec)
        o = kernel.run(kernel.plan(self.batch.plan_input()), self.q.bfloat16(), (self.k.bfloat16(), self.v.bfloat16()))
        self.assertEqual(o.dtype, torch.bfloat16)
        self.assert_close(o.float(), self.expected[0], 3e-2)
        view = weft.TensorView(self.k.bfloat16())
        self.assertTrue(torch.equal(torch.from_dlpack(view)[0, 0].nan_to_num(), self.k.bfloat16()[0, 0].nan_to_num()))
        self.assertEqual(weft.TensorView(torch.zeros(2, 8, dtype=torch.float8_e4m3fn)).dtype, weft.DType.fp8_e4m3)
        self.assertEqual(torch.from_dlpack(weft.empty([2, 3], weft.DType.int64)).dtype, torch.int64)

    def test_what_torch_or_weft_refuses(self):
        run = self.kernel.run
        with self.assertRaisesRegex(weft.Error, "broadcast"):
            run(self.plan, self.q[:1].expand(4, 4, 32), (self.k, self.v))
        with self.assertRaisesRegex(weft.Error, "big-endian|allowed are"):
            run(self.plan, self.q.to(torch.complex64), (self.k, self.v))
        with self.assertRaisesRegex((BufferError, RuntimeError), "grad"):
            run(self.plan, self.q.clone().requires_grad_(), (self.k, self.v))
        lazy = torch.view_as_complex(torch.stack([self.q, self.q], -1)).conj().imag  # holds q, and says -q
        for negated in (lazy, torch._neg_view(self.q)):
            with self.assertRaisesRegex(weft.Error, r"resolve_neg"):
                run(self.plan, negated, (self.k, self.v))
            torch.testing.assert_close(run(self.plan, negated.resolve_neg().contiguous(), (self.k, self.v)),
                                       run(self.plan, -self.q, (self.k, self.v)))
        with torch._subclasses.FakeTensorMode() as mode:
            fake = mode.from_tensor(self.q)
        with self.assertRaises(Exception):
            run(self.plan, fake, (self.k, self.v))
        moved = torch.zeros(100)
        view = weft.TensorView(moved)
        moved.untyped_storage().resize_(0)
        with self.assertRaises(Exception):
            weft.soft_cap(view, 1.0)

    def test_memory_goes_when_its_last_owner_goes(self):
        x = torch.zeros(1000)
        storage = x.untyped_storage()
        before = storage._use_count() if hasattr(storage, "_use_count") else None
        for _ in range(100):
            weft.soft_cap(x.reshape(10, 100), 1.0)
            weft.TensorView(x)
        gc.collect()
        if before is not None:
            self.assertEqual(storage._use_count(), before)

    def test_sparse_matrices(self):
        dense = (torch.rand(20, 30) < 0.2) * torch.randn(20, 30)
        structure, values = weft.sparse.matrix(dense.to_sparse_csr())
        b = torch.randn(30, 8)
        self.assert_close(weft.sparse.spmm(structure, values, b), dense @ b)
        with self.assertRaisesRegex(TypeError, "to_sparse_csr"):
            weft.sparse.matrix(dense.to_sparse_csc())


class Operators(TestCase):
    def setUp(self):
        Arrays.setUp(self)
        self.attention = weft.torch.Attention(self.kernel, self.plan)

    def check(self, operator, *arguments):
        torch.library.opcheck(operator, arguments)

    def test_opcheck(self):
        k, v = torch.nan_to_num(self.k), torch.nan_to_num(self.v)
        self.check(weft.torch.run, self.attention.handle, self.q, k, v, None, "", [], "", [])
        pages = weft.torch.Pages(self.batch.kv_indptr, self.batch.pages())
        new = torch.from_numpy(np.concatenate(self.batch.k))
        self.check(weft.torch.append_paged_kv, pages.handle, new, new.clone(), k.clone(), v.clone())
        self.check(weft.torch.merge_states, torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4))
        x, weight = torch.randn(5, 64), torch.randn(64)
        self.check(weft.torch.rms_norm, x, weight, 1e-5)
        self.check(weft.torch.add_rms_norm, x, torch.randn(5, 64), weight, 1e-5)
        self.check(weft.torch.silu_and_mul, x, torch.randn(5, 64))
        self.check(weft.torch.gelu_tanh_and_mul, x, torch.randn(5, 64))
        self.check(weft.torch.apply_rope, torch.randn(5, 2, 32), torch.arange(5, dtype=torch.int32))
        self.check(weft.torch.sample, torch.randn(3, 100), torch.arange(3))
        dense = (torch.rand(20, 30) < 0.2) * torch.randn(20, 30)
        structure, values = weft.sparse.matrix(dense.to_sparse_csr())
        matrix = weft.torch.Matrix(structure)
        values = values.clone().requires_grad_()
        self.check(weft.torch.spmm, matrix.handle, values, torch.randn(30, 8, requires_grad=True))
        self.check(weft.torch.sddmm, matrix.handle, values, torch.randn(20, 8, requires_grad=True),
                   torch.randn(30, 8, requires_grad=True))

    def test_compiled_without_a_break(self):
        weight = torch.randn(128)

        def layer(q, k, v):
            o, lse = self.attention(q * 1.0, (k, v))
            return weft.torch.rms_norm(o.reshape(-1, 128), weight, 1e-5) + lse.sum()

        k, v = torch.nan_to_num(self.k), torch.nan_to_num(self.v)
        expected = layer(self.q, k, v)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        self.assert_close(compiled(self.q, k, v), expected)
        # Another step: the same code, another plan.
        self.attention.plan = self.kernel.plan(self.batch.plan_input(num_workers=1))
        self.assert_close(compiled(self.q, k, v), expected)

    def test_gradients(self):
        dense = (torch.rand(6, 9) < 0.4) * torch.randn(6, 9)
        sparse = dense.to_sparse_csr()
        structure, values = weft.sparse.matrix(sparse)
        matrix = weft.torch.Matrix(structure)
        rows = torch.repeat_interleave(torch.arange(6), sparse.crow_indices().diff())
        cols = sparse.col_indices()
        values, b = values.clone().requires_grad_(), torch.randn(9, 4, requires_grad=True)
        weights = torch.randn(6, 4)
        (matrix.spmm(values, b) * weights).sum().backward()
        mine = values.grad.clone(), b.grad.clone()
        values.grad = b.grad = None
        (torch.zeros(6, 9).index_put((rows, cols), values) @ b * weights).sum().backward()
        self.assert_close(mine[0], values.grad)
        self.assert_close(mine[1], b.grad)
        x, y = torch.randn(6, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
        weights = torch.randn(len(values))
        values.grad = None
        (matrix.sddmm(values, x, y) * weights).sum().backward()
        mine = [t.grad.clone() for t in (values, x, y)]
        for t in (values, x, y):
            t.grad = None
        (values * (x[rows] * y[cols]).sum(-1) * weights).sum().backward()
        for made, t in zip(mine, (values, x, y)):
            self.assert_close(made, t.grad)

    def test_sparse_operators_run_on_torch_s_stream(self):
        stream = weft.Stream.cpu(weft.WorkerTeam(1))
        structure, values = weft.sparse.matrix(torch.eye(4).to_sparse_csr())
        matrix, values = weft.torch.Matrix(structure), values.requires_grad_()
        x = torch.randn(4, 3, requires_grad=True)
        for name, call in (("spmm", lambda: matrix.spmm(values, x)), ("sddmm", lambda: matrix.sddmm(values, x, x))):
            for part in (name, name + "_backward"):
                own = getattr(weft._weft.sparse, part)
                with mock.patch.object(weft.torch, "_stream", return_value=stream), \
                        mock.patch.object(weft._weft.sparse, part, side_effect=own) as called:
                    call().sum().backward()
                self.assertIs(called.call_args.kwargs["stream"], stream, part)

    def test_names_in_the_document_exist(self):
        text = (ROOT / "docs/python.md").read_text()
        names = re.findall(r"\bweft\.torch\.(\w+)", text)
        self.assertIn("Attention", names)
        for name in names:
            self.assertTrue(hasattr(weft.torch, name), name)

    def test_handles(self):
        handle = weft.torch.Attention(self.kernel, self.plan).handle
        gc.collect()
        with self.assertRaisesRegex(RuntimeError, "keep the object"):
            weft.torch.run(handle, self.q, self.k, self.v, None, "", [], "", [])


class Loader(torch.utils.data.Dataset):
    """Attention of row i over keys of its own, computed where an item is asked for."""

    SPEC = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.ragged)

    def __init__(self):
        self.q, self.k, self.v = torch.randn(3, 12, 5, 2, 32)

    def __len__(self):
        return len(self.q)

    def __getitem__(self, i):
        return weft.attend(self.SPEC, self.q[i], self.k[i], self.v[i])


# Whether weft.torch's attention is that of a plain call, and which threads Weft has started after either.
THREADS = """
import pathlib
import torch, weft, weft.flashinfer, weft.torch, weft.transformers

def started():
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if name.startswith("weft")]

torch.set_num_threads(2)
kernel = weft.build(weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32, kv_form=weft.KvForm.ragged))
plan = kernel.plan(num_qo_heads=1, num_kv_heads=1, qo_indptr=[0, 400], kv_indptr=[0, 400], num_workers=2)
q, k, v = torch.randn(3, 400, 1, 32)
made = weft.torch.Attention(kernel, plan)(q, (k, v))[0]
weft.flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True)
weft.flashinfer.sampling_from_probs(torch.rand(64, 4096))
weft.transformers.attention(torch.nn.Module(), *torch.randn(3, 1, 2, 400, 32), None)
after = started()
print(torch.equal(made, kernel.run(plan, q, (k, v))), after, started())
"""


# A child that asks for another number of threads than its parent, whose OpenMP threads it has not.
FORKED = """
import os, signal
import torch, weft.torch
torch.set_num_threads(2)
x, weight = torch.randn(2000, 256), torch.ones(256)
x.exp()
weft.torch.rms_norm(x, weight, 1e-5)
child = os.fork()
if child == 0:
    signal.alarm(20)
    torch.set_num_threads(3)
    weft.torch.rms_norm(x, weight, 1e-5)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


class DataLoaders(TestCase):
    def test_a_child_with_another_number_of_threads(self):
        made = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
        self.assertEqual(made.stdout, "0\n", made.stderr)

    def test_operators_run_on_torch_s_own_threads(self):
        # In a process of its own: threads of Weft's stay where an earlier test has started some.
        made = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "WEFT_NUM_THREADS": "2"})
        self.assertEqual(made.stdout, "True [] ['weft-worker']\n", made.stderr)

    def test_workers_that_are_forked_compute_the_same(self):
        data = Loader()
        expected = torch.stack([data[i] for i in range(len(data))])  # its threads run before the fork
        loader = torch.utils.data.DataLoader(data, batch_size=3, num_workers=2, multiprocessing_context="fork")
        for _ in range(2):
            self.assertTrue(torch.equal(torch.cat(list(loader)), expected))
        self.assertTrue(torch.equal(data[0], expected[0]))


if __name__ == "__main__":
    unittest.main()

"""Matrices of scipy.sparse and torch.sparse: their values are taken where they lie."""
import unittest

import numpy as np
import scipy.sparse
import torch

import weft
from support import TestCase
from weft.sparse import matrix

random = np.random.default_rng(11)
DENSE = np.where(random.random((12, 20)) < 0.3, random.standard_normal((12, 20)), 0).astype(np.float32)
B = random.standard_normal((20, 8), dtype=np.float32)
PROGRAM = """program spmm(nnz, m, n, feat):
  E = dense_fixed(nnz)
  I = sparse_fixed(E, m, 1, indices=rows)
  J = sparse_fixed(I, n, 1, indices=cols)
  M = dense_fixed(m)
  N = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(E, I, J): fp32
  B = buffer(N, K): fp32
  C = buffer(M, K): fp32
  iterate clear(M, K) "SS" as (m_, l):
    C[m_, l] = 0.0
  iterate add(E, I, J, K) "RSRS" as (e, i, j, k):
    C[i, k] = C[i, k] + A[e, i, j] * B[j, k]
"""


class Matrices(TestCase):
    def check(self, a, values, layout, data, product=None):
        self.assertEqual(weft.TensorView(values).__dlpack_device__(), (1, 0))
        self.assertTrue(np.shares_memory(np.asarray(values), np.asarray(data)), layout)
        made = product if product is not None else weft.sparse.spmm(a, np.asarray(values), B)
        self.assert_close(made, DENSE @ B)

    def by_blocks(self, a, values):
        return weft.sparse.block_spmm(a, values, B, np.zeros((12, 8), np.float32))

    def by_program(self, a, values):
        c = np.zeros((12, 8), np.float32)
        weft.sparse.compile(weft.sparse.parse(PROGRAM)).run({"J": a}, {"A": values, "B": B, "C": c})
        return c

    def by_columns(self, a, values):
        """a is CSR of the transpose: the gradient of its product is the matrix by a gradient."""
        c = np.zeros((12, 8), np.float32)
        weft.sparse.spmm_backward(a, weft.sparse.transposed(a), values, c, B, d_b=c.copy())
        weft.sparse.spmm_backward(a, weft.sparse.transposed(a), values, np.zeros_like(c), B, d_b=c)
        return c

    def test_scipy(self):
        for kind in ("matrix", "array"):
            a = getattr(scipy.sparse, f"csr_{kind}")(DENSE)
            self.check(*matrix(a), "csr", a.data)
            coo = a.tocoo()
            self.check(*matrix(coo), "coo in order", coo.data)
            csc = a.tocsc()
            structure, values = matrix(csc, "csc")
            self.assertEqual((structure.num_rows, structure.num_cols), (20, 12))
            self.check(structure, values, "csc", csc.data, self.by_columns(structure, values))
            bsr = a.tobsr((4, 4))
            with self.assertRaisesRegex(TypeError, r"a\.sum_duplicates\(\)"):
                matrix(bsr, "bsr")  # its blocks stand as scipy has found them
            bsr.sum_duplicates()
            structure, values = matrix(bsr, "bsr")
            self.check(structure, values, "bsr", bsr.data, self.by_blocks(structure, values))
            shuffled = random.permutation(coo.nnz)
            coo = getattr(scipy.sparse, f"coo_{kind}")((coo.data[shuffled], (coo.row[shuffled], coo.col[shuffled])),
                                                       coo.shape)
            structure, values = matrix(coo, layout="coo")
            self.check(structure, values, "coo", coo.data, self.by_program(structure, values))
            for refused, layout, says in ((coo, "csr", r"by row, then column; a\.tocsr\(\)"),
                                          (a, "csc", r"stored as csr.*a\.tocsc\(\)"),
                                          (a, "bsr", r"a\.tobsr\(\(b, b\)\)"),
                                          (bsr, "csr", r"stored as bsr.*a\.tocsr\(\)"), (a, "coo", r"a\.tocoo\(\)"),
                                          (a.todia(), "csr", r"stored as dia.*a\.tocsr\(\)"),
                                          (a.tobsr((4, 5)), "bsr", r"blocks are 4 x 5.*a\.tobsr")):
                with self.assertRaisesRegex(TypeError, says):
                    matrix(refused, layout)
        with self.assertRaisesRegex(ValueError, "layout: is 'dia'; allowed"):
            matrix(a, "dia")
        with self.assertRaisesRegex(TypeError, "ndarray is no matrix"):
            matrix(DENSE)
        with self.assertRaisesRegex(TypeError, "1 dimensions"):
            matrix(scipy.sparse.coo_array(DENSE[0]), "coo")
        twice = scipy.sparse.csr_array((np.ones(2, np.float32), np.array([1, 1]), np.array([0, 2])), (1, 3))
        with self.assertRaisesRegex(TypeError, r"a\.sum_duplicates\(\)"):
            matrix(twice)
        twice.sum_duplicates()
        self.assertEqual(matrix(twice)[1].tolist(), [2])

    def test_torch(self):
        a = torch.from_numpy(DENSE).to_sparse_csr()
        self.check(*matrix(a), "csr", a.values())
        coo = torch.from_numpy(DENSE).to_sparse_coo().coalesce()
        self.check(*matrix(coo), "coo in order", coo.values())
        structure, values = matrix(coo, "coo")
        self.check(structure, values, "coo", coo.values(), self.by_program(structure, values.numpy()))
        csc = torch.from_numpy(DENSE).to_sparse_csc()
        structure, values = matrix(csc, "csc")
        self.check(structure, values, "csc", csc.values(), self.by_columns(structure, values.numpy()))
        bsr = torch.from_numpy(DENSE).to_sparse_bsr((4, 4))
        structure, values = matrix(bsr, "bsr")
        self.check(structure, values, "bsr", bsr.values(), self.by_blocks(structure, values.numpy()))
        twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3))
        for refused, layout, says in ((twice, "csr", r"a\.coalesce\(\)"), (twice, "coo", r"a\.coalesce\(\)"),
                                      (coo, "csc", r"stored as coo.*a\.to_sparse_csc\(\)"),
                                      (csc, "csr", r"stored as csc.*a\.to_sparse_csr\(\)"),
                                      (torch.from_numpy(DENSE).to_sparse_bsc((4, 4)), "bsr", "stored as bsc"),
                                      (torch.from_numpy(DENSE).to_sparse_bsr((4, 5)), "bsr", "blocks are 4 x 5"),
                                      (torch.ones(2, 3, 4).to_sparse_csr(), "csr", "3 dimensions"),
                                      (torch.ones(2, 3, 4).to_sparse_coo(), "coo", "3 dimensions"),
                                      (torch.ones(3, 4).to_sparse(1), "coo", "rows are stored whole"),
                                      (torch.ones(3, 4), "csr", "Tensor is no matrix")):
            with self.assertRaisesRegex(TypeError, says):
                matrix(refused, layout)
        backwards = torch.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 3), check_invariants=False)
        self.assert_refused("invalid_argument", "the indices of a row rise", matrix, backwards)
        hybrid = torch.ones(2, 3, 4).to_sparse_csr(dense_dim=1)
        with self.assertRaisesRegex(TypeError, "3 dimensions|arrays of 1 dimensions"):
            matrix(hybrid)


if __name__ == "__main__":
    unittest.main()

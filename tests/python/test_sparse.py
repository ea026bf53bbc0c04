"""Sparse programs and operators from Python."""
import unittest

import numpy as np

import weft
from support import TestCase

random = np.random.default_rng(7)


def normal(*shape):
    return random.standard_normal(shape, dtype=np.float32)


class Sparse(TestCase):
    def setUp(self):
        self.dense = np.where(random.random((20, 30)) < 0.2, normal(20, 30), 0).astype(np.float32)
        self.rows, self.cols = (x.astype(np.int32) for x in np.nonzero(self.dense))
        self.values = self.dense[self.rows, self.cols]
        indptr = np.searchsorted(self.rows, np.arange(21))
        self.structure = weft.sparse.csr(20, 30, indptr.astype(np.int64), self.cols.astype(np.int64))

    def test_products(self):
        b = normal(30, 8)
        self.assertEqual((self.structure.num_rows, self.structure.nnz), (20, len(self.values)))
        self.assert_close(weft.sparse.spmm(self.structure, self.values, b), self.dense @ b)
        self.assert_close(weft.sparse.spmm(self.structure, self.values, b, format="hyb(1, 3)"), self.dense @ b)
        x, y = normal(20, 8), normal(30, 8)
        expected = (self.dense * (x @ y.T))[self.rows, self.cols]
        self.assert_close(weft.sparse.sddmm(self.structure, self.values, x, y), expected)
        self.assert_refused("invalid_shape", "b:", weft.sparse.spmm, self.structure, self.values, b[0])
        self.assert_refused("invalid_indptr", "indptr", weft.sparse.csr, 2, 2, [0, 2, 1], [0, 1])

    def test_tuning(self):
        tuned = weft.sparse.tune_spmm(self.structure, 8, seconds=0.01)
        self.assertGreaterEqual(tuned.num_tried + tuned.num_left, 1)
        b = normal(30, 8)
        self.assert_close(weft.sparse.spmm(self.structure, self.values, b), self.dense @ b)

    def test_gradients(self):
        b, d_c = normal(30, 8), normal(20, 8)
        d_values, d_b = np.zeros_like(self.values), np.zeros_like(b)
        weft.sparse.spmm_backward(self.structure, weft.sparse.transposed(self.structure), self.values, b, d_c, d_values,
                                  d_b)
        self.assert_close(d_b, self.dense.T @ d_c)
        self.assert_close(d_values, (d_c @ b.T)[self.rows, self.cols])

    def test_programs(self):
        builder = (weft.sparse.ProgramBuilder("spmm", ["m", "n", "nnz", "feat"])
                   .dense_fixed("I", "m").sparse_variable("J", "I", "n", "nnz", "j_indptr", "j_indices")
                   .dense_fixed("J_", "n").dense_fixed("K", "feat")
                   .buffer("A", ["I", "J"]).buffer("B", ["J_", "K"]).buffer("C", ["I", "K"])
                   .iterate(weft.sparse.IterationSpec(
                       name="csrmm", axes=["I", "J", "K"], kinds="SRS", iterators=["i", "j", "k"],
                       init=["C[i, k] = 0.0"], body=["C[i, k] = C[i, k] + A[i, j] * B[j, k]"])))
        b, c = normal(30, 8), np.zeros((20, 8), np.float32)
        operator = weft.sparse.compile(builder.build(), set={"feat": 8})
        operator.run({"J": self.structure}, {"A": self.values, "B": b, "C": c})
        self.assert_close(c, self.dense @ b)
        self.assertIn("csrmm", operator.text("stage1"))
        self.assertTrue(operator.passes)
        again = weft.sparse.compile(weft.sparse.parse(builder.text))
        self.assertIn("csrmm", again.text("stage1"))
        self.assert_refused("invalid_argument", "", builder.buffer, "A", ["I"])
        self.assert_refused("invalid_argument", "", weft.sparse.parse, "nonsense")
        self.assert_refused("invalid_argument", "C", operator.run, {"J": self.structure}, {"A": self.values, "B": b})

    def test_formats(self):
        coo = weft.sparse.Coo(20, 30, self.rows, self.cols)
        made = weft.sparse.csr_from_coo(coo)
        self.assertTrue((made.order.numpy() == np.arange(len(self.values))).all())
        blocks = weft.sparse.bsr_from_coo(coo, 5)
        self.assertEqual(blocks.structure.num_rows, 4)
        self.assertEqual(len(weft.sparse.hyb_from_coo(coo, 1, 2)), 3)
        self.assert_refused("invalid_argument", "", weft.sparse.csr_from_coo, weft.sparse.Coo(2, 2, [0, 0], [1, 1]))


    def test_blocks_and_relations(self):
        coo = weft.sparse.Coo(20, 30, self.rows, self.cols)
        blocks = weft.sparse.bsr_from_coo(coo, 5)
        # Position p of the structure holds the element order[p] of the list, -1 none.
        order = blocks.order.numpy()
        values = np.where(order < 0, 0, self.values[np.maximum(order, 0)]).astype(np.float32).reshape(-1, 5, 5)
        b, c = normal(30, 16), np.zeros((20, 16), np.float32)
        weft.sparse.block_spmm(blocks.structure, values, b, c)
        self.assert_close(c, self.dense @ b)
        heads, batched = normal(2, 30, 8), np.zeros((2, 20, 8), np.float32)
        weft.sparse.batched_spmm(self.structure, np.stack([self.values, 2 * self.values]), heads, batched)
        self.assert_close(batched[1], 2 * self.dense @ heads[1])
        relation = (np.arange(len(self.rows)) % 3).astype(np.int32)
        edges = weft.sparse.CooTensor([3, 20, 30], [relation, self.rows, self.cols])
        x, w, y = normal(30, 8), normal(3, 8, 4), np.zeros((20, 4), np.float32)
        weft.sparse.rgms(weft.sparse.relational_from_coo(edges).structure, None, x, w, y)
        expected = np.zeros((20, 4))
        np.add.at(expected, self.rows, np.einsum("ef,efo->eo", x[self.cols], w[relation]))
        self.assert_close(y, expected)

    def test_convolution(self):
        voxels = [[0, 0, 0], [0, 0, 1], [2, 2, 2]]
        kernel_map = weft.sparse.kernel_map(voxels)
        self.assertEqual(kernel_map.outputs, voxels)
        x, w, y = normal(3, 4), normal(27, 4, 5), np.zeros((3, 5), np.float32)
        weft.sparse.sparse_convolution(kernel_map, x, w, y)
        self.assert_close(y[2], x[2] @ w[13])
        self.assert_close(y[0], x[0] @ w[13] + x[1] @ w[14])
        self.assert_refused("invalid_argument", "", weft.sparse.kernel_map, voxels + voxels[:1])

    def test_matrices_of_other_libraries(self):
        with self.assertRaisesRegex(TypeError, "no matrix in CSR"):
            weft.sparse.matrix(self.dense)
        try:
            import scipy.sparse
        except ImportError:
            return
        a = scipy.sparse.csr_matrix(self.dense)
        structure, values = weft.sparse.matrix(a)
        self.assertIs(values, a.data)
        b = normal(30, 8)
        self.assert_close(weft.sparse.spmm(structure, values, b), self.dense @ b)
        with self.assertRaisesRegex(TypeError, "tocsr"):
            weft.sparse.matrix(a.tocoo())


if __name__ == "__main__":
    unittest.main()

"""weft.sparse: structures, formats, programs, operators and files from Python."""
import ctypes
import math
import os
import pathlib
import tempfile
import threading
import unittest

import numpy as np

import weft
from support import ROOT, TestCase

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

    def test_errors_name_the_arrays_of_the_call(self):
        sparse, nnz, f = weft.sparse, len(self.values), lambda *shape: np.ones(shape, np.float32)
        a, blocks, transposed = self.structure, weft.sparse.band(3, 1), weft.sparse.transposed(self.structure)
        x, y, b = f(20, 8), f(30, 8), f(30, 8)
        for says, call in (
                (f"values: has shape [3]; required is [nnz] with nnz = {nnz}", lambda: sparse.spmm(a, f(3), b)),
                ("b: has shape [31, 8]; required is [n, feat] with n = 30", lambda: sparse.spmm(a, f(nnz), f(31, 8))),
                ("out: has shape [20, 7]; required is [m, feat]", lambda: sparse.spmm(a, f(nnz), b, f(20, 7))),
                ("x: has shape [21, 8]", lambda: sparse.sddmm(a, f(nnz), f(21, 8), y)),
                ("y: has shape [30, 9]", lambda: sparse.sddmm(a, f(nnz), x, f(30, 9))),
                ("out: has shape [2]", lambda: sparse.sddmm(a, f(nnz), x, y, f(2))),
                ("k: has shape [31, 8]", lambda: sparse.graph_attention(a, x, f(31, 8), y)),
                ("v: has shape [8]", lambda: sparse.graph_attention(a, x, y, f(8))),
                ("out: has shape [20, 9]; required is [m, feat_v]",
                 lambda: sparse.graph_attention(a, x, y, y, out=f(20, 9))),
                ("y: has shape [30, 7]", lambda: sparse.fused_mm(a, x, f(30, 7))),
                ("b: has shape [3, 30, 8]; required is [heads, n, feat] with heads = 2",
                 lambda: sparse.batched_spmm(a, f(2, nnz), f(3, 30, 8), f(2, 20, 8))),
                ("b: has shape [11, 8]; required is [n, feat] with n = 12",
                 lambda: sparse.block_spmm(blocks, f(7, 4, 4), f(11, 8), f(12, 8))),
                ("values: has shape [7, 4, 5]; required is [nnzb, block, block]",
                 lambda: sparse.block_spmm(blocks, f(7, 4, 5), f(15, 8), f(15, 8))),
                ("y: has shape [2, 12, 7]",
                 lambda: sparse.block_sddmm(blocks, f(2, 12, 8), f(2, 12, 7), f(2, 7, 4, 4))),
                ("d_c: has shape [20, 9]",
                 lambda: sparse.spmm_backward(a, transposed, f(nnz), b, f(20, 9), d_b=f(30, 8))),
                ("d_y: has shape [20, 8]",
                 lambda: sparse.sddmm_backward(a, transposed, f(nnz), x, y, f(nnz), d_y=f(20, 8)))):
            self.assert_refused("invalid_shape", says, call)
        self.assert_refused("invalid_argument", "scale: is nan", sparse.graph_attention, a, x, y, y, math.nan)
        self.assert_refused("invalid_stride", "b: is not contiguous; copy it first, with numpy.ascontiguousarray(x)",
                            sparse.spmm, a, f(nnz), f(30, 16)[:, ::2])

    def test_values_that_are_said_to_be_unchanged_are_not_copied_again(self):
        values, b, x, y = self.values.copy(), normal(30, 8), normal(20, 8), normal(30, 8)
        for call in (lambda **more: weft.sparse.spmm(self.structure, values, b, format="hyb(1, 3)", **more),
                     lambda **more: weft.sparse.sddmm(self.structure, values, x, y, format="ell(1), csr()", **more)):
            first = call()
            values *= 2
            self.assert_close(call(values_unchanged=True), first)  # the promise is broken, so these are the old ones
            self.assert_close(call(), 2 * first)

    def test_tuning(self):
        tuned = weft.sparse.tune_spmm(self.structure, 8, seconds=0.01)
        self.assertGreaterEqual(tuned.num_tried + tuned.num_left, 1)
        b = normal(30, 8)
        self.assert_close(weft.sparse.spmm(self.structure, self.values, b), self.dense @ b)

        tuned = weft.sparse.tune_sddmm(self.structure, 8, seconds=0)
        self.assertIsInstance(tuned.choice, str)
        blocks = weft.sparse.band(4, 1)
        tuned = weft.sparse.tune_block_spmm(blocks, 1, 8, 16, weft.DType.fp32, seconds=0)
        self.assertRegex(tuned.choice, "rows [0-9]+ dots")
        self.assert_refused("invalid_argument", "1 heads of blocks 300 wide", weft.sparse.tune_block_spmm, blocks, 1,
                            300, 16, weft.DType.fp32)
        relation = (np.arange(len(self.rows)) % 3).astype(np.int32)
        edges = weft.sparse.CooTensor([3, 20, 30], [relation, self.rows, self.cols])
        tuned = weft.sparse.tune_rgms(edges, 8, 16, seconds=0)
        self.assertIn(f"tile {tuned.tile} ", tuned.choice)
        self.assertIsInstance(tuned, weft.sparse.Tuned)
        made = weft.sparse.relational_from_coo(edges, tuned.tile)
        self.assertIn("vectors", weft.sparse.tune_rgms(made.structure, 8, 16, seconds=0).choice)
        self.assert_refused("invalid_dtype", "dtype", weft.sparse.tune_block_spmm, blocks, 1, 8, 16, weft.DType.int8)
        self.assert_refused("invalid_argument", "feat_out", weft.sparse.tune_rgms, edges, 8, 0)

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
        self.assert_refused("invalid_stride", "B: is not contiguous; copy it first", operator.run,
                            {"J": self.structure}, {"A": self.values, "B": normal(30, 16)[:, ::2], "C": c})
        for array in (b, c):  # what is read may be read-only, what is written may not
            array.flags.writeable = False
        self.assert_refused("invalid_argument", "C", operator.run, {"J": self.structure},
                            {"A": self.values, "B": b, "C": c})
        made = np.zeros_like(c)
        operator.run({"J": self.structure}, {"A": self.values, "B": b, "C": made})
        self.assert_close(made, self.dense @ b)

    def test_formats_of_ones_own(self):
        def builder():
            return (weft.sparse.ProgramBuilder("spmm", ["m", "n", "nnz", "feat"])
                    .dense_fixed("I", "m").sparse_variable("J", "I", "n", "nnz", "j_indptr", "j_indices")
                    .dense_fixed("J_", "n").dense_fixed("K", "feat")
                    .buffer("A", ["I", "J"]).buffer("B", ["J_", "K"]).buffer("C", ["I", "K"])
                    .iterate(weft.sparse.IterationSpec(
                        name="csrmm", axes=["I", "J", "K"], kinds="SRS", iterators=["i", "j", "k"],
                        init=["C[i, k] = 0.0"], body=["C[i, k] = C[i, k] + A[i, j] * B[j, k]"])))

        tiles = weft.sparse.FormatSpec(
            name="tiles", old_axes=["I", "J"], params=["num_tiles"],
            axes=["IO = dense_fixed((m + 1) // 2)",
                  "JO = sparse_variable(IO, (n + 3) // 4, num_tiles, indptr=tiles_indptr, indices=tiles_indices)",
                  "II = dense_fixed(2)", "JI = dense_fixed(4)"],
            buffer_axes=["IO", "JO", "II", "JI"], to=["IO = I // 2", "JO = J // 4", "II = I % 2", "JI = J % 4"],
            from_=["I = IO * 2 + II", "J = JO * 4 + JI"])
        self.assertEqual(tiles.axes[2], "II = dense_fixed(2)")
        decomposed = "decompose_format(csrmm, A, tiles())"
        program = builder().format(tiles).schedule(decomposed).build()
        self.assertIn("format tiles(I, J) with (num_tiles):", program.text)
        operator = weft.sparse.compile(weft.sparse.parse(program.text))
        b, c = normal(30, 8), np.zeros((20, 8), np.float32)
        operator.run({"J": self.structure}, {"A": self.values, "B": b, "C": c})
        self.assert_close(c, self.dense @ b)
        self.assert_refused("invalid_argument", "'from' says nothing of axis 'J'", lambda: weft.sparse.compile(
            builder().format(tiles.replace(from_=["I = IO * 2 + II"])).schedule(decomposed).build()))

    def test_formats(self):
        coo = weft.sparse.Coo(20, 30, self.rows, self.cols)
        made = weft.sparse.csr_from_coo(coo)
        self.assertTrue((made.order.numpy() == np.arange(len(self.values))).all())
        self.assertTrue(made.keeps_order)
        blocks = weft.sparse.bsr_from_coo(coo, 5)
        self.assertEqual(blocks.structure.num_rows, 4)
        self.assertFalse(blocks.keeps_order)
        self.assertEqual(len(weft.sparse.hyb_from_coo(coo, 1, 2)), 3)
        wide = weft.sparse.Coo(20, 30, self.rows.astype(np.int64), self.cols.astype(np.int64))
        self.assertEqual(wide.nnz, len(self.rows))
        self.assertTrue((wide.rows.numpy() == self.rows).all() and (wide.cols.numpy() == self.cols).all())
        self.assert_refused("invalid_argument", "rows[1] = 2147483648", weft.sparse.Coo, 2, 2, np.array([0, 2**31]),
                            [1])
        self.assert_refused("invalid_argument", "", weft.sparse.csr_from_coo, weft.sparse.Coo(2, 2, [0, 0], [1, 1]))

    def test_every_format_says_where_elements_stand(self):
        sparse, dense = weft.sparse, self.dense
        coo = sparse.Coo(20, 30, self.rows, self.cols)

        def at(order):
            """The elements that stand at each position."""
            return np.where(order.numpy() < 0, 0, self.values[np.maximum(order.numpy(), 0)])

        self.assert_close(at(sparse.csc_from_coo(coo).order), dense.T[dense.T != 0])
        self.assertEqual(sparse.csc_from_coo(coo).structure.num_rows, 30)
        for name in ("csr_from_coo", "coo_from_coo", "dcsr_from_coo", "ragged_from_coo"):
            self.assert_close(at(getattr(sparse, name)(coo).order), self.values)
        width = (dense != 0).sum(1).max()
        self.assert_close(at(sparse.ell_from_coo(coo).order).reshape(20, width).sum(1), dense.sum(1))
        blocks = dense.reshape(4, 5, 6, 5).transpose(0, 2, 1, 3)
        for name in ("bsr_from_coo", "dbsr_from_coo"):
            self.assert_close(at(getattr(sparse, name)(coo, 5).order).reshape(-1, 5, 5),
                              blocks[(blocks != 0).any((2, 3))])
        strips = at(sparse.sr_bcrs_from_coo(coo, 4, 2).order).reshape(-1, 2, 4)
        self.assert_close(strips.sum(), dense.sum(), 1e-4)
        self.assertEqual(sorted(np.concatenate([each.order.numpy() for each in sparse.hyb_from_coo(coo, 2, 2)]))
                         [-len(self.values):], list(range(len(self.values))))
        made = sparse.dia_from_coo(coo)
        by_diagonal = at(made.order).reshape(len(made.offsets.numpy()), 20)
        for offset, diagonal in zip(made.offsets.numpy(), by_diagonal):
            inside = [row for row in range(20) if 0 <= row + offset < 30]
            self.assert_close(diagonal[inside], dense[inside, inside + offset])
        tensor = sparse.CooTensor([20, 30], [self.rows, self.cols])
        self.assertEqual((tensor.nnz, list(tensor.extents)), (len(self.rows), [20, 30]))
        self.assertTrue((tensor.coordinates[1].numpy() == self.cols).all())
        self.assert_close(at(sparse.csf_from_coo(tensor).order), self.values)
        self.assertEqual(sparse.relations_from_coo(sparse.CooTensor([1, 20, 30], [0 * self.rows, self.rows, self.cols]))
                         .structure.nnz, len(self.rows))

    def test_duplicates_are_added_up(self):
        coo = weft.sparse.Coo(2, 3, [1, 0, 1], [2, 0, 2])
        merged = weft.sparse.merged(coo)
        self.assertEqual((merged.coo.rows.numpy().tolist(), merged.coo.cols.numpy().tolist()), ([0, 1], [0, 2]))
        self.assertEqual(merged.place.numpy().tolist(), [1, 0, 1])
        self.assertEqual(weft.sparse.summed(merged, np.float32([1, 2, 4])).numpy().tolist(), [2, 5])
        self.assert_refused("invalid_dtype", "astype('float32')", weft.sparse.summed, merged, np.ones(3))
        self.assert_refused("invalid_shape", "values", weft.sparse.summed, merged, np.ones(2, np.float32))

    def test_structures_axis_by_axis(self):
        sparse, kinds = weft.sparse, weft.sparse.AxisKind
        b = normal(30, 8)
        for dtype in (np.int32, np.int64):
            indptr = np.searchsorted(self.rows, np.arange(21)).astype(dtype)
            made = sparse.structure_of([sparse.StoredAxis(length=20), sparse.StoredAxis(
                kind=kinds.sparse_variable, length=30, indptr=indptr, indices=self.cols.astype(dtype))])
            self.assert_close(sparse.spmm(made, self.values, b), self.dense @ b)
        one_each = [sparse.StoredAxis(length=3), sparse.StoredAxis(kind=kinds.sparse_fixed, length=4, nnz_cols=2,
                                                                   indices=[0, 3, 1, 4, 4, 4], name="J")]
        self.assertEqual(sparse.structure_of(one_each).nnz, 6)
        self.assertEqual(one_each[1].replace(nnz_cols=3).nnz_cols, 3)
        for code, says, axes in (
                ("invalid_argument", "axis 1 'J': indices[1], of row 0, is 5",
                 [one_each[0], one_each[1].replace(indices=[0, 5, 1, 4, 4, 4])]),
                ("invalid_argument", "axis 0 'J': is sparse_fixed", one_each[1:]),
                ("invalid_argument", "there are 0 axes", []),
                ("invalid_indptr", "axis 1", [one_each[0], sparse.StoredAxis(kind=kinds.dense_variable, length=2,
                                                                             indptr=[0, 2, 1, 1])]),
                ("invalid_dtype", "axes[1].indices", [one_each[0], one_each[1].replace(indices=np.zeros(6))])):
            self.assert_refused(code, says, sparse.structure_of, axes)
        with self.assertRaises(TypeError):
            sparse.structure_of([3])

    def test_patterns_of_blocks(self):
        self.assertEqual(weft.sparse.band(4, 1).nnz, 10)
        self.assertEqual(weft.sparse.band(4, 2**63 - 1).nnz, 16)
        self.assertEqual(weft.sparse.butterfly(4, 2).nnz, 12)
        self.assertEqual(weft.sparse.butterfly(4, 2**62).nnz, 12)
        self.assert_refused("invalid_argument", "stride: is 3", weft.sparse.butterfly, 4, 3)


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


class Files(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_matrices(self):
        path = self.folder / "a.mtx"
        coo, values = weft.sparse.Coo(3, 4, [2, 0, 1], [3, 1, 0]), np.array([0.5, -2, 4], np.float32)
        weft.sparse.write_matrix(path, coo, values)
        read = weft.sparse.read_matrix(str(path))
        self.assertEqual((read.coo.num_rows, read.coo.num_cols, read.coo.rows.numpy().tolist()), (3, 4, [2, 0, 1]))
        self.assert_close(read.values, values)
        made = weft.sparse.csr_from_coo(read.coo)
        of_rows = weft.sparse.values_at(read.values, made.order)
        self.assertEqual((of_rows.dtype, of_rows.numpy().tolist()), (weft.DType.fp32, [-2, 4, 0.5]))
        self.assertEqual(weft.sparse.values_at(read.values, [1, -1], weft.DType.fp64).numpy().tolist(), [-2, 0])
        self.assertEqual(weft.sparse.read_places(path).cols.numpy().tolist(), [3, 1, 0])
        again = weft.sparse.parse_matrix("a.mtx", path.read_text())
        self.assert_close(again.values, values)
        self.assertEqual(weft.sparse.parse_places("a.mtx.gz", path.read_text()).nnz, 3)
        weft.sparse.write_matrix(path, normal(2, 3))
        self.assertIn("array real general\n2 3\n", path.read_text())
        self.assert_refused("io_error", "none.mtx", weft.sparse.read_matrix, self.folder / "none.mtx")
        self.assert_refused("invalid_file", "b.mtx", weft.sparse.parse_matrix, "b.mtx", "nonsense")
        self.assert_refused("invalid_argument", "order[1] is 3", weft.sparse.values_at, read.values, [1, 3])
        self.assert_refused("invalid_argument", "order[1] is -2", weft.sparse.values_at, read.values, [1, -2])
        for outside in (weft.sparse.Coo(2, 4, *([x] for x in (2, 0))), weft.sparse.Coo(2, 4, [0], [-1])):
            self.assert_refused("invalid_argument", "coo: element 0 is at", weft.sparse.write_matrix,
                                self.folder / "never.mtx", outside, values[:1])
        self.assertFalse((self.folder / "never.mtx").exists())
        self.assert_refused("invalid_dtype", "float64", weft.sparse.values_at, values, [1])

    def test_tensors(self):
        read = weft.sparse.parse_tensor("t.tns", "1 2 3 0.5\n2 1 1 -1\n")
        self.assertEqual(([axis.numpy().tolist() for axis in read.coo.coordinates], read.values.numpy().tolist()),
                         ([[0, 1], [1, 0], [2, 0]], [0.5, -1]))
        self.assertTrue(weft.sparse.is_tensor_file("t.tns.gz"))
        self.assertFalse(weft.sparse.is_tensor_file("a.mtx"))
        path = self.folder / "t.tns"
        path.write_text("1 2 3 0.5\n")
        self.assertEqual(weft.sparse.read_tensor(path).coo.nnz, 1)

    def test_arrays(self):
        path = self.folder / "x.npy"
        for x in (normal(2, 3), np.arange(5), np.float16([1.5]), np.zeros((0, 4))):
            weft.sparse.write_npy(path, x)
            saved = np.load(path)
            self.assertEqual((saved.dtype, saved.tolist()), (x.dtype, x.tolist()))
            np.save(path, x)
            read = weft.sparse.read_npy(path)
            self.assertEqual(read.numpy().tolist(), x.tolist())
            self.assertEqual(weft.sparse.parse_npy("x.npy", path.read_bytes()).shape, read.shape)
        rounded = weft.sparse.converted(np.float32([1, 1 + 2**-9]), weft.DType.bf16)
        weft.sparse.write_npy(path, rounded)
        back = weft.sparse.read_npy(path)
        self.assertEqual(back.dtype, weft.DType.bf16)
        self.assertEqual(weft.sparse.converted(back, weft.DType.fp64).numpy().tolist(), [1, 1])
        self.assert_refused("invalid_dtype", "int8", weft.sparse.write_npy, path, np.zeros(2, np.int8))
        self.assert_refused("invalid_stride", "ascontiguousarray", weft.sparse.converted, np.zeros((4, 4))[:, :2],
                            weft.DType.fp32)
        self.assert_refused("invalid_file", "x.npy", weft.sparse.parse_npy, "x.npy", b"nonsense")

    def test_pipes_stay_pipes(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        read = []
        reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
        reader.start()
        weft.sparse.write_npy(path, np.arange(3))
        reader.join(30)
        self.assertFalse(reader.is_alive(), "nothing was written into the pipe")
        self.assertEqual(weft.sparse.parse_npy("pipe", read[0]).numpy().tolist(), [0, 1, 2])
        self.assertTrue(path.is_fifo())
        self.assert_refused("io_error", "Is a directory", weft.sparse.write_npy, self.folder, np.arange(3))

    def test_examples_of_the_document(self):
        """C = A B of files, as the first lines of docs/sparse.md do it."""
        graph = weft.sparse.read_matrix(ROOT / "examples/data/graph.mtx")
        a = weft.sparse.csr_from_coo(graph.coo)
        b = weft.sparse.read_npy(ROOT / "examples/data/b.npy")
        c = weft.sparse.spmm(a.structure, weft.sparse.values_at(graph.values, a.order), b)
        dense = np.zeros((graph.coo.num_rows, graph.coo.num_cols))
        dense[graph.coo.rows.numpy(), graph.coo.cols.numpy()] = graph.values.numpy()
        self.assert_close(c, dense @ b.numpy())


class OnACard:
    """An array that says it lies on a card: its memory is never touched."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("index", ctypes.c_int32),
                    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                    ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                    ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, *shape, index=0, at=4096):
        self.shape, self.index, self.at = (ctypes.c_int64 * len(shape))(*shape), index, at
        self.made = []

    def __dlpack_device__(self):
        return (2, self.index)

    def __dlpack__(self, **_):
        self.made.append(self.Tensor(self.at, 2, self.index, len(self.shape), 2, 32, 1, ctypes.addressof(self.shape)))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.made[-1]), b"dltensor", None)


@unittest.skipIf(os.path.exists("/dev/nvidia0"), "a card is here, which would read what is no memory of it")
class WhereTensorsLie(TestCase):
    def test_a_call_goes_to_the_card_of_its_tensors(self):
        a = weft.sparse.csr(2, 3, [0, 1, 2], [0, 2])
        values, b, out = OnACard(2, at=4096), OnACard(3, 4, at=8192), OnACard(2, 4, at=12288)
        with self.assertRaises(weft.Error) as missing:
            weft.Workspace("cuda", 64)
        with self.assertRaises(weft.Error) as caught:
            weft.sparse.spmm(a, values, b, out)
        self.assertEqual(caught.exception.code, missing.exception.code)

    def test_tensors_of_two_places_are_refused(self):
        a = weft.sparse.csr(2, 3, [0, 1, 2], [0, 2])
        self.assert_refused("invalid_device", "buffers['A']: lies on cuda:0", weft.sparse.spmm, a, OnACard(2),
                            np.ones((3, 4), np.float32))
        self.assert_refused("invalid_device", "values: lies on cuda:0", weft.sparse.values_at, OnACard(2), [0])
        self.assert_refused("invalid_device", "cuda:1", weft.sparse.csr, 2, 3, OnACard(3, index=1), OnACard(2))


if __name__ == "__main__":
    unittest.main()

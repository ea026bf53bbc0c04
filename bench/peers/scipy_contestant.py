"""scipy's part in the comparison: SpMM, on one thread."""
import numpy as np
import scipy.sparse

from protocol import Refused, mean_seconds, read_csr, serve


def prepare(row):
    if row["kind"] != "spmm":
        raise Refused("scipy is measured with SpMM")
    rows, cols, indptr, indices = read_csr(row["matrix"])
    a = scipy.sparse.csr_array((np.full(len(indices), 0.5, np.float32), indices, indptr), shape=(rows, cols))
    b = np.random.default_rng(1).random((cols, row["feat"]), np.float32)
    a @ b
    return lambda: mean_seconds(lambda: a @ b)


if __name__ == "__main__":
    serve(prepare)

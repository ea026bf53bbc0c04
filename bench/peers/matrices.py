"""Matrices for the rows of SpMM: generated, or those of a folder, as files that every contestant reads.

A file holds rows, columns and the number of elements (64 bits each), then indptr and indices in CSR (32 bits)."""
import gzip
import hashlib
import pathlib

import install

FOLDER = install.CACHE / "matrices"


def uniform(rows, degree):
    import numpy as np
    random = np.random.default_rng(1)
    cols = np.sort(random.integers(0, rows, (rows, degree)), axis=1)
    while (twice := (np.diff(cols, axis=1) == 0).any(axis=1)).any():
        cols[twice] = np.sort(random.integers(0, rows, (int(twice.sum()), degree)), axis=1)
    return rows, rows, np.repeat(np.arange(rows), degree), cols.ravel()


def power_law(rows, nnz):
    """Both ends of an element with a probability of rank^-0.6, ranks in random order."""
    import numpy as np
    random = np.random.default_rng(1)
    sums = np.cumsum(np.arange(1, rows + 1) ** -0.6)

    def draw(order, count):
        return order[np.searchsorted(sums / sums[-1], random.random(count))]

    order_of_rows, order_of_cols = random.permutation(rows), random.permutation(rows)
    elements = np.unique(draw(order_of_rows, 2 * nnz) * rows + draw(order_of_cols, 2 * nnz))
    elements = random.permutation(elements)[:nnz]
    return rows, rows, elements // rows, elements % rows


def from_file(path):
    import numpy as np
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        if ".mtx" in path.name:
            head, line = file.readline().lower().split(), file.readline()
            while line.startswith("%"):
                line = file.readline()
            rows, cols, _ = map(int, line.split())
            width = {"pattern": 2, "complex": 4}.get(head[3], 3)
            numbers = np.array(file.read().split(), dtype=np.float64).reshape(-1, width)
            i, j = numbers[:, 0].astype(np.int64) - 1, numbers[:, 1].astype(np.int64) - 1
            if head[4] != "general":
                other = i != j
                i, j = np.concatenate([i, j[other]]), np.concatenate([j, i[other]])
            return rows, cols, i, j
        lines = [line for line in file if not line.startswith("%")]
        rows, cols, _ = (int(word) for word in lines[0].replace(",", " ").split())
        indptr = np.array(lines[1].split(), dtype=np.int64)
        return rows, cols, np.repeat(np.arange(rows), np.diff(indptr)), np.array(lines[2].split(), dtype=np.int64)


def write(path, rows, cols, i, j):
    import numpy as np
    order = np.lexsort((j, i))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=rows))])
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        for part in (np.array([rows, cols, len(i)], np.int64), indptr.astype(np.int32), j[order].astype(np.int32)):
            file.write(part.tobytes())


MADE = {"uniform-32k": lambda: uniform(32768, 16), "uniform-256k": lambda: uniform(262144, 16),
        "power-law-100k": lambda: power_law(100_000, 1_500_000),
        "graph-20k": lambda: power_law(19717, 88648)}


def files_of(folders):
    """{name: path} of the matrices of some folders."""
    names = {}
    for path in (path for folder in folders or () for path in sorted(pathlib.Path(folder).iterdir())):
        stem = path.name.removesuffix(".gz")
        if stem.endswith((".mtx", ".smtx")):
            names[stem.rsplit(".", 1)[0]] = path
    return names


def prepared(name, source=None):
    """The file of a matrix; made with the peers' numpy at first need. `source`: the file that it comes from."""
    where = hashlib.sha256(str(source).encode()).hexdigest()[:8] if source else "made"
    path = FOLDER / f"{name}-{where}.csr"
    if not path.exists():
        install.install_packages("numpy")
        install.run(f"preparing the matrix {name}", install.PYTHON, __file__, name, path, source or "")
    return path


if __name__ == "__main__":
    import sys
    name, target, source = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    write(target, *(from_file(pathlib.Path(source)) if source else MADE[name]()))

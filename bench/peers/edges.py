"""Edges of typed graphs for the rows of RGMS: from files or generated, as files that every contestant reads.

A file holds relations, rows, columns and the number of edges (64 bits each), then relation, row and column of each
edge (32 bits), sorted. A relation is an edge's type, or an offset of a convolution's kernel."""
import gzip
import hashlib
import pathlib

import install

FOLDER = install.CACHE / "edges"


def typed_graph(nodes, relations, edges):
    """Sizes of relations and both ends of an edge by rank^-1, at most once each: skewed like graphs of facts."""
    import numpy as np
    random = np.random.default_rng(1)

    def draw(count, of):
        sums = np.cumsum(1 / np.arange(1, of + 1))
        return np.searchsorted(sums / sums[-1], random.random(count))

    order = random.permutation(nodes)
    drawn = np.stack([draw(2 * edges, relations), random.integers(0, nodes, 2 * edges), order[draw(2 * edges, nodes)]], 1)
    drawn = random.permutation(np.unique(drawn, axis=0))[:edges]
    return relations, nodes, nodes, *drawn.T


def triples(path, copies):
    """relation, source, destination of each line; a destination gathers. `copies`: of the graph, side by side."""
    import numpy as np
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        relation, source, destination = np.loadtxt(file, np.int64, delimiter=",", skiprows=1, unpack=True)
    nodes = int(max(source.max(), destination.max())) + 1
    relation, destination, source = np.unique(np.stack([relation, destination, source]), axis=1)
    shift = np.repeat(np.arange(copies), len(relation)) * nodes
    repeat = lambda x: np.tile(x, copies)
    return (int(relation.max()) + 1, copies * nodes, copies * nodes, repeat(relation), repeat(destination) + shift,
            repeat(source) + shift)


def kernel_map(places):
    """Which voxel meets which at each of the 27 offsets of a 3 x 3 x 3 kernel."""
    import numpy as np
    places = places.astype(np.int64) + 1
    extent = places.max(axis=0) + 2
    keys = (places[:, 0] * extent[1] + places[:, 1]) * extent[2] + places[:, 2]
    order = np.argsort(keys)
    relation, row, col = [], [], []
    for offset in range(27):
        step = np.array([offset // 9 - 1, offset // 3 % 3 - 1, offset % 3 - 1])
        wanted = keys + (step[0] * extent[1] + step[1]) * extent[2] + step[2]
        at = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
        met = np.flatnonzero(keys[order[at]] == wanted)
        relation.append(np.full(len(met), offset))
        row.append(met)
        col.append(order[at[met]])
    return 27, len(keys), len(keys), *map(np.concatenate, (relation, row, col))


def hills(voxels):
    """Voxels of rolling hills, as a scanner finds them: an eighth of all columns, neighbours together."""
    import numpy as np
    random = np.random.default_rng(1)
    size = int((voxels * 8) ** 0.5)
    x, y = np.divmod(np.arange(size * size), size)
    seen = np.sin(x / 37) * np.sin(y / 23) + 0.3 * random.standard_normal(size * size)
    chosen = np.sort(np.argsort(-seen)[:voxels])
    height = (12 + 6 * np.sin(x / 60) + 6 * np.cos(y / 45)).astype(np.int64)
    return np.stack([height[chosen], x[chosen], y[chosen]], axis=1)


def voxels_of(path):
    """z, y, x of each voxel, 16 bits."""
    import numpy as np
    data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    return np.frombuffer(data, np.int16).reshape(-1, 3)


def write(path, relations, rows, cols, relation, row, col):
    import numpy as np
    order = np.lexsort((col, row, relation))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(np.array([relations, rows, cols, len(relation)], np.int64).tobytes())
        for part in (relation, row, col):
            file.write(part[order].astype(np.int32).tobytes())


MADE = {"typed-graph-8k": lambda: typed_graph(8285, 45, 29043), "voxels-80k": lambda: kernel_map(hills(80000))}


def files_of(folders):
    """{name: path} of typed graphs, and of lists of voxels, in some folders."""
    graphs, voxels = {}, {}
    for folder in folders or ():
        for path in sorted(pathlib.Path(folder).iterdir()):
            stem = path.name.removesuffix(".gz")
            if stem.endswith("_triples.csv"):
                graphs[stem.removesuffix("_triples.csv")] = path
            if stem.endswith(".zyx_i16.bin"):
                voxels[stem.removesuffix(".zyx_i16.bin")] = path
    return graphs, voxels


def made(name, source, disjoint):
    if not source:
        return MADE[name]()
    path = pathlib.Path(source)
    return triples(path, disjoint) if "_triples.csv" in path.name else kernel_map(voxels_of(path))


def prepared(name, source=None, disjoint=1):
    """The file of a graph's edges; made with the peers' numpy at first need."""
    where = hashlib.sha256(str(source).encode()).hexdigest()[:8] if source else "made"
    path = FOLDER / f"{name}-x{disjoint}-{where}.edges"
    if not path.exists():
        install.install_packages("numpy")
        install.run(f"preparing the edges of {name}", install.PYTHON, __file__, name, path, disjoint, source or "")
    return path


if __name__ == "__main__":
    import sys
    name, target, disjoint, source = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    write(target, *made(name, source, disjoint))

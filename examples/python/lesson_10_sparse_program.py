"""Lesson 10: a sparse program. What is computed is a few lines of text over axes that say what is stored; the compiler
makes loops of it, and code of those. Here: each node of a graph takes the largest feature among its neighbours, which no
library has a call for.
"""
import numpy as np
import weft
from weft import sparse

# Coordinates: i is a node, j a neighbour that is stored, k a feature. An S axis is written at, an R axis is reduced.
program = sparse.parse("""program largest_of_neighbours(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  K = dense_fixed(feat)
  X = buffer(N, K): fp32
  Y = buffer(I, K): fp32
  iterate largest(I, J, K) "SRS" as (i, j, k):
    init:
      Y[i, k] = -inf
    Y[i, k] = max(Y[i, k], X[j, k])
""")
# A schedule says how: rows are shared by the team, sixteen features are one vector and stay in registers.
operator = sparse.compile(program, """lower()
ko, ki = split(largest.k, 16)
reorder(ko, largest.j, ki)
vectorize(ki)
cache_write(ko, register)
parallel(largest.i)
""", set={"feat": 32})
print(operator.text("stage2"))

# The same program call by call, where a program writes programs: each call checks what it is given.
built = (sparse.ProgramBuilder("largest_of_neighbours", ["m", "n", "nnz", "feat"])
         .dense_fixed("I", "m")
         .sparse_variable("J", "I", "n", "nnz", "j_indptr", "j_indices")
         .dense_fixed("N", "n")
         .dense_fixed("K", "feat")
         .buffer("X", ["N", "K"])
         .buffer("Y", ["I", "K"])
         .iterate(sparse.IterationSpec(name="largest", axes=["I", "J", "K"], kinds="SRS", iterators=["i", "j", "k"],
                                       init=["Y[i, k] = -inf"], body=["Y[i, k] = max(Y[i, k], X[j, k])"]))
         .build())
assert built.text == program.text

# A random graph; node 3 has no neighbour.
random = np.random.default_rng(10)
edges = random.random((200, 200)) < 1 / 16
edges[3] = False
indptr = np.concatenate([[0], edges.sum(1).cumsum()])
indices = np.ascontiguousarray(edges.nonzero()[1])
graph = sparse.csr(200, 200, indptr, indices)  # checked once
x = random.standard_normal((200, 32), dtype=np.float32)
y = np.empty_like(x)
operator.run({"J": graph}, {"X": x, "Y": y})

expected = np.array([x[row].max(0, initial=-np.inf) for row in edges])
print(f"{edges.sum()} edges, node 3 has {y[3, 0]}")
assert (y == expected).all()
assert isinstance(graph, weft.sparse.Structure)

"""Lesson 9: trees of draft tokens (speculative decoding). A draft model proposes a tree of continuations; the large model
runs over all of its nodes in one step, each seeing the context and its own branch.

The trees are real ones (EAGLE, Medusa and token recycling; tests/data/README.md), three requests in one batch:
    lesson_09_draft_trees.py tests/data/draft_trees.txt
Each node's output is compared with attention over its branch by hand.
"""
import pathlib
import sys

import numpy as np
import weft

HEADS, KV_HEADS, DIM, PAGE, PAGES, CONTEXT = 4, 2, 32, 16, 40, (37, 160, 15)

data = pathlib.Path(__file__).parents[2] / "tests/data/draft_trees.txt"
with open(sys.argv[1] if len(sys.argv) > 1 else data) as file:
    trees = [[int(parent) for parent in line.split()[2:]] for line in file]  # -1: the last token of the text so far

# Context and tree of each request in the cache, the tree's nodes as its last tokens.
table = weft.PageTable(PAGE, PAGES)
requests = [table.add() for _ in trees]
for request, context, tree in zip(requests, CONTEXT, trees):
    table.append(request, context + len(tree))
pages = table.view(requests)
qo_indptr = np.cumsum([0] + [len(tree) for tree in trees]).astype(np.int32)

random = np.random.default_rng(9)
k, v = random.standard_normal((2, PAGES, PAGE, KV_HEADS, DIM), dtype=np.float32)
q = random.standard_normal((int(qo_indptr[-1]), HEADS, DIM), dtype=np.float32)

blocks = weft.blocks_from_tree(pages, qo_indptr, sum(trees, []))
kernel = weft.build(weft.AttentionSpec(head_dim_qk=DIM, head_dim_vo=DIM, kv_form=weft.KvForm.block_sparse))
plan = kernel.plan(num_qo_heads=HEADS, num_kv_heads=KV_HEADS, qo_indptr=qo_indptr, blocks=blocks)
o = kernel.run(plan, q, (k, v))

worst = 0.0
for r, (request, context, tree) in enumerate(zip(requests, CONTEXT, trees)):
    ids = np.array(table.pages(request))
    tokens = np.arange(context + len(tree))
    keys, values = (x[ids[tokens // PAGE], tokens % PAGE].astype(np.float64) for x in (k, v))
    for node in range(len(tree)):
        branch, at = [], node
        while at >= 0:
            branch.append(context + at)
            at = tree[at]
        seen = np.array([*range(context), *branch])
        for head in range(HEADS):
            weights = np.exp(keys[seen, head // 2] @ q[qo_indptr[r] + node, head] / np.sqrt(DIM))
            expected = weights @ values[seen, head // 2] / weights.sum()
            worst = max(worst, np.abs(o[qo_indptr[r] + node, head] - expected).max())
print(f"{len(q)} nodes of {len(trees)} trees: within {worst:.1e} of attention over each one's branch")
assert worst < 1e-5

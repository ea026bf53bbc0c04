"""Lesson 1: attention over a paged KV cache, one plan a step.

Two requests share a pool of pages. The first has 20 tokens in the cache and brings 4 new queries, the second has 7 and
decodes one. The program prints what each worker does and checks one row by hand.
"""
import numpy as np
import weft

HEADS, KV_HEADS, DIM, PAGE_SIZE, PAGES = 4, 2, 64, 8, 6

# Who lies where: the page table hands out pages and checks every id once.
table = weft.PageTable(PAGE_SIZE, PAGES)
first, second = table.add(), table.add()
table.append(first, 20)
table.append(second, 7)
pages = table.view([first, second])

# The cache: [pages, page_size, kv_heads, dim], filled by whoever computes K and V.
random = np.random.default_rng(1)
k, v = random.standard_normal((2, PAGES, PAGE_SIZE, KV_HEADS, DIM), dtype=np.float32)
q = random.standard_normal((5, HEADS, DIM), dtype=np.float32)

# What is compiled: types, dims, the cache's form, the mask. Built-in kernels need no compiler.
kernel = weft.build(weft.AttentionSpec(head_dim_qk=DIM, head_dim_vo=DIM, mask=weft.Mask.causal))

# Once a step: lengths become work items. Once a layer: run.
plan = kernel.plan(num_qo_heads=HEADS, num_kv_heads=KV_HEADS, qo_indptr=[0, 4, 5], pages=pages)
print(plan)
o, lse = kernel.run(plan, q, (k, v), return_lse=True)

# By hand: the second request's only query, head 3, which reads KV head 1 of its one page.
page = table.pages(second)[0]
scores = k[page, :7, 1].astype(np.float64) @ q[4, 3] / np.sqrt(DIM)
weights = np.exp(scores)
expected = weights @ v[page, :7, 1] / weights.sum()
print(f"o[4, 3, 0] = {o[4, 3, 0]:.6f}, by hand {expected[0]:.6f}; "
      f"lse = {lse[4, 3]:.6f}, by hand {np.log(weights.sum()):.6f}")
assert np.abs(o[4, 3] - expected).max() < 1e-5 and abs(lse[4, 3] - np.log(weights.sum())) < 1e-5

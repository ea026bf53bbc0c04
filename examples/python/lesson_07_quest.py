"""Lesson 7: attention over the pages that matter (Quest). Each page of keys has a summary, the least and largest element
of each channel, which bounds q . k for all of its keys. A step reads the summaries, attends the 16 pages of each KV head
with the largest bounds, and leaves the other 112 where they are.

The lesson hides one key that a head looks for in a context of 2,048 tokens, somewhere else for each KV head, and compares
with attention over everything.
"""
import numpy as np
import weft

TOKENS, PAGE, BUDGET, HEADS, KV_HEADS, DIM = 2048, 16, 16, 4, 2, 32
PAGES = TOKENS // PAGE
HIDDEN = (777, 1500)  # what the heads look for

random = np.random.default_rng(7)
q = np.abs(random.standard_normal((1, HEADS, DIM), dtype=np.float32))
k, v = random.standard_normal((2, TOKENS, KV_HEADS, DIM), dtype=np.float32)
for head in range(KV_HEADS):
    k[HIDDEN[head], head] = 3 * (q[0, 2 * head] + q[0, 2 * head + 1])

# The cache and its summaries, kept up as tokens come: a prompt, then one by one.
k_pages, v_pages = np.zeros((2, PAGES, PAGE, KV_HEADS, DIM), np.float32)
low, high = np.zeros((2, PAGES, KV_HEADS, DIM), np.float32)
table = weft.PageTable(PAGE, PAGES)
request = table.add()
for begin, end in [(0, TOKENS - 40), *((t, t + 1) for t in range(TOKENS - 40, TOKENS))]:
    table.append(request, end - begin)
    pages = table.view([request])
    weft.append_paged_kv(k[begin:end], v[begin:end], [0, end - begin], pages, weft.Layout.nhd, (k_pages, v_pages))
    weft.update_page_summaries(k_pages, [0, end - begin], pages, weft.Layout.nhd, low, high)

# One step: choose, plan, attend.
pages = table.view([request])
selected = weft.choose_pages(q, low, high, [0, 1], pages, KV_HEADS, BUDGET)
blocks = weft.select_pages(pages, [0, 1], KV_HEADS, selected, BUDGET)
spec = weft.AttentionSpec(head_dim_qk=DIM, head_dim_vo=DIM, kv_form=weft.KvForm.block_sparse)
shape = weft.PlanInput(num_qo_heads=HEADS, num_kv_heads=KV_HEADS, qo_indptr=[0, 1])
kernel = weft.build(spec)
chosen = kernel.run(kernel.plan(shape.replace(blocks=blocks)), q, (k_pages, v_pages))

# All 128 pages.
kernel = weft.build(spec.replace(kv_form=weft.KvForm.paged))
everything = kernel.run(kernel.plan(shape.replace(pages=pages)), q, (k_pages, v_pages))

for head in range(KV_HEADS):
    mine = selected[head * BUDGET:(head + 1) * BUDGET]
    page = HIDDEN[head] // PAGE
    worst = np.abs(chosen - everything)[0, 2 * head:2 * head + 2].max()
    print(f"KV head {head}: token {HIDDEN[head]} is in page {page}, {'' if page in mine else 'not '}chosen; "
          f"{BUDGET} of {PAGES} pages give the output of all within {worst:.1e}")
    assert page in mine and mine[-1] == PAGES - 1 and worst < 1e-2

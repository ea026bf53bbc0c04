"""FlashInfer's test files that ask for what weft.flashinfer serves, and the cases whose answer differs on purpose."""

from __future__ import annotations

import re
from typing import Optional

FILES = [f"attention/test_{name}.py" for name in """
    batch_decode_kernels batch_prefill_kernels batch_attention shared_prefix_kernels sliding_window logits_cap alibi
    block_sparse attention_sink deepseek_mla non_contiguous_decode non_contiguous_prefill tensor_cores_decode
    batch_invariant_fa2 page rope single_prefill decode_fp8_calibration_scale fp8_prefill mla_page workspace_size
    batch_prefill decode_prefill_lse""".split()] + [f"utils/test_{name}.py" for name in """
    sampling logits_processor norm activation quantization pod_kernels topk jit_example triton_cascade""".split()]

# Cases, by file and name, that cannot be put to Weft, or whose answer is another one on purpose (docs/flashinfer.md).
_DIFFERENT = {
    "test_batch_(decode|prefill)_kernels.py::.*_torch_compile_cuda_graph":
        "starts a process of its own, which imports FlashInfer's package",
    "test_page.py::.*_cuda_graph_bad_scale": "starts a process of its own, which imports FlashInfer's package",
    "test_topk.py::test_multi_cta_reuses_dirty_cached_row_states_buffer": "reads a private buffer of FlashInfer's",
}


def different(case: str) -> Optional[str]:
    """Why `case`, FILE::NAME, is not run; None where it is."""
    return next((why for pattern, why in _DIFFERENT.items() if re.search(pattern, case)), None)

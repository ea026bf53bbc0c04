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

# Cases, by file and name: why Weft's answer is another one. docs/flashinfer.md has each of these differences.
_DIFFERENT: dict[str, str] = {}


def different(case: str) -> Optional[str]:
    """Why the answer to `case`, FILE::NAME, is another one than FlashInfer's; None where it is not."""
    return next((why for pattern, why in _DIFFERENT.items() if re.search(pattern, case)), None)

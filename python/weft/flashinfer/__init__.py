"""FlashInfer's names and semantics over Weft's engine, on the CPU and on cards; torch's tensors (docs/flashinfer.md).

    import weft.flashinfer as flashinfer
    o = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True)

weft.flashinfer.install() makes `import flashinfer` give this. What Weft does not serve is refused by name, and never
ignored: ValueError for values, NotImplementedError for what is missing, both of them weft.Error.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from . import (_missing, activation, attention, cascade, decode, logits_processor, mla, norm, page, pod, prefill,
               quantization, rope, sampling, sparse, topk, utils)
from .activation import gelu_and_mul, gelu_tanh_and_mul, silu_and_mul
from .attention import BatchAttention, BatchAttentionWithAttentionSinkWrapper
from .cascade import (BatchDecodeWithSharedPrefixPagedKVCacheWrapper, BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
                      MultiLevelCascadeAttentionWrapper, merge_state, merge_state_in_place, merge_states)
from .decode import (BatchDecodeWithPagedKVCacheWrapper, CUDAGraphBatchDecodeWithPagedKVCacheWrapper, fast_decode_plan,
                     single_decode_with_kv_cache)
from .mla import BatchMLAPagedAttentionWrapper
from .norm import (fused_add_rmsnorm, fused_add_rmsnorm_quant, gemma_fused_add_rmsnorm, gemma_rmsnorm, layernorm,
                   layernorm_quant, rmsnorm, rmsnorm_quant)
from .page import append_paged_kv_cache, append_paged_mla_kv_cache, get_batch_indices_positions, get_seq_lens
from .pod import BatchPODWithPagedKVCacheWrapper, PODWithPagedKVCacheWrapper
from .prefill import (BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper,
                      single_prefill_with_kv_cache, single_prefill_with_kv_cache_return_lse)
from .quantization import packbits, segment_packbits
from .rope import (apply_llama31_rope, apply_llama31_rope_inplace, apply_llama31_rope_pos_ids,
                   apply_llama31_rope_pos_ids_inplace, apply_rope, apply_rope_inplace, apply_rope_pos_ids,
                   apply_rope_pos_ids_inplace, apply_rope_with_cos_sin_cache, apply_rope_with_cos_sin_cache_inplace)
from .sampling import (chain_speculative_sampling, min_p_sampling_from_probs, sampling_from_logits, sampling_from_probs,
                       softmax, top_k_mask_logits, top_k_renorm_probs, top_k_sampling_from_probs,
                       top_k_top_p_sampling_from_logits, top_k_top_p_sampling_from_probs, top_p_renorm_probs,
                       top_p_sampling_from_probs)
from .sparse import BlockSparseAttentionWrapper, VariableBlockSparseAttentionWrapper
from .topk import TopKTieBreak, top_k, top_k_page_table_transform, top_k_ragged_transform
from .utils import next_positive_power_of_2

__version__ = "0.7.2"  # of FlashInfer, whose calls these are
__git_version__ = "weft"

_MODULES = {x.__name__.rpartition(".")[2]: x
            for x in (activation, attention, cascade, decode, logits_processor, mla, norm, page, pod, prefill,
                      quantization, rope, sampling, sparse, topk, utils)}

__all__ = sorted(name for name, value in list(globals().items())
                 if not name.startswith("_") and name not in ("annotations", "functools", "sys", "Any")) + ["install"]


for _name, _module in _MODULES.items():  # from flashinfer.decode import NAME
    setattr(_module, "__getattr__", functools.partial(_missing.find, f"{__name__}.{_name}"))


def __getattr__(name: str) -> Any:
    if name in _missing.MODULES:
        return _missing.MissingModule(f"{__name__}.{name}")
    return _missing.find(__name__, name)


def install() -> None:
    """Makes `import flashinfer` and its modules give these. Raises RuntimeError where another is loaded already."""
    here = sys.modules[__name__]
    loaded = sys.modules.get("flashinfer")
    if loaded is not None and loaded is not here:
        raise RuntimeError("flashinfer: is loaded already; call weft.flashinfer.install() before its first import")
    sys.modules["flashinfer"] = here
    for name, module in _MODULES.items():
        sys.modules[f"flashinfer.{name}"] = module
    for name in _missing.MODULES:
        sys.modules[f"flashinfer.{name}"] = _missing.MissingModule(f"flashinfer.{name}")

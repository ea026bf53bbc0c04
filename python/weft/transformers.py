"""Weft's attention in transformers' models, on CPUs and cards (docs/python.md).

    weft.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="weft")

Grouped heads, sliding windows, soft caps, learned sinks and padding are served, with any cache. Masks are the functions
that transformers describes them by, traced into intervals (weft.variants.trace): what nobody sees is not computed, and
no mask is made. model.generate_batch reads the pages of full-attention layers where they lie.

Weft computes no gradients: models run below torch.no_grad() or torch.inference_mode().
"""

from __future__ import annotations

from . import _weft
from ._tracing.values import error
from ._transformers import batching
from ._transformers.attention import attention
from ._transformers.cache import cache
from ._transformers.masks import Mask, mask
from ._transformers.patterns import Pattern, unsupported

__all__ = ["Mask", "Pattern", "attention", "cache", "mask", "register"]


def register(name: str = "weft") -> None:
    """Makes `name` an attn_implementation of transformers' models, which generate_batch takes, too.

    Raises ImportError without transformers, and Error(unsupported) for a version without what this needs.
    """
    import transformers

    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.generation.continuous_batching.cache import PagedAttentionCache
        from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager
    except ImportError as missing:
        unsupported(f"transformers {transformers.__version__}: supported are 5.24 and later ones like it; missing: "
                     f"{missing}")
    if "flash" in name or "paged" in name or name in ("eager", "sdpa", "flex_attention"):
        raise error(_weft.ErrorCode.invalid_argument,
                    f"name = {name!r}: means something else to transformers; choose another, as 'weft'")
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    if not batching.names:
        batching.admit(ContinuousBatchingManager)
        batching.leave_pages(PagedAttentionCache)
    batching.names.add(name)

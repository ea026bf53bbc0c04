"""Weft: attention over any KV cache, whole models and sparse operators, in memory that other libraries own.

    spec = weft.AttentionSpec(head_dim_qk=64, head_dim_vo=64, kv_form=weft.KvForm.ragged, mask=weft.Mask.causal)
    o = weft.attend(spec, q, k, v)

Names are those of the C++ library. Arrays are of numpy, torch, cupy, jax or whatever else speaks DLPack; none is ever
copied in secret. A call that Weft refuses raises weft.Error, whose `code` says the kind.
"""

from typing import TYPE_CHECKING, Any

from . import _weft, jit, serve, sparse, variants
from ._weft import *  # noqa: F403
from ._weft import VERSION as __version__

if TYPE_CHECKING:
    from ._tracing.blocks import block_mask as block_mask
    from ._tracing.trace import show as show

__all__ = [*_weft.__all__, "jit", "serve", "sparse", "variants", "block_mask", "show"]


def __getattr__(name: str) -> Any:
    """What traces Python functions is loaded when it is first asked for."""
    if name == "show":
        from ._tracing.trace import show

        return show
    if name == "block_mask":
        from ._tracing.blocks import block_mask

        return block_mask
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Weft: attention over any KV cache, whole models and sparse operators, in memory that other libraries own.

    spec = weft.AttentionSpec(head_dim_qk=64, head_dim_vo=64, kv_form=weft.KvForm.ragged, mask=weft.Mask.causal)
    o = weft.attend(spec, q, k, v)

Names are those of the C++ library. Arrays are of numpy, torch, cupy, jax or whatever else speaks DLPack; none is ever
copied in secret. A call that Weft refuses raises weft.Error, whose `code` says the kind.
"""

from ._weft import *  # noqa: F403
from ._weft import VERSION as __version__

del jit, serve, sparse, variants  # the package has files for these  # noqa: F821
from . import _weft, jit, serve, sparse, variants  # type: ignore[no-redef]  # noqa: E402

__all__ = [name for name in vars(_weft) if not name.startswith("_")]

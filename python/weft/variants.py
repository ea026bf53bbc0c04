"""Built-in variants of attention."""

from ._weft import variants as _variants
from ._weft.variants import *  # noqa: F403

__all__ = [name for name in vars(_variants) if not name.startswith("_")]

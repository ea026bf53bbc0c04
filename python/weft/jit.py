"""The kernel cache: weft/jit.h under its own names."""

from ._weft import jit as _jit
from ._weft.jit import *  # noqa: F403

__all__ = [name for name in vars(_jit) if not name.startswith("_")]

"""An engine that answers many requests at once, without HTTP: weft/serve.h under its own names."""

from ._weft import serve as _serve
from ._weft.serve import *  # noqa: F403

__all__ = [name for name in vars(_serve) if not name.startswith("_")]

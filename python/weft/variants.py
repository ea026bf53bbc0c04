"""Variants of attention: the built-in ones, and those that are made of Python functions (docs/variants.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._weft import variants as _variants
from ._weft.variants import *  # noqa: F403

if TYPE_CHECKING:
    from ._tracing.trace import Traced as Traced
    from ._tracing.trace import show as show
    from ._tracing.trace import trace as trace

_TRACING = ["Traced", "show", "trace"]
__all__ = [name for name in vars(_variants) if not name.startswith("_")] + _TRACING


def __getattr__(name: str) -> Any:
    """Tracing is loaded when it is first asked for."""
    if name in _TRACING:
        from ._tracing import trace as found

        return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

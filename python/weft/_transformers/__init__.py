"""Weft's attention behind transformers' interfaces (weft.transformers)."""

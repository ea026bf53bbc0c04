"""Python functions -> variants and block lists (weft.variants.trace, weft.block_mask)."""

"""FlashInfer's own test files over weft.flashinfer, on a card or, in its place, on the CPU.

    python -m weft.testing.flashinfer CHECKOUT --device cpu --cases 200 --seed 1

CHECKOUT is a work tree of FlashInfer's repository. Its files run as they are: `import flashinfer` gives
weft.flashinfer, "cuda" the CPU. The table says what became of the cases of each file; the ledger names each case that
did not run, or was refused, and why. Needs torch, numpy, pytest, scipy and einops.
"""

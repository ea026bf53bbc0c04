"""Test suites of others, run over Weft: weft.testing.flashinfer."""

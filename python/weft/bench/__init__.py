"""Benchmarks of others, with Weft as what they measure: weft.bench.flashinfer."""

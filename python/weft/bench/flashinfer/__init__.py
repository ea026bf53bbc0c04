"""Weft as a solution of FlashInfer-Bench's data sets, on a card or on the CPU.

    python -m weft.bench.flashinfer DATASET --device cpu

DATASET is a folder of theirs: definitions/**/*.json, workloads/**/*.jsonl, solutions/**/*.json. For each workload of a
definition that Weft serves (attention over pages and ragged keys, MLA, RMSNorm, RoPE, sampling) its answer is compared
with the definition's reference and timed beside it, and a Trace line is appended to traces/OP/NAME.jsonl, as their own
runner does, which needs a card. Needs torch.
"""

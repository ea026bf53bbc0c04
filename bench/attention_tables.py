#!/usr/bin/env python3
"""Attention on cards beside its peers, as the tables of docs/kernels/cuda_attention.md, of rows that were measured.

    bench/measure_gpu.py decode prefill      on a machine with a card: measures Weft
    bench/peers/gpu.py                       there, too: its peers
    bench/attention_tables.py                prints the tables
    bench/attention_tables.py --write        puts them into the page, between marks of their names
    bench/attention_tables.py --check        says whether they are there

Of several rows of one case the last one counts.
"""
import json
import math

import page
from page import markdown

PAGE = "docs/kernels/cuda_attention.md"
PROMPTS = {"32 x 512": "batch32 n512", "16 x 1,024": "batch16 n1024", "8 x 2,048": "batch8 n2048",
           "4 x 4,096": "batch4 n4096", "2 x 8,192": "batch2 n8192", "1 x 16,384": "batch1 n16384"}
FLASHINFER_DECODE = ("FlashInfer decode", "FlashInfer decode, tensor cores")


class Results:
    """Rows of one kind of card: Weft's, and those of its peers."""

    def __init__(self, weft, peers):
        self.rows = {}
        for name in (weft, peers):
            for text in (page.ROOT / "bench/results" / name).read_text().splitlines():
                line = json.loads(text)
                if "metric" in line:
                    self.rows[line.get("contestant", "Weft"), line["case"], line["metric"]] = line

    def value(self, case, metric, contestants=("Weft",)):
        """The best of the contestants' that is there."""
        found = [self.rows[key]["value"] for name in contestants if (key := (name, case, metric)) in self.rows]
        return (min if metric == "time" else max)(found, default=math.nan)

    def share(self, case, metric):
        return self.rows["Weft", case, metric]["share"]


def number(value, digits=0):
    return "" if math.isnan(value) else f"{value:,.{digits}f}"


def microseconds(value):
    return "" if math.isnan(value) else f"{value:.3g}"


def prompt(dims, form, case):
    return f"prefill causal 16q/16kv hd{dims} {form} bf16 {case}"


def prompts_of_producer(results):
    rows = []
    for dims, cases in ((128, {**PROMPTS, "16, Zipf, mean 1,024": "batch16 zipf mean1024"}), (64, PROMPTS)):
        for title, case in cases.items():
            paged = prompt(dims, "page16", case)
            by = [(title_of, results.value(prompt(dims, form, case), "time over loader = cp_async"))
                  for title_of, form in (("", "page16"), ("of pages of 1 ", "page1"), ("contiguous ", "contiguous"))]
            rows.append([f"{dims}, {title}", number(results.value(paged, "rate")),
                         number(results.value(prompt(dims, "contiguous", case), "rate")),
                         *(number(results.value(paged, "rate", [peer]))
                           for peer in ("FlashInfer FA3", "torch cuDNN", "torch flash")),
                         ", ".join(f"{what}{share:.2f}" for what, share in by if not math.isnan(share))])
    return markdown(["Dims, tokens", "Pages of 16", "Contiguous", "FlashInfer 0.6.4", "cuDNN", "flash",
                     "Its time by wgmma's"], rows)


def decode(results):
    rows = []
    for title, case in (("batch 16, 1,024 tokens", "batch16 kv1024"), ("batch 16, 8,192", "batch16 kv8192"),
                        ("batch 64, 1,024", "batch64 kv1024"), ("batch 64, 4,096", "batch64 kv4096"),
                        ("lengths by Zipf, mean 1,024", "batch16 zipf mean1024"),
                        ("one of 128k among 31 of 1,024", "one 128k, 31 kv1024")):
        case = f"decode 32q/8kv hd128 page16 bf16 {case}"
        rows.append([title, f"{results.share(case, 'bandwidth'):.2f}",
                     *(number(results.value(case, "bandwidth", who))
                       for who in (["Weft"], FLASHINFER_DECODE, ["torch cuDNN"], ["torch flash"]))])
    for title, case in (("batch 1, 1,024, us", "8kv hd128 page16 bf16 batch1 kv1024"),
                        ("batch 1, 8,192, us", "8kv hd128 page16 bf16 batch1 kv8192"),
                        ("16 after 1,024 shared tokens, us", "32kv hd128 page16 bf16 batch16 prefix1024 kv128"),
                        ("16 after 32,768, us", "32kv hd128 page16 bf16 batch16 prefix32768 kv128"),
                        ("64 after 32,768, us", "32kv hd128 page16 bf16 batch64 prefix32768 kv128")):
        rows.append([title, "", *(microseconds(results.value(f"decode 32q/{case}", "time", who))
                                  for who in (["Weft"], FLASHINFER_DECODE, ["torch cuDNN"], ["torch flash"]))])
    return markdown(["decode, 32 query and 8 KV heads of 128 dims, GB/s", "share of the read rate", "Weft", "FlashInfer",
                     "torch cuDNN", "torch flash"], rows)


def prompts_of_warps(results):
    rows = []
    for title, dims, who in (("128 dims", 128, "Weft"), ("FlashInfer, FA2", 128, "FlashInfer FA2"),
                             ("torch flash", 128, "torch flash"), ("64 dims", 64, "Weft"), ("torch flash", 64, "torch flash")):
        rows.append([title, *(number(results.value(prompt(dims, "page16", case), "rate", [who]))
                              for case in PROMPTS.values())])
    return markdown(["prefill, causal, 16 heads, TFLOP/s", *PROMPTS], rows)


def main():
    arguments = page.parser(__doc__, PAGE).parse_args()
    h100, h200 = Results("gpu.jsonl", "gpu_peers.jsonl"), Results("gpu_h200.jsonl", "gpu_peers_h200.jsonl")
    page.finish(arguments, PAGE, {"producer": prompts_of_producer(h200), "decode": decode(h100),
                                  "warps": prompts_of_warps(h100)})


if __name__ == "__main__":
    main()

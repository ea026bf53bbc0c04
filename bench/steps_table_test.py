#!/usr/bin/env python3
"""The tables that steps_table.py makes of rows as `weft bench model --step both` gives them."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "steps_table.py"
SPEC = importlib.util.spec_from_file_location("steps_table", SCRIPT)
steps_table = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(steps_table)


def line(case, metric, value, share=None):
    return {"part": "steps-8b", "bench": "model", "case": case, "metric": metric, "value": value, "unit": "tok/s",
            "ceiling": None, "share": share, "card": "A Card"}


LINES = [
    {"part": "steps-8b", "note": "cuda:0: A Card; a step"},
    line("8b bf16 random decode batch1 ctx128, layered", "speed", 160, 0.8),
    line("8b bf16 random decode batch1 ctx128, layered", "speed, ids alone", 161.25, 0.81),
    line("8b bf16 random decode batch1 ctx128, fused", "speed", 176, 0.88),
    line("8b bf16 random decode batch1 ctx128, fused", "speed, ids alone", 178, 0.89),
    line("8b bf16 random decode batch1 ctx6144, fused", "speed", 140, 0.7),
    line("8b bf16 random decode batch2 ctx1024, fused", "step", 6000),
    line("8b bf16 random decode batch2 ctx1024, fused", "without keys and values, by one row's", 1.06),
    line("8b bf16 random decode batch4 ctx1024, fused", "without keys and values, by one row's", 1.2),
    line("8b bf16 random decode batch2 ctx1024, layered", "without keys and values, by one row's", 1.3),
    line("8b bf16 random decode batch1 ctx128", "speed", 1, 0.1),  # of one form
]
TABLES = """A Card:

| Model, tokens before | Fused | ids alone | Share | Layered | ids alone | Share | Fused is |
|---|---:|---:|---:|---:|---:|---:|---:|
| 8b bf16, 128 | 176.0 | 178.0 | 0.88 | 160.0 | 161.2 | 0.80 | 1.10 x |
| 8b bf16, 6,144 | 140.0 |  | 0.70 |  |  |  |  |

A step's time without what its keys and values take, by that of one row:

| Model, tokens before, form | 2 rows | 4 rows |
|---|---:|---:|
| 8b bf16, 1,024, fused | 1.06 | 1.20 |
| 8b bf16, 1,024, layered | 1.30 |  |"""


class StepsTable(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "gpu.jsonl"

    def run_on(self, lines):
        self.file.write_text("".join(json.dumps(each) + "\n" for each in lines))
        return subprocess.run([sys.executable, SCRIPT, self.file], capture_output=True, text=True)

    def test_forms_stand_beside_each_other(self):
        self.assertEqual(self.run_on(LINES).stdout, TABLES + "\n")

    def test_files_without_steps_are_refused(self):
        run = self.run_on(LINES[-1:])
        self.assertEqual(run.returncode, 1)
        self.assertIn("holds no steps", run.stderr)


if __name__ == "__main__":
    unittest.main()

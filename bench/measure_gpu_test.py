#!/usr/bin/env python3
"""What measure_gpu.py keeps of earlier rows, with a program that prints what a test says."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "measure_gpu.py"
NOTES = [{"note": "A CPU, 2 CPUs"}, {"note": "cuda:0: A Card, 1 multiprocessors; medians"}]


def row(case, value):
    return {"bench": "attention", "case": case, "metric": "time", "value": value, "unit": "us", "ceiling": None, "share": None}


class MeasureGpu(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.to = pathlib.Path(self.folder.name) / "gpu.jsonl"
        self.addCleanup(self.folder.cleanup)

    def run_parts(self, parts, lines, code=0, commit="abc"):
        program = pathlib.Path(self.folder.name) / "weft"
        text = "".join(json.dumps(line) + "\n" for line in NOTES + lines)
        program.write_text(f"#!{sys.executable}\nprint({text!r}, end='')\nexit({code})\n")
        program.chmod(0o755)
        run = subprocess.run([SCRIPT, *parts, "--program", program, "--to", self.to, "--commit", commit],
                             capture_output=True, text=True)
        self.assertEqual(run.stdout, "")
        return run

    def rows(self):
        lines = map(json.loads, self.to.read_text().splitlines())
        return [(line["part"], line["case"], line["value"], line["commit"]) for line in lines if "case" in line]

    def test_lines_say_where_and_what_was_measured(self):
        self.run_parts(["decode"], [row("decode a", 1)])
        for line in map(json.loads, self.to.read_text().splitlines()):
            self.assertEqual((line["card"], line["machine"], line["commit"]), ("A Card", "A CPU, 2 CPUs", "abc"))
            self.assertRegex(line["date"], r"^\d{4}-\d\d-\d\d$")

    def test_a_part_takes_the_place_of_its_earlier_rows_and_others_stay(self):
        self.run_parts(["prefill"], [row("prefill a", 1)])
        self.run_parts(["decode"], [row("decode a", 1), row("decode b", 2)])
        self.run_parts(["decode"], [row("decode c", 4), row("decode a", 3)], commit="def")
        self.assertEqual(self.rows(), [("decode", "decode a", 3, "def"), ("decode", "decode c", 4, "def"),
                                       ("prefill", "prefill a", 1, "abc")])

    def test_only_some_rows_leave_the_others(self):
        self.run_parts(["decode"], [row("decode a", 1), row("decode b", 2)])
        self.run_parts(["decode", "--only", "b"], [row("decode b", 5)], commit="def")
        self.assertEqual(self.rows(), [("decode", "decode a", 1, "abc"), ("decode", "decode b", 5, "def")])

    def test_groups_are_their_parts_and_models_are_asked_for(self):
        case = "8b bf16 random decode batch1 ctx128, fused"
        run = self.run_parts(["steps"], [])
        self.assertIn("the part steps-model needs --model FILE", run.stderr)
        self.run_parts(["steps", "--model", "m.gguf"], [row(case, 3)])
        parts = [part for part, _, _, _ in self.rows()]
        self.assertEqual(parts, ["steps-8b", "steps-8b-q4_g128", "steps-70b-q4_g128", "steps-1b", "steps-model"])
        self.assertIn("unknown part step;", self.run_parts(["step"], []).stderr)

    def test_lines_of_the_program_find_their_parts(self):
        for bench, case, part in (("decode", "deep linear 4096 x 32, apart", "deep-linear"),
                                  ("decode", "deep linear q8_0 4096 x 32, apart", "deep-linear-q8_0"),
                                  ("decode", "ring bf16 4096 x 32, 16 entries of 12 KB", "depth-size"),
                                  ("decode", "edge bf16 512, 132 workers, tagged", "edges"),
                                  ("decode", "glu stack 8b bf16 x 32, fused", "glu-stack"),
                                  ("decode", "attention stack 8b bf16 x 4 ctx128, apart", "attention-stack"),
                                  ("model", "8b bf16 random decode batch1 ctx128", "8b"),
                                  ("model", "8b bf16 random decode batch1 ctx128, fused", "steps-8b"),
                                  ("model", "70b q4_g128 random decode batch1 ctx128, layered", "steps-70b-q4_g128"),
                                  ("model", "Smollm2 135M decode batch1 ctx128, fused", "steps-model"),
                                  ("attention", "decode 32q/8kv", "decode")):
            line = {**row(case, 1), "bench": bench}
            self.to.write_text(json.dumps(line) + "\n")
            self.run_parts(["plan"], [])
            self.assertEqual([of for of, _, _, _ in self.rows_of_any()], [part], case)

    def rows_of_any(self):
        lines = map(json.loads, self.to.read_text().splitlines())
        return [(line["part"], line["case"], line["value"], None) for line in lines if "case" in line]

    def test_what_a_failed_part_measured_is_kept(self):
        self.run_parts(["decode"], [row("decode a", 1), row("decode b", 2)])
        run = self.run_parts(["decode"], [row("decode a", 7)], code=1)
        self.assertEqual(run.returncode, 1)
        self.assertEqual([value for _, _, value, _ in self.rows()], [7, 2])


if __name__ == "__main__":
    unittest.main()

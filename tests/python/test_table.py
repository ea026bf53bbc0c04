"""bench/peers/python_table.py runs, in small sizes: what it prints, and the lines that it keeps."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import ROOT


class Table(unittest.TestCase):
    def test_parts(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = pathlib.Path(folder) / "lines.jsonl"
            made = subprocess.run([sys.executable, ROOT / "bench/peers/python_table.py", "--quick", "--rounds", "3",
                                   "--only", "variants", "--only", "samples", "--only", "memory", "--only", "models",
                                   "--to", lines], capture_output=True, text=True)
            self.assertEqual(made.returncode, 1, made.stdout + made.stderr)  # no model was named
            self.assertIn("| models | not measured: RuntimeError: --model names none | | |", made.stdout)
            kept = [json.loads(line) for line in lines.read_text().splitlines()]
        self.assertEqual([line["part"] for line in kept], ["variants"] * 6 + ["samples"] * 3 + ["memory"] * 2)
        for line in kept[:9]:
            self.assertEqual(line["weft_is"], line["peer_median"] / line["weft"])
            self.assertGreater(min(line["readings"] + line["peer_readings"]), 0)
            self.assertIn(f"| {line['what']} | {line['weft']:.3g} ms | ", made.stdout)
        self.assertEqual(kept[10]["readings"], [0])  # references that were left
        self.assertLess(kept[9]["readings"][0], 20)


if __name__ == "__main__":
    unittest.main()

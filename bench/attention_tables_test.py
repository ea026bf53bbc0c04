#!/usr/bin/env python3
"""How tables of results come to pages, and what attention_tables.py makes of rows."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest
import unittest.mock

import attention_tables
import page


def row(case, metric, value, share=None, contestant=None):
    line = {"bench": "attention", "case": case, "metric": metric, "value": value, "share": share}
    return {**line, "contestant": contestant} if contestant else line


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench/results").mkdir(parents=True)
        root = unittest.mock.patch.object(page, "ROOT", self.root)
        root.start()
        self.addCleanup(root.stop)

    def results(self, weft, peers):
        for name, lines in (("w.jsonl", weft), ("p.jsonl", peers)):
            (self.root / "bench/results" / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return attention_tables.Results("w.jsonl", "p.jsonl")

    def finish(self, option, tables):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            page.finish(page.parser("", "page.md").parse_args(option), "page.md", tables)
        return said.getvalue()

    def test_tables_go_between_the_marks_of_their_names(self):
        marks = "a\n<!-- one:begin -->\nold\n<!-- one:end -->\nb\n<!-- two:begin -->\n<!-- two:end -->\n"
        (self.root / "page.md").write_text(marks)
        self.assertEqual(self.finish([], {"one": "new", "two": "2"}), "new\n\n2\n")
        with self.assertRaisesRegex(SystemExit, "page.md: its tables are not those of the results"):
            self.finish(["--check"], {"one": "new", "two": "2"})
        self.assertEqual((self.root / "page.md").read_text(), marks)
        self.finish(["--write"], {"one": "new", "two": "2"})
        self.assertEqual((self.root / "page.md").read_text(),
                         marks.replace("old", "new").replace("<!-- two:end", "2\n<!-- two:end"))
        self.finish(["--check"], {"one": "new", "two": "2"})
        with self.assertRaisesRegex(SystemExit, "page.md: has no marks <!-- three:begin -->"):
            self.finish(["--write"], {"three": ""})

    def test_of_a_case_the_last_row_counts_and_of_peers_the_better_one(self):
        case = "decode 32q/8kv hd128 page16 bf16 batch16 kv8192"
        results = self.results([row(case, "bandwidth", 1, 0.1), row(case, "bandwidth", 2900.4, 0.914)],
                               [row(case, "bandwidth", 2700, contestant="FlashInfer decode"),
                                row(case, "bandwidth", 2800, contestant="FlashInfer decode, tensor cores"),
                                {"note": "a card"}])
        self.assertEqual(results.value(case, "bandwidth"), 2900.4)
        self.assertEqual(results.share(case, "bandwidth"), 0.914)
        self.assertEqual(results.value(case, "bandwidth", attention_tables.FLASHINFER_DECODE), 2800)
        self.assertEqual(attention_tables.number(results.value(case, "time")), "")

    def test_prompts_have_what_is_there(self):
        paged = "prefill causal 16q/16kv hd64 page16 bf16 batch16 n1024"
        contiguous = paged.replace("page16", "contiguous")
        results = self.results([row(paged, "rate", 218.4), row(contiguous, "time over loader = cp_async", 0.744)],
                               [row(paged, "rate", 1234.5, contestant="torch cuDNN")])
        lines = attention_tables.prompts_of_producer(results).splitlines()
        self.assertIn("| 64, 16 x 1,024 | 218 |  |  | 1,234 |  | contiguous 0.74 |", lines)
        self.assertIn("| 128, 16 x 1,024 |  |  |  |  |  |  |", lines)
        self.assertIn("| 64 dims |  | 218 |  |  |  |  |", attention_tables.prompts_of_warps(results).splitlines())


if __name__ == "__main__":
    unittest.main()

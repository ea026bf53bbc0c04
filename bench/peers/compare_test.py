"""What the comparison promises, shown with contestants made for it: no peer is needed."""
import json
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare  # noqa: E402
import contestants  # noqa: E402
import install  # noqa: E402
import table  # noqa: E402
from contestants import CONTESTANTS, Field, Refused, Server  # noqa: E402
from rows import Row, all_rows, copies_beyond_caches  # noqa: E402

FAKE = """
import sys
sys.path.insert(0, {folder!r})
from protocol import Refused, serve

def prepare(row):
    print("a library says hello on stdout")
    if row["seconds"] == "no":
        raise Refused("this one does not")
    if row["seconds"] == "dies":
        return lambda: sys.exit("out of breath")
    return lambda: row["seconds"]

serve(prepare)
"""
ABOUT = {"weft": "1", "threads": 2, "machine": "m", "date": "d"}


def fake(seconds):
    return Server([sys.executable, "-c", FAKE.format(folder=str(HERE))], {"seconds": seconds})


class FakeField:
    """Weft takes 2 seconds, llama.cpp 4, OpenVINO does not install; the ceiling is 1 second."""

    def start(self, name, row):
        if name == "OpenVINO GenAI":
            raise Refused("not installed: no such package")
        return fake({"Weft": 2.0, "llama.cpp": 4.0}.get(name, 3.0))

    def start_ceiling(self, row):
        return fake(1.0)


def row_of(unit="tok/s"):
    return Row("decode-short", "decode", unit, 100, {"kind": "decode"}, ("Weft", "llama.cpp", "OpenVINO GenAI"))


def lines_of(row):
    return list(compare.lines_of(row, compare.measure(row, row.contestants, FakeField(), 3), ABOUT))


class Contestants(unittest.TestCase):
    def test_what_libraries_print_is_no_answer(self):
        server = fake(1.5)
        self.assertEqual(server.read(), 1.5)
        server.close()

    def test_a_refusal_says_why(self):
        with self.assertRaisesRegex(Refused, "this one does not"):
            fake("no")

    def test_a_process_that_ends_is_a_refusal(self):
        server = fake("dies")
        with self.assertRaisesRegex(Refused, "out of breath"):
            server.read()
        server.close()

    def test_a_peer_that_does_not_install_is_tried_once(self):
        tried = []

        def fail(peer):
            tried.append(peer)
            raise install.NotInstalled("no network")

        original, install.command_of = install.command_of, fail
        try:
            field = Field("build", 2)
            for _ in range(2):
                with self.assertRaisesRegex(Refused, "not installed: no network"):
                    field.command_of("torch")
        finally:
            install.command_of = original
        self.assertEqual(tried, ["torch"])


class Lines(unittest.TestCase):
    def test_rates_and_shares(self):
        weft, llama, openvino = lines_of(row_of())
        self.assertEqual((weft["median"], weft["share"], weft["weft_is"]), (50, 0.5, None))
        self.assertEqual((llama["median"], llama["share"], llama["weft_is"]), (25, 0.25, {"Weft": 2}))
        self.assertEqual(openvino["refused"], "not installed: no such package")
        self.assertEqual(table.fastest([weft, llama]), weft)

    def test_of_times_the_lower_wins(self):
        weft, llama, _ = lines_of(row_of("ms"))
        self.assertEqual((weft["median"], llama["median"], llama["weft_is"]), (2000, 4000, {"Weft": 2}))
        self.assertEqual(table.fastest([weft, llama]), weft)

    def test_the_table_shows_everyone(self):
        text = table.text(lines_of(row_of()))
        for words in ("Weft is 2.00 x", "50 % of the ceiling", "none: not installed: no such package"):
            self.assertIn(words, text)

    def test_a_run_of_some_rows_keeps_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results/peers.jsonl"
            compare.keep(path, [{"row": "prefill-486", "run": 1}, {"row": "linear-int4-m1", "run": 1}])
            compare.keep(path, [{"row": "linear-int4-m1", "run": 2}, {"row": "decode-short", "run": 2}])
            kept = [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
        self.assertEqual(kept, [("decode-short", 2), ("prefill-486", 1), ("linear-int4-m1", 2)])


class Rows(unittest.TestCase):
    def test_names_are_unique_and_contestants_known(self):
        rows = all_rows("", False)
        self.assertEqual(len({row.name for row in rows}), len(rows))
        for row in rows:
            self.assertIn("Weft", row.contestants)
            self.assertLessEqual(set(row.contestants), set(CONTESTANTS))

    def test_peers_are_those_of_the_command_line(self):
        self.assertEqual({c.peer for c in CONTESTANTS.values()}, {"weft", *contestants.PEERS})

    def test_copies_exceed_the_caches(self):
        self.assertEqual(copies_beyond_caches(512 << 20, True), 1)
        self.assertEqual(copies_beyond_caches((512 << 20) - 1, True), 2)


if __name__ == "__main__":
    unittest.main()

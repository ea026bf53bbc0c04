"""What the comparison promises, shown with contestants made for it: no peer is needed, weft_contestant is."""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import against  # noqa: E402
import compare  # noqa: E402
import contestants  # noqa: E402
import gpu_rows  # noqa: E402
import gpu_table  # noqa: E402
import install  # noqa: E402
import table  # noqa: E402
from contestants import CONTESTANTS, BenchProgram, Field, Refused, Server  # noqa: E402
from rows import Row, all_rows, bench_rows, copies_beyond_caches  # noqa: E402

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
WEFT_CONTESTANT = os.environ.get("WEFT_CONTESTANT") or HERE.parent.parent / "build/release/bin/weft_contestant"
ABOUT = {"weft": "1", "threads": 2, "machine": "m", "date": "d"}
BENCH = """#!{python}
import json, sys
assert sys.argv[1:] == ["bench", "plan", "--json", "--quick", "--threads", "2"], sys.argv
print(json.dumps({{"note": "a machine"}}))
for case, metric, value in {rows}:
    print(json.dumps({{"case": case, "metric": metric, "value": value}}))
"""


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


class Timed:
    """A contestant whose readings are those given, and who writes down when it ran."""

    def __init__(self, name, readings, journal):
        self.name, self.readings, self.journal = name, iter(readings), journal

    def read(self):
        self.journal.append(self.name)
        return next(self.readings)

    def close(self):
        pass


class TwoBuilds:
    """Two builds of Weft; a contestant without readings refuses."""

    def __init__(self, readings):
        self.readings, self.journal = readings, []

    def start(self, name, row):
        if name not in self.readings:
            raise Refused("this build of Weft knows no row of that kind")
        return Timed(name, self.readings[name], self.journal)

    def lines(self, row):
        pairs = against.measured([row], lambda pair: compare.measure(pair, pair.contestants, self, 3, pair=True))
        return [line for pair, results in pairs for line in compare.lines_of(pair, results, {**ABOUT, "against": "0"})]


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

    def test_weft_refuses_a_row_of_which_it_does_not_know_all(self):
        def refusal(fields):
            with self.assertRaises(Refused) as caught:
                Server([WEFT_CONTESTANT], fields)
            return str(caught.exception)

        self.assertEqual(refusal({"kind": "dream"}), "this build of Weft knows no row of kind 'dream'")
        rows = [row for row in all_rows("", True) if row.fields["kind"] != "first_token"]
        for row in rows:
            settings = CONTESTANTS[row.contestants[0]].settings
            with self.subTest(row=row.name):  # of unknown fields it names the first by the alphabet
                self.assertEqual(refusal({**row.fields, **settings, "threads": 1, "zebra": 1}),
                                 f"this build of Weft knows no field 'zebra' in a row of kind '{row.fields['kind']}'")

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
    def test_a_row_that_nobody_can_start_says_why_of_everyone(self):
        class Nobody:
            def start(self, name, row):
                raise Refused("its matrix is not there")

            start_ceiling = start

        results = compare.measure(row_of(), ("Weft", "llama.cpp"), Nobody(), 3)
        self.assertEqual(results, {"Weft": "its matrix is not there", "llama.cpp": "its matrix is not there"})

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

    def test_peers_of_several_rows_have_a_geometric_mean(self):
        def line(name, ratio):
            return {"row": name, "contestant": "MKL", "weft_is": {"Weft": ratio}}

        self.assertEqual(table.peers_summary([line("a", 1.0), line("b", 4.0)]),
                         "Weft by MKL, geometric mean of 2 rows: 2.00 x; lowest 1.00 x, a")
        self.assertEqual(table.peers_summary([line("a", 2.0)]), "")

    def test_facts_of_a_row_stand_in_its_line(self):
        results = {"Weft": [1.0], "facts": {"Weft": {"extra_mb": 3}}}
        (line,) = compare.lines_of(dataclasses.replace(row_of("ms"), contestants=("Weft",)), results, ABOUT)
        self.assertEqual((line["extra_mb"], line["median"]), (3, 1000))

    def test_a_run_of_some_rows_keeps_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results/peers.jsonl"
            compare.keep(path, [{"row": "prefill-486", "run": 1}, {"row": "linear-int4-m1", "run": 1}])
            compare.keep(path, [{"row": "linear-int4-m1", "run": 2}, {"row": "decode-short", "run": 2}])
            kept = [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
        self.assertEqual(kept, [("decode-short", 2), ("prefill-486", 1), ("linear-int4-m1", 2)])


class Against(unittest.TestCase):
    ROW = dataclasses.replace(row_of(), contestants=("Weft", "Weft, no cap", "Weft fast", "llama.cpp"))

    def test_builds_take_turns_and_a_precision_is_compared_with_itself(self):
        field = TwoBuilds({"Weft": [1, 2, 3], "Weft, against": [4, 5, 9], "Weft fast": [1, 1, 1],
                           "Weft fast, against": [0.9, 0.9, 0.9]})
        lines = field.lines(self.ROW)
        self.assertEqual(field.journal, ["Weft", "Weft, against"] * 3 + ["Weft fast", "Weft fast, against"] * 3)
        self.assertEqual([(line["contestant"], line["version"], line["weft_is"]) for line in lines],
                         [("Weft", "1", None), ("Weft, against", "0", {"Weft": 2.5}),
                          ("Weft fast", "1", None), ("Weft fast, against", "0", {"Weft fast": 0.9})])
        self.assertEqual([lines[1][key] for key in ("median", "low", "high", "readings")], [20, 100 / 9, 25, 3])

    def test_of_times_too_a_ratio_above_one_says_that_this_build_is_faster(self):
        for unit in ("ms", "us", "ns", "tok/s"):
            row = dataclasses.replace(row_of(unit), contestants=("Weft",))
            line = TwoBuilds({"Weft": [1] * 3, "Weft, against": [2] * 3}).lines(row)[1]
            self.assertAlmostEqual(line["weft_is"]["Weft"], 2)

    def test_a_slower_row_is_marked_and_the_geometric_mean_stands_at_the_end(self):
        def lines(name, seconds):
            row = dataclasses.replace(row_of(), name=name, contestants=("Weft",))
            return TwoBuilds({"Weft": [1] * 3, "Weft, against": [seconds] * 3}).lines(row)

        slow, level, fast = lines("decode-short", 0.94), lines("prefill-486", 0.95), lines("linear-int4-m1", 4)
        self.assertIn("Weft is 0.940 x  <-- slower", table.text(slow))
        self.assertNotIn("slower", table.text(level + fast))
        self.assertIn("geometric mean of 3 ratios: 1.529 x; lowest 0.940, highest 4.000, 1 below 0.95",
                      table.against_summary(slow + level + fast))

    def test_a_row_that_one_build_does_not_know_is_not_measured_and_says_so(self):
        field = TwoBuilds({"Weft": [1, 1, 1]})
        lines = field.lines(dataclasses.replace(self.ROW, contestants=("Weft",)))
        self.assertEqual(field.journal, [])
        self.assertEqual(table.against_summary(lines),
                         "not compared: decode-short, Weft, against: this build of Weft knows no row of that kind")

    def test_a_run_of_bench_is_a_reading_of_all_rows_that_it_prints(self):
        rows = [row for row in bench_rows() if row.fields["bench"] == "plan"][:2]
        values = [[row.fields["case"], row.fields["metric"], 20.0 * (i + 1)] for i, row in enumerate(rows)]
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "weft"
            program.write_text(BENCH.format(python=sys.executable, rows=values))
            program.chmod(0o755)
            readings = [BenchProgram(program, "plan", 2).read()]
        other = [{case: value / 2 for case, value in readings[0].items()}]
        del other[0][tuple(values[1][:2])]
        self.assertEqual([list(group) for group in against.together(rows)], [rows])
        results = {"Weft": readings, "Weft, against": other}
        (first, of_first), (_, of_second) = against.measured(rows, lambda row: results)
        self.assertEqual([round(first.value(of_first[name][0]), 9) for name in results], [20, 10])
        self.assertEqual(round(rows[1].value(of_second["Weft"][0]), 9), 40)
        self.assertIn("prints no row '256 decode requests", of_second["Weft, against"])

    def test_a_bench_that_fails_says_why(self):
        with self.assertRaisesRegex(Refused, "bench plan ended with 1: "):
            BenchProgram(shutil.which("false"), "plan", 2).read()

    def test_a_build_is_a_folder_or_one_of_its_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder).resolve() / "older"
            (build / "bin").mkdir(parents=True)
            (build / "bin/weft").touch()
            with self.assertRaisesRegex(against.NoBuild, "cmake --build .* --target weft weft_contestant"):
                against.programs_of(build)
            (build / "bin/weft_contestant").touch()
            for name in (build, build / "bin", build / "bin/weft", build / "bin/weft_contestant"):
                self.assertEqual(against.programs_of(name), build / "bin")
            self.assertEqual(against.version_of(build / "bin"), "older")


class Rows(unittest.TestCase):
    def test_names_are_unique_and_contestants_known(self):
        rows = all_rows("", False)
        self.assertEqual(len({row.name for row in rows}), len(rows))
        for row in rows:
            self.assertIn("Weft", row.contestants)
            self.assertLessEqual(set(row.contestants), set(CONTESTANTS))

    def test_peers_are_those_of_the_command_line(self):
        self.assertEqual({c.peer for c in CONTESTANTS.values()}, {"weft", "against", *contestants.PEERS})

    def test_rows_for_another_build_have_names_and_cases_of_their_own(self):
        rows = all_rows("", False) + bench_rows()
        self.assertEqual(len({row.name for row in rows}), len(rows))
        cases = {(row.fields["bench"], row.fields["case"], row.fields["metric"]) for row in bench_rows()}
        self.assertEqual(len(cases), len(bench_rows()))

    def test_a_value_is_its_seconds_again(self):
        for unit in ("ms", "us", "ns", "GB/s"):
            row = row_of(unit)
            self.assertAlmostEqual(row.value(row.seconds(7.0)), 7.0)
        self.assertAlmostEqual(row_of("us").seconds(7.0), 7e-6)

    def test_copies_exceed_the_caches(self):
        self.assertEqual(copies_beyond_caches(512 << 20, True), 1)
        self.assertEqual(copies_beyond_caches((512 << 20) - 1, True), 2)


class OnACard(unittest.TestCase):
    """What needs neither a card nor torch."""

    def row(self, contestant, value, ceiling=3000.0, metric="bandwidth", unit="GB/s"):
        return {**gpu_rows.line("decode", metric, value, unit, ceiling), "contestant": contestant}

    def last(self, *lines):
        return gpu_table.table(lines).splitlines()[-1]

    def test_weft_stands_beside_the_fastest_peer(self):
        text = self.last(self.row("Weft", 2400.0), self.row("a", 1000.0), self.row("b", 2000.0))
        self.assertEqual(text, "| decode | 2400 GB/s (0.80) | b 2000 GB/s (0.67) | 1.20 | a 1000 GB/s (0.33) |")
        text = self.last(self.row("Weft", 10.0, None, "time", "us"), self.row("a", 15.0, None, "time", "us"))
        self.assertIn("| 1.50 |", text)

    def test_shares_are_compared_where_the_reads_differ(self):
        text = self.last(self.row("Weft", 2400.0, 3000.0), self.row("a", 3200.0, 4000.0))
        self.assertIn("| 1.00 of shares |", text)
        self.assertIn("| 0.75 |", self.last(self.row("Weft", 2400.0, 3000.0), self.row("a", 3200.0, 3080.0)))

    def test_a_row_that_one_alone_has_stands_by_itself(self):
        self.assertEqual(self.last(self.row("Weft", 2400.0)), "| decode | 2400 GB/s (0.80) |  |  |  |")
        self.assertEqual(self.last(self.row("a", 3.0)), "| decode |  | a 3 GB/s (0.00) |  |  |")

    def test_rows_count_what_weft_bench_counts(self):
        rows = {row.case: row for row in gpu_rows.all_rows()}
        self.assertEqual(len(rows), len(gpu_rows.all_rows()))
        decode = rows["decode 32q/8kv hd128 page16 bf16 batch16 kv8192"]
        self.assertEqual(decode.bytes, 16 * 8192 * 8 * 128 * 2 * 2)
        self.assertEqual([line["metric"] for line in decode.lines(1e-3, 3e12, 6e14)], ["bandwidth"])
        one = rows["decode 32q/8kv hd128 page16 bf16 batch1 kv1024"]
        self.assertEqual([line["value"] for line in one.lines(1e-5, 3e12, 6e14) if line["metric"] == "time"], [10.0])
        prefill = rows["prefill causal 16q/16kv hd64 page16 bf16 batch8 n2048"]
        self.assertEqual(prefill.operations, 2 * 2048 ** 2 * 64 * 16 * 8)

    def test_says_what_python_lacks(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "torch.py").write_text("raise ImportError('no torch for this test')")
        done = subprocess.run([sys.executable, HERE / "gpu.py"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(folder)})
        self.assertEqual(done.returncode, 1)
        self.assertIn("no torch for this test; run this with a Python that has torch with CUDA", done.stderr)


if __name__ == "__main__":
    unittest.main()

"""What serve.py makes of outcomes, without a server."""
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import against  # noqa: E402
import serve  # noqa: E402
from serving import beside, figures, knee, rates, rows  # noqa: E402


def outcome(first, gaps, scheduled=0.0, complete=True):
    last = first + sum(gaps)
    return {"start": 1000.0, "scheduled": scheduled, "sent": scheduled, "first": first, "last": last, "end": last, "status": 200,
            "complete": complete, "left": False, "tokens": 1 + len(gaps), "gaps": gaps}


class Figures(unittest.TestCase):
    def test_percentiles_are_readings(self):
        self.assertEqual(figures.percentile([3, 1, 2], 0.5), 2)
        self.assertEqual(figures.percentile(range(1, 101), 0.99), 99)
        self.assertTrue(math.isnan(figures.percentile([], 0.5)))

    def test_decode_counts_while_all_streams_decode(self):
        streams = [outcome(0.0, [0.1] * 20), outcome(1.0, [0.1] * 20)]
        self.assertAlmostEqual(figures.decode_rate(streams), 20, delta=2)
        self.assertTrue(math.isnan(figures.decode_rate([outcome(0.0, [0.1]), outcome(5.0, [0.1])])))

    def test_gaps_within_a_time_are_those_that_end_there(self):
        self.assertEqual(len(figures.gaps_within([outcome(0.0, [1.0] * 5)], 1001.5, 1003.5)), 2)

    def test_late_is_who_waited_longer_or_waits_so_long_by_now(self):
        in_time, too_late = {"scheduled": 1.0, "first": 2.0}, {"scheduled": 1.0, "first": 9.0}
        waits, to_come = {"scheduled": 2.0, "first": -1}, {"scheduled": 30.0, "first": -1}
        self.assertEqual(figures.late([in_time, too_late, waits, to_come], 10, 5), 2)
        self.assertEqual(figures.late([in_time, too_late, waits, to_come], 6, 5), 1)

    def test_goodput_wants_the_first_token_and_the_gaps_in_time(self):
        good, slow, late, lost = outcome(1, [0.1] * 9), outcome(1, [0.2] * 9), outcome(9, [0.1] * 9), outcome(1, [0.1], complete=False)
        self.assertAlmostEqual(figures.goodput([good, slow, late, lost], 5, 0.15), 1 / 9.9)
        self.assertTrue(figures.holds([good], 5, 0.15))
        self.assertFalse(figures.holds([good, lost], 5, 0.15))
        self.assertFalse(figures.holds([slow], 5, 0.15))


class Search(unittest.TestCase):
    def test_brackets_a_rate_from_above_and_from_below(self):
        for guess, count in itertools.product((0.01, 0.7, 50), (1, 6)):
            low, high = rates.search(lambda rates: [rate <= 1 for rate in rates], guess, 0, math.inf, 1, count)
            self.assertTrue(low <= 1 < high and high / low <= 1.05, (low, high))

    def test_begins_with_the_rate_it_is_told_where_that_lies_between(self):
        def begins(low, high):
            tried = []
            rates.search(lambda asked: tried.extend(asked) or [False] * len(asked), 1.1, low, high, 0.001, first=0.9)
            return tried[0]

        self.assertEqual(begins(0, math.inf), 0.9)
        self.assertEqual(begins(0.5, 1.2), 0.9)
        self.assertNotEqual(begins(0.5, 0.8), 0.9)
        self.assertNotEqual(begins(0.95, math.inf), 0.9)

    def test_goes_on_where_it_was(self):
        tried = []
        low, high = rates.search(lambda rates: [tried.append(rate) or rate <= 1 for rate in rates], 9, 0.9, 1.1, 1)
        self.assertTrue(all(0.9 < rate < 1.1 for rate in tried) and low <= 1 < high)


class Machine:
    """Stands for a set of CPUs."""

    def __init__(self, cpus):
        self.cpus, self.ended = cpus, False

    def end(self):
        self.ended = True


class Beside(unittest.TestCase):
    def test_lists_of_cpus(self):
        self.assertEqual(beside.cpus_of("0,3-5"), {0, 3, 4, 5})

    def test_each_task_has_a_machine_alone_and_its_cpus(self):
        machines, busy = [Machine({cpu}) for cpu in sorted(os.sched_getaffinity(0))[:2]], set()

        def work(machine, task):
            self.assertNotIn(machine, busy)
            busy.add(machine)
            self.assertEqual(os.sched_getaffinity(0), machine.cpus)
            time.sleep(0.01)
            busy.remove(machine)
            return task * task

        self.assertEqual(beside.spread(machines, range(8), work), [task * task for task in range(8)])

    def test_who_fails_ends_what_runs_beside(self):
        machines = [Machine(()), Machine(())]

        def work(machine, task):
            if task == 0:
                raise ValueError
            while not machine.ended:
                time.sleep(0.001)

        with self.assertRaises(ValueError):
            beside.spread(machines, range(2), work)


class Results(unittest.TestCase):
    def test_a_row_of_one_contestant_replaces_that_one_alone(self):
        start = next(m for m in rows.MEASUREMENTS if m.name == "start")
        about = {"weft": "abc", "threads": 2, "machine": "m", "date": "d"}
        with tempfile.TemporaryDirectory() as folder:
            serve.RESULTS = pathlib.Path(folder) / "serve.jsonl"
            serve.keep(list(serve.lines_of(start, {"llama-server": [{"ready": 300.0}], "Weft": [{"ready": 200.0}] * 3}, about)))
            serve.keep(list(serve.lines_of(start, {"Weft": [{"ready": 150.0}]}, about)))
            lines = [json.loads(line) for line in serve.RESULTS.read_text().splitlines()]
        self.assertEqual([(line["contestant"], line["median"]) for line in lines], [("Weft", 150.0), ("llama-server", 300.0)])
        self.assertIn("2.00 x llama-server", serve.text(lines))

    def test_who_refuses_stands_in_the_table_with_the_reason(self):
        start = next(m for m in rows.MEASUREMENTS if m.name == "start")
        lines = list(serve.lines_of(start, {"llama-server": "not installed"}, {"weft": "abc"}))
        self.assertIn("none: not installed", serve.text(lines))

    def test_the_table_says_how_much_of_a_trace_was_played_and_which_weft_where_lines_differ(self):
        sharegpt = next(m for m in rows.MEASUREMENTS if m.name == "sharegpt")

        def line(name, about):
            return next(serve.lines_of(sharegpt, {name: [{"throughput": 100.0}]}, about))

        same = serve.text([line(name, {"weft": "abc", "requests": 60}) for name in ("Weft", "Weft fast")])
        self.assertIn("higher is better; 60 requests of the trace)", same)
        self.assertNotIn("abc", same)
        differ = serve.text([line("Weft", {"weft": "abc", "requests": 60}), line("Weft fast", {"weft": "def"})]).splitlines()
        self.assertTrue(differ[0].endswith("higher is better)"))
        self.assertTrue(differ[1].endswith("60 requests of the trace, Weft abc"))
        self.assertTrue(differ[2].endswith("  Weft def"))

    def test_figures_that_were_kept_change_no_version(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "bench/results").mkdir(parents=True)
            for name in ("source", "bench/results/serve.jsonl"):
                (root / name).write_text("before")
            for words in (["init", "-q"], ["add", "."],
                          ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--no-gpg-sign", "-m", "all"]):
                subprocess.run(["git", *words], cwd=root, check=True)
            clean = against.describe(root)
            (root / "bench/results/serve.jsonl").write_text("after")
            self.assertEqual(against.describe(root), clean)
            (root / "source").write_text("after")
            self.assertEqual(against.describe(root / "bench"), clean + "-dirty")

    def test_names_of_rows_are_different(self):
        names = [f"{m.name}-{key}" for m in rows.MEASUREMENTS for key in m.figures]
        self.assertEqual(len(names), len(set(names)))

    def test_who_had_no_first_token_has_waited_until_the_limit(self):
        outcomes = [{"scheduled": 1, "first": 3, "complete": True}, {"scheduled": 2, "first": -1, "complete": False}]
        self.assertEqual(figures.waits(outcomes, 10), [2, 8])
        measurement = next(m for m in rows.MEASUREMENTS if m.name == "mooncake")
        about = {"weft": "abc", "machine": "m", "threads": 2}
        told = serve.text(serve.lines_of(measurement, {"Weft": [{"first": 8000, "without": 1}]}, about))
        self.assertIn("1 had none by the limit", told)
        told = serve.text(serve.lines_of(measurement, {"Weft": [{"first": 8000, "without": 0}]}, about))
        self.assertNotIn("limit", told)

    def test_the_knee_is_drawn_from_what_was_kept(self):
        measurement = next(m for m in rows.MEASUREMENTS if m.name == "knee")
        points = [(1, 1, 0.2), (2, 1.9, 0.4), (4, 2, 6.0)]
        with tempfile.TemporaryDirectory() as folder:
            serve.RESULTS, path = pathlib.Path(folder) / "serve.jsonl", pathlib.Path(folder) / "knee.svg"
            self.assertRaises(SystemExit, serve.draw_knee, path)
            about = {"weft": "abc", "machine": "m", "threads": 2}
            serve.keep(list(serve.lines_of(measurement, {"Weft": [{"goodput": 2, "points": points}]}, about)))
            serve.draw_knee(path)
            picture = path.read_text()
        self.assertTrue(picture.startswith("<svg") and picture.count("<polyline") == 2)
        self.assertIn(">4.0</text>", picture)


if __name__ == "__main__":
    unittest.main()

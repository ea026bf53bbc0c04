"""weft.bench.flashinfer over a data set of our own making: what passes, what is told apart, and what traces hold."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import torch

import bench_dataset
import weft.bench.flashinfer.__main__ as program
from weft.bench.flashinfer import dataset, evaluate, solutions


def run(*arguments):
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        code = program.main([str(x) for x in arguments])
    return code, said.getvalue(), errors.getvalue()


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.names = bench_dataset.write(cls.root)
        cls.definitions = {x.name: x for x in dataset.definitions(cls.root)}

    def test_every_served_definition_passes(self):
        code, said, _ = run(self.root, "--trials", 2, "--repeats", 1)
        self.assertEqual(code, 0, said)
        self.assertIn("| gemm_n16_k16 | weft | | not served: gemm |", said)
        seen = set()
        for path in (self.root / "traces").rglob("*.jsonl"):
            for trace in map(json.loads, path.read_text().splitlines()):
                self.assertEqual(list(trace), ["definition", "workload", "solution", "evaluation"])
                self.assertEqual(path, self.root / "traces" / self.definitions[trace["definition"]].op_type /
                                 f"{trace['definition']}.jsonl")
                self.assertEqual(trace["workload"], dataset.workloads(self.root,
                                                                      self.definitions[trace["definition"]])[0])
                made = trace["evaluation"]
                self.assertEqual((trace["solution"], made["status"]), (f"weft_{trace['definition']}", "PASSED"))
                self.assertEqual(set(made["correctness"]), {"max_relative_error", "max_absolute_error", "extra"})
                self.assertAlmostEqual(made["performance"]["speedup_factor"] * made["performance"]["latency_ms"],
                                       made["performance"]["reference_latency_ms"])
                self.assertTrue(made["environment"]["hardware"] and made["environment"]["libs"]["weft"])
                seen.add(trace["definition"])
        self.assertEqual(seen, set(self.names) - {"gemm_n16_k16"})
        self.assertEqual(len(seen), 21)

    def test_solutions_of_the_data_set(self):
        with tempfile.TemporaryDirectory() as out:
            arguments = (self.root, "--solutions", "--only", "rmsnorm_h256", "--repeats", 1, "--out", out)
            for runs in (1, 2):  # traces are appended
                self.assertEqual(run(*arguments)[0], 1)
                lines = (pathlib.Path(out) / "rmsnorm/rmsnorm_h256.jsonl").read_text().splitlines()
                self.assertEqual(len(lines), 3 * runs)
        traces = {trace["solution"]: trace["evaluation"] for trace in map(json.loads, lines)}
        self.assertEqual({name: made["status"] for name, made in traces.items()},
                         {"weft_rmsnorm_h256": "PASSED", "good": "PASSED", "bad": "INCORRECT_NUMERICAL"})
        self.assertIsNone(traces["bad"]["performance"])
        self.assertGreater(traces["bad"]["correctness"]["max_absolute_error"], 0.1)

    def test_outcomes(self):
        definition = self.definitions["rmsnorm_h256"]
        trials = [[torch.randn(5, 256).bfloat16(), torch.ones(256).bfloat16()]]
        reference = solutions.of_reference(definition)

        def status(run):
            made = evaluate.evaluate(definition, run, reference, trials, 1, torch.device("cpu"))
            self.assertEqual(made["correctness"] is None, made["status"] not in ("PASSED", "INCORRECT_NUMERICAL"))
            self.assertEqual(made["performance"] is None, made["status"] != "PASSED")
            return made["status"]

        self.assertEqual(status(reference), "PASSED")
        self.assertEqual(status(lambda x, w: {"output": reference(x, w)}), "PASSED")
        self.assertEqual(status(lambda x, w: reference(x, w)[:4]), "INCORRECT_SHAPE")
        self.assertEqual(status(lambda x, w: (reference(x, w),) * 2), "INCORRECT_SHAPE")
        self.assertEqual(status(lambda x, w: reference(x, w).float()), "INCORRECT_DTYPE")
        self.assertEqual(status(lambda x, w: reference(x, w) + 0.1), "INCORRECT_NUMERICAL")
        self.assertEqual(status(lambda x, w: reference(x, w) * float("nan")), "INCORRECT_NUMERICAL")
        self.assertEqual(status(lambda x, w: x @ w @ w), "RUNTIME_ERROR")

    def test_infinities_of_the_reference_are_right(self):
        definition = self.definitions["rmsnorm_h256"]
        x = torch.tensor([1.0, float("-inf")])
        self.assertEqual(evaluate.compare(definition, x, x.clone())["max_absolute_error"], 0)
        for other in ([1.0, 0.0], [1.0, float("inf")], [float("-inf"), 1.0]):
            with self.assertRaisesRegex(evaluate.Wrong, "output: "):
                evaluate.compare(definition, torch.tensor(other), x)

    def test_samples(self):
        probs, k, p = torch.tensor([[0.3, 0.3, 0.2, 0.2]]), torch.tensor([3]), torch.tensor([0.6])
        for given, expected in (((None, None), [0.3, 0.3, 0.2, 0.2]), ((torch.tensor([1]), None), [0.5, 0.5, 0, 0]),
                                ((k, None), [0.3, 0.3, 0.2, 0.2]), ((None, p), [0.5, 0.5, 0, 0]),
                                ((torch.tensor([2]), p), [0.5, 0.5, 0, 0])):
            self.assertTrue(torch.allclose(evaluate.kept(probs, *given), torch.tensor([expected]).double()), given)
        definition = self.definitions["top_k_sampling_from_probs_v300"]
        inputs = dataset.inputs_of(self.root, definition, dataset.workloads(self.root, definition)[0], 1,
                                   torch.device("cpu"))
        for wrong, says in ((lambda probs, top_k: probs.argmin(1), "leave out"),
                            (lambda probs, top_k: probs.argmax(1), "total variation distance"),
                            (lambda probs, top_k: probs.argmax(1)[:3], "3 samples of 4 rows"),
                            (lambda probs, top_k: probs.argmax(1) - 300, "leave out")):
            with self.assertRaisesRegex(evaluate.Wrong, says):
                evaluate.check_samples(definition, wrong, inputs)

    def test_what_does_not_fit_is_named(self):
        code, said, errors = run(self.root / "blob")
        self.assertEqual((code, said), (2, ""))
        self.assertIn("has no folder `definitions`", errors)
        definition = self.definitions["gqa_paged_decode_h8_kv2_d64_ps1"]
        good = dataset.workloads(self.root, definition)[0]

        def made(**inputs):
            return dataset.inputs_of(self.root, definition, {**good, "inputs": {**good["inputs"], **inputs}}, 1,
                                     torch.device("cpu"))
        made()
        path = good["inputs"]["kv_indptr"]["path"]
        for given, says in (({"type": "safetensors", "path": path, "tensor_key": "x"}, "has no tensor x"),
                            ({"type": "safetensors", "path": path, "tensor_key": "kv_indices"}, r"says \(4,\)"),
                            ({"type": "file"}, "input kv_indptr is 'file'"), (None, "has no input kv_indptr")):
            with self.assertRaisesRegex(ValueError, says):
                made(kv_indptr=given)
        with self.assertRaisesRegex(ValueError, "dtype: 'float4_e2m1'"):
            dataset.dtype_of("float4_e2m1")
        source = {"path": "../x.py", "content": "1"}
        with self.assertRaisesRegex(ValueError, "outside of the solution's folder"):
            solutions.of_text([source], "x.py::run", "evil")
        with self.assertRaisesRegex(ValueError, "names no function"):
            solutions.of_text([{"path": "x.py", "content": "run = 1"}], "x.py::run", "evil")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "definitions").mkdir()
            (pathlib.Path(folder) / "definitions/x.json").write_text('{"name": "x"}')
            with self.assertRaisesRegex(ValueError, "x.json: has no field 'op_type'"):
                dataset.definitions(pathlib.Path(folder))


if __name__ == "__main__":
    unittest.main()

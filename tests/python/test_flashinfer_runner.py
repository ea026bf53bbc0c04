"""weft.testing.flashinfer on a checkout of our own making: what runs, what is cut, refused, captured, and written."""
import collections
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

CONFTEST = """
    import flashinfer
    from flashinfer.jit import MissingJITCacheError, build_jit_specs
    assert issubclass(MissingJITCacheError, Exception) and flashinfer.gemm.SegmentGEMMWrapper.run
"""
PAGE = """
    import resource
    import pytest
    import torch
    import flashinfer
    from flashinfer.jit import gen_jit_spec
    from flashinfer.utils import has_flashinfer_jit_cache

    @pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, torch.device("cuda:0")])
    def test_devices(device):
        x = torch.arange(6.0, device=device).to(device).cuda().pin_memory()
        assert x.is_cuda and x.device.type == "cpu" and torch.cuda.is_available()
        torch.set_default_device("cuda")
        y = torch.ones(6)
        torch.set_default_device("cpu")
        generator = torch.Generator("cuda:0")
        generator.manual_seed(3)
        a, b = (torch.rand(4, device=device, generator=g) for g in (generator.clone_state(), generator))
        assert torch.equal(a, b)
        torch.cuda.manual_seed_all(1)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.testing.assert_close(x + y, torch.arange(1.0, 7.0))
        torch.cuda.synchronize()

    def test_a_graph_replays_over_new_numbers():
        page = torch.zeros(3, 2, 4, 1, 8, device="cuda")
        indptr, indices, last = (torch.tensor(x, dtype=torch.int32, device="cuda") for x in ([0, 1], [2], [4]))
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(64, dtype=torch.uint8, device="cuda"), use_cuda_graph=True,
            paged_kv_indptr_buffer=indptr.clone(),
            paged_kv_indices_buffer=torch.zeros(3, dtype=torch.int32), paged_kv_last_page_len_buffer=last.clone())
        wrapper.plan(indptr, indices, last, 1, 1, 8, 4, data_type=torch.float32)
        q, out = torch.randn(1, 1, 8, device="cuda"), torch.empty(1, 1, 8)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = wrapper.run(q, page)
            out.copy_(o * 2)
        page[2, 1] = 3.0
        page[1, 1] = 5.0
        graph.replay()
        torch.testing.assert_close(o, torch.full((1, 1, 8), 3.0))
        torch.testing.assert_close(out, torch.full((1, 1, 8), 6.0))
        wrapper.plan(indptr, indices - 1, last, 1, 1, 8, 4, data_type=torch.float32)
        graph.replay()
        torch.testing.assert_close(out, torch.full((1, 1, 8), 10.0))

    def test_too_many_bytes():
        torch.empty(1 << 20, dtype=torch.bool, device="cuda")  # as many as are allowed
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")  # a workspace
        torch.empty(1 << 18, dtype=torch.float64, device="cuda")

    def test_too_many_operations():
        a = torch.zeros(100, 100, device="cuda")
        a @ a
        flashinfer.single_prefill_with_kv_cache(*(torch.zeros(400, 8, 64) for _ in range(3)))

    def test_einsum_of_too_many_operations():
        torch.einsum("ik,jk->ij", torch.zeros(1000, 128), torch.zeros(1000, 128))

    def test_too_much_memory():
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 6 << 30
        torch.empty(1).expand(1 << 40).contiguous()

    def test_refused():
        flashinfer.nvfp4_kv_quantize(torch.zeros(1))

    def test_refused_inside_of_another_error():
        try:
            flashinfer.rope.rope_quantize_fp8(torch.zeros(1))
        except NotImplementedError as error:
            raise RuntimeError("wrapped") from error

    def test_nvfp4_cuda_graph_bad_scale():
        assert False

    @pytest.mark.xfail(reason="theirs")
    def test_expected_to_fail():
        assert False

    def test_skipped():
        pytest.skip("their reason")

    def test_wrong():
        assert flashinfer.next_positive_power_of_2(3) == 5
"""
ACTIVATION = """
    import pytest

    @pytest.mark.parametrize("i", range(40))
    def test_many(i):
        pass
"""
LONG = """
    import time

    def test_too_long():
        while True:
            time.sleep(0.01)

    def test_after_it():
        pass
"""
CRASH = """
    import os

    def test_crash():
        os.abort()
"""


def run(checkout, *options):
    ledger = pathlib.Path(checkout) / "ledger.tsv"
    made = subprocess.run([sys.executable, "-m", "weft.testing.flashinfer", checkout, "--ledger", ledger,
                           "--max-bytes", str(1 << 20), "--max-operations", "2e8", *options], capture_output=True,
                          text=True)
    lines = [line.split("\t") for line in ledger.read_text().splitlines()[1:]] if ledger.exists() else []
    return made, lines


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = folder.name
        for name, text in (("conftest", CONFTEST), ("attention/test_page", PAGE), ("utils/test_activation", ACTIVATION),
                           ("utils/test_topk", CRASH), ("utils/test_norm", LONG),
                           ("utils/test_quantization", "import no_such_module")):
            path = pathlib.Path(folder.name) / "tests" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def test_what_becomes_of_cases(self):
        made, lines = run(self.checkout, "--only", "page.py")
        self.assertEqual(made.returncode, 1, made.stdout + made.stderr)
        self.assertIn("| attention/test_page.py | 5 | 1 | 2 | 1 | 2 | 4 | 0 | 0 |", made.stdout)
        self.assertIn("| all | 5 | 1 | 2 | 1 | 3 | 4 | 0 | 0 |", made.stdout)  # and no attention/test_mla_page.py
        why = {case.partition("::")[2]: (outcome, reason) for outcome, case, reason in lines}
        self.assertEqual(why["test_too_many_bytes"],
                         ("cut", "a tensor of 2,097,152 bytes; --max-bytes is 1,048,576"))
        self.assertEqual(why["test_too_many_operations"],
                         ("cut", "a call of 3.3e+08 operations; --max-operations is 2.0e+08"))
        self.assertEqual(why["test_einsum_of_too_many_operations"][1][:28], "a call of 2.6e+08 operations")
        self.assertIn("it needs more memory than --memory", why["test_too_much_memory"][1])
        self.assertIn("nvfp4_kv_quantize: required is", why["test_refused"][1])
        self.assertIn("rope_quantize_fp8: required is", why["test_refused_inside_of_another_error"][1])
        self.assertEqual(why["test_nvfp4_cuda_graph_bad_scale"],
                         ("different", "starts a process of its own, which imports FlashInfer's package"))
        self.assertEqual(why["test_expected_to_fail"], ("skipped", "expected to fail: theirs"))
        self.assertEqual(why["test_skipped"], ("skipped", "their reason"))
        self.assertEqual(why["test_wrong"][0], "failed")
        self.assertIn("assert 4 == 5", why["test_wrong"][1])

    def test_cases_are_drawn_by_seed(self):
        drawn = []
        for seed in ("1", "1", "2"):
            made, lines = run(self.checkout, "--only", "activation", "--cases", "7", "--seed", seed)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            self.assertIn("| utils/test_activation.py | 7 | 0 | 0 | 0 | 0 | 0 | 0 | 33 |", made.stdout)
            self.assertEqual({(outcome, why) for outcome, _, why in lines},
                             {("not drawn", f"7 of 40 cases, seed {seed}")})
            drawn.append(frozenset(case for _, case, _ in lines))
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        made, lines = run(self.checkout, "--only", "activation", "--minutes", "1e-9")
        self.assertEqual(collections.Counter(outcome for outcome, _, _ in lines), {"no time": 40})
        earlier = pathlib.Path(self.checkout) / "earlier.tsv"
        earlier.write_text("".join("\t".join(line) + "\n" for line in lines[:3] + [["failed", lines[3][1], ""]]))
        made, lines = run(self.checkout, "--only", "activation", "page.py", "--go-on", earlier)
        self.assertIn("| utils/test_activation.py | 3 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |", made.stdout)
        self.assertIn("| attention/test_page.py | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |", made.stdout)
        self.assertEqual(made.returncode, 0)

    def test_a_case_that_does_not_end_is_cut(self):
        made, lines = run(self.checkout, "--only", "norm", "--case-seconds", "1")
        self.assertIn("| utils/test_norm.py | 1 | 0 | 0 | 0 | 0 | 1 | 0 | 0 |", made.stdout)
        self.assertEqual([tuple(line) for line in lines],
                         [("cut", "tests/utils/test_norm.py::test_too_long", "it takes longer than --case-seconds, 1")])

    def test_what_does_not_run_at_all_fails(self):
        made, lines = run(self.checkout, "--only", "topk", "quantization")
        self.assertEqual(made.returncode, 1)
        self.assertEqual([(outcome, case) for outcome, case, _ in lines if outcome == "failed"][:2],
                         [("failed", "tests/utils/test_quantization.py")] * 2)
        self.assertIn("No module named 'no_such_module'", lines[0][2])
        self.assertEqual(lines[-1][:2], ["failed", "tests/utils/test_topk.py"])
        self.assertIn("the process ended with status -6", lines[-1][2])
        with tempfile.TemporaryDirectory() as empty:
            made, _ = run(empty)
            self.assertEqual((made.returncode, made.stdout), (2, ""))
            self.assertIn("has no folder `tests`", made.stderr)


if __name__ == "__main__":
    unittest.main()

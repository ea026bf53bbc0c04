"""Errors, threads, forks and exits; and random bad calls, each of which ends in an exception."""
import io
import os
import pickle
import random
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import numpy as np

import weft
from support import SEED, Batch, TestCase

SPEC = weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32)
CASES = int(os.environ.get("WEFT_PYTHON_CASES", "3000"))
REPEATS = int(os.environ.get("WEFT_PYTHON_REPEATS", "10000"))


class Errors(TestCase):
    def test_code_and_text(self):
        with self.assertRaises(weft.Error) as caught:
            weft.build(SPEC.replace(head_dim_qk=63))
        error = caught.exception
        self.assertEqual(error.code, weft.ErrorCode.unsupported)
        self.assertTrue(str(error).startswith("unsupported: head_dim_qk = 63"))
        self.assertIsInstance(error, RuntimeError)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.code), (str(error), error.code))
        self.assertEqual(weft.Error.__module__, "weft")

    def test_wrong_python_types(self):
        batch = Batch([(1, 4)])
        kernel = weft.build(SPEC)
        for call in (lambda: weft.build("spec"), lambda: weft.build(SPEC, 3), lambda: weft.AttentionSpec(q_dtype="fp32"),
                     lambda: weft.AttentionSpec(head_dim_qk=64.0), lambda: kernel.plan(num_qo_heads=None),
                     lambda: kernel.plan(num_qo_heads=4, qo_indptr="abc"), lambda: kernel.plan(batch.plan_input(), 3),
                     lambda: kernel.plan(num_qo_heads=4, num_kv_heads=2, qo_indptr=[0, 1.5], pages=batch.pages()),
                     lambda: kernel.plan(num_qo_heads=4, num_kv_heads=2, qo_indptr=[0, True], pages=batch.pages()),
                     lambda: weft.AttentionKernel(), lambda: weft.Plan(), lambda: weft.empty("ab"),
                     lambda: weft.Workspace("cpu", -1), lambda: weft.rms_norm(batch.q, None, 1e-5)):
            with self.assertRaises(TypeError):
                call()

    def test_integers(self):
        batch = Batch([(1, 4)])
        plan = weft.build(SPEC).plan
        heads = dict(num_qo_heads=4, num_kv_heads=2, pages=batch.pages())
        self.assert_refused("invalid_dtype", "qo_indptr: its elements are int64", plan, **heads,
                            qo_indptr=np.array([0, 1]))
        self.assert_refused("invalid_argument", "qo_indptr[1] = 4294967296", plan, **heads, qo_indptr=[0, 2**32])
        self.assert_refused("invalid_argument", "qo_indptr[1]", plan, **heads, qo_indptr=[0, 10**40])
        self.assert_refused("invalid_stride", "qo_indptr", plan, **heads, qo_indptr=np.zeros(8, np.int32)[::2])
        self.assert_refused("invalid_indptr", "qo_indptr", plan, **heads, qo_indptr=[1, 1])
        self.assert_refused("invalid_page", "kv_page_indices", plan, num_qo_heads=4, num_kv_heads=2, qo_indptr=[0, 1],
                            pages=weft.PageTableView(4, 2, [0, 1], [2], [4]))

    def test_fields_hold_what_they_were_given(self):
        for made, names in (
                (weft.Penalties, "repetition presence frequency"),
                (weft.SamplingParams, "temperature top_k top_p min_p"),
                (weft.RopeParams, "rotary_dim theta linear_scale factor original_context low_freq_factor "
                                  "high_freq_factor beta_fast beta_slow attention_factor"),
                (weft.PlanBounds, "max_requests max_rows max_qo_len max_pages max_levels max_kv_len page_size "
                                  "num_qo_heads num_kv_heads workers fixed_split_size block_rows positions_per_block "
                                  "max_bits_bytes"),
                (weft.serve.Request, "max_tokens min_tokens n seed logprobs priority max_queue_s max_total_s")):
            given = {name: i + 2 for i, name in enumerate(names.split())}
            one, another = made(**given), made().replace(**given)
            self.assertEqual({name: getattr(one, name) for name in given}, given)
            self.assertEqual({name: getattr(another, name) for name in given}, given)

    def test_cards_that_are_not_there(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("a card is here")
        with self.assertRaises(weft.Error):
            weft.build(SPEC, "cuda")
        with self.assertRaises(weft.Error):
            weft.Workspace("cuda", 64)
        with self.assertRaises(weft.Error):
            weft.Stream.cuda().synchronize()


def run(text, **environment):
    text = ("import numpy as np, os, sys, threading, weft\nfrom support import Batch, assert_memory_stays_flat\n"
            + textwrap.dedent(text))
    quiet = [sys.executable, "-W", "ignore::DeprecationWarning"]  # of forks, from Python 3.12 on
    return subprocess.run([*quiet, "-c", text], capture_output=True, text=True, timeout=3600 if REPEATS > 10000 else 120,
                          cwd=os.path.dirname(os.path.abspath(__file__)), env={**os.environ, **environment})


class Processes(TestCase):
    WORK = """
    batch = Batch([(3, 40)])
    kernel = weft.build(weft.AttentionSpec(head_dim_qk=32, head_dim_vo=32))
    plan = kernel.plan(batch.plan_input())
    work = lambda: kernel.run(plan, batch.q, (batch.k_pages, batch.v_pages))
    """

    def test_fork(self):
        ended = run(self.WORK + """
    before = work()
    child = os.fork()
    if child == 0:
        os._exit(0 if (work() == before).all() else 1)
    assert os.waitpid(child, 0)[1] == 0 and (work() == before).all()
    """)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_memory_stays_flat(self):
        """Plans, runs, views, merges, sparse products, and refused calls, by two threads: REPEATS of them in all."""
        ended = run(self.WORK + f"""
    repeats = {REPEATS}
    state = np.ones((2, 4, 2, 32), np.float32), np.zeros((2, 4, 2), np.float32)
    elements = weft.sparse.Coo(2, 3, [1, 0], [0, 2])
    values, b = np.ones(2, np.float32), np.ones((3, 4), np.float32)
    def refused():
        try:
            kernel.run(plan, batch.q[:1], (batch.k_pages, batch.v_pages))
        except weft.Error as error:
            return str(error)
        raise AssertionError("not refused")
    calls = (work, refused, lambda: kernel.plan(batch.plan_input()), lambda: weft.merge_states(*state),
             lambda: np.from_dlpack(weft.TensorView(batch.q)), lambda: weft.sparse.csr_from_coo(elements).order.numpy(),
             lambda: weft.sparse.spmm(weft.sparse.csr(2, 3, [0, 1, 2], [0, 2]), values, b))
    assert_memory_stays_flat(calls, [batch.q, batch.k_pages, *state, values, b], repeats)
    """)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_exit_with_everything_alive(self):
        ended = run(self.WORK + """
    view, made = weft.TensorView(batch.q), work()
    capsule = view.__dlpack__(max_version=(1, 0))
    kept = np.from_dlpack(view)
    sys.modules["kept"] = (view, kept, capsule, kernel, plan)
    """, WEFT_PYTHON_MAY_LEAK="1")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_exit_while_a_thread_runs(self):
        ended = run(self.WORK + """
    def forever():
        while True:
            work()
    threading.Thread(target=forever, daemon=True).start()
    work()
    """, WEFT_PYTHON_MAY_LEAK="1")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    # Threads that exit finds in a function of Python's which C++ has called: it waits a second for them. What is let
    # go of last sleeps, so that they wake up in an interpreter that is ending.
    THREADS = """
    import time
    from support import MODEL
    class Late:
        def __del__(self, sleep=time.sleep):
            sleep(0.6)
    sys.modules["late"] = Late()
    begun, nap = threading.Event(), float(os.environ["NAP"])
    def wait(*_):
        begun.set()
        time.sleep(nap)
    class Slow:
        def __dlpack__(self, **named):
            wait()
            return np.ones((3, 64), np.float32).__dlpack__()
        def __dlpack_device__(self):
            return 1, 0
    def reads():
        weft.rms_norm(Slow(), np.ones(64, np.float32), 1e-5)
    def answers():
        file = weft.ModelFile(MODEL)
        engine = weft.serve.Engine(file, weft.Tokenizer(file), kv_tokens=512)
        engine.submit(weft.serve.Request(prompt=[1, 2], max_tokens=400), wait)
        engine.run()
    threading.Thread(target=locals()[os.environ["THREAD"]], daemon=True).start()
    begun.wait()
    """

    def test_exit_while_threads_are_in_python(self):
        for thread in ("reads", "answers"):
            for nap in ("0.3", "1.3"):
                with self.subTest(thread=thread, nap=nap):
                    ended = run(self.THREADS, THREAD=thread, NAP=nap, WEFT_PYTHON_MAY_LEAK="1")
                    self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_import_alone(self):
        ended = run("", PYTHONPATH=os.environ.get("PYTHONPATH", ""))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        text = "import sys, weft; print([m for m in ('numpy', 'torch', 'ml_dtypes') if m in sys.modules])"
        alone = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        self.assertEqual(alone.stdout.strip(), "[]", alone.stderr)


class TheGil(TestCase):
    def test_other_threads_go_on_while_a_call_runs(self):
        kernel = weft.build(weft.AttentionSpec(head_dim_qk=64, head_dim_vo=64, kv_form=weft.KvForm.ragged))
        n = 3000
        q, k = np.ones((n, 8, 64), np.float32), np.ones((n, 8, 64), np.float32)
        plan = kernel.plan(num_qo_heads=8, num_kv_heads=8, qo_indptr=[0, n], kv_indptr=[0, n])
        out = np.empty_like(q)
        times, running = [], threading.Event()

        def call():
            running.set()
            times.append(time.perf_counter())
            kernel.run(plan, q, (k, k), out=out)
            times.append(time.perf_counter())

        thread = threading.Thread(target=call)
        thread.start()
        running.wait()
        ticks = []
        while thread.is_alive():
            ticks.append(time.perf_counter())
            time.sleep(0)
        thread.join()
        begin, end = times
        middle = [t for t in ticks if begin + (end - begin) / 4 < t < end - (end - begin) / 4]
        self.assertTrue(middle, f"no other thread ran in the middle of {end - begin:.3f} s")


class BadCalls(TestCase):
    """Calls that are right but for one to three arguments, which are drawn."""

    def values(self, dice):
        x = np.zeros((4, 4, 32), np.float32)
        return dice.choice([
            None, True, 0, 1, -1, 2**31, 2**63, 10**30, 1.5, float("nan"), "", "cpu", "cuda:99999", b"bytes", bytearray(8),
            [], [0], [0, 1], [3, 1], [0, 2**31], (0,), {}, {"window_left": 3}, {"mask": x}, {3: 4}, object(), np.float32,
            x, x[::-1], x[:, ::2], x.astype(np.float64), x.astype(np.float16), x.astype(">f4"), x[0], x[..., None],
            np.zeros((0, 4, 32), np.float32), np.zeros(3, np.int32), np.zeros(2, np.int64), np.array(1.0),
            np.zeros((2, 2), object), np.broadcast_to(x[:1], x.shape), np.arange(4, dtype=np.int32) - 2,
            memoryview(b"abcd"), weft.TensorView(x), weft.empty([4, 4, 32]), weft.empty([2], weft.DType.int4), SPEC,
            weft.KvForm.ragged, weft.DType.int4, weft.DType.fp64, weft.PlanMode.fixed_split, weft.Mask.custom,
            weft.KvScales.token, weft.Layout.hnd, weft.variants.alibi(), weft.Device("cuda:3"), weft.KvCache(x),
            weft.PageTableView(0, -1, [], [], []), weft.PageTableView(4, 2, [0, 1], [7], [9]), weft.PlanBounds(),
            weft.Workspace("cpu", 64), weft.Generator(1), weft.Level(), weft.RopeParams(theta=float("nan")),
            self.batch.plan_input(), self.structure, weft.sparse.Coo(2, 3, [0], [9]), weft.sparse.CooTensor([2], []),
            [weft.sparse.StoredAxis(length=2**40)], weft.sparse.AxisKind.dense_variable, {"Y": x, "J": x},
            {"J": self.structure}, {"n": 2**62}, [[0, 1, 2]], "program"])

    def calls(self):
        batch = self.batch
        table = weft.PageTable(4, 16)
        request = table.add()
        table.append(request, 9)
        yield weft.build, dict(spec=SPEC, device="cpu")
        yield weft.AttentionSpec, dict(head_dim_qk=32, kv_form=weft.KvForm.paged, variant=weft.variants.plain())
        yield weft.attend, dict(spec=SPEC.replace(kv_form=weft.KvForm.ragged), q=batch.q, k=batch.k[0], v=batch.v[0],
                                out=np.zeros_like(batch.q), lse=None, sm_scale=1.0, scalars={}, tensors={})
        yield self.kernel.plan, dict(num_qo_heads=4, num_kv_heads=2, qo_indptr=batch.qo_indptr, pages=batch.pages(),
                                     num_workers=1, mode=weft.PlanMode.balanced, fixed_split_size=0, spare_pages=0,
                                     bounds=None, levels=[], scalars={}, kv_len=None, mask_indptr=None)
        yield self.kernel.run, dict(plan=self.plan, q=batch.q, kv=(batch.k_pages, batch.v_pages), out=None, lse=None,
                                    sm_scale=None, scalars=None, tensors=None, stream=None)
        yield self.kernel.run, dict(workspace=self.workspace, q=batch.q, kv=(batch.k_pages, batch.v_pages),
                                    out=np.zeros_like(batch.q))
        yield self.plan.upload, dict(workspace=weft.Workspace("cpu", self.plan.workspace_bytes))
        yield self.plan.update, dict(input=batch.plan_input())
        yield weft.PageTableView, dict(page_size=4, num_pages=2, kv_page_indptr=[0, 1], kv_page_indices=[1],
                                       kv_last_page_len=[2])
        yield table.append, dict(request=request, tokens=1)
        yield table.fork, dict(other=request, tokens=5)
        yield table.view, dict(requests=[request])
        yield table.hold, dict(pages=[0])
        yield weft.append_paged_kv, dict(k=batch.k[0], v=batch.v[0], append_indptr=batch.kv_indptr, pages=batch.pages(),
                                         layout=weft.Layout.nhd, cache=(batch.k_pages.copy(), batch.v_pages.copy()))
        yield weft.merge_states, dict(o=np.zeros((2, 3, 4, 8), np.float32), lse=np.zeros((2, 3, 4), np.float32),
                                      indptr=None)
        yield weft.pack_mask, dict(mask=np.zeros(6, bool), mask_indptr=np.array([0, 6]))
        yield weft.rms_norm, dict(x=batch.q, weight=np.ones(32, np.float32), eps=1e-5, out=None)
        yield weft.apply_rope, dict(x=batch.q.copy(), positions=np.zeros(4, np.int32), params=weft.RopeParams())
        yield weft.quantize, dict(x=batch.q, q=np.zeros((4, 4, 32), np.int8), scales=np.zeros((4, 4, 1), np.float32))
        yield weft.sample, dict(logits=np.zeros(16, np.float32), params=weft.SamplingParams(),
                                generator=weft.Generator(1))
        yield weft.apply_token_mask, dict(logits=np.zeros(16, np.float32), mask=np.array([3], np.int32))
        yield weft.select_pages, dict(pages=batch.pages(), qo_indptr=batch.qo_indptr, num_kv_heads=2,
                                      selected=[0, 1, 2] * 2, budget=3)
        yield weft.blocks_from_tree, dict(pages=batch.pages(), qo_indptr=batch.qo_indptr, parent=[-1, 0, 0, 1])
        yield weft.TensorView, dict(array=batch.q, dtype=None)
        yield weft.empty, dict(shape=[2, 3], dtype=weft.DType.fp32, device="cpu")
        yield weft.sparse.csr, dict(num_rows=2, num_cols=3, indptr=[0, 1, 2], indices=[0, 2])
        yield from self.sparse_calls()
        yield weft.levels_from_page_tables, dict(kernel=self.kernel, input=batch.plan_input())

    def sparse_calls(self):
        sparse, ones = weft.sparse, lambda *shape: np.ones(shape, np.float32)
        coo = sparse.Coo(2, 3, [0, 1], [0, 2])
        edges = sparse.CooTensor([2, 2, 3], [[0, 1], [0, 1], [0, 2]])
        yield sparse.spmm, dict(a=self.structure, values=ones(2), b=ones(3, 4), out=None, format="csr")
        yield sparse.sddmm, dict(a=self.structure, values=ones(2), x=ones(2, 4), y=ones(3, 4), out=None,
                                 values_unchanged=False)
        yield sparse.graph_attention, dict(graph=self.structure, q=ones(2, 4), k=ones(3, 4), v=ones(3, 4), scale=1.0)
        yield sparse.block_spmm, dict(a=self.structure, values=ones(2, 4, 4), b=ones(12, 4), out=ones(8, 4))
        yield sparse.spmm_backward, dict(a=self.structure, a_transposed=sparse.transposed(self.structure),
                                         values=ones(2), b=ones(3, 4), d_c=ones(2, 4), d_values=ones(2), d_b=None)
        yield sparse.rgms, dict(edges=sparse.relational_from_coo(edges).structure, values=None, x=ones(3, 4),
                                w=ones(2, 4, 4), out=ones(2, 4))
        yield sparse.structure_of, dict(axes=[sparse.StoredAxis(length=2)])
        yield sparse.StoredAxis, dict(kind=sparse.AxisKind.sparse_variable, length=3, indptr=[0, 1, 2], indices=[0, 2])
        yield sparse.ell, dict(num_rows=2, num_cols=3, width=1, indices=[0, 2])
        yield sparse.Coo, dict(num_rows=2, num_cols=3, rows=[0, 1], cols=[0, 2])
        yield sparse.CooTensor, dict(extents=[2, 3], coordinates=[[0, 1], [0, 2]])
        yield sparse.bsr_from_coo, dict(coo=coo, block=2)
        yield sparse.sr_bcrs_from_coo, dict(coo=coo, t=2, g=2)
        yield sparse.hyb_from_coo, dict(coo=coo, c=1, k=1)
        yield sparse.relational_from_coo, dict(edges=edges, tile=16)
        yield sparse.summed, dict(merged=sparse.merged(coo), values=ones(2))
        yield sparse.band, dict(num_blocks=4, reach=1)
        yield sparse.butterfly, dict(num_blocks=4, stride=2)
        yield sparse.kernel_map, dict(coordinates=[[0, 0, 0], [0, 0, 1]], kernel=[3, 3, 3], stride=[1, 1, 1])
        yield sparse.values_at, dict(values=np.ones(2), order=[1, 0, -1], dtype=weft.DType.fp32)
        yield sparse.converted, dict(array=ones(2), dtype=weft.DType.bf16)
        yield sparse.parse_matrix, dict(name="a.smtx", text="2, 3, 2\n0 1 2\n0 2\n")
        saved = io.BytesIO()
        np.save(saved, ones(2, 3))
        yield sparse.parse_npy, dict(name="x.npy", bytes=saved.getvalue())
        yield sparse.IterationSpec, dict(name="rows", axes=["I"], kinds="S", iterators=["i"], body=["Y[i] = 0.0"])
        yield sparse.ProgramBuilder, dict(name="ones", params=["n", "alpha: real"])
        program = sparse.parse("""program ones(n):
  I = dense_fixed(n)
  Y = buffer(I): fp32
  iterate y(I) "S" as (i):
    Y[i] = 1.0
""")
        yield sparse.compile, dict(program=program, schedule="lower()", device="cpu", set={"n": 4},
                                   stop_after="lower buffers")
        yield sparse.compile(program).run, dict(structures={}, buffers={"Y": ones(4)}, scalars={}, reals={})

    def test_end_in_exceptions(self):
        dice = random.Random(SEED)
        self.batch = batch = Batch([(4, 11)])
        self.kernel = weft.build(SPEC)
        self.plan = self.kernel.plan(batch.plan_input(num_workers=1))
        self.workspace = weft.Workspace("cpu", self.plan.workspace_bytes)
        self.plan.upload(self.workspace)
        self.structure = weft.sparse.csr(2, 3, [0, 1, 2], [0, 2])
        calls = list(self.calls())
        for call, arguments in calls:
            call(**arguments)  # right as it stands
        refused, kinds = 0, set()
        for _ in range(CASES):
            call, arguments = dice.choice(calls)
            arguments = dict(arguments)
            for _ in range(dice.randint(1, 3)):
                name = dice.choice(list(arguments))
                if dice.random() < 0.05:
                    del arguments[name]
                    break
                arguments[name] = self.values(dice)
            try:
                call(**arguments)
            except (weft.Error, TypeError, ValueError, BufferError, MemoryError, OverflowError) as error:
                refused += 1
                kinds.add(getattr(error, "code", type(error)))
                self.assertTrue(str(error))
        self.assertGreater(refused, CASES / 2)
        self.assertGreaterEqual(len(kinds), 8 if CASES >= 3000 else 1, kinds)


if __name__ == "__main__":
    unittest.main()

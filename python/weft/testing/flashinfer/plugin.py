"""The pytest plugin: installs weft.flashinfer, draws cases, and writes what became of each of a file's."""

from __future__ import annotations

import json
import pathlib
import random
import resource
import signal
import time
from typing import Any, Generator

import pytest

from . import files

_written: dict[str, list[list[str]]] = {"cases": []}
_state: dict[str, float] = {}


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("weft")
    group.addoption("--weft-device", default="cpu", choices=("cpu", "cuda"))
    group.addoption("--weft-cases", type=int, default=200, help="of one file, drawn by seed; 0: all")
    group.addoption("--weft-seed", type=int, default=1)
    group.addoption("--weft-seconds", type=float, default=0, help="no case begins after so many; 0: all do")
    group.addoption("--weft-go-on", default="", help="a ledger: only cases that it had no time for")
    group.addoption("--weft-case-seconds", type=float, default=0, help="a case that takes longer is cut; 0: none is")
    group.addoption("--weft-max-bytes", type=int, default=1 << 29)
    group.addoption("--weft-memory", type=int, default=6 << 30)
    group.addoption("--weft-max-operations", type=float, default=1e11)
    group.addoption("--weft-results", default="", help="a file for what became of the cases")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    import weft.flashinfer as package

    from . import answers, cpu

    options = early_config.known_args_namespace
    package.install()
    answers.add(package)
    if options.weft_device == "cpu":
        resource.setrlimit(resource.RLIMIT_DATA, (options.weft_memory, options.weft_memory))
        limits = cpu.Limits(options.weft_max_bytes, options.weft_max_operations)
        cpu.take_the_cards_place(package, limits)
        _cut_large_calls(package, limits)


def _cut_large_calls(package: Any, limits: Any) -> None:
    """Products of all rows with the longest request's keys are the most that a call computes."""
    batch = package._batch.Batch
    run = batch.run

    def bounded(self: Any, *args: Any, **kwargs: Any) -> Any:
        form = self.form
        limits.check_operations(2.0 * self.num_rows * self.max_kv_len * form.num_qo_heads
                                * (form.head_dim_qk + form.head_dim_vo))
        return run(self, *args, **kwargs)

    batch.run = bounded


def _put(case: str, outcome: str, why: str = "") -> None:
    _written["cases"].append([case, outcome, " ".join(why.split())[:400]])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    count, seed, ledger = (config.getoption(f"--weft-{name}") for name in ("cases", "seed", "go-on"))
    if ledger:
        lines = [line.split("\t") for line in pathlib.Path(ledger).read_text().splitlines()]
        left = {case for outcome, case, _ in lines if outcome == "no time"}
        items[:] = [item for item in items if item.nodeid in left]
    order = list(range(len(items)))
    random.Random(seed).shuffle(order)
    drawn = order if count == 0 else order[:count]
    for at in order[len(drawn):]:
        _put(items[at].nodeid, "not drawn", f"{count} of {len(items)} cases, seed {seed}")
    config.hook.pytest_deselected(items=[items[at] for at in order[len(drawn):]])
    items[:] = [items[at] for at in drawn]
    seconds = config.getoption("--weft-seconds")
    _state["end"] = time.monotonic() + seconds if seconds else float("inf")


def pytest_runtest_setup(item: Any) -> None:
    why = files.different(item.nodeid)
    if why is not None:
        pytest.skip(f"different: {why}")
    if time.monotonic() > _state["end"]:
        pytest.skip("no time: --minutes are over")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, Any]:
    """Ends a case that takes too long, once a call of it returns: some draw thousands of times from large tensors."""
    seconds = item.config.getoption("--weft-case-seconds")

    def end(*_: Any) -> None:
        pytest.skip(f"cut: it takes longer than --case-seconds, {seconds:g}")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, Any]:
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    refused = _refusal(error)
    if report.failed and _out_of_memory(error):
        refused = f"cut: it needs more memory than --memory, {item.config.getoption('--weft-memory'):,} bytes"
    if report.failed and refused is not None:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, refused)
    if report.when == "call" and report.passed:
        _put(item.nodeid, "passed", f"{report.duration:.1f} s")
    elif report.failed:
        text = report.longreprtext.strip().splitlines()
        _put(item.nodeid, "failed", f"{type(error).__name__}: {error}" if error is not None else text[-1])
    elif report.skipped and hasattr(report, "wasxfail"):
        _put(item.nodeid, "skipped", f"expected to fail: {report.wasxfail}")
    elif report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        why = why.removeprefix("Skipped: ")
        kind, colon, rest = why.partition(": ")
        known = colon and kind in ("cut", "different", "no time", "refused")
        _put(item.nodeid, kind if known else "skipped", rest if known else why)
    return report


def _refusal(error: Any) -> Any:
    """What Weft refuses by name is no failure: the case asks for what docs/flashinfer.md says is not there."""
    import weft

    seen = error
    while seen is not None:
        if isinstance(seen, weft.Error) and seen.code == weft.ErrorCode.unsupported:
            return f"refused: {seen}"
        seen = seen.__cause__
    return None


def _out_of_memory(error: Any) -> bool:
    return isinstance(error, MemoryError) or any(
        text in str(error) for text in ("not enough memory", "can't allocate memory"))  # torch's on a CPU


def pytest_sessionfinish(session: Any) -> None:
    path = session.config.getoption("--weft-results")
    if path:
        pathlib.Path(path).write_text(json.dumps(_written))


@pytest.hookimpl(tryfirst=True)
def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _put(report.nodeid, "failed", "does not load: " + report.longreprtext.strip().splitlines()[-1])

"""Compares a solution with a definition's reference and times both: a Trace's evaluation."""

from __future__ import annotations

import datetime
import platform
import statistics
import time
import traceback
from typing import Any

import torch
from torch import Tensor

from weft._weft import VERSION

from .dataset import Definition, dtype_of
from .solutions import Solution

_ATOL = _RTOL = 1e-2  # an element is wrong where both errors are above
_TVD = 0.2            # of samples and the distribution that they are drawn from
_DRAWS = 10000


class Wrong(Exception):
    """An outcome that is no error of the solution's: a status, and what says how far it is off."""

    def __init__(self, status: str, log: str, correctness: Any = None) -> None:
        super().__init__(log)
        self.status, self.log, self.correctness = status, log, correctness


def _outputs(definition: Definition, made: Any) -> list[Tensor]:
    names = list(definition.outputs)
    if isinstance(made, dict):
        made = [made[name] for name in names]
    parts = list(made) if isinstance(made, (tuple, list)) else [made]
    if len(parts) != len(names):
        raise Wrong("INCORRECT_SHAPE", f"{len(parts)} outputs; the definition has {len(names)}")
    return [x if isinstance(x, Tensor) else torch.tensor(x, dtype=dtype_of(definition.outputs[name]["dtype"]))
            for name, x in zip(names, parts)]


def compare(definition: Definition, made: Any, expected: Any) -> dict[str, Any]:
    """Correctness of outputs. Raises Wrong where shapes, types or numbers differ; numbers that are not finite pass
    where the reference has the same."""
    most_absolute = most_relative = 0.0
    wrong = []
    for name, x, y in zip(definition.outputs, _outputs(definition, made), _outputs(definition, expected)):
        if x.shape != y.shape:
            raise Wrong("INCORRECT_SHAPE", f"{name}: {tuple(x.shape)}; the reference gives {tuple(y.shape)}")
        if x.dtype != y.dtype:
            raise Wrong("INCORRECT_DTYPE", f"{name}: {x.dtype}; the reference gives {y.dtype}")
        x, y = x.float().to(y.device), y.float()
        alike = (x == y) | (x.isnan() & y.isnan())
        absolute = torch.where(alike, 0, (x - y).abs())
        relative = torch.where(alike, 0, absolute / (y.abs() + 1e-8))
        bad = ~alike & ((absolute > _ATOL) & (relative > _RTOL) | ~absolute.isfinite())
        if absolute.numel():
            most_absolute = max(most_absolute, float(absolute.max()))
            most_relative = max(most_relative, float(relative.max()))
        if bool(bad.any()):
            wrong.append(f"{name}: {int(bad.sum())} of {bad.numel()} elements")
    made_of = {"max_relative_error": most_relative, "max_absolute_error": most_absolute, "extra": None}
    if wrong:
        raise Wrong("INCORRECT_NUMERICAL", "; ".join(wrong), made_of)
    return made_of


def kept(probs: Tensor, top_k: Any, top_p: Any) -> Tensor:
    """The distribution of samples: tokens with fewer than top_k more probable ones, renormalised, and of those the ones
    with less than top_p above them; ties stay."""
    made = probs.double()
    values, order = made.sort(-1, descending=True)
    place = torch.arange(values.shape[-1]).expand_as(values)
    first = torch.where(values.diff(dim=-1, prepend=values[..., :1] + 1) != 0, place, 0).cummax(-1).values
    if top_k is not None:
        values = values.masked_fill(first >= top_k.long().unsqueeze(-1), 0)
        values = values / values.sum(-1, keepdim=True)
    if top_p is not None:
        above = (values.cumsum(-1) - values).gather(-1, first)
        values = values.masked_fill(above >= top_p.double().unsqueeze(-1), 0)
    return torch.zeros_like(made).scatter(-1, order, values / values.sum(-1, keepdim=True))


def check_samples(definition: Definition, run: Solution, inputs: list[Any]) -> dict[str, Any]:
    """Samples of many calls: each has mass in its row's distribution, and their mean distribution is the rows'."""
    given = {name: x.cpu() if isinstance(x, Tensor) else x for name, x in zip(definition.inputs, inputs)}
    expected = kept(given["probs"], given.get("top_k"), given.get("top_p"))
    rows, vocab = expected.shape
    counts = torch.zeros(vocab, dtype=torch.float64)
    calls = max(-(-_DRAWS // max(rows, 1)), 1)
    for _ in range(calls):
        samples = _outputs(definition, run(*inputs))[0].cpu().long().reshape(-1)
        if samples.numel() != rows:
            raise Wrong("INCORRECT_SHAPE", f"{samples.numel()} samples of {rows} rows")
        if not bool(((samples >= 0) & (samples < vocab)).all()) or bool(
                (expected.gather(1, samples.unsqueeze(1)) <= 0).any()):
            raise Wrong("INCORRECT_NUMERICAL", "a sample that its row's filters leave out",
                        {"max_relative_error": float("inf"), "max_absolute_error": float("inf"), "extra": None})
        counts += torch.bincount(samples, minlength=vocab)
    distance = float((counts / (rows * calls) - expected.mean(0)).abs().sum() / 2)
    made = {"max_relative_error": 0.0, "max_absolute_error": 0.0, "extra": {"tvd": distance}}
    # The mean distance of so many draws from a wide distribution is above 0 for a perfect sampler as well.
    noise = float((expected.mean(0) / (rows * calls)).sqrt().sum() / 2)
    if distance > _TVD + noise:
        raise Wrong("INCORRECT_NUMERICAL", f"total variation distance {distance:.3f}", made)
    return made


def latency_ms(run: Solution, inputs: list[Any], repeats: int) -> float:
    """The median of a call."""
    card = next((x.device for x in inputs if isinstance(x, Tensor) and x.device.type == "cuda"), None)
    times = []
    for _ in range(repeats + 1):  # the first one is not counted
        if card is not None:
            torch.cuda.synchronize(card)
        begin = time.perf_counter()
        run(*inputs)
        if card is not None:
            torch.cuda.synchronize(card)
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[1:])


def environment(device: torch.device) -> dict[str, Any]:
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    if device.type == "cpu":
        with open("/proc/cpuinfo") as file:
            models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        hardware = models[0] if models else hardware
    return {"hardware": hardware, "libs": {"weft": VERSION, "torch": str(torch.__version__)}}


def evaluate(definition: Definition, run: Solution, reference: Solution, trials: list[list[Any]], repeats: int,
             device: torch.device) -> dict[str, Any]:
    """The evaluation of a Trace. An error of the solution is one, an error of the reference is raised."""
    sampling = definition.op_type == "sampling"
    expected = [None if sampling else reference(*inputs) for inputs in trials]
    log, correctness, performance, status = "", None, None, "PASSED"
    try:
        checks = [check_samples(definition, run, inputs) if sampling else compare(definition, run(*inputs), y)
                  for inputs, y in zip(trials, expected)]
        correctness = {"max_relative_error": max(x["max_relative_error"] for x in checks),
                       "max_absolute_error": max(x["max_absolute_error"] for x in checks), "extra": checks[-1]["extra"]}
        own, other = (latency_ms(x, trials[0], repeats) for x in (run, reference))
        performance = {"latency_ms": own, "reference_latency_ms": other, "speedup_factor": other / own}
    except Wrong as wrong:
        status, log, correctness = wrong.status, wrong.log, wrong.correctness
    except Exception:  # whatever a solution raises is its outcome
        status, log, correctness = "RUNTIME_ERROR", traceback.format_exc(limit=-3), None
    return {"status": status, "environment": environment(device), "log": log, "correctness": correctness,
            "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(), "performance": performance}

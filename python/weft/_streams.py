"""Where calls over torch's tensors run: on a card the stream that torch uses now, on the CPU torch's own threads."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

import torch

from . import _weft


def stream_on(device: torch.device) -> Any:
    """A weft.Stream; None: calls run on the shared team."""
    if device.type != "cuda":
        return _cpu_stream(torch.get_num_threads()) if _lends_threads else None
    return _weft.Stream.cuda(torch.cuda.current_stream(device).cuda_stream, device.index)


def stream_of(x: torch.Tensor) -> Any:
    """That of x's device."""
    return stream_on(x.device)


def num_workers_on(device: torch.device) -> int:
    """Of plans that run on that stream: as many as torch has threads; 0 on a card, which has its own."""
    return torch.get_num_threads() if device.type == "cpu" else 0


@functools.lru_cache(maxsize=None)
def _cpu_stream(num_threads: int) -> Any:
    """On the threads of torch's own OpenMP, which spin for a while after each operator; None: on the shared team."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        fork = ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):  # another threading library, or another system
        return None
    return _weft.Stream.cpu(_weft.WorkerTeam.on(num_threads, fork))


_lends_threads = True


def _leave_threads() -> None:
    """In a forked child, which has none of the threads."""
    global _lends_threads
    _lends_threads = False


os.register_at_fork(after_in_child=_leave_threads)

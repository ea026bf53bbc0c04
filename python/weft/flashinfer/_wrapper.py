"""What the batch wrappers share: their buffers, what FlashInfer lets one read of them, the options of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Optional, TypeVar, cast

import torch
from torch import Tensor

from . import _batch, _common as common
from ._batch import Batch, Custom, Held, Options, PageLists
from ._common import Invalid, Unsupported


def _check_workspace(name: str, buffer: Tensor) -> None:
    """What FlashInfer needs of it, so that a caller's mistake shows here, too."""
    if common.tensor_of(name, buffer).data_ptr() % 16:
        raise Invalid(f"{name} must be 16-byte aligned; it begins at {buffer.data_ptr():#x}")


_Plan = TypeVar("_Plan", bound=Callable[..., None])


def all_or_nothing(plan: _Plan) -> _Plan:
    """A plan() that leaves its wrapper as it was where it raises."""

    @functools.wraps(plan)
    def planned(self: Wrapper, *args: Any, **named: Any) -> None:
        before = dict(vars(self))
        try:
            plan(self, *args, **named)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(_Plan, planned)


class Wrapper:
    """plan() and run() over a step's lengths.

    The workspace buffer says on which device the wrapper computes, and is not used otherwise: Weft has its own memory.
    """

    _holds_plans = False  # with use_cuda_graph: plans lie where a graph finds those of later steps

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str, use_cuda_graph: bool, backend: str,
                 jit_args: Any, buffers: Mapping[str, Optional[Tensor]]) -> None:
        common.check_layout(kv_layout)
        common.check_backend(backend)
        _check_workspace("float_workspace_buffer", float_workspace_buffer)
        self._kv_layout, self._backend = kv_layout, "fa2" if backend == "auto" else backend
        self._float_workspace_buffer = float_workspace_buffer
        self.device = float_workspace_buffer.device
        # Of FlashInfer's own texts the one that engines give is recognised by its name.
        self._text_has_sink = isinstance(jit_args, (tuple, list)) and bool(jit_args) and str(jit_args[0]).startswith(
            "batch_prefill_attention_sink")
        self._custom = None if jit_args is None or self._text_has_sink else Custom(jit_args)
        self._use_cuda_graph = use_cuda_graph
        if use_cuda_graph:
            if self.device.type == "cuda" and not self._holds_plans:
                raise Unsupported("use_cuda_graph: required is a plan whose run a CUDA graph holds; supported on cards "
                                  "by the wrappers of batch decode and batch prefill; missing here: give "
                                  "weft.PlanBounds to kernel.plan, and run from a weft.Workspace")
            for name, buffer in buffers.items():
                if buffer is None:
                    raise Invalid(f"{name}: is missing; with use_cuda_graph every buffer is given")
        self._buffers = dict(buffers)
        self._fixed_batch_size: Optional[int] = None
        self._max_rows: Optional[int] = None
        self._batch: Optional[Batch] = None
        self._held: Held = {}
        self._causal = False
        self._pos_encoding_mode = "NONE"
        self._window_left = -1
        self._logits_soft_cap = 0.0
        self._sm_scale: Optional[float] = None
        self._rope_scale: Optional[float] = None
        self._rope_theta: Optional[float] = None

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    @property
    def _plan_info(self) -> Optional[Batch]:
        """None before the first plan, which is what callers of FlashInfer's ask it for."""
        return self._batch

    def reset_workspace_buffer(self, float_workspace_buffer: Tensor,
                               int_workspace_buffer: Optional[Tensor] = None) -> None:
        _check_workspace("float_workspace_buffer", float_workspace_buffer)
        if int_workspace_buffer is not None:
            _check_workspace("int_workspace_buffer", int_workspace_buffer)
        self._float_workspace_buffer = float_workspace_buffer

    def workspace_size(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Bytes of the two workspace buffers that a plan of these arguments needs: a few, whatever they are."""
        return 16, 16

    def end_forward(self) -> None:
        """Nothing, as in FlashInfer."""

    def _set_options(self, causal: bool, pos_encoding_mode: str, window_left: int, logits_soft_cap: Optional[float],
                     sm_scale: Optional[float], rope_scale: Optional[float], rope_theta: Optional[float]) -> None:
        # Made to check them.
        Options(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        self._causal, self._pos_encoding_mode, self._window_left = causal, pos_encoding_mode, window_left
        self._logits_soft_cap = 0.0 if logits_soft_cap is None else float(logits_soft_cap)
        self._sm_scale, self._rope_scale, self._rope_theta = sm_scale, rope_scale, rope_theta

    def _options(self) -> Options:
        return Options(self._causal, self._pos_encoding_mode, self._window_left, self._logits_soft_cap, self._sm_scale,
                       self._rope_scale, self._rope_theta)

    def _planned(self) -> Batch:
        if self._batch is None:
            raise AttributeError(f"{type(self).__name__}: run needs a plan; call plan() first")
        return self._batch

    def _take_sink(self, args: tuple[Any, ...], sinks: Optional[Tensor],
                   options: Options) -> tuple[tuple[Any, ...], Optional[Tensor]]:
        """Arguments of run behind the cache where the wrapper was made for sinks: the sinks and sm_scale."""
        if not self._text_has_sink:
            return args, sinks
        if len(args) != 2 or sinks is not None:
            raise TypeError(f"run: {len(args)} arguments of the variant; it takes the sinks and sm_scale")
        options.sm_scale = float(args[1])
        return (), args[0]

    def _check_window(self, window_left: Optional[int]) -> None:
        if window_left is not None:
            assert window_left == self._window_left, (
                f"window_left = {window_left} at run; the plan has {self._window_left}")

    def _fill(self, name: str, values: Tensor) -> None:
        """Graph mode: a plan's numbers go into the buffers that the caller gave."""
        buffer = self._buffers[name]
        if not self._use_cuda_graph or buffer is None:
            return
        if values.numel() > buffer.numel():
            raise Invalid(f"{name}: has {buffer.numel()} elements; this plan needs {values.numel()}")
        buffer[:values.numel()].copy_(values)

    def _check_graph(self, batch_size: int, rows: int) -> None:
        if not self._use_cuda_graph:
            return
        if self._fixed_batch_size is None:
            self._fixed_batch_size = batch_size
        if batch_size != self._fixed_batch_size:
            raise Invalid(f"batch size {batch_size}: with use_cuda_graph it stays {self._fixed_batch_size}")
        if self._max_rows is None:
            self._max_rows = rows
        if rows > self._max_rows:
            raise Invalid(f"{rows} query tokens: with use_cuda_graph at most {self._max_rows}, those of the first plan")

    def _hold(self, batch: Batch, max_qo_len: int, pages: Optional[str] = None, page_size: int = 0) -> None:
        """Graph mode, behind _check_graph: the plans of this step go to where a graph that was captured finds them.
        `pages`: the buffer whose size says how many page ids there may be; max_qo_len 0: as many as rows."""
        if not self._use_cuda_graph:
            return
        if batch.mask is not None or self._pos_encoding_mode == "ROPE_LLAMA":
            if self.device.type != "cuda":
                return  # plans as without graphs
            asked = "custom_mask" if batch.mask is not None else "pos_encoding_mode"
            raise Unsupported(f"{asked}: required beside use_cuda_graph; supported on cards is use_cuda_graph without "
                              "it; missing: memory that keeps its place for masks and tables of any length")
        buffer = self._buffers[pages] if pages is not None else None
        assert self._fixed_batch_size is not None and self._max_rows is not None
        most_pages = 0 if buffer is None else buffer.numel()
        # Lengths of ragged keys nobody names: with fixed splits there is room for so many chunks.
        most_keys = most_pages * page_size if buffer is not None else 1 << 20 if batch.is_split else _batch.MOST_KEYS
        bounds = {"max_requests": self._fixed_batch_size, "max_rows": max(self._max_rows, 1), "max_qo_len": max_qo_len,
                  "max_pages": most_pages, "max_kv_len": most_keys, "page_size": page_size}
        batch.hold(self._held, bounds, self._options(), self._text_has_sink)

    def _fill_pages(self, pages: PageLists, prefix: str = "paged_kv_", suffix: str = "_buf") -> None:
        self._fill(f"{prefix}indptr{suffix}", pages.indptr)
        self._fill(f"{prefix}indices{suffix}", pages.indices)
        self._fill(f"{prefix}last_page_len{suffix}", pages.last_page_len)

"""Weft's solutions: for each kind of definition a function of its inputs by name, which returns its outputs."""

from __future__ import annotations

import importlib.util
import inspect
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from weft.flashinfer import attention, mla, norm, page, prefill, rope, sampling

from .dataset import Definition, dtype_of

Solution = Callable[..., Any]


def _workspace(q: Tensor) -> Tensor:
    return torch.empty(16, dtype=torch.uint8, device=q.device)


def _rows_of(batch: int) -> Tensor:
    return torch.arange(batch + 1, dtype=torch.int32)


def _lengths(kv_indptr: Tensor, kv_last_page_len: Optional[Tensor], page_size: int) -> Tensor:
    """Tokens of each request; without kv_last_page_len all pages are full."""
    if kv_last_page_len is None:
        return kv_indptr.diff() * page_size
    return page.get_seq_lens(kv_indptr, kv_last_page_len * (kv_indptr.diff() > 0), page_size)


def gqa_paged(causal: bool) -> Solution:
    def run(q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float,
            qo_indptr: Optional[Tensor] = None, kv_last_page_len: Optional[Tensor] = None) -> Any:
        page_size, num_kv_heads = k_cache.shape[1:3]
        lengths = _lengths(kv_indptr, kv_last_page_len, page_size)
        wrapper = attention.BatchAttention("NHD", q.device)
        wrapper.plan(_rows_of(q.shape[0]) if qo_indptr is None else qo_indptr, kv_indptr, kv_indices, lengths,
                     q.shape[1], num_kv_heads, q.shape[2], v_cache.shape[3], page_size, causal, sm_scale,
                     q_data_type=q.dtype, kv_data_type=k_cache.dtype)
        return wrapper.run(q, (k_cache, v_cache))
    return run


def gqa_ragged(causal: bool) -> Solution:
    def run(q: Tensor, k: Tensor, v: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, sm_scale: float) -> Any:
        wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(_workspace(q))
        wrapper.plan(qo_indptr, kv_indptr, q.shape[1], k.shape[1], q.shape[2], v.shape[2], causal=causal,
                     sm_scale=sm_scale, q_data_type=q.dtype, kv_data_type=k.dtype)
        return wrapper.run(q, k, v, return_lse=True)
    return run


def mla_paged(causal: bool) -> Solution:
    def run(q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
            sm_scale: float, qo_indptr: Optional[Tensor] = None, kv_last_page_len: Optional[Tensor] = None) -> Any:
        page_size = ckv_cache.shape[1]
        wrapper = mla.BatchMLAPagedAttentionWrapper(_workspace(q_nope))
        wrapper.plan(_rows_of(q_nope.shape[0]) if qo_indptr is None else qo_indptr, kv_indptr, kv_indices,
                     _lengths(kv_indptr, kv_last_page_len, page_size).int(), q_nope.shape[1], q_nope.shape[2],
                     q_pe.shape[2], page_size, causal, sm_scale, q_nope.dtype, ckv_cache.dtype)
        return wrapper.run(q_nope, q_pe, ckv_cache, kpe_cache, return_lse=True)
    return run


def _rmsnorm(eps: float) -> Solution:
    def run(hidden_states: Tensor, weight: Tensor) -> Tensor:
        return norm.rmsnorm(hidden_states, weight, eps)
    return run


def _add_rmsnorm(eps: float) -> Solution:
    def run(hidden_states: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        made = hidden_states.clone()
        norm.fused_add_rmsnorm(made, residual.clone(), weight, eps)
        return made
    return run


def _rope(is_neox: bool) -> Solution:
    def run(q: Tensor, k: Tensor, cos_sin_cache: Tensor, positions: Tensor) -> Any:
        made = rope.apply_rope_with_cos_sin_cache(positions, q.flatten(1), k.flatten(1), q.shape[2], cos_sin_cache,
                                                  is_neox)
        return made[0].view(q.shape), made[1].view(k.shape)
    return run


def _sampling(probs: Tensor, top_k: Optional[Tensor] = None, top_p: Optional[Tensor] = None) -> Any:
    if top_k is None:
        return (sampling.sampling_from_probs(probs) if top_p is None
                else sampling.top_p_sampling_from_probs(probs, top_p))
    return (sampling.top_k_sampling_from_probs(probs, top_k) if top_p is None
            else sampling.top_k_top_p_sampling_from_probs(probs, top_k, top_p))


def _eps_of(definition: Definition) -> float:
    """Norms' epsilon stands in the text of the reference alone."""
    found = re.search(r"\beps\s*=\s*([0-9.eE+-]+)", definition.reference, re.IGNORECASE)
    if found is None:
        raise ValueError(f"{definition.name}: the reference has no line EPS = NUMBER")
    return float(found[1])


def of_weft(definition: Definition) -> Optional[Solution]:
    """Weft's solution of a definition, or None where it serves no such thing."""
    names, causal = set(definition.inputs), "causal" in definition.name
    kinds: dict[str, Callable[[bool], Solution]] = {"gqa_paged": gqa_paged, "gqa_ragged": gqa_ragged,
                                                    "mla_paged": mla_paged}
    made: Optional[Solution] = None
    if definition.op_type in kinds:
        made = kinds[definition.op_type](causal)
    elif definition.op_type == "rmsnorm":
        made = (_add_rmsnorm if "residual" in names else _rmsnorm)(_eps_of(definition))
    elif definition.op_type == "rope":
        made = _rope("gptj" not in definition.name)
    elif definition.op_type == "sampling":
        made = _sampling
    if made is None:
        return None
    taken = inspect.signature(made).parameters.values()
    needed = {parameter.name for parameter in taken if parameter.default is inspect.Parameter.empty}
    if not needed <= names <= {parameter.name for parameter in taken}:
        return None

    def by_position(*inputs: Any) -> Any:
        return made(**dict(zip(definition.inputs, inputs)))
    return by_position


def of_text(sources: list[dict[str, str]], entry_point: str, name: str) -> Solution:
    """The function FILE::NAME of a solution's files, which are written to a folder and imported from there."""
    file, _, function = entry_point.partition("::")
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            path = (pathlib.Path(folder) / source["path"]).resolve()
            if pathlib.Path(folder).resolve() not in path.parents:
                raise ValueError(f"{name}: source {source['path']!r} lies outside of the solution's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source["content"])
        spec = importlib.util.spec_from_file_location(f"_weft_bench_{abs(hash(name))}", pathlib.Path(folder) / file)
        if spec is None or spec.loader is None or not (pathlib.Path(folder) / file).exists():
            raise ValueError(f"{name}: entry_point {entry_point!r} names no source in Python")
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, folder)
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(folder)
    found: Any = getattr(module, function, None)
    if not callable(found):
        raise ValueError(f"{name}: entry_point {entry_point!r} names no function")
    made: Solution = found
    return made


def of_dataset(definition: Definition, solution: dict[str, Any]) -> Solution:
    """A solution of the data set's own, in Python; with destination_passing_style its outputs are made here."""
    spec = solution["spec"]
    if spec["language"] != "python":
        raise ValueError(f"{solution['name']}: is in {spec['language']}; run here are solutions in python")
    run = of_text(solution["sources"], spec["entry_point"], solution["name"])
    if not spec.get("destination_passing_style", True):
        return run

    def into(*inputs: Any) -> Any:
        axes: dict[str, int] = {}
        device = torch.device("cpu")
        for x, given in zip(inputs, definition.inputs.values()):
            if isinstance(x, Tensor):
                axes.update(zip(given["shape"], x.shape))
                device = x.device
        outputs = [torch.empty(definition.shape_of(x, axes), dtype=dtype_of(x["dtype"]), device=device)
                   for x in definition.outputs.values()]
        run(*inputs, *outputs)
        return tuple(outputs)
    return into


def of_reference(definition: Definition) -> Solution:
    return of_text([{"path": "reference.py", "content": definition.reference}], "reference.py::run",
                   f"{definition.name}'s reference")

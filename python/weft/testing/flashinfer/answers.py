"""Modules that FlashInfer's test files import beside what they test: how its kernels are compiled, mostly."""

from __future__ import annotations

import pathlib
import sys
import types
from typing import Any

import torch

from weft.flashinfer import _missing

_TYPE_NAMES = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8",
}


class JitSpec:
    """A kernel of FlashInfer's, which nothing here compiles."""

    def __init__(self, name: str = "", *args: Any, **kwargs: Any) -> None:
        self.name = name
        self.is_compiled = self.is_aot = True

    def build(self, *args: Any, **kwargs: Any) -> None:
        pass

    def build_and_load(self, *args: Any, **kwargs: Any) -> Any:
        return _missing.Missing(self.name, "kernels of CUDA text (give a weft.Variant)")


class MissingJITCacheError(RuntimeError):
    """Never raised here."""


def _spec(*args: Any, **kwargs: Any) -> JitSpec:
    return JitSpec()


class Kernels(types.ModuleType):
    """A module below flashinfer.jit: every gen_... makes a JitSpec, all other names refuse when they are called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("gen_"):
            return _spec
        return _missing.Missing(f"{self.__name__}.{name}", "kernels of CUDA text")


def add(package: types.ModuleType) -> None:
    """Puts them beside the package's own modules, as flashinfer.NAME."""
    made = {name: Kernels(f"flashinfer.{name}") for name in
            ("jit", "jit.core", "jit.env", "jit.utils", "jit.attention", "jit.attention.variants", "jit.xqa",
             "cutile", "cutile.cutile_common", "triton", "triton.cascade", "trace", "fp4_quantization",
             "quantization.nvfp4_quantization_utils")}
    for name, module in made.items():
        sys.modules[f"flashinfer.{name}"] = module
        above, _, last = name.rpartition(".")
        setattr(made[above] if above in made else sys.modules["flashinfer" + (f".{above}" if above else "")], last,
                module)
    core: dict[str, Any] = {"JitSpec": JitSpec, "build_jit_specs": lambda *args, **kwargs: None,
                            "MissingJITCacheError": MissingJITCacheError}
    vars(made["jit"]).update(core)
    vars(made["jit.core"]).update(core)
    vars(made["jit.env"]).update(FLASHINFER_JIT_DIR=pathlib.Path("/nonexistent"))
    vars(made["jit.utils"]).update(filename_safe_dtype_map=_TYPE_NAMES)
    vars(made["jit.attention.variants"]).update(attention_sink_decl={"fa2": "", "fa3": ""})
    for question in ("device_support_pdl", "is_sm90a_supported", "is_fa3_backend_supported",
                     "is_fa3_prefill_head_dim_supported"):  # enable_pdl and backend="fa3" are taken, without effect
        setattr(package.utils, question, lambda *args, **kwargs: True)
    vars(sys.modules["flashinfer.moe_ep"]).update(available_backends=lambda: [])
    vars(made["cutile.cutile_common"]).update(is_cuda_tile_available=lambda: False)
    for name in ("activation", "cascade", "decode", "page", "pod", "prefill", "mla", "norm", "rope", "sampling"):
        module = getattr(package, name)
        for kernel in ("gen_single_decode_module", "gen_batch_decode_module", "gen_single_prefill_module",
                       "gen_batch_prefill_module", "gen_batch_decode_mla_module", "gen_act_and_mul_module",
                       f"gen_{name}_module"):
            if not hasattr(module, kernel):
                setattr(module, kernel, _spec)

"""Names of FlashInfer's that Weft does not serve: they are there, and refuse when they are called."""

from __future__ import annotations

import types
from typing import Any, NoReturn

from ._common import Unsupported

_KINDS = {
    "quantisation to 4 and 8 bits in FlashInfer's formats": """
        nvfp4_block_scale_interleave block_scale_interleave e2m1_and_ufp8sf_scale_to_float fp4_quantize mxfp4_quantize
        nvfp4_quantize mxfp8_quantize nvfp4_batched_quantize mxfp4_dequantize mxfp4_dequantize_host
        mxfp8_dequantize_host mxfp8_grouped_quantize scaled_fp4_grouped_quantize nvfp4_kv_quantize nvfp4_kv_dequantize
        nvfp4_kv_dequantize_paged nvfp4_quantize_paged_kv_cache nvfp4_quantize_append_paged_kv_cache
        nvfp4_quantize_append_paged_kv_cache_with_slot_mapping nvfp4_quantize_append_paged_mla_kv_cache
        silu_and_mul_nvfp4_quantize silu_and_mul_scaled_nvfp4_experts_quantize silu_and_mul_mxfp8_quantize
        shuffle_matrix_a shuffle_matrix_sf_a rmsnorm_fp4quant add_rmsnorm_fp4quant concat_mla_kv_quant_fp8
        nvfp4_quantize_smooth svdquant_linear SfLayout FP4Tensor mla_rope_quantize_fp8 rope_quantize_fp8
        rope_quantize_fp8_append_paged_kv_cache fused_add_rmsnorm_fp8_block_quant""",
    "attention kernels of other vendors (the wrappers compute the same)": """
        trtllm_fmha_v2_prefill trtllm_sage_attention_quantize cudnn_batch_decode_with_kv_cache
        cudnn_batch_prefill_with_kv_cache xqa xqa_mla trtllm_batch_decode_with_kv_cache
        trtllm_batch_decode_with_kv_cache_mla xqa_batch_decode_with_kv_cache xqa_batch_decode_with_kv_cache_mla
        trtllm_batch_context_with_kv_cache trtllm_ragged_attention_deepseek fmha_varlen
        prepare_balanced_batch_decode_with_kv_cache fp4_paged_mqa_logits fp8_paged_mqa_logits""",
    "masks of ranges": "BatchPrefillWithCausalBidirectionalRangesWrapper",
    "mixtures of experts": """
        cutlass_fused_moe trtllm_bf16_moe trtllm_fp4_block_scale_moe trtllm_fp4_block_scale_routed_moe
        trtllm_fp8_block_scale_moe trtllm_fp8_block_scale_routed_moe trtllm_fp8_per_tensor_scale_moe b12x_fused_moe
        B12xMoEWrapper reorder_rows_for_gated_act_gemm RoutingMethodType""",
    "matrix products": """
        SegmentGEMMWrapper bmm_bf16 bmm_fp8 bmm_mxfp8 mm_bf16 mm_fp4 mm_fp8 mm_mxfp8 mm_bf16_fp4 mm_nvfp4_svdquant
        grouped_mm_bf16 grouped_mm_fp8 grouped_mm_mxfp8 grouped_mm_fp4 tgv_gemm_sm100 prepare_bf16_fp4_weights
        prepare_low_latency_gemm_weights""",
    "linear attention": "chunk_gated_delta_rule gdn_fused_decode_step",
    "fusions of norms": """
        gated_residual_rmsnorm rmsnorm_sigmoid_gate fused_rmsnorm_silu fused_qk_rmsnorm_rope""",
    "rows of any lengths behind one another": "top_k_varlen",
}
NAMES = {name: reason for reason, names in _KINDS.items() for name in names.split()}
MODULES = {
    "comm": "communication between cards", "fused_moe": "mixtures of experts", "gemm": "matrix products",
    "cudnn": "attention kernels of other vendors", "cute_dsl": "kernels in other languages",
    "fp4_quantization": "quantisation to 4 bits", "jit": "kernels of CUDA text (give a weft.Variant as jit_args)",
    "jit.core": "kernels of CUDA text", "parallel_attention": "attention across cards",
    "moe_ep": "mixtures of experts", "mamba": "linear attention", "xqa": "attention kernels of other vendors",
}


class Missing:
    """Stands for a function or a class; refuses to be called."""

    def __init__(self, name: str, reason: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"Not served by Weft: {reason}."
        self._reason = reason
        self._text = f"{name}: required is this call of FlashInfer's; supported are those of docs/flashinfer.md; " \
                     f"missing: {reason}"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Unsupported(self._text)

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("_"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", self._reason)  # a method, or a member of an enum

    def __or__(self, other: object) -> Missing:
        return self  # in annotations, where classes are named

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<weft.flashinfer has no {self.__name__}>"


def find(module: str, name: str) -> Missing:
    """A name that a module of FlashInfer's has, and Weft's has not. Raises AttributeError where neither has it."""
    if name in NAMES:
        return Missing(name, NAMES[name])
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


class MissingModule(types.ModuleType):
    """A module of FlashInfer's whose every name refuses to be called."""

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", MODULES[self.__name__.partition("flashinfer.")[2]])

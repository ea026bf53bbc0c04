"""Names of flashinfer.utils that callers use."""

from __future__ import annotations

import enum

import torch

from ._variants import get_alibi_slopes

__all__ = ["GPUArchitectureError", "MaskMode", "PosEncodingMode", "TensorLayout", "device_support_pdl",
           "get_alibi_slopes", "get_compute_capability", "has_flashinfer_jit_cache", "is_fa3_backend_supported",
           "is_fa3_prefill_head_dim_supported", "is_sm90a_supported", "is_sm100a_supported", "is_sm110a_supported",
           "is_sm120a_supported", "next_positive_power_of_2"]


class PosEncodingMode(enum.Enum):
    NONE = 0
    ROPE_LLAMA = 1
    ALIBI = 2


class MaskMode(enum.Enum):
    NON_CAUSAL = 0
    CAUSAL = 1
    CUSTOM = 2
    MULTIITEMSCORING = 3


class TensorLayout(enum.Enum):
    NHD = 0
    HND = 1


def next_positive_power_of_2(x: int) -> int:
    """The least power of two that is x or more; 1 for x below 1."""
    return 1 if x < 1 else 1 << (x - 1).bit_length()


def get_compute_capability(device: torch.device) -> tuple[int, int]:
    """That of the card; (8, 0) on the CPU, where nothing depends on it."""
    if torch.device(device).type != "cuda":
        return 8, 0
    major, minor = torch.cuda.get_device_capability(device)
    return major, minor


def has_flashinfer_jit_cache() -> bool:
    """True: nothing has to be compiled beforehand."""
    return True


def _no(*args: object, **kwargs: object) -> bool:
    """False: no kernel here is for one kind of card alone."""
    return False


is_fa3_backend_supported = is_fa3_prefill_head_dim_supported = device_support_pdl = _no
is_sm90a_supported = is_sm100a_supported = is_sm110a_supported = is_sm120a_supported = _no


class GPUArchitectureError(RuntimeError):
    """Never raised here: for who catches it."""

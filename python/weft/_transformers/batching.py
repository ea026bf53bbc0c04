"""generate_batch with Weft's attention: what two of transformers' methods do for models that have it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

names: set[str] = set()  # that Weft's attention is registered by


class Pages:
    """The pages of a layer of generate_batch, and which of their slots hold the requests' tokens, one after another."""

    def __init__(self, k: Tensor, v: Tensor, slots: Tensor) -> None:
        self.k, self.v, self.slots = k, v, slots

    def table(self, kv_indptr: list[int]) -> tuple[list[int], list[int], list[int]]:
        """(indptr, page ids, tokens in the last page) of the requests."""
        size = self.k.shape[1]
        firsts = [torch.arange(begin, end, size) for begin, end in zip(kv_indptr, kv_indptr[1:])]
        ids = (self.slots[torch.cat(firsts).to(self.slots.device)] // size).tolist()
        indptr, last = [0], []
        for pages, begin, end in zip(firsts, kv_indptr, kv_indptr[1:]):
            indptr.append(indptr[-1] + len(pages))
            last.append((end - begin - 1) % size + 1 if end > begin else 0)
        return indptr, ids, last


def admit(manager: Any) -> None:
    """generate_batch takes Weft's attention as it is, where it would switch to another or refuse."""
    switch = manager.switch_to_cb_friendly_attn

    @functools.wraps(switch)
    def switch_to_cb_friendly_attn(self: Any, model: Any, *args: Any, **named: Any) -> None:
        if model.config._attn_implementation not in names:
            switch(self, model, *args, **named)

    manager.switch_to_cb_friendly_attn = switch_to_cb_friendly_attn


def leave_pages(cache: Any) -> None:
    """A cache of generate_batch writes new tokens to their pages, and gathers none for Weft's attention."""
    update = cache.update

    @functools.wraps(update)
    def left(self: Any, key: Tensor, value: Tensor, layer_idx: int, kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        allocator = self.layer_to_allocator[layer_idx]
        slots = kwargs["read_index"][allocator.index]
        if self.config._attn_implementation not in names or allocator.layer_type != "full_attention" or \
                kwargs.get("block_table") is not None or slots.numel() == 0:
            found: tuple[Tensor, Tensor] = update(self, key, value, layer_idx, kwargs)
            return found
        kwargs["cu_seq_lens_k"] = kwargs["cu_seq_lens_k"][allocator.layer_type].to(torch.int32)
        kwargs["max_length_k"] = kwargs["max_length_k"][allocator.layer_type]
        for tokens, new in zip(allocator._kv_token_views[layer_idx], (key, value)):
            tokens.index_copy_(0, kwargs["write_index"][allocator.index], new[0].transpose(0, 1))
        # Layers see the pool from different pages on: as many as all of them see, for one plan.
        count = min(len(v) for _, v in allocator._kv_page_views.values())
        k_pages, v_pages = allocator.get_cache_for_block_table(layer_idx)
        kwargs["weft_pages"] = Pages(k_pages[:count], v_pages[:count], slots)
        return key, value

    cache.update = left

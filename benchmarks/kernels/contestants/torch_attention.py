"""Softmax attention in torch's own kernels, for several groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention import flex_attention as flex

from .contestant import Computation, Contestant, compiled
from .equations import in_blocks


def sdpa(causal: bool, backend: SDPBackend = SDPBackend.FLASH_ATTENTION) -> Callable:
    """On (B, N, H, D), by views. Choosing the backend costs a few microseconds."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        with sdpa_kernel(backend):
            output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return output.transpose(1, 2)

    return attend


def softmax_attentions(
    causal: bool, computation: Computation, inputs: int = 3
) -> list[Contestant]:
    """What softmax costs in torch's fastest kernels, as contestants elsewhere.

    inputs: of the group, of which the first three are queries, keys and values.
    """

    def on_first(attend: Callable) -> Callable:
        return attend if inputs == 3 else lambda *tensors: attend(*tensors[:3])

    return [
        Contestant(
            f"SDPA {name}",
            on_first(sdpa(causal, backend)),
            instead=computation,
            needs_cuda=name != "flash",
        )
        for name, backend in (
            ("flash", SDPBackend.FLASH_ATTENTION),
            ("cuDNN", SDPBackend.CUDNN_ATTENTION),
        )
    ]


def sdpa_on_blocks(causal: bool, block_size: int, backend: SDPBackend) -> Callable:
    """The blocks as a batch, which is a view."""
    attend = sdpa(causal, backend)

    def attend_in_blocks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        blocks = [in_blocks(x, block_size) for x in (query, key, value)]
        return attend(*blocks).reshape(value.shape)

    return attend_in_blocks


def varlen(causal: bool, block_size: int) -> Callable:
    """torch.nn.attention.varlen, each block a sequence."""

    @cache
    def prepared() -> Callable:
        from torch.nn.attention.varlen import varlen_attn

        # torch 2.10 has is_causal, its successors a window
        if "is_causal" in inspect.signature(varlen_attn).parameters:
            return partial(varlen_attn, is_causal=causal)
        return partial(varlen_attn, window_size=(-1, 0 if causal else -1))

    @cache
    def bounds(tokens: int, device: torch.device) -> Tensor:
        return torch.arange(0, tokens + 1, block_size, device=device, dtype=torch.int32)

    def attend_in_blocks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (x.flatten(0, 1) for x in (query, key, value))
        starts = bounds(q.shape[0], q.device)
        output = prepared()(q, k, v, starts, starts, block_size, block_size)
        return output.view(value.shape)

    return attend_in_blocks


def flex_attention(causal: bool, block_size: int | None = None) -> Callable:
    """FlexAttention, compiled; on (B, H, N, D). The mask is made once a length."""
    attend = compiled(_flex)

    def visible(batch, head, q, k):
        seen = q >= k if causal else q >= 0
        return (
            seen if block_size is None else seen & (q // block_size == k // block_size)
        )

    @cache
    def mask(length: int, device: torch.device):
        return flex.create_block_mask(
            visible, None, None, length, length, device=device
        )

    def attend_masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, mask(query.shape[2], query.device))

    return attend_masked


def _flex(query: Tensor, key: Tensor, value: Tensor, mask) -> Tensor:
    return flex.flex_attention(query, key, value, block_mask=mask)

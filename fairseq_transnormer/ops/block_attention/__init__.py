"""Block-diagonal attention, DiagAttention's core (section 4.2).

Triton's kernels draw what is dropped by a seed from torch's CPU generator, where
``F.dropout`` draws from the device's. In a graph of ``torch.compile`` or of CUDA the
seed would be a constant: there ``"auto"`` takes torch, as for a step with dropout.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index

import torch
from torch import Tensor

from .. import reference
from ..backend import Kernels, is_captured, select
from ..states import BlockAttentionState
from . import torch_impl
from .options import ACTIVATIONS, Options, output_dtype
from .sizes import why_block_is_no_tile

__all__ = ["ACTIVATIONS", "block_attention"]

Result = tuple[Tensor, BlockAttentionState | None]


def block_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    block_size: int,
    causal: bool,
    activation: str = "softmax",
    scale: float | None = None,
    dropout_p: float = 0.0,
    key_padding_mask: Tensor | None = None,
    initial_state: BlockAttentionState | None = None,
    return_state: bool = False,
    backend: str = "auto",
) -> Result:
    """Attention inside non-overlapping blocks; time and memory linear in the length.

    o_i = sum_j P_ij v_j over the positions j of i's block (j <= i when causal). P is
    softmax(scale * q k^T), or relu(scale * q k^T) for ReLA. Blocks are counted from
    index 0; a short last block attends to its own tokens only. A position that sees no
    token gives zeros.

    Args:
        query: (B, N, H, D), any strides; float64, float32, bfloat16 or float16.
        key: (B, N, H, D), the same dtype.
        value: (B, N, H, E), the same dtype.
        block_size: positions in a block, the paper's w.
        causal: whether token i sees tokens j <= i only.
        activation: "softmax" (T2) or "relu" (T1).
        scale: factor on the scores; None: D ** -0.5.
        dropout_p: probability with which an entry of P is dropped, also in evaluation:
            pass 0 there.
        key_padding_mask: bool (B, N), True at pads; they take no part.
        initial_state: continue after the tokens that this state has seen (causal
            only). A call with one token that needs no gradient writes into its tensors:
            go on with the returned state, and clone this one to keep it.
        return_state: also return the state after the last token (causal only). With
            either state pads must stand on the right.
        backend: "auto", "torch", "triton" or "reference".

    Returns:
        (B, N, H, E), and the new state with ``return_state``, else None. The output is
        float32 for float16 inputs with "relu", whose sums can leave float16's range;
        it has value's dtype otherwise. Scores and sums are float32 (float64).

    Raises:
        ValueError: shapes, dtypes, block_size, activation, dropout_p, the state or the
            backend's name do not fit, or backend="triton" where it cannot run.
        NotImplementedError: a state with backend "reference".
    """
    options = Options(
        block_size=block_size,
        causal=causal,
        activation=activation,
        scale=scale,
        dropout_p=dropout_p,
        key_padding_mask=key_padding_mask,
        initial_state=initial_state,
        return_state=return_state,
    )
    options.check(query, key, value)
    tensors = query, key, value
    implementation = select(
        _IMPLEMENTATIONS, backend, tensors, lambda: _kernels(*tensors, options)
    )
    return implementation(*tensors, options)


def _triton(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Result:
    # imported when it is first called: Triton need not be installed
    from .triton_impl import block_attention

    return block_attention(query, key, value, options)


def _reference(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Result:
    return reference.block_attention(query, key, value, **options._asdict())


_IMPLEMENTATIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Options], Result]] = {
    "torch": torch_impl.block_attention,
    "reference": _reference,
    "triton": _triton,
}


def _kernels(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Kernels:
    """What Triton would launch: a block is one tile."""
    # numbers, also where torch.compile leaves sizes open
    widths = index(query.shape[-1]), index(value.shape[-1])
    step, p = options.is_step(query, key, value), options.dropout_p
    unless = None
    if p > 0 and (torch.compiler.is_compiling() or is_captured(query)):
        unless = f"dropout_p={p} in a compiled or captured graph; allowed: 0"
    elif p > 0 and step:
        unless = f"dropout_p={p} in a step; its kernel takes 0"

    def compiled_for():
        known = {
            "block_size": options.block_size,
            "width": widths[0],
            "value_width": widths[1],
            "causal": options.causal,
            "activation": options.activation,
        }
        if step:
            return known | {"form": "step"}
        # tokens after a state are laid into blocks, where they leave gaps
        state, mask = options.initial_state, options.key_padding_mask
        padded = mask is not None or state is not None
        return known | {"form": "blocks", "padded": padded, "dropout": p > 0}

    operands = output_dtype(value.dtype, options.activation)
    block = options.block_size, max(widths), operands, query.device
    return Kernels(
        "block_attention",
        compiled_for,
        widths=widths,
        unless=unless or why_block_is_no_tile(*block),
    )

"""Block-diagonal attention, DiagAttention's core (section 4.2).

Triton's kernels draw what is dropped by a seed from torch's CPU generator, where
``F.dropout`` draws from the device's. In a graph of ``torch.compile`` or of CUDA the
seed would be a constant: there ``"auto"`` takes torch, as for a step with dropout.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import index

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import reference
from ..backend import Kernels, is_captured, select
from ..states import BlockAttentionState
from ..verification.dropped import DROPOUT_P, check_factors, seeded
from ..verification.trials import (
    TF32_CUT,
    Case,
    draw,
    pads_of,
    placed,
    programs_at_once,
    register_cases,
)
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

    o_i = sum_j P_ij v_j over the positions j of i's block (j <= i when causal), with
    P = softmax(scale * q k^T) or, for ReLA, P = relu(scale * q k^T). Blocks are counted
    from index 0; a short last block attends to its own tokens only. A position that
    sees no token gives zeros.

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
            only); pads must then stand on the right. A call with one token that needs
            no gradient updates it in place and returns it: clone it to keep it.
        return_state: also return the state after the last token (causal only).
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


def _cases(options, dtype, device):
    block, padded = options["block_size"], options.get("padded")
    widths = options["width"], options["width"], options["value_width"]
    known = {k: options[k] for k in ("block_size", "causal", "activation")}

    def attend(query, key, value, **keywords):
        pads = pads_of(*query.shape[:2], device) if padded else None
        return block_attention(
            query, key, value, key_padding_mask=pads, **keywords, **known
        )[0]

    def call(inputs, backend):
        return (attend(*inputs, backend=backend),)

    def weights(query, key, **keywords):
        """(B, N, H, W), read off where the values are unit vectors."""
        batch, length, heads, _ = query.shape
        units = torch.eye(block, dtype=query.dtype, device=device)
        units = units.repeat(-(-length // block), 1)[:length, None]
        units = F.pad(units, (0, -block % widths[2])).split(widths[2], -1)
        parts = [
            seeded(attend, query, key, part.expand(batch, -1, heads, -1), **keywords)
            for part in units
        ]
        return torch.cat(parts, -1)[..., :block]

    def drawn_factors(batch, length):
        """What the kernel multiplies the weights by, by seed 1."""
        ones = torch.ones((batch, length, 4, widths[0]), dtype=dtype, device=device)
        whole = weights(ones, ones, backend="torch").double()
        drops = {"dropout_p": DROPOUT_P, "backend": "triton"}
        found, others = (
            torch.where(whole > 0, weights(ones, ones, seed=seed, **drops) / whole, 0)
            for seed in (1, 2)
        )
        check_factors(
            *(found, others, DROPOUT_P, {"key": -1, "head": 2, "query": 1}),
            used=whole > 0,
            # products of float32 may be TF32's
            rounding=8 * max(torch.finfo(dtype).eps, TF32_CUT[torch.float32]),
        )
        # without what rounding did to them
        return (found > 0) / (1 - DROPOUT_P)

    def call_with_dropout(factors, inputs, backend):
        query, key, value = inputs
        if backend == "triton":
            drops = {"dropout_p": DROPOUT_P, "backend": backend}
            return (seeded(attend, *inputs, **drops),)
        dropped = weights(query, key, backend=backend) * factors
        after = -query.shape[1] % block
        dropped, value = (
            F.pad(x, (0, 0, 0, 0, 0, after)).unflatten(1, (-1, block))
            for x in (dropped, value.to(dropped.dtype))
        )
        output = torch.einsum("bgihj,bgjhe->bgihe", dropped, value)
        output = output.flatten(1, 2)[:, : query.shape[1]]
        return (output.to(output_dtype(inputs[2].dtype, known["activation"])),)

    def step(inputs, backend):
        *tokens, keys, values = inputs
        batch = len(keys)
        length = torch.arange(batch, device=device) * 7 + block // 2
        state = BlockAttentionState(keys.clone(), values.clone(), length)
        output, state = block_attention(
            *tokens, initial_state=state, return_state=True, backend=backend, **known
        )
        return output, state.key, state.value

    if options["form"] == "step":
        for batch in (3, max(1, programs_at_once(device) // 4)):
            shapes = [(batch, 1, 4, width) for width in widths]
            shapes += [(batch, block, 4, width) for width in widths[1:]]
            inputs = draw(*shapes, device=device)
            inputs = [placed(x, options["aligned"]) for x in inputs]
            yield Case(inputs, step, differentiable=False)
        return
    # a short last block; more programs than run at once
    many = max(1, programs_at_once(device) // 4)
    for batch, length in ((3, 3 * block + 5), (many, 2 * block)):
        shapes = [(batch, length, 4, width) for width in widths]
        inputs = [placed(x, options["aligned"]) for x in draw(*shapes, device=device)]
        if options["dropout"]:
            factors = drawn_factors(batch, length)
            yield Case(inputs, partial(call_with_dropout, factors))
        else:
            yield Case(inputs, call)


register_cases("block_attention", _cases)

"""Block-diagonal attention: softmax and ReLU, causal and bidirectional."""

from __future__ import annotations

from functools import partial
from itertools import product

from torch.nn.attention import SDPBackend

from fairseq_transnormer.ops import block_attention

from . import equations
from .contestant import Case, Computation, Contestant, Group, Setup, compiled, heads
from .torch_attention import flex_attention, sdpa_on_blocks, varlen

DIRECTIONS = {"causal": True, "bidirectional": False}
SDPA_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
}


def groups(setup: Setup, cases: list[Case], check_case: Case) -> list[Group]:
    found = []
    for activation, direction in product(("softmax", "relu"), DIRECTIONS):
        kind = dict(
            block_size=setup.block_size,
            causal=DIRECTIONS[direction],
            activation=activation,
        )
        equation = partial(equations.block_attention, **kind)
        found.append(
            Group(
                "block_attention",
                f"{activation} {direction}",
                Computation(f"{direction} {activation} attention in blocks", equation),
                partial(heads, setup),
                contestants(setup, kind, equation),
                cases,
                check_case,
            )
        )
    return found


def contestants(setup: Setup, kind: dict, equation) -> list[Contestant]:
    """Ours, products over the blocks, and torch's kernels where they have softmax."""
    entered = [
        *(
            Contestant(
                f"ours ({name})",
                partial(block_attention, backend=name, **kind),
                ours=True,
            )
            for name in ("triton", "torch")
        ),
        Contestant("bmm on blocks", equation, blocks=True),
        Contestant(
            "torch.compile of bmm on blocks",
            compiled(equation),
            compiled=True,
            blocks=True,
        ),
    ]
    if kind["activation"] != "softmax":
        return entered
    shape = kind["causal"], setup.block_size
    return [
        *entered,
        *(
            Contestant(
                f"SDPA {name} on blocks",
                sdpa_on_blocks(*shape, backend),
                blocks=True,
                needs_cuda=name != "flash",
            )
            for name, backend in SDPA_BACKENDS.items()
        ),
        Contestant("varlen_attn", varlen(*shape), blocks=True, needs_cuda=True),
        Contestant(
            "FlexAttention with a block mask",
            flex_attention(*shape),
            heads_first=True,
            compiled=True,
        ),
    ]

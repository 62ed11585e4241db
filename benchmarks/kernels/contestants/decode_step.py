"""One token after a context: the state goes in and is updated in place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from fairseq_transnormer.ops import block_attention, linear_attention

from . import equations
from .contestant import Case, Computation, Contestant, Group, Setup, imported, random
from .linear_attention import FLA

BATCHES = (1, 8)
# blocks before the half-full one in which the steps begin
FULL_BLOCKS = 2


def groups(setup: Setup, *_) -> list[Group]:
    """Steps of causal linear and of causal softmax block attention."""
    context = FULL_BLOCKS * setup.block_size + setup.block_size // 2
    block = dict(block_size=setup.block_size, causal=True, activation="softmax")
    shared = dict(
        inputs=partial(_inputs, setup),
        cases=[Case(batch, context) for batch in BATCHES],
        check_case=Case(2, context),
        axis="batch",
    )
    recurrent = Contestant(
        "fla fused_recurrent_linear_attn",
        fla_step,
        autotuned=True,
        stateful=True,
        needs_cuda=True,
        package="fla-core",
    )
    return [
        Group(
            "decode_step",
            "linear attention",
            Computation(
                "last token of causal linear attention",
                lambda *x: equations.causal_linear_attention(*x)[:, -1:],
            ),
            contestants=[*_ours(partial(linear_attention, causal=True)), recurrent],
            least_bytes=partial(linear_bytes, setup),
            **shared,
        ),
        Group(
            "decode_step",
            "block attention",
            Computation(
                "last token of causal softmax attention in blocks",
                partial(_last_block_token, **block),
            ),
            contestants=_ours(partial(block_attention, **block)),
            least_bytes=partial(block_bytes, setup),
            **shared,
        ),
    ]


def linear_bytes(setup: Setup, case: Case) -> int:
    """The float32 state read and written; query, key, value and output."""
    state = 4 * setup.width**2
    return case.batch * setup.heads * (2 * state + 4 * _row(setup))


def block_bytes(setup: Setup, case: Case) -> int:
    """Half a block of keys and values read; query, key, value twice, output."""
    rows = 2 * (setup.block_size // 2) + 4 + 2
    return case.batch * setup.heads * rows * _row(setup)


def fla_step(query: Tensor, key: Tensor, value: Tensor) -> Callable:
    """A step of fla, which returns a new state instead of updating one."""
    recurrent = imported(FLA, "fused_recurrent_linear_attn")
    keywords = dict(scale=1.0, normalize=False, output_final_state=True)
    _, state = recurrent(query[:, :-1], key[:, :-1], value[:, :-1], **keywords)
    last = [x[:, -1:].contiguous() for x in (query, key, value)]
    return lambda: recurrent(*last, initial_state=state, **keywords)[0]


def _row(setup: Setup) -> int:
    return setup.width * setup.dtype.itemsize


def _inputs(setup: Setup, case: Case) -> list[Tensor]:
    """The context and one more token; nothing is differentiated."""
    shape = (case.batch, case.length + 1, setup.heads, setup.width)
    return [random(setup, *shape, grad=False) for _ in range(3)]


def _ours(attend: Callable) -> list[Contestant]:
    def start(query: Tensor, key: Tensor, value: Tensor, *, backend: str) -> Callable:
        context = (x[:, :-1] for x in (query, key, value))
        _, state = attend(*context, return_state=True, backend=backend)
        last = [x[:, -1:].contiguous() for x in (query, key, value)]

        def step() -> Tensor:
            output, _ = attend(
                *last, initial_state=state, return_state=True, backend=backend
            )
            return output

        return step

    return [
        Contestant(
            f"ours ({name})", partial(start, backend=name), ours=True, stateful=True
        )
        for name in ("triton", "torch")
    ]


def _last_block_token(query, key, value, block_size, causal, activation) -> Tensor:
    """The tokens of the last, short block see one another only."""
    first = (query.shape[1] - 1) // block_size * block_size
    block = (x[:, first:] for x in (query, key, value))
    return equations.softmax_attention(*block, causal=causal)[:, -1:]

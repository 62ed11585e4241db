"""Time and memory of one attention over the length: "Transformers are RNNs", Figure 1.

    python -m benchmarks attention_lengths

Causal attention and its gradients, of the modules that models are made of, without
their projections and positions: softmax as matrices, as in the paper, and torch's fused
one; LSH-X with X rounds of hashing, chunks of 32 and 64 buckets; linear attention with
its sum; NormAttention and DiagAttention of T2. Batches shrink with the length, and
figures are those of one sequence. The paper prints neither heads nor widths: here those
of its images, 8 of 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.modules import ATTENTIONS, LanguageModelConfig

from ..harness import cases, command_line
from ..harness.phases import TRAINING
from .attention_calls import Contestant, make_call

NAME = "attention_lengths"
LENGTHS = [2**i for i in range(9, 17)]
MATRIX, FUSED = "softmax, matrices", "softmax, fused"
ROUNDS = (1, 4, 8)
LSH = {"reformer_chunk_size": 32, "reformer_buckets": 64}


class Kind(NamedTuple):
    """A contestant, and how its time grows with the length at most."""

    contestant: Contestant
    growth: int


def attention_matrix(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal softmax attention with its n x n matrix; (B, H, N, D) each."""
    length = query.shape[-2]
    hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    scores = query.shape[-1] ** -0.5 * query @ key.transpose(-1, -2)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value


def of_module(name: str, heads: int, width: int, device, **values) -> Contestant:
    """A registered attention's ``attend``, causal, as models start it."""
    config = LanguageModelConfig(
        attention_types=name,
        embed_dim=heads * width,
        num_heads=heads,
        attention_dropout=0.0,
        **values,
    )
    layer = ATTENTIONS[name](config, causal=True).to(device)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        positions = torch.arange(query.shape[1], device=query.device)
        output, _ = layer.attend(query, key, value, positions, None, None, False)
        return output.unflatten(-1, (heads, width))

    return Contestant(attend)


def contestants(heads: int, width: int, device: torch.device) -> dict[str, Kind]:
    """All that are measured, by name."""
    module = partial(of_module, heads=heads, width=width, device=device)
    return {
        MATRIX: Kind(Contestant(attention_matrix, length_first=False), 2),
        FUSED: Kind(module("softmax"), 2),
        **{
            f"LSH-{rounds}": Kind(module("reformer", reformer_hashes=rounds, **LSH), 1)
            for rounds in ROUNDS
        },
        "1+elu": Kind(module("linear"), 1),
        "NormAttention": Kind(module("norm"), 1),
        "DiagAttention": Kind(module("diag"), 1),
    }


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one length after the other, the shortest first."""
    limits = cases.Limits(options)
    found = contestants(options.heads, options.width, options.device)
    dtype = getattr(torch, options.dtype)
    for length in options.lengths:
        batch = max(1, options.tokens // length)
        rows: dict[str, dict[str, object]] = {}
        calls: dict[str, Callable[[], object]] = {}
        for name, kind in found.items():
            row = rows[name] = {
                "contestant": name,
                "mode": TRAINING,
                "batch": batch,
                "length": length,
            }
            # the time of a call is that of its tokens
            reason = limits.skip(name, batch * length**kind.growth, 1)
            if name == MATRIX:
                elements = batch * options.heads * length**2
                reason = reason or command_line.quadratic_skip(
                    elements * dtype.itemsize, options
                )
            if reason is not None:
                row["skipped"] = reason
                continue
            calls[name] = make_call(
                kind.contestant,
                TRAINING,
                (batch, length, options.heads, options.width),
                device=options.device,
                dtype=dtype,
            )
        cases.measure(rows, calls, options)
        for name, row in rows.items():
            limits.note(name, batch * length ** found[name].growth, row)
        yield list(rows.values())
        print(f"{NAME}: n = {length}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    cases.add_limits(parser)
    add = parser.add_argument
    add("--lengths", type=positive_integer, nargs="+", default=LENGTHS, help="n")
    add("--tokens", type=positive_integer, default=LENGTHS[-1], help="of a batch")
    add("--heads", type=positive_integer, default=8, help="H")
    add("--width", type=positive_integer, default=32, help="of a head")
    add("--dtype", choices=command_line.DTYPES, default="float32", help="of q, k, v")
    options = parser.parse_args(arguments)
    options.lengths.sort()
    command_line.run(
        NAME,
        options,
        arguments,
        {
            "heads": options.heads,
            "head_width": options.width,
            "tokens": options.tokens,
            "lsh": LSH,
        },
        measure(options),
    )

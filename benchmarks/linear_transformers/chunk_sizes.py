"""Time of chunked causal linear attention over the chunk size.

    python -m benchmarks chunk_sizes

The plain chunked form of five_forms.py and this package's torch op, whose
chunk size is fixed otherwise, for several lengths and head widths at a constant count
of tokens. Forward (without autograd) and forward with backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.ops.linear_attention import torch_impl as torch_impl

from ..harness import cases, command_line
from ..harness.phases import FORWARD, TRAINING
from . import five_forms
from .attention_calls import Contestant, make_call

NAME = "chunk_sizes"
MODES = (FORWARD, TRAINING)
PLAIN, OURS = "chunked", "linear_attention (torch)"


def contestant(name: str, chunk_size: int) -> Contestant:
    """``PLAIN`` or ``OURS`` with this chunk size."""
    if name == PLAIN:
        attend = partial(five_forms.chunked, chunk_size=chunk_size)
        return Contestant(attend, length_first=False)
    attend = torch_impl.linear_attention
    return Contestant(partial(attend, causal=True, chunk_size=chunk_size))


def measure_group(
    length: int, width: int, mode: str, limits: cases.Deadline, options
) -> list[dict[str, object]]:
    """Rows of both contestants with each chunk size up to the length."""
    rows, calls = {}, {}
    batch = max(1, options.tokens // length)
    over = limits.over()
    for name in (PLAIN, OURS):
        for chunk_size in options.chunk_sizes:
            if chunk_size > length:
                continue
            row = rows[name, chunk_size] = {
                "contestant": name,
                "mode": mode,
                "batch": batch,
                "length": length,
                "width": width,
                "chunk_size": chunk_size,
            }
            if over:
                row["skipped"] = over
                continue
            calls[name, chunk_size] = make_call(
                contestant(name, chunk_size),
                mode,
                (batch, length, options.heads, width),
                device=options.device,
                dtype=getattr(torch, options.dtype),
            )
    cases.measure(rows, calls, options)
    return list(rows.values())


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one width, length and mode after the other."""
    limits = cases.Deadline(options.time_limit)
    for width in options.widths:
        for length in options.lengths:
            for mode in MODES:
                yield measure_group(length, width, mode, limits, options)
                print(f"{NAME}: n = {length}, d = {width}, {mode}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    cases.add_time_limit(parser)
    integers = {"type": positive_integer, "nargs": "+"}
    add = parser.add_argument
    add("--chunk-sizes", **integers, default=[2**i for i in range(3, 11)], help="c")
    add("--lengths", **integers, default=[1024, 8192], help="n")
    add("--widths", **integers, default=[32, 64, 128], help="d")
    add("--tokens", type=positive_integer, default=8192, help="batch times n")
    add("--heads", type=positive_integer, default=2, help="H")
    add(
        "--dtype",
        choices=["float32", "bfloat16", "float16"],
        default="float32",
        help="of q, k, v",
    )
    options = parser.parse_args(arguments)
    options.chunk_sizes.sort()
    command_line.run(
        NAME,
        options,
        arguments,
        {
            "heads": options.heads,
            "tokens": options.tokens,
            "fixed_chunk_size": torch_impl.CHUNK_SIZE,
        },
        measure(options),
    )

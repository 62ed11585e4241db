"""The forms of causal linear attention that "Linear Transformers Are Faster" compares.

    python -m benchmarks linear_attention_forms

Each of five_forms.py, this package's op and torch's softmax attention: over
the length at batch 1 (the post's setting) and at a constant count of tokens, and over
the head width. Forward (without autograd) and forward with backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.ops import linear_attention

from ..harness import cases, command_line
from ..harness.phases import FORWARD, TRAINING
from . import five_forms
from .attention_calls import Contestant, make_call

NAME = "linear_attention_forms"
MODES = (FORWARD, TRAINING)
SOFTMAX = "softmax attention (torch)"
BATCH_1, CONSTANT_TOKENS, WIDTHS = "batch 1", "constant tokens", "width"
LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
# relative error in a short case; above it a form is not timed
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.05}
CHECKED_SHAPE = 2, 67, 2


class Form(NamedTuple):
    """A contestant and what decides whether it can run.

    growth, width_growth: its time grows at most like length^growth at constant batch,
        and like d^width_growth at constant length.
    matrix: (length, head width) -> elements a head of the tensor named by ``largest``.
    """

    contestant: Contestant
    growth: int
    width_growth: int
    matrix: Callable[[int, int], int] = lambda length, width: length * width
    largest: str = "output"


def entered(chunk_size: int, backends: Sequence[str] = ("torch",)) -> dict[str, Form]:
    """Name -> form: the post's, softmax attention, and our op in each backend."""
    plain = partial(Contestant, length_first=False)
    matrix = {"matrix": lambda n, d: n * n, "largest": "length x length matrix"}
    states = {"matrix": lambda n, d: n * d * d, "largest": "length x d x d states"}
    softmax = partial(F.scaled_dot_product_attention, is_causal=True)
    chunked = partial(five_forms.chunked, chunk_size=chunk_size)
    ours = {
        f"linear_attention ({backend})": Contestant(
            partial(linear_attention, causal=True, backend=backend)
        )
        for backend in backends
    }
    return {
        "attention loop": Form(plain(five_forms.attention_loop), 2, 1),
        "attention parallel": Form(
            plain(five_forms.attention_parallel), 2, 1, **matrix
        ),
        "state loop": Form(plain(five_forms.state_loop), 1, 2),
        "state parallel": Form(plain(five_forms.state_parallel), 1, 2, **states),
        "chunked": Form(plain(chunked), 1, 2),
        SOFTMAX: Form(plain(softmax), 2, 1),
        **{name: Form(contestant, 1, 2) for name, contestant in ours.items()},
    }


def relative_error(contestant: Contestant, softmax: bool, width: int, options) -> float:
    """Of a short case, beside the definition in float64: RMS of the difference."""
    shape = (*CHECKED_SHAPE, width)
    dtype = getattr(torch, options.dtype)
    inputs = torch.randn(3, *shape, device=options.device, dtype=dtype)
    given = inputs if contestant.length_first else inputs.transpose(2, 3)
    with torch.no_grad():
        output = contestant.attend(*given).double()
        if not contestant.length_first:
            output = output.transpose(1, 2)
        if softmax:
            q, k, v = inputs.double().transpose(2, 3)
            scores = width**-0.5 * q @ k.transpose(-1, -2)
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            expected = (weights @ v).transpose(1, 2)
        else:
            expected = linear_attention(
                *inputs.double(), causal=True, backend="reference"
            )
    return (
        ((output - expected).square().mean() / expected.square().mean()).sqrt().item()
    )


def sweep(options) -> Iterator[tuple[str, int, int, int]]:
    """Of each group of cases: sweep, batch, length, width; shortest first."""
    for length in options.lengths:
        yield BATCH_1, 1, length, options.width
    for width in options.widths:
        yield WIDTHS, 1, options.width_length, width
    for length in options.lengths:
        if length <= options.tokens:
            yield CONSTANT_TOKENS, options.tokens // length, length, options.width


def measure_group(
    name: str, batch: int, length: int, width: int, mode: str, limits, options
) -> list[dict[str, object]]:
    """Rows of all forms at one size."""
    rows, calls = {}, {}
    dtype = getattr(torch, options.dtype)
    for form_name, form in entered(options.chunk_size, options.backends).items():
        if options.forms and form_name not in options.forms:
            continue
        row = rows[form_name] = {
            "sweep": name,
            "contestant": form_name,
            "mode": mode,
            "batch": batch,
            "length": length,
            "width": width,
        }
        elements = batch * options.heads * form.matrix(length, width)
        # fewer sequences of a constant count of tokens may still take as long a loop
        reason = limits.skip((BATCH_1, form_name, mode), length, form.growth)
        if reason is None and name != BATCH_1:
            growth = form.width_growth if name == WIDTHS else form.growth
            reason = limits.skip(
                (name, form_name, mode), width if name == WIDTHS else length, growth
            )
        reason = reason or command_line.quadratic_skip(
            elements * dtype.itemsize, options, form.largest
        )
        if reason is None:
            row["error"] = relative_error(
                form.contestant, form_name == SOFTMAX, width, options
            )
            if not row["error"] <= TOLERANCES[options.dtype]:
                reason = (
                    f"wrong: relative error {row['error']:.2g}, above "
                    f"{TOLERANCES[options.dtype]:g}"
                )
        if reason is not None:
            row["skipped"] = reason
            continue
        calls[form_name] = make_call(
            form.contestant,
            mode,
            (batch, length, options.heads, width),
            device=options.device,
            dtype=dtype,
        )
    cases.measure(rows, calls, options)
    for form_name, row in rows.items():
        size = width if name == WIDTHS else length
        limits.note((name, form_name, mode), size, row)
    return list(rows.values())


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one case of the sweeps and one mode after the other."""
    limits = cases.Limits(options)
    for group in sweep(options):
        for mode in MODES:
            yield measure_group(*group, mode, limits, options)
            name, batch, length, width = group
            print(f"{NAME}: {name}, n = {length}, d = {width}, {mode}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    cases.add_limits(parser)
    add = parser.add_argument
    add("--lengths", type=positive_integer, nargs="+", default=LENGTHS, help="n")
    add("--tokens", type=positive_integer, default=8192, help="constant count")
    add("--heads", type=positive_integer, default=2, help="H")
    add("--width", type=positive_integer, default=64, help="d, over the length")
    add(
        "--widths",
        type=positive_integer,
        nargs="+",
        default=[16, 32, 64, 128, 256],
        help="d, at one length",
    )
    add("--width-length", type=positive_integer, default=512, help="that n")
    add("--chunk-size", type=positive_integer, default=64, help="of chunked")
    add(
        "--backends",
        choices=["torch", "triton"],
        nargs="+",
        default=["torch"],
        help="of our op",
    )
    add("--forms", nargs="+", metavar="NAME", help="only these; all by default")
    add("--dtype", choices=list(TOLERANCES), default="float32", help="of q, k, v")
    options = parser.parse_args(arguments)
    names = entered(options.chunk_size, options.backends)
    for name in options.forms or ():
        if name not in names:
            parser.error(f"--forms {name!r}; allowed: {', '.join(names)}")
    options.lengths, options.widths = sorted(options.lengths), sorted(options.widths)
    command_line.run(
        NAME,
        options,
        arguments,
        {
            "heads": options.heads,
            "tokens": options.tokens,
            "head_width": options.width,
            "chunk_size": options.chunk_size,
        },
        measure(options),
    )

"""Time and memory of an optimizer's step over the number of weights.

    python -m benchmarks optimizer_step

fairseq's adam beside fused_adam, on one flat float32 tensor: what fairseq-train updates
with --fp16. The largest number is that of the paper's autoregressive model.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fairseq_transnormer.argument_types import positive_integer

from ..harness import cases, command_line

NAME = "optimizer_step"
WEIGHTS = [2**20, 2**24, 155_988_540]
OPTIONS = {"lr": 5e-4, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.01}


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one number of weights after the other."""
    # --help does without fairseq
    from fairseq_transnormer.plugin.optimizers import FusedAdamW

    # isort: split
    from fairseq.optim.adam import Adam

    for number in options.weights:
        gradient = torch.randn(number, device=options.device)
        rows, calls = {}, {}
        for name, optimizer in (("adam", Adam), ("fused_adam", FusedAdamW)):
            weights = torch.nn.Parameter(torch.ones_like(gradient))
            weights.grad = gradient
            calls[name] = optimizer([weights], **OPTIONS).step
            calls[name]()  # makes its sums
            rows[name] = {"contestant": name, "weights": number}
        cases.measure(rows, calls, options)
        print(f"{NAME}: {number:,} weights", flush=True)
        yield [*rows.values()]


def parse(arguments: list[str] | None):
    """The options."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    parser.add_argument(
        "--weights", type=positive_integer, nargs="+", default=WEIGHTS, help="numbers"
    )
    options = parser.parse_args(arguments)
    options.dtype = "float32"
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parse(arguments)
    command_line.run(NAME, options, arguments, OPTIONS, measure(options))

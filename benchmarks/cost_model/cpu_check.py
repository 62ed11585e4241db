"""Training steps of small models on one CPU core, beside what is worked out for them.

    python -m benchmarks cost_check

measures steps, as the configurations train, and before each model's three rates of the
core; writes results/cost_model/cpu.json, and says how far the two are apart. All is
processor time of one thread, so that a busy machine can do it. Nothing is fitted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import torch

from ..harness import command_line, environment, results
from ..harness.memory import peak_bytes
from ..harness.roofline import copy_bandwidth
from ..harness.timing import seconds_of
from .command import FOLDER
from .machines import Machine, update_takes
from .training_step import AFTER, Model, build, loss, traced

NAME = "cost_check"
CPU, WAY = torch.device("cpu"), AFTER._replace(device="CPU")
TOKENS, SAMPLES = 2048, 5
SIZE = Model("alm", "T2", width=256, heads=8, layers=2, vocabulary=2000, length=512)
MODELS = [
    SIZE,
    SIZE._replace(length=2048),
    SIZE._replace(width=128),
    SIZE._replace(width=512),
    SIZE._replace(layers=6),
    # logits in several chunks
    SIZE._replace(width=128, vocabulary=65536),
    SIZE._replace(variant="T1"),
    SIZE._replace(variant="softmax"),
    SIZE._replace(variant="softmax", length=2048),
    SIZE._replace(kind="blm"),
]
# of the product whose rate is taken: a batch, and a GLU's matrix
WIDTH, INNER = 512, 1365


class Compared(NamedTuple):
    """A model; what is worked out over what was measured: seconds, bytes of a pass."""

    model: Model
    seconds: float
    pass_bytes: float


def measure(models: list[Model]) -> Iterator[dict[str, object]]:
    """A row for each model: its fields, rates of the core, and what a step took."""
    for model in models:
        yield model._asdict() | _rates() | _step(model)


def compared(rows: list[dict], tokens: int) -> list[Compared]:
    """Steps worked out by the rates of their rows, beside what was measured."""
    found = []
    for row in rows:
        model = Model(**{name: row[name] for name in Model._fields})
        flops = row["products_per_second"]
        bandwidth = row["copy_bandwidth"]["bytes_per_second"]
        core = Machine(flops, flops, bandwidth, row["seconds_a_kernel"], hidden=1.0)
        cost = traced(model, tokens // model.length, WAY)
        found.append(
            Compared(
                model,
                update_takes(cost, 1, core).sum() / median(row["seconds"]),
                cost.pass_bytes / row["pass_bytes"],
            )
        )
    return found


def _step(model: Model) -> dict[str, object]:
    """Processor seconds of training steps, and the most bytes that a pass holds."""
    from .fairseq_update import Update

    torch.manual_seed(0)
    built = build(model, WAY)
    weights = [p for p in built.parameters() if p.requires_grad]
    update = Update(weights, WAY.optimizer, torch.float32)
    batch = TOKENS // model.length

    def one_pass() -> None:
        update.backward(loss(built, model, batch, WAY))

    def step() -> None:
        one_pass()
        update()

    step()
    seconds = [seconds_of(step, CPU, "process") for _ in range(SAMPLES)]
    return {"seconds": seconds, "pass_bytes": peak_bytes(one_pass, CPU)}


def _rates() -> dict[str, object]:
    x, weight = torch.randn(TOKENS, WIDTH), torch.randn(WIDTH, INNER)
    product = _median(lambda: x @ weight)
    one = torch.ones(1, requires_grad=True)
    depth = 200

    def tiny_kernels() -> None:
        y = one
        for _ in range(depth):
            y = y * one
        y.backward()

    return {
        "products_per_second": 2 * TOKENS * WIDTH * INNER / product,
        "copy_bandwidth": copy_bandwidth(CPU, "process"),
        # a product, two in the backward pass and the sum of their gradients
        "seconds_a_kernel": _median(tiny_kernels) / (4 * depth),
    }


def _median(call) -> float:
    return median(seconds_of(call, CPU, "process") for _ in range(40))


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {NAME}", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--output",
        type=results.run_file,
        default=FOLDER / "cpu.json",
        help="JSON file (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    record = results.Record(
        options.output,
        benchmark=NAME,
        command=command_line.command(NAME, arguments),
        environment=environment.describe(CPU)
        | environment.peers()
        | {"threads": torch.get_num_threads()},
        settings={"tokens": TOKENS, "clock": "process"},
    )
    for row in measure(MODELS):
        record.add([row])
        (found,) = compared([row], TOKENS)
        print(
            f"{NAME}: {found.model}: worked out over measured: seconds "
            f"{found.seconds:.2f}, bytes {found.pass_bytes:.4f}",
            flush=True,
        )
    record.finish()

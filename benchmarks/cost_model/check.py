"""Measure rates of this CPU, and steps of small models for the model to be checked by.

One thread and the processor time of this process, so that a busy machine can do it.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import torch

from ..harness import environment, results
from ..harness.memory import peak_bytes
from ..harness.mixed_precision import MasterAdam
from ..harness.roofline import copy_bandwidth
from ..harness.timing import seconds_of
from .machines import Assumptions, Machine
from .model import Model, build, kernels_take, loss, traced

CPU = torch.device("cpu")
FOLDER, FILE = results.FOLDER.parent / "cost_model", "cpu.json"
TOKENS = 2048
SIZE = Model("alm", "T2", width=256, heads=8, layers=2, vocabulary=2000, length=512)
POINTS = [
    SIZE,
    SIZE._replace(length=2048),
    SIZE._replace(width=128),
    SIZE._replace(width=512),
    SIZE._replace(layers=6),
    SIZE._replace(variant="T1"),
    SIZE._replace(variant="softmax"),
    SIZE._replace(variant="softmax", length=2048),
    SIZE._replace(kind="blm", variant="T2"),
]
# what is measured is what there is
ALL = Assumptions(products=1, bandwidth=1, kernel=0, link=1, overlap=0)
SAMPLES = 5


def measure(file: Path) -> None:
    """Measure, and write the file."""
    results.require_run(file)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for model in POINTS:
        rows.append(model._asdict() | _step(model))
        print(f"cost_model: {model}", flush=True)
    results.write(
        file,
        benchmark="cost_model",
        command="python -m benchmarks cost_model --measure",
        environment=environment.describe(CPU) | {"threads": 1},
        settings={
            "tokens": TOKENS,
            "clock": "process",
            "products_per_second": _products_per_second(),
            "copy_bandwidth": copy_bandwidth(CPU, "process"),
            "seconds_a_kernel": _seconds_a_kernel(),
        },
        measurements=rows,
    )


def _step(model: Model) -> dict[str, object]:
    """Processor seconds of training steps, and the most bytes that a pass holds."""
    built = build(model)
    optimizer = MasterAdam(built.parameters())
    batch = TOKENS // model.length

    def forward_and_backward() -> None:
        loss(built, model, batch).backward()

    def step() -> None:
        forward_and_backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    seconds = [seconds_of(step, CPU, "process") for _ in range(SAMPLES)]
    return {"seconds": seconds, "pass_bytes": peak_bytes(forward_and_backward, CPU)}


def _products_per_second() -> float:
    """Operations a second in the product of a batch with a GLU's matrix."""
    x, weight = torch.randn(TOKENS, 512), torch.randn(512, 1365)
    samples = [seconds_of(lambda: x @ weight, CPU, "process") for _ in range(40)]
    return 2 * TOKENS * 512 * 1365 / statistics.median(samples)


def _seconds_a_kernel() -> float:
    """Of what a kernel on one number takes in a forward and backward pass."""
    x = torch.ones(1, requires_grad=True)
    depth = 200

    def call() -> None:
        y = x
        for _ in range(depth):
            y = y * x
        y.backward()

    samples = [seconds_of(call, CPU, "process") for _ in range(40)]
    # a product, two in the backward pass and the sum of their gradients
    return statistics.median(samples) / (4 * depth)


def compared(file: Path) -> tuple[Machine, list[tuple]]:
    """This CPU's rates, and for each point: model, seconds and bytes, each as worked
    out and as measured."""
    run = results.read(file)
    settings = run["settings"]
    machine = Machine(
        run["environment"]["cpu"],
        "float32",
        settings["products_per_second"],
        settings["products_per_second"],
        settings["copy_bandwidth"]["bytes_per_second"],
        memory=0,
    )
    assumed = ALL._replace(kernel=settings["seconds_a_kernel"])
    rows = []
    for row in run["measurements"]:
        model = Model(**{name: row[name] for name in Model._fields})
        cost = traced(model, settings["tokens"] // model.length)
        worked_out = sum(kernels_take(cost.micro + cost.optimizer, machine, assumed))
        measured = statistics.median(row["seconds"])
        rows.append((model, worked_out, measured, cost.pass_bytes, row["pass_bytes"]))
    return machine, rows

"""Which kernels the paper's training steps wait for, worked out.

    python -m benchmarks step_profile

A pass over a batch, forward, loss and backward, of T2 at the paper's shapes: ALM, BLM,
fine-tuning on GLUE, the Long-Range Arena's texts. On an A100, by the rates that
docs/cost.md assumes ("good"), as the configurations train and as before. Nothing is
measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from pandas import DataFrame, Series
from torch import Tensor, nn

from fairseq_transnormer.modules.config import ClassifierT2Config, EncoderT2Config
from fairseq_transnormer.modules.masked_language_model import MaskedLanguageModel
from fairseq_transnormer.modules.sequence_classifier import SequenceClassifier

from ..harness import command_line, environment, results
from .machines import GOOD, machine_of
from .on_a_gpu import as_on_a_gpu
from .traced import Trace
from .training_step import AFTER, BEFORE, Model, Way, build, cast, loss

NAME = "step_profile"
FOLDER = results.FOLDER.parent / "cost_model"
MACHINE, DTYPE = "A100", torch.bfloat16
# a kernel that takes a larger share of the time is listed
LISTED = 0.05
WAYS = {"before": BEFORE, "after": AFTER}
ALM = Model("alm", dtype="bfloat16")
BLM = Model("blm", "T2", 768, 12, 12, 50265, dtype="bfloat16")


# builds a model for a way, and gives a call for its loss
Step = Callable[[Way], Callable[[], Tensor]]


def language_model(model: Model, batch: int) -> Step:
    """The loss of ``training_step.loss``."""

    def step(way: Way) -> Callable[[], Tensor]:
        built = build(model, way)
        return lambda: loss(built, model, batch, way)

    return step


def fine_tuning(way: Way, batch: int = 32, length: int = 128) -> Callable[[], Tensor]:
    """A sentence's class from its first token, as RoBERTa's head has it."""
    encoder = MaskedLanguageModel(EncoderT2Config(backend=way.backend), 50265)
    head = nn.Sequential(nn.Linear(768, 768), nn.Tanh(), nn.Linear(768, 2))
    cast(encoder, DTYPE).train()
    cast(head, DTYPE)
    tokens = torch.zeros(batch, length, dtype=torch.long)
    return lambda: _class_loss(head(encoder.features(tokens, padding="right")[:, 0]))


def long_range_arena(
    way: Way, batch: int = 16, length: int = 4096
) -> Callable[[], Tensor]:
    """Texts as bytes, two classes."""
    config = ClassifierT2Config(backend=way.backend, max_positions=length)
    model = SequenceClassifier(config, 260, classes=2, sequences=1)
    cast(model, DTYPE).train()
    tokens = torch.zeros(batch, length, dtype=torch.long)
    lengths = torch.full((batch,), length)
    return lambda: _class_loss(model((tokens,), (lengths,), ("right",)))


def _class_loss(logits: Tensor) -> Tensor:
    target = torch.zeros(len(logits), dtype=torch.long)
    scores = F.log_softmax(logits, dim=-1, dtype=torch.float32)
    return F.nll_loss(scores, target, reduction="sum")


STEPS = {
    "ALM, 8 x 512": language_model(ALM, 8),
    "BLM, 32 x 512": language_model(BLM, 32),
    "GLUE, 32 x 128": fine_tuning,
    "LRA text, 16 x 4,096": long_range_arena,
}


def kernels_of(step: Step, way: Way) -> DataFrame:
    """The kernels of a pass; see ``Trace``."""
    with as_on_a_gpu():
        call = step(way)
        with Trace() as counted:
            call().backward()
    return DataFrame(counted.kernels)


def seconds_of(kernels: DataFrame) -> Series:
    """Of each: the longest of operations, bytes and a launch."""
    machine = machine_of(MACHINE, GOOD)
    rates = kernels.single.map({True: machine.single_flops, False: machine.flops})
    times = DataFrame(
        {"products": kernels.flops / rates, "memory": kernels.bytes / machine.memory}
    )
    return times.max(axis=1).clip(lower=machine.launch)


def row_of(name: str, way: str) -> dict[str, object]:
    """What one step waits for."""
    kernels = kernels_of(STEPS[name], WAYS[way])
    seconds = seconds_of(kernels)
    by_name = seconds.groupby(kernels.name).agg(["size", "sum"])
    by_name = by_name.sort_values("sum", ascending=False)
    total = float(seconds.sum())
    launch = machine_of(MACHINE, GOOD).launch
    return {
        "step": name,
        "way": way,
        "kernels": len(kernels),
        "milliseconds": round(1e3 * total, 2),
        "products": round(float(seconds[kernels.flops > 0].sum()) / total, 3),
        "launches": round(float(seconds[seconds <= launch].sum()) / total, 3),
        "largest": {
            kernel: [int(each["size"]), round(each["sum"] / total, 3)]
            for kernel, each in by_name.iterrows()
            if each["sum"] > LISTED * total
        },
    }


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {NAME}", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="to trace")
    add(
        "--output",
        type=results.run_file,
        default=Path(FOLDER / "steps.json"),
        help="JSON file",
    )
    options = parser.parse_args(arguments)
    rows = [row_of(name, way) for name in options.steps for way in WAYS]
    for row in rows:
        shares = ", ".join(
            f"{count} {kernel} {share:.0%}"
            for kernel, (count, share) in row["largest"].items()
        )
        print(
            f"{row['step']}, {row['way']}: {row['milliseconds']} ms, "
            f"{row['kernels']} kernels, products {row['products']:.0%}, "
            f"launches {row['launches']:.0%}; {shares}"
        )
    results.write(
        options.output,
        benchmark=NAME,
        command=command_line.command(NAME, arguments),
        environment=environment.describe(torch.device("cpu")),
        settings={
            "machine": MACHINE,
            "dtype": str(DTYPE),
            "assumed": GOOD,
            "shares": "of a pass; largest: kernels, share of the time",
        },
        measurements=rows,
    )
    print(f"{NAME}: wrote {options.output}")

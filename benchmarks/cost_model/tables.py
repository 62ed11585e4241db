"""The tables that docs/cost.md explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ..harness.markdown import table
from . import workers as measured_workers
from .check import FILE, compared
from .machines import GIB, GOOD, MACHINES, POOR, Machine
from .model import Model, Run

ALM = Model("alm")
BLM = Model("blm", width=768, heads=12, layers=12, vocabulary=50265)
ARENA = Model("arena", width=64, heads=2, layers=2, vocabulary=260)
TUNING = BLM._replace(kind="fine_tuning", length=64)
# updates of 3 epochs of 32 texts: MNLI, QQP, QNLI, SST-2; 16: CoLA, MRPC
LARGE_PROBLEMS, SMALL_PROBLEMS = 36_800 + 34_100 + 9_800 + 6_300, 1_603 + 688
PAPER = [
    Run("ALM T1", ALM._replace(variant="T1"), 128, 8, 100_000),
    Run("ALM T2", ALM, 128, 8, 100_000),
    Run("ALM softmax", ALM._replace(variant="softmax"), 128, 8, 100_000),
    Run("BLM T1", BLM._replace(variant="T1"), 512, 32, 50_000),
    Run("BLM T2", BLM, 512, 32, 50_000),
    Run("GLUE, one rate: large", TUNING, 32, 32, LARGE_PROBLEMS, workers=1),
    Run("GLUE, one rate: small", TUNING, 16, 16, SMALL_PROBLEMS, workers=1),
    *(
        Run(f"LRA {name}", ARENA._replace(length=length), batch, batch, 50_000, 1)
        for name, length, batch in (
            ("text", 4096, 16),
            ("listops", 2048, 32),
            ("retrieval", 4096, 32),
            ("pathfinder", 1024, 128),
            ("image", 1024, 256),
        )
    ),
]
# with a vocabulary that leaves something to see of the layers
SMALL = ALM._replace(vocabulary=32768)
SMALL_SOFTMAX = SMALL._replace(variant="softmax")
A100 = MACHINES["A100"]
LENGTHS, WIDTHS, LAYERS = (512, 2048, 8192), (256, 512, 1024, 2048), (6, 12)
WORKERS = (1, 8, 16, 128)
HEAD = """# What training costs

Made by `python -m benchmarks cost_model`; [docs/cost.md](../../docs/cost.md) explains
it. Tables that do not say "modelled" are of a CPU: **nothing was measured on a GPU.**
The ends of "a - b" come from good and poor assumptions, which docs/cost.md gives."""


def page(folder: Path) -> str:
    """All of them, as results/cost_model/README.md.

    folder: of the measurements; without those of workers there is no table of theirs.
    """
    of_workers = folder / measured_workers.FILE
    parts = {
        "The paper's runs, modelled": paper(),
        "Where an update's time goes: ALM T2 on 8 A100, modelled": arithmetic(),
        "Growth with the length, modelled": growth(
            "length",
            (
                Run(f"{name}, {n}", kind._replace(length=n), 8 * most, most, 1)
                for name, kind in (("T2", SMALL), ("softmax", SMALL_SOFTMAX))
                for n in LENGTHS
                for most in [8192 // n]
            ),
        ),
        "Growth with the width, modelled": growth(
            "width",
            (
                Run(f"{d}", ALM._replace(width=d, heads=d // 64), 128, 8, 1)
                for d in WIDTHS
            ),
        ),
        "Growth with the layers, modelled": growth(
            "layers",
            (Run(f"{n}", ALM._replace(layers=n), 128, 8, 1) for n in LAYERS),
        ),
        "Growth with the workers, modelled": workers(),
        **(
            {"Growth with the workers, measured": measured_workers.growth(of_workers)}
            if of_workers.exists()
            else {}
        ),
        "The model beside what was measured": check(folder / FILE),
    }
    sections = (f"## {title}\n\n{rows}" for title, rows in parts.items())
    return "\n\n".join((HEAD, *sections)) + "\n"


def paper() -> str:
    """Hours of the paper's runs on each machine."""
    rows = []
    for run in PAPER:
        for machine in MACHINES.values():
            good, poor = (run.update_takes(machine, each) for each in (GOOD, POOR))
            batch, update_freq = run.layout()
            hours = [sum(each) * run.updates / 3600 for each in (good, poor)]
            rate = [run.tokens() / sum(each) / 1e3 for each in (poor, good)]
            rows.append(
                [
                    run.name,
                    f"{run.workers} x {machine.name}",
                    f"{batch} x {update_freq}",
                    f"{run.peak_bytes(machine) / GIB:.1f}",
                    _span(1e3 * sum(good), 1e3 * sum(poor)),
                    _span(*rate),
                    _span(*hours),
                    good.bottleneck,
                    poor.bottleneck,
                    _span(*(100 * _used(run, machine, each) for each in (poor, good))),
                ]
            )
    heads = ["run", "devices", "batch x accumulated", "GiB a device", "ms an update"]
    heads += ["1,000 tokens/s", "hours", "waits for (good)", "(poor)", "% of peak"]
    return table(heads, rows)


def _used(run: Run, machine: Machine, seconds: Iterable[float]) -> float:
    return run.flops(machine) / sum(seconds) / (run.workers * machine.flops)


def arithmetic(operations: int = 10) -> str:
    """The operations that move the most."""
    run = PAPER[1]
    cost, update_freq = run.on(A100)
    flops: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for part, times in ((cost.micro, update_freq), (cost.optimizer, 1)):
        for kernel in part:
            flops[kernel.name] += times * kernel.flops
            moved[kernel.name] += times * kernel.bytes
            kernels[kernel.name] += times
    most = [name for name, _ in moved.most_common(operations)]
    rows = [
        [
            name,
            f"{kernels[name]:,}",
            f"{flops[name] / 1e12:.2f}",
            f"{moved[name] / 1e9:.1f}",
        ]
        for name in most
    ]
    for label, names in (("others", set(moved) - set(most)), ("all", set(moved))):
        rows.append(
            [
                label,
                f"{sum(kernels[name] for name in names):,}",
                f"{sum(flops[name] for name in names) / 1e12:.2f}",
                f"{sum(moved[name] for name in names) / 1e9:.1f}",
            ]
        )
    return table(["operation", "kernels", "TFLOP", "GB moved"], rows)


def growth(what: str, runs: Iterable[Run]) -> str:
    """Tokens a second and memory of an A100 of 8."""
    rows = []
    for run in runs:
        good, poor = (run.update_takes(A100, each) for each in (GOOD, POOR))
        cost, _ = run.on(A100)
        rate = [run.tokens() / sum(each) / run.workers / 1e3 for each in (poor, good)]
        rows.append(
            [
                run.name,
                f"{cost.parameters / 1e6:.0f}",
                _span(*rate),
                f"{run.peak_bytes(A100) / GIB:.1f}",
                good.bottleneck,
            ]
        )
    heads = [what, "million parameters", "1,000 tokens/s a GPU", "GiB"]
    return table([*heads, "waits for (good)"], rows)


def workers() -> str:
    """Tokens a second of more and more A100, 8 a node."""
    rows = []
    for base in (PAPER[1], PAPER[4]):
        for count in WORKERS:
            run = base._replace(workers=count)
            good, poor = (run.update_takes(A100, each) for each in (GOOD, POOR))
            batch, update_freq = run.layout()
            rate = [run.tokens() / sum(each) / 1e6 for each in (poor, good)]
            rows.append(
                [
                    base.name,
                    f"{count}",
                    f"{batch} x {update_freq}",
                    _span(*rate),
                    _span(*(1e3 * each.exchange for each in (good, poor))),
                    _span(*(sum(each) * run.updates / 3600 for each in (good, poor))),
                ]
            )
    heads = ["run", "A100", "batch x accumulated", "million tokens/s"]
    return table([*heads, "ms of exchange seen", "hours"], rows)


def check(file: Path) -> str:
    """Steps of small models on the CPU: worked out, measured."""
    machine, rows = compared(file)
    shown = [
        [
            f"{model.kind} {model.variant}",
            *map(str, (model.width, model.layers, model.length)),
            f"{1e3 * worked_out:.0f}",
            f"{1e3 * measured:.0f}",
            f"{worked_out / measured:.2f}",
            f"{predicted / 1e6:.2f}",
            f"{held / 1e6:.2f}",
        ]
        for model, worked_out, measured, predicted, held in rows
    ]
    heads = ["model", "width", "layers", "length", "ms worked out", "ms measured"]
    heads += ["quotient", "MB worked out", "MB measured"]
    rates = (
        f"{machine.name}, one core: {machine.flops / 1e9:.1f} GFLOP/s in a product, "
        f"{machine.bandwidth / 1e9:.1f} GB/s in a copy"
    )
    return f"{rates}.\n\n{table(heads, shown)}"


def _span(low: float, high: float) -> str:
    low, high = sorted((low, high))
    shown = [f"{x:,.0f}" if x >= 100 else f"{x:.2g}" for x in (low, high)]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} - {shown[1]}"

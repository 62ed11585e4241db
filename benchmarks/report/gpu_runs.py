"""The tables of GPUs in docs/benchmarks.md.

They come from the runs of ``benchmarks kernels`` in results/gpu/DEVICE.json, which has
several files by name, or in the files of a folder results/gpu/DEVICE.
"""

from __future__ import annotations

from pathlib import Path

from pandas import DataFrame, concat

from ..harness import results
from ..harness.markdown import table
from ..harness.phases import TRAINING
from ..harness.timed_steps import ROOT
from ..kernels import targets
from .sections import measured_kernels, speeds

FOLDER = results.FOLDER.parent / "gpu"
PAGE = ROOT / "docs/benchmarks.md"
BEGIN, END = "<!-- measured on GPUs: begin -->", "<!-- measured on GPUs: end -->"
NOTHING = (
    "**Nothing has been measured on a GPU yet.** `scripts/gpu_check.sh` does that; "
    "unpacked to\n`results/gpu/DEVICE`, `python -m benchmarks report` puts its figures "
    "here."
)
# group and variant, and what the page says of them
SHOWN = {
    ("linear_attention", "causal"): "Causal linear attention",
    ("norm_attention", "causal"): "NormAttention (phi, LRPE, attention, norm), causal",
    ("block_attention", "softmax causal"): "DiagAttention, softmax, causal",
}


def section(folder: Path = FOLDER) -> str:
    """What stands between the marks of the page."""
    return "\n\n".join(map(_of_device, devices(folder))) or NOTHING


def devices(folder: Path = FOLDER) -> list[list[dict]]:
    """The runs of ``benchmarks kernels`` of each device that has some."""
    found = []
    for place in sorted(folder.glob("*")):
        files = sorted(place.glob("*.json")) if place.is_dir() else [place]
        read = [results.read_all(path) for path in files if path.suffix == ".json"]
        runs = [run for each in read for run in each.values() if isinstance(run, dict)]
        found.append([run for run in runs if run.get("benchmark") == "kernels"])
    return [*filter(None, found)]


def write(page: Path, folder: Path = FOLDER) -> None:
    """Put the section into the page.

    Raises:
        ValueError: it has no marks.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{page} has no {BEGIN} ... {END}")
    made = f"{before}{begin}\n{section(folder)}\n{end}{after}"
    page.write_text(made, encoding="utf-8")


def _of_device(runs: list[dict]) -> str:
    parts = [part for run in runs for part in _of_run(run)]
    return "\n\n".join([*parts, _targets(concat(map(measured_kernels, runs)))])


def _of_run(run: dict) -> list[str]:
    environment, settings = run["environment"], run["settings"]
    rows = measured_kernels(run)
    parts = [
        f"**{environment['device']}**, torch {environment['torch']}, "
        f"{settings['dtype']}, {settings['tokens']:,} tokens, {settings['heads']} "
        f"heads of {settings['head_width']}; `{run['command']}`. "
        "Share of the copy bandwidth that moving every input and output once would "
        "take, forward and backward (milliseconds), by length:"
    ]
    for (group, variant), title in SHOWN.items():
        of_group = rows[(rows.group == group) & (rows.variant == variant)]
        of_group = of_group[of_group["mode"] == TRAINING]
        if len(of_group):
            parts += [f"{title}:", table(speeds(of_group))]
    return parts


def _targets(rows: DataFrame) -> str:
    judged = targets.judged(rows, on_gpu=True)
    return f"Targets:\n\n{table(judged)}"

"""A benchmark's part of the page: its chart and its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import linear_transformers, sections, training
from .charts import draw
from .sections import Parts
from .tables import Table


class Section(NamedTuple):
    """What the page has of a benchmark; parts: of a run; drawn: in a chart, too."""

    title: str
    parts: Callable[[dict], Parts]
    drawn: bool = False


SECTIONS = {
    "attention_lengths": Section(
        "One attention over the length, forward and backward",
        linear_transformers.attention_lengths,
        drawn=True,
    ),
    "chunk_sizes": Section(
        "The chunk size of causal linear attention",
        linear_transformers.chunk_sizes,
        drawn=True,
    ),
    "compare_models": Section(
        "Language models of one size on the same text",
        sections.compare_models,
        drawn=True,
    ),
    "generation_cost": Section(
        "Cost of generation over the context", sections.generation_cost
    ),
    "image_generation": Section(
        "Images a second, pixel by pixel", sections.image_generation
    ),
    "kernels": Section(
        "Kernels beside their peers, at one token count", sections.kernels
    ),
    "linear_attention_forms": Section(
        'The forms of "Linear Transformers Are Faster"',
        linear_transformers.linear_attention_forms,
    ),
    "lra_speed": Section(
        "Long-Range Arena: speed and memory over the length",
        sections.lra_speed,
        drawn=True,
    ),
    "optimizer_step": Section("Adam's step", training.optimizer_step),
    "output_loss": Section("The output layer and its loss", training.output_loss),
    "sampling_layer": Section(
        "Sampling: one attention layer, one token, over the context",
        linear_transformers.sampling_layer,
    ),
    "token_cost": Section(
        "Cost of a token in transformers", sections.token_cost, drawn=True
    ),
    "training_step": Section("Training step over the length", training.training_step),
    "update_cost": Section("An update of the paper's model", training.update_cost),
}
# what says which case a row is, in the order of its fields
CASE = ("part", "model", "way", "group", "variant", "sweep", "contestant", "tokens")
CASE += ("batch", "length", "width", "context", "chunk_size", "mode", "phase", "timing")


def section(run: dict, image: Path) -> str:
    """Draw a run's chart into ``image``, if its benchmark has one, and return its part
    of the README."""
    title, make, drawn = SECTIONS[run["benchmark"]]
    environment = run["environment"]
    parts = list(make(run))
    if drawn:
        draw(
            [part for part in parts if isinstance(part, Table)],
            f"{environment['device']}, {environment['threads']} CPU threads, "
            f"torch {environment['torch']}\n{run['command']}",
            image,
        )
    shown = [
        # a benchmark may have several runs on a device
        f"## {title}: {environment['device']}, {image.stem}",
        f"```\n{run['command']}\n```",
        f"![{title}]({image.name})" if drawn else "",
        *(part if isinstance(part, str) else part.markdown() for part in parts),
        _listed("Settings", run["settings"]),
        _listed("Environment", environment),
    ]
    if not run.get("complete", True):
        shown.append("**This run was cut off: not all of its rows are here.**")
    skipped = {}
    for row in run["measurements"]:
        if "skipped" in row:
            case = (str(v) for k, v in row.items() if v and k in CASE)
            skipped.setdefault(row["skipped"], []).append(", ".join(case))
    if skipped:
        lines = (f"- {why}: {'; '.join(cases)}" for why, cases in skipped.items())
        shown.append("Left out:\n\n" + "\n".join(lines))
    return "\n\n".join(filter(None, shown))


def _listed(title: str, values: dict) -> str:
    flat = {
        key: ", ".join(f"{k} {v}" for k, v in value.items())
        if isinstance(value, dict)
        else ", ".join(map(str, value))
        if isinstance(value, list)
        else value
        for key, value in values.items()
        if value is not None
    }
    return f"{title}: " + "; ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in flat.items()
    )

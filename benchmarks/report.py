"""Tables and charts of what the benchmarks measured.

    python -m benchmarks report

Reads every JSON file of the results folder and writes a PNG for each and one README.md
beside them. The same JSON gives the same files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .generation import generation_cost_report, image_generation_report
from .harness import results
from .harness.charts import draw
from .kernels import kernels_report
from .linear_transformers import (
    chunk_sizes_report,
    linear_attention_forms_report,
    sampling_layer_report,
)
from .training import compare_models_report, lra_speed_report, training_step_report

SECTIONS = {
    "chunk_sizes": chunk_sizes_report,
    "compare_models": compare_models_report,
    "generation_cost": generation_cost_report,
    "image_generation": image_generation_report,
    "kernels": kernels_report,
    "linear_attention_forms": linear_attention_forms_report,
    "lra_speed": lra_speed_report,
    "sampling_layer": sampling_layer_report,
    "training_step": training_step_report,
}
# what says which case a row is, in the order of its fields
CASE = ("part", "group", "variant", "sweep", "contestant", "batch", "length", "width")
CASE += ("context", "chunk_size", "mode", "phase", "timing")


def section(run: dict, image: Path) -> str:
    """Draw a run's chart into ``image`` and return its part of the README."""
    shape = SECTIONS[run["benchmark"]]
    environment = run["environment"]
    draw(
        shape.panels(run),
        shape.X_LABEL,
        f"{environment['device']}, {environment['threads']} CPU threads, "
        f"torch {environment['torch']}\n{run['command']}",
        image,
    )
    parts = [
        f"## {shape.TITLE}: {environment['device']}",
        f"```\n{run['command']}\n```",
        f"![{shape.TITLE}]({image.name})",
        shape.tables(run),
        _listed("Settings", run["settings"]),
        _listed("Environment", environment),
    ]
    if not run.get("complete", True):
        parts.append("**This run was cut off: not all of its rows are here.**")
    skipped = {}
    for row in run["measurements"]:
        if "skipped" in row:
            case = (str(v) for k, v in row.items() if v and k in CASE)
            skipped.setdefault(row["skipped"], []).append(", ".join(case))
    if skipped:
        lines = (f"- {why}: {'; '.join(cases)}" for why, cases in skipped.items())
        parts.append("Left out:\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


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


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks report", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=results.FOLDER,
        help="where the JSON files are (default: %(default)s)",
    )
    folder = parser.parse_args(arguments).folder
    paths = sorted(folder.glob("*.json"))
    if not paths:
        parser.error(f"--folder {folder} holds no .json file; run a benchmark first")
    parts = [
        "# Benchmarks",
        "Made by `python -m benchmarks report` from the JSON here.",
    ]
    for path in paths:
        try:
            run = results.read(path)
        except ValueError as error:
            parser.error(f"{path} is no JSON: {error}")
        benchmark = run.get("benchmark") if isinstance(run, dict) else None
        if benchmark not in tuple(SECTIONS):
            parser.error(
                f"{path} has benchmark={benchmark!r}; allowed: {', '.join(SECTIONS)}"
            )
        parts.append(section(run, path.with_suffix(".png")))
    readme = folder / "README.md"
    try:
        results.write_page(readme, "\n\n".join(parts) + "\n")
    except ValueError as error:
        parser.error(str(error))
    print(f"report: wrote {readme}")

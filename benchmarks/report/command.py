"""Tables and charts of what the benchmarks measured.

    python -m benchmarks report

Reads every JSON file of the results folder and writes a PNG for each and one README.md
beside them. The same JSON gives the same files. docs/benchmarks.md gets the tables
of the GPUs in results/gpu.
"""

import argparse
from pathlib import Path

from ..harness import results


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
    # pandas and matplotlib: a second that --help does not need
    from . import gpu_runs
    from .page import SECTIONS, section

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
    if folder == results.FOLDER:
        gpu_runs.write(gpu_runs.PAGE)

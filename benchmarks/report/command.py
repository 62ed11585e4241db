"""Tables and charts of what the benchmarks measured.

    python -m benchmarks report

Reads every JSON file of the results folder and writes one README.md there, with
charts of some benchmarks. A file has one run, or several by name ({"NAME": run, ...}),
where a file NAME.json of one run takes the place of the run of its name. The same JSON
gives the same files. docs/benchmarks.md gets the tables of the GPUs in results/gpu.
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
    several: dict[str, dict] = {}
    alone: dict[str, dict] = {}
    for path in paths:
        try:
            found = results.read_all(path)
        except ValueError as error:
            parser.error(f"{path} is no JSON: {error}")
        for name, run in found.items():
            benchmark = run.get("benchmark") if isinstance(run, dict) else None
            if benchmark not in tuple(SECTIONS):
                parser.error(
                    f"{path}, {name}: benchmark={benchmark!r}; allowed: "
                    f"{', '.join(SECTIONS)}"
                )
        (alone if [*found] == [path.stem] else several).update(found)
    for name, run in sorted((several | alone).items()):
        parts.append(section(run, folder / f"{name}.png"))
    readme = folder / "README.md"
    try:
        results.write_page(readme, "\n\n".join(parts) + "\n")
    except ValueError as error:
        parser.error(str(error))
    print(f"report: wrote {readme}")
    if folder == results.FOLDER:
        gpu_runs.write(gpu_runs.PAGE)

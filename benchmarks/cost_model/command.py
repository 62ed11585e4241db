"""What training costs, worked out: time and memory on machines that are not here."""

import argparse
from pathlib import Path

from ..harness import results
from . import check, tables, workers


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cost_model", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--measure", action="store_true", help=check.__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--measure-workers",
        action="store_true",
        help=workers.__doc__.splitlines()[0],
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=check.FOLDER,
        help="of the measurements and README.md (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.measure:
        check.measure(options.folder / check.FILE)
    if options.measure_workers:
        workers.measure(options.folder / workers.FILE)
    readme = options.folder / "README.md"
    text = tables.page(options.folder)
    try:
        results.write_page(readme, text)
    except ValueError as error:
        parser.error(str(error))
    print(f"cost_model: wrote {readme}")

"""Command lines as dataclasses, and the JSON files that benchmarks write."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import torch

from fairseq_transnormer.argument_types import (
    number_between,
    positive_integer,
    positive_number,
)
from fairseq_transnormer.cli import output_file
from fairseq_transnormer.data.whole_files import write_json

from .measure import CLOCKS, describe

FOLDER = Path("results") / "benchmarks"
DTYPES = ("float32", "bfloat16", "float16")
Rows = list[dict[str, Any]]
Chosen = TypeVar("Chosen", bound="Options")


def option(default: Any, help: str, **arguments: Any) -> Any:
    """A field that is an option.

    Lists take several values, booleans none. ``arguments`` are those of
    ``add_argument``; the type is that of the default unless it is given.
    """
    given = {"help": help, **arguments}
    return field(default_factory=lambda: default, metadata=given)


def device(name: str) -> torch.device:
    """An argparse type: cpu, or cuda where there is one."""
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"must be cpu or cuda, got {name!r}")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"{name!r}, but torch sees no CUDA device")
    return torch.device(name)


def two_numbers(text: str) -> tuple[int, int]:
    """An argparse type: two positive integers, such as 8x512."""
    first, _, second = text.partition("x")
    try:
        return positive_integer(first), positive_integer(second)
    except argparse.ArgumentTypeError as error:
        message = f"must be two positive integers such as 8x512, got {text!r}"
        raise argparse.ArgumentTypeError(message) from error


def run_file(name: str) -> Path:
    """An argparse type: a new file, or one that a benchmark wrote."""
    path = output_file(name)
    if path.exists():
        try:
            ours = "benchmark" in json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError):
            ours = False
        if not ours:
            raise argparse.ArgumentTypeError(f"{path} exists; no benchmark wrote it")
    return path


@dataclass
class Options:
    """What every benchmark takes."""

    device: torch.device = option(torch.device("cpu"), "cpu or cuda", type=device)
    threads: int = option(torch.get_num_threads(), "threads of torch on a CPU")
    least_repeats: int = option(3, "samples of each case at least")
    most_repeats: int = option(30, "samples of each case at most, on a CPU")
    seconds: float = option(1.0, "for the samples of a case beyond the least")
    clock: str = option(
        "wall",
        "of a CPU; process: processor time, for a busy machine, with --threads 1",
        choices=[*CLOCKS],
    )
    time_limit: float = option(
        3600.0, "seconds after which no case begins", type=positive_number
    )
    quadratic_limit_gib: float = option(
        0.5, "leave out cases with a length x length tensor above this"
    )
    output: Path | None = option(
        None, f"JSON file ({FOLDER}/NAME_DEVICE.json)", type=run_file
    )

    def check(self) -> None:
        """Fill in what depends on other options.

        Raises:
            ValueError: two options contradict each other.
        """

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the option ``dtype``."""
        return getattr(torch, self.dtype)

    def settings(self) -> dict[str, object]:
        """What a benchmark has beyond the common options, for its file."""
        names = {each.name for each in fields(self)} - {e.name for e in fields(Options)}
        return {name: getattr(self, name) for name in sorted(names)} | {
            "clock": self.clock
        }


@dataclass
class ModelOptions(Options):
    """Of language models; a subclass has its own sizes."""

    width: int = option(512, "of the models")
    heads: int = option(8, "of the attentions")
    layers: int = option(6, "of the models")
    vocabulary: int = option(8000, "entries")

    def check(self) -> None:
        if self.width % (2 * self.heads):  # LRPE turns pairs
            raise ValueError(
                f"--width must be a multiple of 2 x --heads, got {self.width} and "
                f"{self.heads}"
            )


def parse(kind: type[Chosen], name: str, about: str, words: list[str]) -> Chosen:
    """The options of a command line; a mistake ends the process with a line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=about,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    types = {int: positive_integer, float: number_between(0)}
    for each in fields(kind):
        default, more = each.default_factory(), dict(each.metadata)
        flag = f"--{each.name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true", **more)
            continue
        sample = default
        if isinstance(default, list):
            more.setdefault("nargs", "+")
            sample = default[0] if default else None
        if sample is not None:
            more.setdefault("type", types.get(type(sample), type(sample)))
        parser.add_argument(flag, default=default, **more)
    options = kind(**vars(parser.parse_args(words)))
    try:
        options.check()
    except ValueError as error:
        parser.error(str(error))
    return options


class Record:
    """A run's JSON file, written anew with each addition, so that it is always whole.

    A row that could not be measured has its reason in ``skipped``.
    """

    def __init__(self, name: str, options: Options, words: list[str]):
        default = FOLDER / f"{name}_{options.device.type}.json"
        self.path = options.output or run_file(str(default))
        self.run: dict[str, Any] = {
            "benchmark": name,
            "command": shlex.join(["python", "-m", "benchmarks", name, *words]),
            "environment": describe(options.device),
            "settings": options.settings(),
            "complete": False,
            "measurements": [],
        }

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write these rows too."""
        self.run["measurements"] += rows
        write_json(self.path, self.run)


def benchmark(kind: type[Chosen]) -> Callable:
    """Decorates a generator of rows: it becomes a command of its name.

    The generator takes the options and the run's settings, to which it may add.
    """

    def decorate(measure: Callable[[Chosen, dict], Iterator[Rows]]) -> Callable:
        name = measure.__name__

        @wraps(measure)
        def command(words: list[str] | None = None) -> int:
            words = sys.argv[2:] if words is None else words
            about = (measure.__doc__ or "").partition("\n")[0]
            options = parse(kind, name, about, words)
            torch.set_num_threads(options.threads)
            torch.manual_seed(0)
            record = Record(name, options, words)
            failed = False
            for rows in measure(options, record.run["settings"]):
                record.add(rows)
                failed |= any(row.get("wrong") and row["ours"] for row in rows)
                if rows:
                    print(f"{name}: {_place(rows[-1])}", flush=True)
            record.run["complete"] = True
            record.add([])
            print(f"{name}: wrote {record.path}")
            return int(failed)

        command.measure = measure
        return command

    return decorate


def _place(row: dict[str, Any]) -> str:
    """What a row is of, for a line of progress."""
    names = ("op", "variant", "part", "sweep", "mode", "phase", "model", "batch")
    names += ("length", "width", "context", "tokens")
    return ", ".join(str(row[name]) for name in names if row.get(name))

"""Options that all benchmarks have."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from fairseq_transnormer.argument_types import number_between, positive_integer
from fairseq_transnormer.ops.backend import Kernels, why_triton_cannot_run

from . import environment
from .memory import METHODS
from .results import FOLDER, Record, run_file
from .timing import CLOCKS, Repeats

GIB = 2**30
DTYPES = ("float32", "bfloat16", "float16")


def two_numbers(form: str, example: str) -> Callable[[str], tuple[int, int]]:
    """An argparse type: two positive integers with an x between them.

    form, example: how the message writes what is allowed.
    """

    def read(text: str) -> tuple[int, int]:
        numbers = text.split("x")
        if len(numbers) != 2 or not all(n.isdecimal() and int(n) for n in numbers):
            raise argparse.ArgumentTypeError(
                f"{text!r}; allowed: {form}, such as {example}"
            )
        first, second = map(int, numbers)
        return first, second

    return read


def benchmark_parser(benchmark: str, description: str) -> argparse.ArgumentParser:
    """A parser with the shared options; ``benchmark`` names the module."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {benchmark}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--device", type=device, default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--threads",
        type=positive_integer,
        default=torch.get_num_threads(),
        help="threads of torch on the CPU",
    )
    parser.add_argument(
        "--least-repeats", type=positive_integer, default=3, help="samples of each case"
    )
    parser.add_argument(
        "--most-repeats",
        type=positive_integer,
        default=30,
        help="samples of quick cases",
    )
    parser.add_argument(
        "--seconds",
        type=number_between(0),
        default=1.0,
        help="time for the samples of one case beyond the least",
    )
    parser.add_argument(
        "--clock",
        choices=list(CLOCKS),
        default="wall",
        help="on the CPU; process: the processor time of this process, with "
        "--threads 1 on a machine that is busy with other things too",
    )
    parser.add_argument(
        "--quadratic-limit-gib",
        type=number_between(0),
        default=0.5,
        help="skip a case whose largest tensor, as a length x length matrix, is larger "
        "than this",
    )
    parser.add_argument(
        "--output",
        type=run_file,
        help=f"JSON file (default: {FOLDER}/{benchmark}_DEVICE.json)",
    )
    return parser


def add_dtype_and_backends(parser: argparse.ArgumentParser, of: str) -> None:
    """--dtype and --backends; ``of`` says what has them."""
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help=of)
    parser.add_argument(
        "--backends",
        choices=["torch", "triton"],
        nargs="+",
        default=["torch"],
        help="implementations of our ops",
    )


def add_width_and_heads(parser: argparse.ArgumentParser, width: int) -> None:
    """--width, ``width`` where it is not given, and --heads, of models."""
    parser.add_argument(
        "--width", type=positive_integer, default=width, help="of the models"
    )
    parser.add_argument(
        "--heads", type=positive_integer, default=8, help="attention heads"
    )


def check_width_and_heads(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> None:
    """Exit, before anything is measured, where heads have no even width."""
    if options.width % (2 * options.heads):  # LRPE turns pairs
        parser.error(
            f"--heads {options.heads}; allowed: such that --width {options.width} is "
            "an even number for each"
        )


def command(benchmark: str, arguments: list[str] | None) -> str:
    """The command line to store beside the data."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", "-m", "benchmarks", benchmark, *arguments])


def prepare(options: argparse.Namespace) -> None:
    """Threads and seed, before anything is measured."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)


def record(
    benchmark: str,
    options: argparse.Namespace,
    arguments: list[str] | None,
    settings: dict[str, object],
    **described,
) -> Record:
    """The file of this run.

    Args:
        settings: beside the clock and the repeats, which all have.
        described: what the environment has besides.
    """
    return Record(
        output_path(benchmark, options),
        benchmark=benchmark,
        command=command(benchmark, arguments),
        environment=environment.describe(options.device) | described,
        settings=settings
        | {"clock": options.clock, "repeats": repeats(options)._asdict()},
    )


def run(
    benchmark: str,
    options: argparse.Namespace,
    arguments: list[str] | None,
    settings: dict[str, object],
    measurements: Iterable[list[dict[str, object]]],
) -> None:
    """Measure time and memory, and write the rows as they come.

    Args:
        options: with ``dtype``.
        settings: as for ``record``, without dtype and how memory is measured.
        measurements: a generator: nothing is measured before threads and seed are set.
    """
    prepare(options)
    how = {"dtype": options.dtype, "memory_method": METHODS[options.device.type]}
    file = record(benchmark, options, arguments, settings | how)
    for rows in measurements:
        file.add(rows)
    file.finish()


def output_path(benchmark: str, options: argparse.Namespace) -> Path:
    """Where the JSON goes."""
    return options.output or FOLDER / f"{benchmark}_{options.device.type}.json"


def repeats(options: argparse.Namespace) -> Repeats:
    """How often to measure."""
    return Repeats(options.least_repeats, options.most_repeats, options.seconds)


def device(name: str) -> torch.device:
    """An argparse type: cpu, or cuda where there is one."""
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{name!r}; allowed: cpu, cuda")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"{name!r}; torch sees no CUDA device here")
    return torch.device(name)


def backend_skip(
    backend: str, dtype: torch.dtype, head_width: int, device: torch.device
) -> str | None:
    """Why a contestant with this backend is left out, if it is."""
    if backend != "triton":
        return None
    sample = torch.empty(0, dtype=dtype, device=device)
    kernels = Kernels("attention", widths=(head_width,))
    reason = why_triton_cannot_run([sample], kernels)
    return None if reason is None else f"Triton cannot run: {reason}"


def quadratic_skip(
    matrix_bytes: int,
    options: argparse.Namespace,
    what: str = "length x length matrix",
) -> str | None:
    """Why a case with a ``what`` of this size is left out, if it is."""
    if matrix_bytes <= options.quadratic_limit_gib * GIB:
        return None
    return (
        f"its {what} takes {matrix_bytes / GIB:.3g} GiB, above "
        f"--quadratic-limit-gib {options.quadratic_limit_gib:g}"
    )

"""Train a T2 on a folder of your own texts, from splits to curves, in one command.

The text is divided into train, valid and test, cut into subwords, and a T2 whose size
follows from the text is trained on it; then it is scored on the test text beside
trivial rules, continues openings of it, and its curves are drawn. The same command
again resumes: stages that are done are not done again. Read are *.txt, *.md and *.rst
files in UTF-8, as they are. docs/own_text.md has the rule of the sizes.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ..argument_types import integer_between, positive_number
from ..data.texts import print_utf8
from ..missing_packages import explanation
from ..subcommands import command_parser
from ..training.exit_code import EXIT_RESUMABLE
from ..training.processes import handling
from .errors import OwnTextError

MOST = 10**7
# option -> value of Plan
PLANNED = {
    "vocab_size": "pieces of the vocabulary, at most",
    "width": "of the model, a multiple of 64",
    "layers": "of the model, an even number",
    "block_size": "of the Diag layers",
    "tokens_per_sample": "tokens of a sequence in training",
    "batch_size": "sequences of an update",
    "updates": "of the training, at most; more of them resume a training that is done",
}
PACKAGES = ("fairseq", "hydra", "matplotlib", "sentencepiece", "tqdm")


class _Stopped(BaseException):
    """A signal asks for the end: no ValueError, which others catch on their way."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 2 for a mistake, 75 where it can be resumed."""
    parser = _parser()
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    again = shlex.join([*parser.prog.split(), *given])
    print_utf8()
    try:
        with handling({signal.SIGTERM: _stop, signal.SIGHUP: _stop}):
            _run(options, again)
    except OwnTextError as error:
        if str(error):
            print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return error.code
    except _Stopped:
        message = "asked to stop; the same command resumes"
        print(f"{parser.prog}: error: {message}", file=sys.stderr)
        return EXIT_RESUMABLE
    except KeyboardInterrupt:
        print("interrupted; the same command resumes", file=sys.stderr)
        return 130
    return 0


def _stop(received: int, frame: object) -> None:
    """SIGTERM and SIGHUP end the command of a stage, too, which would keep running."""
    raise _Stopped


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fairseq_transnormer own_text", __doc__, allow_abbrev=False)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="your texts; or a file")
    add(
        "--dest",
        type=Path,
        metavar="DIR",
        help="where all goes (default: runs/ and the name of FOLDER)",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print the plan and the commands, write nothing",
    )
    for name, what in PLANNED.items():
        add(
            "--" + name.replace("_", "-"),
            type=integer_between(1, MOST),
            metavar="N",
            help=f"{what} (default: by the rule)",
        )
    help_text = "highest learning rate (default: by the rule)"
    add("--lr", type=positive_number, metavar="X", help=help_text)
    add(
        "--gpus",
        type=integer_between(0, 1024),
        metavar="N",
        help="how many train, a count (reproduce's --gpus lists which, by number); 0: "
        "the CPU (default: 1 if there is one)",
    )
    add("--precision", choices=("fp32", "fp16", "bf16"), help="(default: fp32)")
    add("--split-by", choices=("auto", "document", "paragraph"), help="(default: auto)")
    add("--suffixes", nargs="+", metavar="SUFFIX", help="(default: .txt .md .rst)")
    return parser


def _run(options: argparse.Namespace, again: str) -> None:
    _check_packages()
    # torch: a second that --help shall not cost
    import torch

    from .pipeline import Options, Pipeline

    available = torch.cuda.device_count()
    gpus = min(1, available) if options.gpus is None else options.gpus
    if gpus > available:
        raise OwnTextError(f"--gpus {gpus}; allowed here: 0 to {available}")
    dividing = ["--split-by", options.split_by] if options.split_by else []
    if options.suffixes:
        dividing += ["--suffixes", *options.suffixes]
    folder = options.folder
    chosen = {name: getattr(options, name) for name in (*PLANNED, "lr")}
    dest = options.dest or Path("runs") / (folder.resolve().name or "own_text")
    pipeline = Pipeline(
        Options(folder, dest, gpus, options.precision, dividing, chosen, again)
    )
    pipeline.tell()
    if options.dry_run:
        pipeline.tell_commands()
    else:
        pipeline.execute()


def _check_packages() -> None:
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            missing = ModuleNotFoundError(name=name)
            raise OwnTextError(
                f"{explanation(missing)}; scripts/install.sh installs all of it"
            )

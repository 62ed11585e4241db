"""Train a model by a configuration: composed by Hydra, laid out, started.

The same command again resumes from the last checkpoint, with as many GPUs as there are
then; keep --batch-size, which cuts the data up. On SIGTERM a checkpoint is written and
the exit code is 75. Several machines: docs/distributed_training.md.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..argument_types import integer_between
from ..data.whole_files import make_folder, write_text
from ..installation import CONFIGS, PACKAGE
from . import set_up_logging
from .config import Composed, Configuration, ConfigurationError, compose_words, quoted
from .exit_code import EXIT_RESUMABLE, ended_by
from .gpu_memory import NEEDS, described_batch
from .processes import Start, Workers, run_torchrun, start_of, train
from .update_layout import SEQUENCES, Layout, described, lay_out

# what is above is mistyped
MOST = 999_999
# task -> the command of data_prep that makes its folder
PREPARED = {
    "language_modeling": "wikitext103 alm",
    "masked_lm": "wikitext103 blm",
    "long_range_arena": "lra {arena}",
}
TEXT_FILES = ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx")
# what an option says, or the layout of an update: an override would be lost
INSTEAD = {
    "checkpoint.save_dir": "--save-dir",
    "common.cpu": "--gpus 0",
    "dataset.max_tokens": "--batch-size: an update has a number of sequences",
    "distributed_training.distributed_world_size": "--gpus, --workers, --nodes",
    "optimization.update_freq": f"--batch-size, and {SEQUENCES} in the environment",
}
# said by an option as well as by an override
BOTH = {"task.data": "data", "precision": "precision"}
PROGRAM = "python -m fairseq_transnormer train"
CHECKPOINTS = "checkpoints"
# in a run's folder, what it is trained by; it begins with a line of ours
FILE, OURS = "config.yaml", f"# composed by {PROGRAM}\n"


@dataclass(frozen=True)
class Training:
    """What a command asks for, checked.

    Attributes:
        configuration: fairseq's, whole.
        workers: that train.
        start: how they are started.
        sequences: of an update, as text; empty where any number is allowed.
        file: for the configuration, in the run's folder.
    """

    configuration: Configuration
    workers: Workers
    start: Start
    sequences: str
    file: Path

    def text(self) -> str:
        """The configuration in YAML."""
        from omegaconf import OmegaConf

        return OURS + OmegaConf.to_yaml(OmegaConf.create(self.configuration))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code: 2 for a mistake in what was given, or found."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_intermixed_args(given)
    if not options.dry_run:
        set_up_logging()  # first: a library that is imported may do it otherwise
    try:
        training = _prepared(options)
        if not options.dry_run:
            _check_gpus(training.workers)
            _write(training)
    except (ValueError, OSError) as error:
        print(f"train: error: {error}", file=sys.stderr)
        return 2
    if training.start.torchrun:
        command = shlex.join([*training.start.torchrun, str(training.file)])
        print(f"train: {command}", file=sys.stderr)
    if options.dry_run:
        print(training.text(), end="")
        return 0
    return _run(training, shlex.join([*PROGRAM.split(), *given]))


def _run(training: Training, again: str) -> int:
    """Train to the end; the exit code, after a line on what has ended it otherwise.

    Args:
        training: written to its file.
        again: the command, which resumes.
    """
    os.environ[SEQUENCES] = training.sequences
    if training.workers.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    resume = f"; to resume: {again}"
    sys.stdout.flush()
    try:
        if not training.start.torchrun:
            train(training.configuration)
            return 0
        code = run_torchrun(training.start.torchrun, training.file)
        if code not in (0, EXIT_RESUMABLE):
            print(f"train: ended by {ended_by(code)}{resume}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print(f"train: interrupted{resume}", file=sys.stderr)
        return 130
    except Exception as error:
        if _is_refusal(error):
            # a full disk, as a rule, which work may be on already
            told = resume if isinstance(error, OSError) else ""
            print(f"train: error: {error}{told}", file=sys.stderr)
            return 2
        shown, what = _described(error)
        print(f"{shown}train: {what}{resume}", file=sys.stderr)
        return 1


def _is_refusal(error: Exception) -> bool:
    """Whether a check of this package has raised it, in words for the user."""
    if not isinstance(error, ValueError | OSError):
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").startswith(PACKAGE.name)


def _described(error: Exception) -> tuple[str, str]:
    """The traceback, and what has happened; both of a worker that fairseq started."""
    from torch.multiprocessing.spawn import ProcessException

    text = str(error).strip() or " "
    if isinstance(error, ProcessException):
        return f"{text}\n", text.splitlines()[-1]
    shown = "".join(traceback.format_exception(error))
    return shown, f"{type(error).__name__}: {text.splitlines()[0]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} CONFIG [KEY=VALUE ...] [options]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog="Every option of fairseq-train has a KEY=VALUE: --max-update 1000 is "
        "optimization.max_update=1000.\n--dry-run shows all of them. "
        f"{SEQUENCES}=N in the environment stands for another number of sequences\n"
        f"than the configuration's. An empty {SEQUENCES} allows any.",
    )
    add = parser.add_argument
    add("config", metavar="CONFIG", help="file of configs/: alm, blm, lra, ...")
    add(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="of the configuration, as for fairseq-hydra-train: model=alm_t1, "
        "lra=text, optimization.max_update=1000",
    )
    add(
        "--config-dir",
        type=Path,
        default=CONFIGS,
        metavar="DIR",
        help="(default: the repository's)",
    )
    add("--data", metavar="DIR", help="(default: the configuration's)")
    add(
        "--gpus",
        type=integer_between(0, MOST),
        metavar="N",
        help="how many of each machine, a count (reproduce's --gpus lists which, by "
        "number); 0 trains on the CPU (default: the configuration's)",
    )
    add(
        "--workers",
        type=integer_between(1, MOST),
        metavar="N",
        help="processes of each machine, with --gpus 0 (default: 1)",
    )
    add(
        "--nodes",
        type=integer_between(1, MOST),
        default=1,
        metavar="N",
        help="machines (default: 1). In a step of Slurm with one task a machine "
        "(scripts/slurm/train.sbatch) that is all; elsewhere start the same command on "
        "each of them with --rendezvous",
    )
    add(
        "--rendezvous",
        type=_rendezvous,
        metavar="HOST:PORT",
        help="one of the machines and a free port there, where they meet (torchrun)",
    )
    add(
        "--batch-size",
        type=integer_between(1, MOST),
        metavar="N",
        help="sequences that one GPU takes at once: fewer need less memory, and more "
        "batches are accumulated (default: the configuration's, or fewer where they "
        "must divide, or a GPU's memory is small)",
    )
    add("--precision", choices=("fp32", "fp16", "bf16"), help="(default: fp32)")
    add(
        "--save-dir",
        metavar="DIR",
        help="checkpoints (default: checkpoints/ in the configuration's runs/NAME)",
    )
    add("--dry-run", action="store_true", help="print the whole configuration only")
    return parser


def _rendezvous(text: str) -> str:
    found = re.fullmatch(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]+)", text)
    if not found or not 0 < int(found[1]) < 2**16:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed: HOST:PORT, of IPv6 [ADDRESS]:PORT; ports 1 to 65535"
        )
    return text


def _prepared(options: argparse.Namespace) -> Training:
    """Compose the configuration, lay its update out, and check both.

    Raises:
        ConfigurationError: what is asked for is not allowed.
    """
    _check(options)
    composed = compose_words(options.config_dir, options.config, _words(options))
    before = composed.values
    workers = _workers(options, before)
    _check_values(before, workers)
    save_dir = Path(options.save_dir or Path(composed.folder, CHECKPOINTS))
    # folders of checkpoints side by side are a run's each
    run = save_dir.parent if save_dir.name == CHECKPOINTS else save_dir
    start = start_of(workers, options.rendezvous, run.absolute().name)
    if not options.dry_run:
        _check_data(before["task"])
    sequences = _declared(composed, before)
    batch, update_freq = _layout(options, before, sequences, workers)
    composed.set(
        {
            **start.settings,
            "dataset.batch_size": batch,
            "optimization.update_freq": [update_freq],
            "checkpoint.save_dir": str(save_dir),
        }
    )
    return Training(composed.values, workers, start, sequences, run / FILE)


def _check(options: argparse.Namespace) -> None:
    """Raise ConfigurationError for options that cannot be together."""
    if options.workers and options.gpus != 0:
        raise ConfigurationError(
            f"--workers {options.workers} with --gpus {options.gpus}; allowed: --gpus "
            "0, for the CPU"
        )
    for each in options.overrides:
        key = each.partition("=")[0].lstrip("+")
        if "=" not in each:
            raise ConfigurationError(
                f"{each!r}; allowed: KEY=VALUE, such as optimization.max_update=1000"
            )
        if key in INSTEAD:
            raise ConfigurationError(f"{each}; allowed: {INSTEAD[key]}")
        if key.startswith("hydra.") and key != f"hydra.job.env_set.{SEQUENCES}":
            raise ConfigurationError(f"{each}; allowed: with fairseq-hydra-train")
        if getattr(options, BOTH.get(key, ""), None) is not None:
            raise ConfigurationError(f"{each} and --{BOTH[key]}; allowed: one of them")
    for name in ("data", "save_dir"):
        path = getattr(options, name)
        if path is not None and (not path or "${" in path):
            raise ConfigurationError(
                f"--{name.replace('_', '-')} {path!r}; allowed: a folder's name, "
                "without ${"
            )


def _words(options: argparse.Namespace) -> list[str]:
    """The overrides that the options stand for."""
    words = [f"common.user_dir={quoted(str(PACKAGE))}"]
    # a rate where fairseq has a list of them
    rate = r"^(\+*optimization\.lr=)([^\[].*)$"
    words += [re.sub(rate, r"\1[\2]", each) for each in options.overrides]
    if options.precision:
        words.append(f"precision={options.precision}")
    if options.gpus is not None:
        words.append(f"common.cpu={str(options.gpus == 0).lower()}")
    if options.data:
        words.append(f"task.data={quoted(options.data)}")
    return words


def _workers(options: argparse.Namespace, values: Configuration) -> Workers:
    gpus = options.gpus
    if gpus is None:
        said = values["distributed_training"]["distributed_world_size"]
        gpus = 0 if values["common"]["cpu"] else said
    return Workers(options.nodes, gpus, options.workers or 1)


def _check_values(values: Configuration, workers: Workers) -> None:
    """Raise ConfigurationError for what no training, or no update, can be made of."""
    optimization, batch_size = values["optimization"], values["dataset"]["batch_size"]
    if type(batch_size) is not int or batch_size < 1:
        raise ConfigurationError(f"dataset.batch_size={batch_size}; allowed: 1, 2, ...")
    update_freq, rates = optimization["update_freq"], optimization["lr"]
    if len(update_freq) != 1:
        raise ConfigurationError(
            f"optimization.update_freq={update_freq}; allowed: a list of one number"
        )
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise ConfigurationError(f"optimization.lr={rates}; allowed: numbers above 0")
    if values["common"]["fp16"] and workers.gpus == 0:
        raise ConfigurationError(
            "precision=fp16 needs a GPU; allowed on the CPU (--gpus 0): fp32, bf16"
        )


def _declared(composed: Composed, values: Configuration) -> str:
    """Sequences of an update: the environment's, or the configuration's; "": any."""
    said = os.environ.get(SEQUENCES, composed.environment.get(SEQUENCES))
    if said is None:
        (update_freq,) = values["optimization"]["update_freq"]
        said = str(values["dataset"]["batch_size"] * update_freq)
    if not re.fullmatch(r"([1-9][0-9]{0,6})?", said):
        raise ConfigurationError(
            f"{SEQUENCES}={said}; allowed: 1, 2, ... 9999999 or nothing, for any number"
        )
    return said


def _layout(
    options: argparse.Namespace, values: Configuration, sequences: str, workers: Workers
) -> Layout:
    """What fills an update of so many sequences, which is told."""
    most, batch = values["dataset"]["batch_size"], options.batch_size
    # nodes must agree on the batch, and do not know each other's memory
    if batch is None and workers.gpus and workers.nodes == 1:
        half = values["common"]["fp16"] or values["common"]["bf16"]
        need = NEEDS.get((values["task"]["_name"], half))
        most, why = described_batch(need, workers.gpus, most)
        if why:
            print(
                f"train: {most} sequences at once on a GPU, or fewer: {why}",
                file=sys.stderr,
            )
    if sequences:
        try:
            layout = lay_out(int(sequences), workers.all, most, batch)
        except ValueError as error:
            raise ConfigurationError(
                f"--nodes {workers.nodes}, {workers.each} processes each: {error}"
            ) from error
    else:
        (update_freq,) = values["optimization"]["update_freq"]
        layout = Layout(batch or most, update_freq)
    found = workers.all * layout.batch * layout.update_freq
    print(f"train: {described(found, workers.all, layout)}", file=sys.stderr)
    return layout


def _check_data(task: dict) -> None:
    """Raise ConfigurationError for a folder that was not prepared for the task."""
    name, folder = task["_name"], Path(task["data"])
    needed = ["manifest.json"] if name == "long_range_arena" else TEXT_FILES
    for file in needed if name in PREPARED else ():
        if not (folder / file).is_file():
            command = PREPARED[name].format(**task)
            raise ConfigurationError(
                f"--data {folder} has no {file}; python -m data_prep {command} makes "
                "such a folder: data_prep/README.md"
            )


def _check_gpus(workers: Workers) -> None:
    """Raise ConfigurationError if this machine has fewer GPUs."""
    import torch

    if workers.gpus > torch.cuda.device_count():
        raise ConfigurationError(
            f"--gpus {workers.gpus}: this machine has {torch.cuda.device_count()}; "
            "0 trains on the CPU"
        )


def _write(training: Training) -> None:
    """Write the configuration that the run is trained by, over an earlier one.

    Raises:
        ValueError: the folder cannot be made, or has such a file that is not ours.
    """
    file = training.file
    make_folder(file.parent, "the run's folder")
    if file.exists() and not file.read_bytes().startswith(OURS.encode()):
        raise ConfigurationError(
            f"{file} is not a training's, and would be written over; allowed: another "
            "--save-dir"
        )
    write_text(file, training.text())

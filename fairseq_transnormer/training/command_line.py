"""Train a model by a configuration: the fairseq-train command that it stands for.

The same command again resumes from the last checkpoint, with as many GPUs as there are
then; keep --batch-size, which cuts the data up. On SIGTERM a checkpoint is written and
the exit code is 75. Several machines: docs/distributed_training.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..argument_types import integer_between
from ..installation import CONFIGS, PACKAGE
from .config import Composed, ConfigurationError, compose_words, quoted
from .exit_code import EXIT_RESUMABLE, ended_by
from .gpu_memory import NEEDS, described_batch
from .starters import Workers, run, starter_of
from .update_layout import SEQUENCES, Layout, described, lay_out

# what is above is mistyped
MOST = 999_999
# of a fairseq-train command: they make another update of it
UPDATE_OPTIONS = ("--batch-size", "--max-sentences", "--max-tokens", "--update-freq")
UPDATE_OPTIONS += ("--distributed-world-size",)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code, 2 for a mistake in what was given."""
    whole = given = list(sys.argv[1:] if arguments is None else arguments)
    flags: list[str] = []
    if "--" in given:
        at = given.index("--")
        given, flags = given[:at], given[at + 1 :]
    options = _parser().parse_intermixed_args(given)
    try:
        code = _train(options, flags)
    except ValueError as error:
        print(f"train: error: {error}", file=sys.stderr)
        return 2
    if code not in (0, EXIT_RESUMABLE):
        again = shlex.join([*PROGRAM.split(), *whole])
        print(f"train: ended by {ended_by(code)}; to resume: {again}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} CONFIG [KEY=VALUE ...] [options] [-- FAIRSEQ_OPTIONS]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog=f"{SEQUENCES}=N in the environment stands for another number of "
        "sequences than the\nconfiguration's. Where options after -- make a third one, "
        f"training does not start. An\nempty {SEQUENCES} allows any.",
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
    add("--dry-run", action="store_true", help="print the fairseq-train command only")
    return parser


def _rendezvous(text: str) -> str:
    found = re.fullmatch(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]+)", text)
    if not found or not 0 < int(found[1]) < 2**16:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed: HOST:PORT, of IPv6 [ADDRESS]:PORT; ports 1 to 65535"
        )
    return text


def _train(options: argparse.Namespace, flags: list[str]) -> int:
    # fairseq: seconds that --help shall not cost
    from .training_command import fairseq_train_arguments, parse

    _check(options)
    words = _words(options)
    composed = compose_words(options.config_dir, options.config, words)
    workers = _workers(options, composed)
    save_dir = Path(options.save_dir or f"{composed.folder}/checkpoints")
    starter = starter_of(workers, options.rendezvous, save_dir.parent.name)
    if not options.dry_run:
        _check_data(composed.values["task"])
    total = _declared(composed)
    words += _layout_words(options, composed, total, workers, flags)
    words += starter.overrides
    words.append(f"checkpoint.save_dir={quoted(str(save_dir))}")
    values = compose_words(options.config_dir, options.config, words).values
    # what the starter's workers learn from their environment is told by it alone
    trained = [*fairseq_train_arguments(values), *flags]
    if flags:
        parse(trained)  # a mistyped option ends here, and not in each process
    command = [*starter.command, "fairseq-train", *trained]
    print(shlex.join(command), flush=True)
    if options.dry_run:
        return 0
    _check_gpus(workers)
    environment = {SEQUENCES: total}
    if workers.gpus == 0:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return run(starter, command, environment)


def _check(options: argparse.Namespace) -> None:
    if options.workers and options.gpus != 0:
        raise ConfigurationError(
            f"--workers {options.workers} with --gpus {options.gpus}; allowed: --gpus "
            "0, for the CPU"
        )
    for each in options.overrides:
        key = each.partition("=")[0].lstrip("+")
        if "=" not in each:
            raise ConfigurationError(
                f"{each!r}; allowed: KEY=VALUE, and options of fairseq-train after --"
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
    if options.precision == "fp16" and options.gpus == 0:
        raise ConfigurationError(
            "--precision fp16 needs a GPU; allowed with --gpus 0: fp32, bf16"
        )


def _words(options: argparse.Namespace) -> list[str]:
    """The overrides that the options stand for."""
    words = [f"common.user_dir={quoted(str(PACKAGE))}"]
    words += options.overrides
    if options.precision:
        words.append(f"precision={options.precision}")
    if options.gpus is not None:
        words.append(f"common.cpu={str(options.gpus == 0).lower()}")
    if options.data:
        words.append(f"task.data={quoted(options.data)}")
    return words


def _workers(options: argparse.Namespace, composed: Composed) -> Workers:
    gpus = options.gpus
    if gpus is None:
        cpu = composed.values["common"]["cpu"]
        said = composed.values["distributed_training"]["distributed_world_size"]
        gpus = 0 if cpu else said
    return Workers(options.nodes, gpus, options.workers or 1)


def _declared(composed: Composed) -> str:
    """Sequences of an update: the environment's, or the configuration's; "": any."""
    values = composed.values
    _check_layout(values)
    said = os.environ.get(SEQUENCES, composed.environment.get(SEQUENCES))
    if said is None:
        said = str(
            values["dataset"]["batch_size"] * values["optimization"]["update_freq"][0]
        )
    if not re.fullmatch(r"([1-9][0-9]{0,6})?", said):
        raise ConfigurationError(
            f"{SEQUENCES}={said}; allowed: 1, 2, ... 9999999 or nothing, for any number"
        )
    return said


def _check_layout(values: dict) -> None:
    """Raise ConfigurationError for what an update cannot be laid out by."""
    batch_size = values["dataset"]["batch_size"]
    update_freq = values["optimization"]["update_freq"]
    if type(batch_size) is not int or batch_size < 1:
        raise ConfigurationError(f"dataset.batch_size={batch_size}; allowed: 1, 2, ...")
    if not isinstance(update_freq, list) or len(update_freq) != 1:
        raise ConfigurationError(
            f"optimization.update_freq={update_freq}; allowed: a list of one number"
        )


def _layout_words(
    options: argparse.Namespace,
    composed: Composed,
    total: str,
    workers: Workers,
    flags: list[str],
) -> list[str]:
    """The overrides that fill an update of ``total`` sequences, which is told."""
    most, batch = composed.values["dataset"]["batch_size"], options.batch_size
    # nodes must agree on the batch, and do not know each other's memory
    if batch is None and workers.gpus and workers.nodes == 1:
        need = NEEDS.get(
            (
                composed.values["task"]["_name"],
                composed.values["common"]["fp16"] or composed.values["common"]["bf16"],
            )
        )
        most, why = described_batch(need, workers.gpus, most)
        if why:
            print(
                f"train: {most} sequences at once on a GPU, or fewer: {why}",
                file=sys.stderr,
            )
    if total:
        try:
            layout = lay_out(int(total), workers.all, most, batch)
        except ValueError as error:
            raise ConfigurationError(
                f"--nodes {workers.nodes}, {workers.each} processes each: {error}"
            ) from error
    else:
        (update_freq,) = composed.values["optimization"]["update_freq"]
        layout = Layout(batch or most, update_freq)
    sequences = workers.all * layout.batch * layout.update_freq
    told = described(sequences, workers.all, layout)
    changed = [word for word in flags if word.partition("=")[0] in UPDATE_OPTIONS]
    if changed:
        told = f"an update has what {changed[0]} after -- makes of it"
        told += f"; training starts if that is {total} sequences" if total else ""
    print(f"train: {told}", file=sys.stderr)
    return [
        f"dataset.batch_size={layout.batch}",
        f"optimization.update_freq=[{layout.update_freq}]",
    ]


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

"""Train a model by a configuration: composed by Hydra, laid out, started.

The same command again resumes from the last checkpoint, with as many GPUs as there are
then; keep --batch-size, which cuts the data up. On SIGTERM a checkpoint is written and
the exit code is 75. Several machines: docs/train.md.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..argument_types import integer_between
from ..data.whole_files import make_folder, write_text
from ..installation import CONFIGS, PACKAGE
from .config import Composed, Configuration, ConfigurationError, filled_in, get, read
from .exit_code import EXIT_RESUMABLE, ended_by
from .processes import Workers, run_torchrun, set_up_logging, start_of
from .update_layout import SEQUENCES, Layout, declared, fitting_batch, lay_out

# task -> the command of data_prep that makes its folder
PREPARED = {
    "language_modeling": "wikitext103 alm",
    "masked_lm": "wikitext103 blm",
    "long_range_arena": "lra {arena}",
}
TEXT_FILES = ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx")
GPUS = "distributed_training.distributed_world_size"
BATCH, FREQUENCY = "dataset.batch_size", "optimization.update_freq"
# what an option says, or the layout of an update: an override would be lost
INSTEAD = {
    "checkpoint.save_dir": "--save-dir",
    "common.cpu": "--gpus 0",
    "dataset.max_tokens": "--batch-size: an update has a number of sequences",
    GPUS: "--gpus, --workers, --nodes",
    FREQUENCY: f"--batch-size, and {SEQUENCES} in the environment",
}
# options of fairseq-train that refusals name, as this command has them
KEYS = {
    "--finetune-from-model ": "checkpoint.finetune_from_model=",
    "--restore-file ": "checkpoint.restore_file=",
    "--reset-optimizer": "checkpoint.reset_optimizer=true",
    "--reset-dataloader": "checkpoint.reset_dataloader=true",
    "--no-save-optimizer-state": "checkpoint.no_save_optimizer_state",
    "--finetune-from-model": "checkpoint.finetune_from_model",
    "--restore-file": "checkpoint.restore_file",
    "--reset-*": "checkpoint.reset_*",
}
PROGRAM = "python -m fairseq_transnormer train"
# in a run's folder, what it is trained by; it begins with a line of ours
FILE, OURS = "config.yaml", f"# composed by {PROGRAM}\n"


class Training(NamedTuple):
    """What a command asks for, checked."""

    configuration: Configuration
    file: Path  # for it, in the run's folder
    torchrun: list[str]  # its arguments; none where this process starts the workers
    sequences: int | None  # of an update; None: any number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code: 2 for a mistake in what was given, or found."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_intermixed_args(given)
    if not options.dry_run:
        set_up_logging()  # first: a library that is imported may do it otherwise
    try:
        training = _prepared(options)
        from omegaconf import OmegaConf

        text = OURS + OmegaConf.to_yaml(OmegaConf.create(training.configuration))
        if not options.dry_run:
            make_folder(training.file.parent, "the run's folder")
            write_text(training.file, text)
    except (ValueError, OSError) as error:
        print(f"train: error: {error}", file=sys.stderr)
        return 2
    if training.torchrun:
        print(f"train: torchrun {shlex.join(training.torchrun)}", file=sys.stderr)
    if options.dry_run:
        print(text, end="")
        return 0
    return _run(training, shlex.join([*PROGRAM.split(), *given]))


def _run(training: Training, again: str) -> int:
    """Train to the end; the exit code, after a line on what has ended it otherwise."""
    os.environ[SEQUENCES] = str(training.sequences or "")
    if training.configuration["common"]["cpu"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    resume = f"; to resume: {again}"
    sys.stdout.flush()
    try:
        if not training.torchrun:
            train(training.configuration)
            return 0
        code = run_torchrun(training.torchrun)
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
            message = str(error)
            for option, key in KEYS.items():
                message = message.replace(option, key)
            print(f"train: error: {message}{told}", file=sys.stderr)
            return 2
        shown = traceback.format_exc().strip()  # a spawned worker's own at its end
        print(f"{shown}\ntrain: {shown.splitlines()[-1]}{resume}", file=sys.stderr)
        return 1


def train(configuration: Any) -> None:
    """Train in this process, or in those that it starts for GPUs, to the end."""
    from omegaconf import OmegaConf

    from .main import main
    from .workers import call_main

    cfg = OmegaConf.create(configuration)
    OmegaConf.set_struct(cfg, True)
    call_main(cfg, main)


def train_file(path: Path) -> None:
    """``train`` by a whole composed configuration, as YAML."""
    set_up_logging()
    from omegaconf import OmegaConf

    train(OmegaConf.load(path))


def _is_refusal(error: Exception) -> bool:
    """Whether a check of this package has raised it, in words for the user."""
    if not isinstance(error, ValueError | OSError):
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").startswith(PACKAGE.name)


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
    add, number = parser.add_argument, integer_between(1, 999_999)
    add("config", metavar="CONFIG", help="file of configs/: alm, blm, lra, ...")
    told = "of the configuration, as for fairseq-hydra-train: model=alm_t1, lra=text, "
    told += "optimization.max_update=1000"
    add("overrides", nargs="*", type=_override, metavar="KEY=VALUE", help=told)
    told = "of CONFIG (default: the repository's)"
    add("--config-dir", type=Path, default=CONFIGS, metavar="DIR", help=told)
    add("--data", type=_folder, metavar="DIR", help="(default: the configuration's)")
    told = "how many of each machine; 0: the CPU (default: the configuration's)"
    add("--gpus", type=integer_between(0, 999_999), metavar="N", help=told)
    told = "processes of each machine, with --gpus 0 (default: 1)"
    add("--workers", type=number, metavar="N", help=told)
    told = "machines (default: 1), in a step of Slurm with one task on each (scripts/"
    told += "slurm/train.sbatch), or with this command on each and --rendezvous"
    add("--nodes", type=number, default=1, metavar="N", help=told)
    told = "one of the machines and a free port there, where they meet (torchrun)"
    add("--rendezvous", metavar="HOST:PORT", help=told)
    told = "sequences that one GPU takes at once; fewer need less memory (default: the "
    told += "configuration's, or fewer where they must divide, or memory is small)"
    add("--batch-size", type=number, metavar="N", help=told)
    add("--precision", choices=("fp32", "fp16", "bf16"), help="(default: fp32)")
    told = "checkpoints (default: checkpoints/ in the configuration's runs/NAME)"
    add("--save-dir", type=_folder, metavar="DIR", help=told)
    add("--dry-run", action="store_true", help="print the whole configuration only")
    return parser


def _override(text: str) -> str:
    key, equals, _ = text.partition("=")
    plain = key.lstrip("+")
    told = INSTEAD.get(plain)
    if not equals:
        told = "KEY=VALUE, such as optimization.max_update=1000"
    elif plain.startswith("hydra.") and plain != f"hydra.job.env_set.{SEQUENCES}":
        told = "with fairseq-hydra-train"
    if told:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {told}")
    return text


def _folder(text: str) -> str:
    if not text or "${" in text:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a name without ${{")
    return text


def _prepared(options: argparse.Namespace) -> Training:
    """Compose the configuration, lay its update out; ValueError for what cannot be."""
    gpus, on_cpu = options.gpus, options.workers
    if on_cpu and gpus != 0:
        raise ConfigurationError(
            f"--workers {on_cpu} with --gpus {gpus}; allowed: --gpus 0, for the CPU"
        )
    words: list[str] = list(options.overrides)
    settings: dict[str, Any] = {"common.user_dir": str(PACKAGE)}
    if options.precision:
        words.append(f"precision={options.precision}")
    if options.data:
        settings["task.data"] = options.data
    if gpus is not None:
        settings["common.cpu"] = gpus == 0
    found = read(options.config_dir, options.config, words)
    composed = filled_in(options.config, found, settings)
    common, task = composed.values["common"], composed.values["task"]
    if gpus is None:
        gpus = 0 if common["cpu"] else get(composed.values, GPUS)
    if common["fp16"] and gpus == 0:
        raise ConfigurationError(
            "--precision fp16 needs a GPU; allowed on the CPU (--gpus 0): fp32, bf16"
        )
    workers = Workers(options.nodes, gpus, on_cpu or 1)
    save_dir = Path(options.save_dir or Path(composed.folder, "checkpoints"))
    # folders of checkpoints side by side are a run's each
    run = save_dir.parent if save_dir.name == "checkpoints" else save_dir
    started, torchrun = start_of(workers, options.rendezvous, run.absolute().name)
    file = run / FILE
    if not options.dry_run:
        _check_machine(task, gpus, file)
    sequences, (batch, update_freq) = _update(composed, workers, options.batch_size)
    settings |= {**started, BATCH: batch, FREQUENCY: [update_freq]}
    settings["checkpoint.save_dir"] = str(save_dir)
    composed = filled_in(options.config, found, settings)  # others refer to these
    torchrun = [*torchrun, str(file)] if torchrun else []
    return Training(composed.values, file, torchrun, sequences)


def _update(
    composed: Composed, workers: Workers, batch: int | None
) -> tuple[int | None, Layout]:
    """The sequences of an update, None for any number; what fills it, which is told."""
    values = composed.values
    most, frequency = get(values, BATCH), get(values, FREQUENCY)
    if not most or most < 1 or len(frequency) != 1:
        raise ConfigurationError(
            f"{BATCH}={most}, {FREQUENCY}={frequency}; allowed: 1, 2, ..., and [NUMBER]"
        )
    update_freq = frequency[0] or 1
    own = composed.environment.get(SEQUENCES, str(most * update_freq))
    sequences = declared(os.environ.get(SEQUENCES, own))
    # nodes must agree on the batch, and do not know each other's memory
    if batch is None and workers.gpus and workers.nodes == 1:
        half = values["common"]["fp16"] or values["common"]["bf16"]
        fitting = fitting_batch(values["task"]["_name"], half, workers.gpus, most)
        if fitting < most:
            told = f"a GPU's memory holds {fitting} sequences at once, by an estimate"
            print(f"train: {told}, not {most}", file=sys.stderr)
        most = fitting
    layout = Layout(batch or most, update_freq)
    if sequences:
        layout = lay_out(sequences, workers.all, most, batch)
    print(f"train: {layout.described(workers.all)}", file=sys.stderr)
    return sequences, layout


def _check_machine(task: dict, gpus: int, file: Path) -> None:
    """Raise ConfigurationError for what is not here, and for a file of others."""
    import torch

    name, folder = task["_name"], Path(task["data"])
    needed = ["manifest.json"] if name == "long_range_arena" else TEXT_FILES
    for each in needed if name in PREPARED else ():
        if not (folder / each).is_file():
            command = PREPARED[name].format(**task)
            raise ConfigurationError(
                f"--data {folder} has no {each}; python -m data_prep {command} makes "
                "such a folder: docs/data.md"
            )
    there = torch.cuda.device_count()
    if gpus > there:
        raise ConfigurationError(
            f"--gpus {gpus}: this machine has {there}; 0 trains on the CPU"
        )
    if file.exists() and not file.read_bytes().startswith(OURS.encode()):
        raise ConfigurationError(
            f"{file} is not a training's, and would be written over; allowed: another "
            "--save-dir"
        )

"""Train a model by a configuration of configs/.

The same command again resumes from the last checkpoint, also with another number of
GPUs. Keep --batch-size, which divides the data into batches. On SIGTERM the command
writes a checkpoint and ends with exit code 75. Several machines: docs/train.md.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..data.whole_files import copy_whole, make_folder, write_text
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
GPUS = "distributed_training.distributed_world_size"
BATCH, FREQUENCY = "dataset.batch_size", "optimization.update_freq"
# keys that an option or the layout of an update sets: an override would be lost
INSTEAD = {
    "checkpoint.save_dir": "--save-dir",
    "common.cpu": "--gpus 0",
    "dataset.max_tokens": "--batch-size: an update has a number of sequences",
    GPUS: "--gpus, --workers, --nodes",
    FREQUENCY: f"--batch-size, and {SEQUENCES} in the environment",
}
# options of fairseq-train that messages name -> this command's keys
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
# numbers from these to 999,999
LEAST = {"gpus": 0, "workers": 1, "nodes": 1, "batch_size": 1}
PROGRAM = "python -m fairseq_transnormer train"
# the configuration in a run's folder, and its first line, by which we recognize it
FILE, OURS = "config.yaml", f"# composed by {PROGRAM}\n"


class Training(NamedTuple):
    """The checked settings of a command."""

    configuration: Configuration
    file: Path  # of the run's folder, for the configuration
    torchrun: list[str]  # its arguments before it; none: this process starts workers
    sequences: int | None  # of an update; None: any number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 2 for a mistake in options or files."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_intermixed_args(given)
    if not options.dry_run:
        set_up_logging()  # first: an imported library may do it in another way
    try:
        training = _prepared(options)
        from omegaconf import OmegaConf

        text = OURS + OmegaConf.to_yaml(OmegaConf.create(training.configuration))
        if not options.dry_run:
            make_folder(training.file.parent, "the run's folder")
    except (ValueError, OSError) as error:
        print(f"train: error: {error}", file=sys.stderr)
        return 2
    if training.torchrun:
        words = [*training.torchrun, str(training.file)]
        print(f"train: torchrun {shlex.join(words)}", file=sys.stderr)
    if options.dry_run:
        print(text, end="")
        return 0
    return _run(training, text, shlex.join([*PROGRAM.split(), *given]))


def _run(training: Training, text: str, again: str) -> int:
    """Train; returns the exit code. A line on stderr names the cause of a failure.

    ``text`` is the configuration. The run's folder has it once the run is accepted: a
    refused command leaves the file of the run that is there.
    """
    os.environ[SEQUENCES] = str(training.sequences or "")
    if training.configuration["common"]["cpu"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    resume = f"; to resume: {again}"
    sys.stdout.flush()
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, FILE)
            write_text(file, text)
            if not training.torchrun:
                train_file(file, training.file)
                return 0
            code = run_torchrun([*training.torchrun, str(file), str(training.file)])
        if code not in (0, EXIT_RESUMABLE):
            print(f"train: ended by {ended_by(code)}{resume}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print(f"train: interrupted{resume}", file=sys.stderr)
        return 130
    except Exception as error:
        if _is_refusal(error):
            # OSError: usually a full disk after some updates
            hint = resume if isinstance(error, OSError) else ""
            message = str(error)
            for option, key in KEYS.items():
                message = message.replace(option, key)
            print(f"train: error: {message}{hint}", file=sys.stderr)
            return 2
        shown = traceback.format_exc().strip()  # ends with a spawned worker's own error
        print(f"{shown}\ntrain: {shown.splitlines()[-1]}{resume}", file=sys.stderr)
        return 1


def train_file(path: Path, copy: Path | None = None) -> None:
    """Train by a composed configuration, in this process or in others for GPUs.

    Args:
        path: a YAML file.
        copy: where the first worker copies it once the run is accepted.
    """
    set_up_logging()
    from omegaconf import OmegaConf

    from .main import main
    from .workers import call_main

    cfg = OmegaConf.load(path)
    OmegaConf.set_struct(cfg, True)
    call_main(cfg, partial(main, accepted=copy and partial(copy_whole, path, copy)))


def _is_refusal(error: Exception) -> bool:
    """Whether a check of this package raised the error, with a message for the user."""
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
        f"{SEQUENCES}=N in the environment replaces the\n"
        f"configuration's number. An empty {SEQUENCES} allows any.",
    )
    add = parser.add_argument
    add("config", metavar="CONFIG", help="file of configs/: alm, blm, lra, ...")
    text = "set a key, as with fairseq-hydra-train: model=alm_t1, lra=text, "
    text += "optimization.max_update=1000"
    add("overrides", nargs="*", type=_override, metavar="KEY=VALUE", help=text)
    text = "folder of CONFIG (default: the repository's)"
    add("--config-dir", type=Path, default=CONFIGS, metavar="DIR", help=text)
    text = "prepared data (default: the configuration's)"
    add("--data", type=_folder, metavar="DIR", help=text)
    text = "GPUs per machine; 0: the CPU (default: the configuration's)"
    add("--gpus", type=int, metavar="N", help=text)
    text = "processes per machine, with --gpus 0 (default: 1)"
    add("--workers", type=int, metavar="N", help=text)
    text = "machines (default: 1); needs a Slurm step with one task per machine "
    text += "(scripts/slurm/train.sbatch), or this command on each and --rendezvous"
    add("--nodes", type=int, default=1, metavar="N", help=text)
    text = "one of the machines and a free port on it, where all connect (torchrun)"
    add("--rendezvous", type=_endpoint, metavar="HOST:PORT", help=text)
    text = "sequences per batch and GPU; fewer need less memory (default: the "
    text += "configuration's, or fewer to divide an update or to fit the memory)"
    add("--batch-size", type=int, metavar="N", help=text)
    add("--precision", choices=("fp32", "fp16", "bf16"), help="(default: fp32)")
    text = "folder of checkpoints (default: checkpoints/ in the configuration's "
    text += "runs/NAME)"
    add("--save-dir", type=_folder, metavar="DIR", help=text)
    text = "only print the whole configuration"
    add("--dry-run", action="store_true", help=text)
    return parser


def _endpoint(text: str) -> str:
    _, colon, port = text.rpartition(":")
    if colon and not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: HOST:PORT")
    return text


def _override(text: str) -> str:
    key, equals, _ = text.partition("=")
    plain = key.lstrip("+")
    allowed = INSTEAD.get(plain)
    if not equals:
        allowed = "KEY=VALUE, such as optimization.max_update=1000"
    elif plain.startswith("hydra.") and plain != f"hydra.job.env_set.{SEQUENCES}":
        allowed = "with fairseq-hydra-train"
    if allowed:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return text


def _folder(text: str) -> str:
    if not text or "${" in text:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a name without ${{")
    return text


def _prepared(options: argparse.Namespace) -> Training:
    """Compose the configuration and its update; ValueError if it cannot be trained."""
    gpus, on_cpu = options.gpus, options.workers
    for name, least in LEAST.items():
        value = vars(options)[name]
        if value is not None and not least <= value < 10**6:
            option = name.replace("_", "-")
            raise ConfigurationError(f"--{option} {value}; allowed: {least} to 999999")
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
    common = composed.values["common"]
    if gpus is None:
        gpus = 0 if common["cpu"] else get(composed.values, GPUS)
    if common["fp16"] and gpus == 0:
        raise ConfigurationError(
            "--precision fp16 needs a GPU; allowed on the CPU (--gpus 0): fp32, bf16"
        )
    workers = Workers(options.nodes, gpus, on_cpu or 1)
    save_dir = Path(options.save_dir or Path(composed.folder, "checkpoints"))
    # each folder of checkpoints in a common folder is a run
    run = save_dir.parent if save_dir.name == "checkpoints" else save_dir
    started, torchrun = start_of(workers, options.rendezvous, run.absolute().name)
    file = run / FILE
    if not options.dry_run:
        _check_machine(composed.values, gpus, file)
    sequences, (batch, update_freq) = _update(composed, workers, options.batch_size)
    settings |= {**started, BATCH: batch, FREQUENCY: [update_freq]}
    settings["checkpoint.save_dir"] = str(save_dir)
    composed = filled_in(options.config, found, settings)  # others refer to these
    return Training(composed.values, file, torchrun, sequences)


def _update(
    composed: Composed, workers: Workers, batch: int | None
) -> tuple[int | None, Layout]:
    """The sequences of an update, None for any number, and its layout, printed."""
    values = composed.values
    most, frequency = get(values, BATCH), get(values, FREQUENCY)
    if not most or most < 1 or len(frequency) != 1:
        raise ConfigurationError(
            f"{BATCH}={most}, {FREQUENCY}={frequency}; allowed: 1, 2, ..., and [NUMBER]"
        )
    update_freq = frequency[0]
    own = composed.environment.get(SEQUENCES, str(most * update_freq))
    sequences = declared(os.environ.get(SEQUENCES, own))
    update = sequences or workers.all * (batch or most) * update_freq
    # nodes must agree on the batch, and do not know each other's memory
    if batch is None and workers.gpus and workers.nodes == 1:
        half = values["common"]["fp16"] or values["common"]["bf16"]
        fitting = fitting_batch(values["task"]["_name"], half, workers.gpus, most)
        if fitting < most:
            estimate = f"a GPU's memory holds batches of {fitting}, by an estimate"
            print(f"train: {estimate}, not {most}", file=sys.stderr)
        most = fitting
    layout = lay_out(update, workers.all, most, batch)
    print(f"train: {layout.described(workers.all)}", file=sys.stderr)
    return sequences, layout


def _check_machine(values: Configuration, gpus: int, file: Path) -> None:
    """Raise ConfigurationError for missing data or GPUs, and for a foreign file."""
    import torch

    task = values["task"]
    for each in _prepared_files(task, values["dataset"]):
        if not each.is_file():
            command = PREPARED[task["_name"]].format(**task)
            raise ConfigurationError(
                f"--data {each.parent} has no {each.name}; python -m data_prep "
                f"{command} makes such a folder, and so do other commands of "
                "docs/data.md"
            )
    there = torch.cuda.device_count()
    if gpus > there:
        raise ConfigurationError(
            f"--gpus {gpus}: this machine has {there}; 0 trains on the CPU"
        )
    if file.exists() and not file.read_bytes().startswith(OURS.encode()):
        raise ConfigurationError(
            f"{file} is not of a training, and would be overwritten; allowed: another "
            "--save-dir"
        )


def _prepared_files(task: dict, dataset: dict) -> Iterator[Path]:
    """The files that data of ``PREPARED`` have, in all folders of DIR1:DIR2."""
    from fairseq.utils import split_paths

    if task["_name"] == "long_range_arena":
        yield Path(task["data"], "manifest.json")
    elif task["_name"] in PREPARED:
        first, *_ = folders = split_paths(task["data"])
        yield Path(first, "dict.txt")
        splits = [Path(each, dataset["train_subset"]) for each in folders]
        if not dataset["disable_validation"]:
            splits += [Path(first, x) for x in dataset["valid_subset"].split(",")]
        for each in splits:
            yield from (each.with_name(f"{each.name}.{end}") for end in ("bin", "idx"))

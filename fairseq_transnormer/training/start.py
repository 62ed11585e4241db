"""Choose the checkpoint that a run starts from: the same command again resumes.

fairseq alone applies --restore-file and --reset-* at every start, and overwrites its
earlier training.
"""

import logging
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairseq.file_io import PathManager

from ..checkpoints import files
from ..checkpoints.identity import VALID_KEY
from ..checkpoints.safe_loading import read_checkpoint
from ..data.whole_files import copy_whole
from .folder_lock import FolderLock
from .same_run import check_checkpoint, plain

logger = logging.getLogger(__name__)

# in the extra_state of every checkpoint: an Origin, and the state of --patience
STARTED_FROM = "started_from"
EARLY_STOPPING = "early_stopping"
# of one that was written before a validation that was due, because of a signal
UNVALIDATED = "unvalidated"
RESETS = ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader")
SOURCES = ("restore_file", "finetune_from_model")
# of fairseq's dataset, the texts that are validated
TEXTS = ("valid_subset", "combine_valid_subsets", "skip_invalid_size_inputs_valid_test")
# by group, the settings that a validation's figure depends on; None: all settings,
# except for the data's folder and fairseq's copies of other groups
VALIDATION: dict[str, tuple[str, ...] | None] = {
    "checkpoint": ("best_checkpoint_metric", "maximize_best_checkpoint_metric"),
    "dataset": ("max_valid_steps", *TEXTS),
    "criterion": None,
    "task": None,
}
# with max_valid_steps, those that choose its samples
SAMPLES = {
    "dataset": ("batch_size_valid", "max_tokens_valid", "required_batch_size_multiple"),
    "distributed_training": ("distributed_world_size",),
    "common": ("seed",),
}


@dataclass(frozen=True)
class Origin:
    """The checkpoint that a new run starts from.

    Attributes:
        restore_file, finetune_from_model: absolute paths.
        fingerprint: of the file, if it exists.
        resets: names of ``RESETS``.
    """

    restore_file: str | None = None
    finetune_from_model: str | None = None
    fingerprint: str | None = None
    resets: list[str] = field(default_factory=list)

    @property
    def options(self) -> dict[str, str]:
        """fairseq's options for this start, with their values."""
        given = {name: getattr(self, name) for name in SOURCES if getattr(self, name)}
        given |= dict.fromkeys(self.resets, "")
        return {f"--{name.replace('_', '-')}": x for name, x in given.items()}

    def __str__(self) -> str:
        return " ".join(" ".join(each).strip() for each in self.options.items())

    def is_same(self, other: "Origin") -> bool:
        """Compare the content of files: a file may have been moved."""
        return self.options == other.options or (
            self.options.keys() == other.options.keys()
            and self.fingerprint is not None
            and self.fingerprint == other.fingerprint
        )


@dataclass(frozen=True)
class Start:
    """Where a run starts, as the first rank decides for all.

    Attributes:
        started_from: the run's ``Origin``, for its checkpoints.
        updates: of the checkpoint to resume, or None for a new run.
        finished: why nothing is left to do, or None.
        validated_by: settings and data of the checkpoint's validations that differ from
            this command's, as texts.
    """

    started_from: dict
    updates: int | None = None
    finished: str | None = None
    validated_by: tuple[str, ...] = ()


def choose_start(trainer, lock: FolderLock) -> Start:
    """Lock the folder and choose the start, from an undamaged checkpoint_last.pt.

    A missing or damaged checkpoint_last.pt is replaced by the newest other checkpoint.
    Shards of a model, each with a suffix, are not repaired: they must be of the same
    update.

    Raises:
        ValueError: the folder is in use, its checkpoint is of a run with another start,
            or all its checkpoints are damaged.
    """
    cfg, last = trainer.cfg.checkpoint, last_of(trainer)
    asked = _asked(cfg, last, trainer.checkpoint_suffix)
    if not (cfg.no_save and asked.options):  # as fairseq does: nothing is overwritten
        state = _read(last)
        if state is not None and _is_finished(state, trainer) and files.is_whole(last):
            return _resume(trainer, last, state, asked)
    is_shard = bool(trainer.checkpoint_suffix)
    if not cfg.no_save:
        if lock.hold():
            files.remove_parts(last.parent)
        used = None if is_shard else files.repair_last_checkpoint(last.parent)
        if used is not None:
            logger.warning(
                "%s was damaged and is kept as %s.damaged; resuming from %s, the "
                "newest undamaged checkpoint",
                *(last, files.LAST, used),
            )
        if not is_shard and (cfg.no_last_checkpoints or not last.exists()):
            if start := _make_up_for(trainer, last, asked):
                return start
    if cfg.no_save or not last.exists():
        other = asked.restore_file or cfg.get("continue_once")
        state = _read(Path(other)) if other else None
        found = _validated_by(state, trainer) if state else ()
        return Start(asdict(asked), validated_by=found)
    # again: another run may have written it before we had the lock; the checksums of
    # unsharded checkpoints have just been compared
    state = read_checkpoint(last, mmap=True, compare_sums=is_shard)
    return _resume(trainer, last, state, asked)


def _make_up_for(trainer, last: Path, asked: Origin) -> Start | None:
    """Replace a missing or older last checkpoint by this run's newest checkpoint.

    --no-last-checkpoints does not update the last one. fairseq would start again, over
    the checkpoints that are there. Returns the start of a finished run without a last
    one; ValueError where the newest cannot be resumed.
    """
    newest, damaged = files.newest_whole(last.parent)
    if newest is None:
        return None
    state, there = read_checkpoint(newest, mmap=True), _read(last)
    updates = -1 if there is None else files.number_of_updates(there)
    is_asked = not asked.options or asked.is_same(_origin(state, last))
    if not is_asked or state.get("last_optimizer_state") is None:
        return _resume(trainer, newest, state, asked) if there is None else None
    if files.number_of_updates(state) > updates:
        check_checkpoint(trainer, os.fspath(newest), False, resumes=True)
        if _is_finished(state, trainer):
            return _resume(trainer, newest, state, asked)
        copy_whole(newest, last)
        files.put_aside(damaged)
        logger.warning(
            "%s is missing, or older; resuming from %s, the newest undamaged "
            "checkpoint. A new run needs another --save-dir",
            *(last, newest),
        )
    return None


def _asked(cfg, last: Path, suffix: str = "") -> Origin:
    """The start that a command asks for in its settings ``checkpoint``."""
    found: dict[str, str] = {}
    for name in SOURCES:
        path = cfg[name]
        if not path or (name == "restore_file" and path == files.LAST):
            continue
        if name == "restore_file" and suffix:
            path = path.replace(".pt", f"{suffix}.pt")
        if not PathManager.path_requires_pathmanager(path):
            path = os.path.abspath(path)
        if path != os.path.abspath(last):
            found[name] = path
            if os.path.isfile(path):
                found["fingerprint"] = files.fingerprint(Path(path))
    return Origin(**found, resets=[name for name in RESETS if cfg[name]])


def _origin(state: dict, last: Path) -> Origin:
    """The start of a checkpoint's run; fairseq's checkpoints have the last command."""
    if found := state.get("extra_state", {}).get(STARTED_FROM):
        return Origin(**found)
    checkpoint = (state.get("cfg") or {}).get("checkpoint") or {}
    asked = _asked({**dict.fromkeys((*SOURCES, *RESETS)), **checkpoint}, last)
    return Origin(**{**asdict(asked), "fingerprint": None})


def last_of(trainer) -> Path:
    """The checkpoint that a run resumes from."""
    folder = Path(trainer.cfg.checkpoint.save_dir)
    return folder / files.LAST.replace(".pt", f"{trainer.checkpoint_suffix}.pt")


def _read(path: Path) -> dict | None:
    """Read a checkpoint that may be damaged or vanish; checksums are compared later."""
    try:
        return read_checkpoint(path, mmap=True, compare_sums=False)
    except (ValueError, OSError):
        return None


def _resume(trainer, last: Path, state: dict, asked: Origin) -> Start:
    """Resume a run; ValueError if the command asks for another start than the run's."""
    before, updates = _origin(state, last), files.number_of_updates(state)
    if (state.get("extra_state") or {}).get("train_iterator", {}) is None:
        raise ValueError(
            f"{last} is of a training without fairseq; allowed: another --save-dir, "
            f"with --finetune-from-model {last}"
        )
    is_same = asked.is_same(before)
    if asked.options and not is_same:
        raise ValueError(
            f"{last} is of a run, at update {updates}, that started from "
            f"[{before}]; this command asks for [{asked}] and would overwrite it; "
            "allowed: another --save-dir, or a command without "
            + ", ".join(asked.options)
        )
    if is_same and len({asked.fingerprint, before.fingerprint} - {None}) > 1:
        logger.warning(
            "%s has changed since this run started from it; %s is resumed anyway. To "
            "start from the changed file, use another --save-dir",
            *(asked.restore_file or asked.finetune_from_model, last),
        )
    finished = _is_finished(state, trainer)
    if not finished and updates and state.get("last_optimizer_state") is None:
        raise ValueError(
            f"{last}, at update {updates}, has no optimizer state to resume "
            "(--no-save-optimizer-state); allowed: another --save-dir, with "
            f"--finetune-from-model {last}"
        )
    validated_by = () if finished else _validated_by(state, trainer)
    return Start(asdict(before), updates, finished, validated_by)


def _validated_by(state: dict, trainer) -> tuple[str, ...]:
    """Settings and data that differ between a checkpoint's validations and ours."""
    saved, found = plain(state.get("cfg")), []
    copied = {*plain(saved.get("dataset")), *plain(saved.get("common"))}
    sampled = SAMPLES if trainer.cfg.dataset.max_valid_steps else {}
    for group, names in (*VALIDATION.items(), *sampled.items()):
        old, new = plain(saved.get(group)), plain(getattr(trainer.cfg, group, None))
        if names is None:
            masks = {"seed"} if "mask_prob" in old else set()
            names = tuple(old.keys() - copied - {"data"} | masks)
        for name in sorted(old.keys() & new.keys() & set(names)):
            before, now = (_of_figure(name, each[name]) for each in (old, new))
            if before != now:
                found.append(f"{group}.{name}={before}")
    before = (state.get("extra_state") or {}).get(VALID_KEY)
    now = trainer.training_data.get(VALID_KEY)
    if None not in (before, now) and before != now:
        found.append(f"{VALID_KEY}={before}")
    return tuple(found)


def _of_figure(name: str, value: Any) -> Any:
    """The part of a setting that affects the figure: the first of several splits."""
    if name == "valid_subset":
        return value.partition(",")[0]
    return value.removeprefix("chunked_") if name == "_name" else value


def _is_finished(state: dict, trainer) -> str | None:
    """Why fairseq would have ended this run, or None; fairseq checks after updates."""
    extra = state.get("extra_state", {})
    if extra.get(UNVALIDATED) and state.get("last_optimizer_state") is not None:
        return None
    runs = extra.get(EARLY_STOPPING, {}).get("num_runs", 0)
    return reached(
        trainer.cfg,
        max_update=files.number_of_updates(state),
        max_epoch=(extra.get("train_iterator") or {}).get("epoch", 1) - 1,
        patience=0 if _validated_by(state, trainer) else runs,
        stop_time_hours=extra.get("previous_training_time", 0) / 3600,
    )


def reached(cfg, **done: float) -> str | None:
    """The first limit of fairseq's settings that is reached, as a text, or None.

    Args:
        done: the current values, by the names of the limits.
    """
    for name, so_far in done.items():
        limit = (cfg.checkpoint if name == "patience" else cfg.optimization)[name] or 0
        if 0 < limit <= so_far:
            unit = name.rpartition("_")[2]
            return f"{unit} {round(so_far, 2)} of {name}={limit}"
    return None

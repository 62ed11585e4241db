"""Which checkpoint a run starts from: the same command again resumes.

fairseq starts from --restore-file and with --reset-* at every start, so that a command
that has them would throw away, and overwrite, what it trained before.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.file_io import PathManager

from ..checkpoints.files import (
    LAST,
    fingerprint,
    is_whole,
    newest_whole,
    number_of_updates,
    put_aside,
    remove_parts,
    repair_last_checkpoint,
)
from ..checkpoints.identity import VALID_KEY
from ..checkpoints.safe_loading import read_checkpoint
from ..data.whole_files import copy_whole
from .folder_lock import FolderLock
from .same_run import plain

logger = logging.getLogger(__name__)

# in the extra_state of every checkpoint: what the run was first started from, and
# since when no validation was better
STARTED_FROM = "started_from"
EARLY_STOPPING = "early_stopping"
RESETS = ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader")
SOURCES = ("restore_file", "finetune_from_model")
# by group, what decides which figure of a validation is the best, and what changes it:
# of criterion and task all but where the data are and what fairseq copies there
VALIDATION: dict[str, tuple[str, ...] | None] = {
    "checkpoint": ("best_checkpoint_metric", "maximize_best_checkpoint_metric"),
    "dataset": (
        *("valid_subset", "max_valid_steps", "skip_invalid_size_inputs_valid_test"),
    ),
    "criterion": None,
    "task": None,
}


@dataclass(frozen=True)
class Start:
    """Where a run starts, as the first rank has found it for all.

    Attributes:
        started_from: for the checkpoints of this run; see ``requested``.
        updates: of the checkpoint that is resumed, or None at a fresh start.
        finished: why nothing is left to do, or None.
        validated_by: settings and data by which the checkpoint's validations were
            another figure than this command's are, as texts.
    """

    started_from: dict
    updates: int | None = None
    finished: str | None = None
    validated_by: tuple[str, ...] = ()


def choose_start(trainer, lock: FolderLock) -> Start:
    """Look at the folder, lock it, and see to it that checkpoint_last.pt is whole, and
    there if the run has another.

    Shards of a model, which have a suffix each, are not repaired: they must be of the
    same update.

    Raises:
        ValueError: the folder is in use, its checkpoint is of a run that started from
            something else, or none in it is whole.
    """
    cfg, last = trainer.cfg.checkpoint, last_of(trainer)
    request = requested(cfg, last, trainer.checkpoint_suffix)
    if cfg.no_save and _asks_for_more(request):
        return _begin(trainer, request)  # as fairseq does: nothing is overwritten
    state = _read(last)
    if state is not None and _is_finished(state, trainer) and is_whole(last):
        return _resume(trainer, last, state, request)
    if cfg.no_save:
        return Start(request)
    if lock.hold():
        remove_parts(Path(cfg.save_dir))
    is_shard = bool(trainer.checkpoint_suffix)
    if not is_shard:
        used = repair_last_checkpoint(Path(cfg.save_dir))
        if used is not None:
            logger.warning(
                "%s was damaged and is kept as %s.damaged; resuming from %s, the "
                "newest checkpoint that is whole",
                *(last, LAST, used),
            )
    if not is_shard and (cfg.no_last_checkpoints or not last.exists()):
        _make_up_for(last, request)
    if not last.exists():
        return _begin(trainer, request)
    # again: another run may have written it until the lock was ours; the sums of what
    # is no shard have just been compared
    state = read_checkpoint(last, mmap=True, compare_sums=is_shard)
    return _resume(trainer, last, state, request)


def _begin(trainer, request: dict) -> Start:
    """A start from nothing, or from a checkpoint of another run."""
    file = request["restore_file"] or trainer.cfg.checkpoint.get("continue_once")
    state = _read(Path(file)) if file else None
    return Start(request, validated_by=_validated_by(state, trainer) if state else ())


def _make_up_for(last: Path, request: dict) -> None:
    """Put this run's newest checkpoint in the place of a last one that is not there.

    It may have been removed, the disk may have been full before the first was written,
    or the run has --no-last-checkpoints, which leaves what took its place as it is:
    fairseq would begin anew, over the others.
    """
    newest, damaged = newest_whole(last.parent)
    if newest is None:
        return
    state, there = read_checkpoint(newest, mmap=True), _read(last)
    if state.get("last_optimizer_state") is None:  # kept for its weights alone
        return
    if there is not None and number_of_updates(there) >= number_of_updates(state):
        return
    if _is_same(request, _started_from(state, last)):
        copy_whole(newest, last)
        put_aside(damaged)
        logger.warning(
            "%s is missing, or older; resuming from %s, the newest checkpoint that is "
            "whole. A new run needs another --save-dir",
            *(last, newest),
        )


def requested(cfg, last: Path, suffix: str = "") -> dict:
    """What a command asks a run to start from, besides its own last checkpoint.

    Args:
        cfg: fairseq's configuration ``checkpoint``.
        last: the run's own last checkpoint, which --restore-file may name, too.
        suffix: of a model's shards.

    Returns:
        ``restore_file`` and ``finetune_from_model``, absolute or None; the ``resets``;
        and the ``fingerprint`` of the file, None if it is not there.
    """
    request = {name: None for name in (*SOURCES, "fingerprint")}
    for name in SOURCES:
        path = cfg[name]
        if not path or (name == "restore_file" and path == LAST):
            continue
        if name == "restore_file" and suffix:
            path = path.replace(".pt", f"{suffix}.pt")
        if not PathManager.path_requires_pathmanager(path):
            path = os.path.abspath(path)
        if path != os.path.abspath(last):
            request[name] = path
            if os.path.isfile(path):
                request["fingerprint"] = fingerprint(Path(path))
    return {**request, "resets": [name for name in RESETS if cfg[name]]}


def last_of(trainer) -> Path:
    """The checkpoint that a run resumes from."""
    folder = Path(trainer.cfg.checkpoint.save_dir)
    return folder / LAST.replace(".pt", f"{trainer.checkpoint_suffix}.pt")


def _read(last: Path) -> dict | None:
    """A checkpoint that may be damaged, or away the next moment."""
    try:
        return read_checkpoint(last, mmap=True)
    except (ValueError, OSError):
        return None


def _resume(trainer, last: Path, state: dict, request: dict) -> Start:
    """Raises ValueError if the command asks for another start than the run had."""
    before = _started_from(state, last)
    updates = number_of_updates(state)
    if _asks_for_more(request) and not _is_same(request, before):
        raise ValueError(
            f"{last} is of a run, at update {updates}, that started from "
            f"{_described(before)}; this command asks for {_described(request)} and "
            "would overwrite it; allowed: another --save-dir (checkpoint.save_dir) for "
            f"a new run, or a command without {_options(request)} to resume this one"
        )
    if _is_same(request, before) and _changed(request, before):
        logger.warning(
            "%s has changed since this run started from it; %s is resumed all the "
            "same. A run that starts from it as it is now needs another --save-dir",
            request["restore_file"] or request["finetune_from_model"],
            last,
        )
    finished = _is_finished(state, trainer)
    validated_by = () if finished else _validated_by(state, trainer)
    if not finished and updates and "last_optimizer_state" not in state:
        raise ValueError(
            f"{last} has no optimizer state (--no-save-optimizer-state): at update "
            f"{updates}, it cannot be resumed; allowed: another --save-dir, and "
            f"--finetune-from-model {last} to start from its weights"
        )
    return Start(before, updates, finished, validated_by)


def _validated_by(state: dict, trainer) -> tuple[str, ...]:
    """What a checkpoint's validations were of, where it differs from the trainer's.

    fairseq takes the figure of the first of several splits.
    """
    saved, found = plain(state.get("cfg")), []
    copied = {*plain(saved.get("dataset")), *plain(saved.get("common"))}
    for group, names in VALIDATION.items():
        old, new = plain(saved.get(group)), plain(getattr(trainer.cfg, group, None))
        if names is None:
            masks = {"seed"} if "mask_prob" in old else set()
            names = tuple(old.keys() - copied - {"data"} | masks)
        elif group == "dataset" and new.get("max_valid_steps"):  # of how many texts
            names += ("batch_size_valid", "max_tokens_valid")
        for name in sorted(old.keys() & new.keys() & set(names)):
            if _of_figure(name, old[name]) != _of_figure(name, new[name]):
                found.append(f"{group}.{name}={_of_figure(name, old[name])}")
    before = (state.get("extra_state") or {}).get(VALID_KEY)
    now = trainer.training_data.get(VALID_KEY)
    if None not in (before, now) and before != now:
        found.append(f"{VALID_KEY}={before}")
    return tuple(found)


def _of_figure(name: str, value: Any) -> Any:
    """Of a setting, what bears on the figure of a validation."""
    if name == "valid_subset":
        return value.partition(",")[0]
    return value.removeprefix("chunked_") if name == "_name" else value


def _started_from(state: dict, last: Path) -> dict:
    """What a checkpoint's run started from; fairseq's own report the last command."""
    if found := state.get("extra_state", {}).get(STARTED_FROM):
        return found
    checkpoint = (state.get("cfg") or {}).get("checkpoint") or {}
    defaults = dict.fromkeys((*SOURCES, *RESETS))
    return {**requested({**defaults, **checkpoint}, last), "fingerprint": None}


def _asks_for_more(request: dict) -> bool:
    return bool(request["resets"]) or any(request[name] for name in SOURCES)


def _is_same(request: dict, before: dict) -> bool:
    if request["resets"] != before["resets"]:
        return False
    for name in SOURCES:
        if (request[name] is None) != (before[name] is None):
            return False
    return all(request[name] == before[name] for name in SOURCES) or (
        request["fingerprint"] is not None
        and request["fingerprint"] == before["fingerprint"]
    )


def _changed(request: dict, before: dict) -> bool:
    prints = {request["fingerprint"], before["fingerprint"]} - {None}
    return len(prints) > 1


def _described(request: dict) -> str:
    parts = [f"--{name.replace('_', '-')} {request[name]}" for name in SOURCES
             if request[name]]  # fmt: skip
    parts += [f"--{name.replace('_', '-')}" for name in request["resets"]]
    return " ".join(parts) or "nothing"


def _options(request: dict) -> str:
    names = [name for name in SOURCES if request[name]] + list(request["resets"])
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _is_finished(state: dict, trainer) -> str | None:
    """Why fairseq has ended this run, in a few words; None if it has not.

    fairseq itself looks after an update only, and at an epoch's start.
    """
    extra, cfg = state.get("extra_state", {}), trainer.cfg
    updates = number_of_updates(state)
    optimization, patience = cfg.optimization, cfg.checkpoint.patience
    if 0 < (optimization.max_update or 0) <= updates:
        return f"update {updates} of max_update={optimization.max_update}"
    epoch = extra.get("train_iterator", {}).get("epoch", 1)
    if 0 < (optimization.max_epoch or 0) < epoch:
        return f"all epochs of max_epoch={optimization.max_epoch}"
    runs = extra.get(EARLY_STOPPING, {}).get("num_runs", 0)
    if 0 < patience <= runs and not _validated_by(state, trainer):
        return f"no better for {runs} validations, patience={patience}"
    hours = extra.get("previous_training_time", 0) / 3600
    if 0 < (optimization.stop_time_hours or 0) < hours:
        return f"{hours:.2f} hours, stop_time_hours={optimization.stop_time_hours}"
    return None

"""Checks of the checkpoints that fairseq reads, and what they record of their data."""

from __future__ import annotations

import atexit
import inspect
import os
import shutil
import tarfile
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from fairseq.file_io import PathManager
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.utils import split_paths
from omegaconf import OmegaConf, open_dict

from ..checkpoints import identity as known
from ..checkpoints import safe_loading
from ..checkpoints.added_fields import fill_in
from ..checkpoints.fairseq_vanilla import convert
from ..checkpoints.safe_loading import CheckpointError, error_line
from ..data import REPORT
from ..data.fingerprints import split_fingerprint
from ..data.labelled_texts import SentenceData
from ..data.subword_files import MASK, subword_sha256
from .literal_values import evaluate

# of classification heads, which upgrade_state_dict_named fits to the model
HEADS = "classification_heads."


def check_and_load(load, path, arg_overrides=None, *arguments, **keywords):
    """Around checkpoint_utils.py, load_checkpoint_to_cpu: a bare ``torch.load``."""
    # remote files have been fetched before
    local = Path(PathManager.get_local_path(path))
    safe_loading.read_checkpoint(local, mmap=True)
    state = load(path, arg_overrides, *arguments, **keywords)
    # Hydra unquotes texts: what comes out of it is not what went in
    safe_loading.check_settings(local, state, arg_overrides)
    model = (state.get("cfg") or {}).get("model")
    if OmegaConf.is_dict(model):
        with open_dict(model):
            fill_in(model)
            convert(state)
    files, states = _LOADING[-1] if _LOADING else ([], [])
    # shards are named after the file that was asked for; a model may read others
    if str(path).startswith(tuple(each.removesuffix(".pt") for each in files)):
        states.append((str(path), _noted(state)))
    return state


def identity(trainer) -> dict[str, Any]:
    """The entries of a checkpoint's extra_state on the dictionary and the data."""
    named = training_data(trainer)
    dictionary = known.task_dictionary(trainer.task)
    if dictionary is not None:
        named = named | {known.KEY: known.identity_of(dictionary)}
    name = getattr(trainer.task, "data_name", None)
    return named if name is None else named | {known.NAME_KEY: name}


def training_data(trainer) -> dict[str, Any]:
    """Fingerprints of the training and first valid split, subword files and labels.

    They are those of the first call, before training opened the files.
    """
    if not hasattr(trainer, "training_data"):
        data = getattr(trainer.cfg.task, "data", None)
        folders = training_folders(trainer.task, data)
        found = labels_of(trainer.task)
        if folders:
            split = trainer.cfg.dataset.train_subset
            found[known.DATA_KEY] = split_fingerprint(folders, split)
            found[known.UNITS_KEY] = subword_sha256(folders[0]) or None
            own = getattr(trainer.task, "training_folders", None)
            split = trainer.cfg.dataset.valid_subset.partition(",")[0]
            found[known.VALID_KEY] = split_fingerprint(own or folders[:1], split)
        trainer.training_data = {k: v for k, v in found.items() if v is not None}
    return trainer.training_data


def labels_of(task) -> dict[str, Any]:
    """The labels of a fine-tuning, or the scale of its scores, and its length."""
    if not isinstance(task, SentencePredictionTask):
        return {}
    labels, cfg, found = task.label_dictionary, task.cfg, {}
    if (Path(cfg.data) / REPORT).is_file():
        data = SentenceData.read(cfg.data)
        found[known.LENGTH_KEY] = data.max_positions
        if cfg.regression_target:
            found[known.SCALE_KEY] = data.target_scale
    if not cfg.regression_target:
        names = [name for name in labels.symbols[labels.nspecial :] if name != MASK]
        found[known.LABELS_KEY] = names[: cfg.num_classes]
    return found


def training_folders(task, data: str | None) -> list[Path]:
    """``task.training_folders``, or those in ``data``, separated by colons."""
    own = getattr(task, "training_folders", None)
    return own or [Path(each) for each in split_paths(data or "") if each]


# the files that load_model_ensemble_and_task was asked for, and what was noted of each
_LOADING: list[tuple[list[str], list[tuple[str, dict[str, Any]]]]] = []


def check_loaded_models(load, *arguments, **keywords):
    """Around ``load_model_ensemble_and_task``: check what fairseq's commands load.

    Some commands pass a task.
    """
    given = inspect.signature(load).bind(*arguments, **keywords).arguments
    files, state = list(map(str, given["filenames"])), given.get("state")
    states = [] if state is None else [(files[0], _noted(state))]
    _LOADING.append((files, states))
    try:
        ensemble, cfg, task = load(*arguments, **keywords)
    except CheckpointError:
        raise
    # fairseq raises what the misfit happens to lead to
    except Exception as error:
        _compare(states, given.get("task"))
        raise CheckpointError(
            f"{', '.join(files)}: cannot be loaded ({error_line(error)}); allowed: "
            "weights and settings of one model"
        ) from error
    finally:
        _LOADING.pop()
    _compare(states, task)
    for path, state in states:
        _check_overrides(given, state["names"], path)
        for model in ensemble if path in files else ():
            _check_heads(model, state["heads"], path)
            for name, x in model.state_dict().items():
                # of a tied matrix the file may have two
                wrong = name in state["wrong"] or not _are_finite_floats(x)
                if x.is_floating_point() and wrong:
                    raise CheckpointError(f"{path}: {name}; allowed: finite floats")
    return ensemble, cfg, task


def _check_overrides(given: Mapping[str, Any], names: set[str], path: str) -> None:
    """Refuse a name in --model-overrides that is no setting: fairseq ignores it."""
    overrides = given.get("arg_overrides") or {}
    if "model_overrides" in overrides:  # fairseq-validate gives all of its options
        overrides = evaluate(overrides["model_overrides"])
    elif given.get("task") is None:  # from_pretrained gives what its caller says
        return
    unknown = sorted(set(overrides) - names)
    if names and unknown:
        close = [each for name in unknown for each in get_close_matches(name, names)]
        raise CheckpointError(
            f"model_overrides: {', '.join(unknown)}: not among the settings of {path}; "
            f"allowed: the fields of its configuration, such as {', '.join(close)}"
        )


def _names(settings: Any) -> Iterator[str]:
    if isinstance(settings, Namespace):  # has what was overridden, too
        settings = vars(settings)
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        yield name
        yield from _names(value)


def _check_heads(model, stored: Mapping[str, torch.Size], path: str) -> None:
    """Refuse a classification head that the checkpoint lacks: it would be random."""
    own = {name: x.shape for name, x in model.state_dict().items() if HEADS in name}
    if own.items() - stored.items():
        here, there = (
            ", ".join(
                f"{head_of(name)} of {shape[0]} outputs"
                for name, shape in each.items()
                if name.endswith("out_proj.weight")
            )
            for each in (own, stored)
        )
        raise CheckpointError(
            f"{path} has no classification head {here}, but {there or 'none'}; "
            "allowed: its own task.classification_head_name and task.num_classes"
        )


def _noted(state: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a checkpoint that are compared, without its weights."""
    weights = state.get("model") or {}
    heads = {name: x.shape for name, x in weights.items() if HEADS in name}
    wrong = {n for n, x in weights.items() if not _are_finite_floats(x)}
    cfg = state.get("cfg")
    names = {*_names(OmegaConf.to_container(cfg) if OmegaConf.is_dict(cfg) else cfg)}
    extra = state.get("extra_state")
    return {"heads": heads, "wrong": wrong, "names": names, "extra_state": extra}


def _are_finite_floats(x: torch.Tensor) -> bool:
    return x.is_floating_point() and bool(x.isfinite().all())


def _compare(states: list[tuple[str, dict[str, Any]]], task) -> None:
    """Refuse another dictionary, other data and other labels than the checkpoints'."""
    dictionary, found = known.task_dictionary(task), labels_of(task)
    labels, scale = found.get(known.LABELS_KEY), found.get(known.SCALE_KEY)
    for path, state in states:
        said = known.said_by(state)
        if dictionary is not None:
            known.check_dictionary(said, dictionary, path)
        name = getattr(task, "data_name", None)
        known.compare(said, {known.NAME_KEY: name}, path, "data of the same name")
        known.check_labels(said, labels, scale, path)


def head_of(name: str) -> str:
    """The head's name, of one of its weights."""
    return name.partition(HEADS)[2].partition(".")[0]


def load_archive(load, archive_file: str) -> str:
    """Around file_utils.py, ``load_archive_file``: unpack local archives safely.

    Returns:
        the folder with the archive's files, which is removed when this process ends.

    Raises:
        CheckpointError: the file is not a complete tar archive, does not fit on the
            disk, or has members other than files and folders inside of it.
    """
    if not os.path.isfile(archive_file):
        return load(archive_file)
    folder = Path(tempfile.mkdtemp(prefix="model_archive_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with tarfile.open(archive_file) as archive:
            archive.extractall(folder, filter=_without_links)
    # tarfile and what decompresses raise what the damage happens to lead to
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CheckpointError(
            f"{archive_file}: neither a folder nor a whole tar archive of files and "
            f"folders ({error_line(error)})"
        ) from error
    found = list(folder.iterdir())
    # an archive of a folder, as they are usually made
    return str(found[0] if len(found) == 1 and found[0].is_dir() else folder)


def _without_links(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    if member.issym() or member.islnk():  # "data" allows them inside
        raise CheckpointError(f"{member.name!r} is a link")
    return tarfile.data_filter(member, folder)

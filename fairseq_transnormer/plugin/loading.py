"""Checkpoints and archives that fairseq reads are looked at first.

And what a checkpoint says of the data that it was trained on.
"""

from __future__ import annotations

import ast
import atexit
import inspect
import os
import shutil
import tarfile
import tempfile
from argparse import Namespace
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from fairseq.file_io import PathManager
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.utils import split_paths
from omegaconf import OmegaConf, open_dict

from ..checkpoints.added_fields import fill_in
from ..checkpoints.fairseq_vanilla import convert
from ..checkpoints.identity import (
    DATA_KEY,
    KEY,
    LABELS_KEY,
    NAME_KEY,
    SCALE_KEY,
    UNITS_KEY,
    VALID_KEY,
    check_data_name,
    check_dictionary,
    check_labels,
    identity_of,
    task_dictionary,
)
from ..checkpoints.safe_loading import (
    CheckpointError,
    check_settings,
    error_line,
    read_checkpoint,
)
from ..data import REPORT
from ..data.fingerprints import split_fingerprint
from ..data.labelled_texts import SentenceData
from ..data.subword_files import MASK, subword_sha256

# of classification heads, which upgrade_state_dict_named fits to the model
HEADS = "classification_heads."
ANY_NAME = "*"


def check_and_load(load, path, arg_overrides=None, *arguments, **keywords):
    """Around checkpoint_utils.py, load_checkpoint_to_cpu: a bare ``torch.load``.

    torch refuses fairseq's configuration objects there, so that resuming with several
    workers fails; and its error does not say what to do.
    """
    # files that are elsewhere have been fetched by then
    local = Path(PathManager.get_local_path(path))
    read_checkpoint(local, mmap=True)
    state = load(path, arg_overrides, *arguments, **keywords)
    if _LOADING and _is_asked_for(path, _LOADING[-1]) and state.get("cfg") is not None:
        _check_overrides(path, _LOADING[-1].overrides, state["cfg"])
    # Hydra unquotes texts: what comes out of it is not what went in
    check_settings(local, state, arg_overrides)
    model = (state.get("cfg") or {}).get("model")
    if OmegaConf.is_dict(model):
        with open_dict(model):
            fill_in(model)
            convert(state)
    if _LOADING and _is_asked_for(path, _LOADING[-1]):
        _LOADING[-1].states.append((str(path), _noted(state)))
        _compare(_LOADING[-1])
    return state


def identity(trainer) -> dict[str, Any]:
    """What a checkpoint's extra_state says of the dictionary and the data."""
    named = training_data(trainer)
    dictionary = task_dictionary(trainer.task)
    if dictionary is not None:
        named = named | {KEY: identity_of(dictionary)}
    name = getattr(trainer.task, "data_name", None)
    return named if name is None else named | {NAME_KEY: name}


def training_data(trainer) -> dict[str, Any]:
    """``split_fingerprint`` of training and first valid split, subword files, labels.

    As they were when this was first asked for, before training opened them: files that
    take their place meanwhile are not those that it reads.
    """
    if not hasattr(trainer, "training_data"):
        data = getattr(trainer.cfg.task, "data", None)
        folders = training_folders(trainer.task, data)
        found = labels_of(trainer.task)
        if folders:
            split = trainer.cfg.dataset.train_subset
            found[DATA_KEY] = split_fingerprint(folders, split)
            found[UNITS_KEY] = subword_sha256(folders[0]) or None
            own = getattr(trainer.task, "training_folders", None)
            split = trainer.cfg.dataset.valid_subset.partition(",")[0]
            found[VALID_KEY] = split_fingerprint(own or folders[:1], split)
        trainer.training_data = {k: v for k, v in found.items() if v is not None}
    return trainer.training_data


def labels_of(task) -> dict[str, Any]:
    """The names of a fine-tuning's labels, or the scale of its scores."""
    if not isinstance(task, SentencePredictionTask):
        return {}
    labels, cfg = task.label_dictionary, task.cfg
    if not cfg.regression_target:
        names = [name for name in labels.symbols[labels.nspecial :] if name != MASK]
        return {LABELS_KEY: names[: cfg.num_classes]}
    if (Path(cfg.data) / REPORT).is_file():
        return {SCALE_KEY: SentenceData.read(cfg.data).target_scale}
    return {}


def training_folders(task, data: str | None) -> list[Path]:
    """Where the training data are: a task may say which folders in ``data`` it reads.

    Args:
        task: fairseq's; with ``training_folders``, a list, if it reads some alone.
        data: folders, with colons between them, as fairseq takes them.
    """
    own = getattr(task, "training_folders", None)
    return own or [Path(each) for each in split_paths(data or "") if each]


@dataclass
class _Loading:
    """Models that fairseq is loading: of which files, with which settings changed by
    --model-overrides, and with whose dictionary."""

    filenames: list[str]
    task: Any
    overrides: frozenset[str] = frozenset()
    states: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


_LOADING: list[_Loading] = []


def check_loaded_models(load, *arguments, **keywords):
    """Around checkpoint_utils.py, ``load_model_ensemble_and_task``.

    All of fairseq's commands that read a model call it; some bring a task with them,
    for others it makes the one that the checkpoint names.
    """
    given = inspect.signature(load).bind(*arguments, **keywords).arguments
    names = list(map(str, given["filenames"]))
    loading = _Loading(names, given.get("task"), _overrides(given))
    if given.get("state") is not None:
        loading.states.append((loading.filenames[0], _noted(given["state"])))
        _compare(loading)
    _LOADING.append(loading)
    try:
        ensemble, cfg, task = load(*arguments, **keywords)
    except CheckpointError:
        raise
    # fairseq raises what the misfit happens to lead to
    except Exception as error:
        raise CheckpointError(
            f"{', '.join(names)}: cannot be loaded ({error_line(error)}); allowed: "
            "weights and settings of one model"
        ) from error
    finally:
        _LOADING.pop()
    loading.task = task
    _compare(loading)
    for path, state in loading.states:
        for model in ensemble if path in loading.filenames else ():
            _check_heads(model, state["heads"], path)
            _check_numbers(model, state["wrong"], path)
    return ensemble, cfg, task


def _overrides(given: Mapping[str, Any]) -> frozenset[str]:
    """The names in --model-overrides, by what a command gives to the loader.

    fairseq-validate gives all of its options, and ``from_pretrained``, which has no
    task, what its caller and the files beside the checkpoint say.
    """
    overrides = given.get("arg_overrides") or {}
    if "model_overrides" in overrides:
        try:
            overrides = ast.literal_eval(overrides["model_overrides"])
        except (ValueError, SyntaxError):  # the command evaluates more
            return frozenset()
    elif given.get("task") is None:
        return frozenset()
    return frozenset(map(str, overrides))


def _check_overrides(path: Any, overrides: frozenset[str], cfg: Any) -> None:
    """Refuse a name that is in no group: fairseq changes nothing, and says nothing."""
    known = set(_names(OmegaConf.to_container(cfg) if OmegaConf.is_dict(cfg) else cfg))
    unknown = sorted(overrides - known)
    if unknown and ANY_NAME not in known:
        close = [n for u in unknown for n in get_close_matches(u, known)]
        raise ValueError(
            f"model_overrides: {', '.join(unknown)}: no setting that {path} was saved "
            "with; allowed: the fields of its configuration "
            f"({', '.join(close) or 'none'} of a similar name)"
        )


def _names(settings: Any) -> Iterator[str]:
    if isinstance(settings, Namespace):  # fairseq sets anything in it
        yield ANY_NAME
    elif isinstance(settings, Mapping):
        for name, value in settings.items():
            yield str(name)
            yield from _names(value)


def _check_heads(model, stored: Mapping[str, torch.Size], path: str) -> None:
    """Refuse a classification head that is not the checkpoint's: it is a random one.

    fairseq drops one of another size with a warning, and keeps the model's fresh one.
    """
    own = {name: x.shape for name, x in model.state_dict().items() if HEADS in name}
    fresh = [name for name, shape in own.items() if stored.get(name) != shape]
    if not fresh:
        return
    outputs = {
        head_of(name): shape[0]
        for name, shape in stored.items()
        if name.endswith("out_proj.weight")
    }
    found = ", ".join(f"{name} of {n} outputs" for name, n in outputs.items())
    raise CheckpointError(
        f"{path}: no classification head {head_of(fresh[0])} of "
        f"{own[fresh[0]][0]} outputs in it, but {found or 'none'}; allowed: its own "
        "task.classification_head_name and task.num_classes"
    )


def _check_numbers(model, wrong: Container[str], path: str) -> None:
    """Refuse weights that are NaN or infinite, or were saved as whole numbers."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            # of a tied matrix the file may have two
            if name in wrong or not _are_finite_floats(tensor):
                raise CheckpointError(f"{path}: {name}; allowed: finite floats")


def _is_asked_for(path: Any, loading: _Loading) -> bool:
    # shards are named after the file that was asked for; a model may read others
    return str(path).startswith(tuple(n.removesuffix(".pt") for n in loading.filenames))


def _noted(state: Mapping[str, Any]) -> dict[str, Any]:
    """Of a checkpoint what is compared, without its weights."""
    weights = state.get("model") or {}
    heads = {name: x.shape for name, x in weights.items() if HEADS in name}
    wrong = {n for n, x in weights.items() if not _are_finite_floats(x)}
    return {"extra_state": state.get("extra_state"), "heads": heads, "wrong": wrong}


def _are_finite_floats(x: torch.Tensor) -> bool:
    return x.is_floating_point() and bool(x.isfinite().all())


def _compare(loading: _Loading) -> None:
    if loading.task is None:
        return
    dictionary = task_dictionary(loading.task)
    for path, state in loading.states:
        if dictionary is not None:
            check_dictionary(state, dictionary, path)
        check_data_name(state, getattr(loading.task, "data_name", None), path)
        found = labels_of(loading.task)
        check_labels(state, found.get(LABELS_KEY), found.get(SCALE_KEY), path)


def head_of(name: str) -> str:
    """The head's name, of one of its weights."""
    return name.partition(HEADS)[2].partition(".")[0]


def load_archive(load, archive_file: str) -> str:
    """Around file_utils.py, ``load_archive_file``: local archives stay, and are safe.

    Folders, names that are not there, and addresses of downloads are left to it.

    Returns:
        the folder with the archive's files; it lives as long as this process.

    Raises:
        CheckpointError: it is no whole tar archive, does not fit on the disk, or has
            members other than files and folders inside of it.
    """
    if not os.path.isfile(archive_file):
        return load(archive_file)
    folder = Path(tempfile.mkdtemp(prefix="model_archive_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with tarfile.open(archive_file) as archive:
            archive.extractall(folder, filter=_file_or_folder)
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


def _file_or_folder(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The filter "data", without the links that it allows."""
    if not (member.isdir() or member.isreg()):
        raise CheckpointError(f"{member.name!r} is a link, a device or the like")
    return tarfile.data_filter(member, folder)

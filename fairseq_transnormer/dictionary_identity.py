"""Which dictionary a checkpoint was trained with: kept in it, compared by readers.

Embeddings mean nothing beside another dictionary, and one of equal size passes every
look at shapes. Checkpoints hold the hash of their symbols; those without it, of other
programs, pass, unless their data's ``report.json`` disagrees.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .fingerprints import file_sha256
from .safe_loading import CheckpointError

# its place in a checkpoint: state["extra_state"][KEY]
KEY = "dictionary_sha256"
# fairseq puts these in front of every dictionary
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
# masked_lm and sentence_prediction append it to the dictionary of their data
MASK = "<mask>"
REPORT = "report.json"


def dictionary_sha256(symbols: Sequence[str], special: int = len(SPECIAL)) -> str:
    """SHA-256 of a dictionary's symbols in their order, in hexadecimal.

    Args:
        symbols: of tokens 0, 1, ...; a ``<mask>`` after all others is left out, since
            some tasks append it and dict.txt does not have it.
        special: how many of them fairseq put in front of those of dict.txt.
    """
    symbols = list(symbols)
    if symbols and symbols[-1] == MASK:
        symbols.pop()
    content = json.dumps([special, symbols], separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def _identity(dictionary: Any) -> str:
    special = getattr(dictionary, "nspecial", len(SPECIAL))
    return dictionary_sha256(dictionary.symbols, special)


def saved_identity(state: Mapping[str, Any]) -> str | None:
    """The hash of the dictionary that a checkpoint names; None if it names none."""
    extra = state.get("extra_state")
    return extra.get(KEY) if isinstance(extra, Mapping) else None


def check_dictionary(state: Mapping[str, Any], dictionary: Any, path: Any) -> None:
    """Refuse a dictionary other than the one that a checkpoint was trained with.

    Args:
        state: the checkpoint, as ``read_checkpoint`` or fairseq's loader returns it.
        dictionary: has ``symbols`` and, as fairseq's ``Dictionary``, ``nspecial``.
        path: of the checkpoint, for the message.

    Raises:
        CheckpointError: the checkpoint says that it was trained with another one.
    """
    trained_with = saved_identity(state)
    if trained_with is None:
        return
    found = _identity(dictionary)
    if found != trained_with:
        raise CheckpointError(
            f"{path}: trained with another dictionary: its {KEY} is {trained_with}, "
            f"that of the dictionary here, of {len(dictionary.symbols)} entries, is "
            f"{found}; allowed: the dictionary of its training, in the same order"
        )


def check_dictionary_file(dictionary: Path) -> None:
    """Refuse a dict.txt that is not the one which ``data_prep`` reports beside it.

    Raises:
        CheckpointError: it was changed after the data was prepared.
    """
    folder = dictionary.parent
    # input0/dict.txt of a folder of labelled texts has its report above
    for place, name in (
        (folder, dictionary.name),
        (folder.parent, f"{folder.name}/{dictionary.name}"),
    ):
        try:
            report = json.loads((place / REPORT).read_text(encoding="utf-8"))
            reported = report["files"][name]["sha256"]
        # no report, or none of data_prep: nothing to compare with
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            continue
        found = file_sha256(dictionary)
        if found != reported:
            raise CheckpointError(
                f"{dictionary}: changed after the data was prepared: its SHA-256 is "
                f"{found}; allowed, by {place / REPORT}: {reported}"
            )


def task_dictionary(task: Any) -> Any:
    """The dictionary of a fairseq task's inputs; None where it has no such one."""
    try:
        dictionary = task.source_dictionary
    # several languages, or none of it
    except (NotImplementedError, AttributeError):
        return None
    return dictionary if hasattr(dictionary, "symbols") else None


def save_identity(state_dict, trainer) -> dict[str, Any]:
    """Around ``Trainer.state_dict``: the checkpoint names its dictionary."""
    state = state_dict(trainer)
    dictionary = task_dictionary(trainer.task)
    if dictionary is not None:
        state["extra_state"][KEY] = _identity(dictionary)
    return state


@dataclass
class _Loading:
    """Models that fairseq is loading: of which files, and with whose dictionary."""

    filenames: list[str]
    task: Any
    states: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


_LOADING: list[_Loading] = []


def check_loaded_models(load, *arguments, **keywords):
    """Around checkpoint_utils.py, ``load_model_ensemble_and_task``.

    All of fairseq's commands that read a model call it; some bring a task with them,
    for others it makes the one that the checkpoint names.
    """
    given = inspect.signature(load).bind(*arguments, **keywords).arguments
    loading = _Loading(list(map(str, given["filenames"])), given.get("task"))
    if given.get("state") is not None:
        loading.states.append((loading.filenames[0], given["state"]))
        _compare(loading)
    _LOADING.append(loading)
    try:
        ensemble, cfg, task = load(*arguments, **keywords)
    finally:
        _LOADING.pop()
    loading.task = task
    _compare(loading)
    return ensemble, cfg, task


def note_loaded_checkpoint(path: str, state: Mapping[str, Any]) -> None:
    """Compare a checkpoint that fairseq has read for models with their dictionary."""
    if not _LOADING:
        return
    loading = _LOADING[-1]
    # shards are named after the file that was asked for; a model may read others
    if str(path).startswith(tuple(n.removesuffix(".pt") for n in loading.filenames)):
        loading.states.append((str(path), {"extra_state": state.get("extra_state")}))
        _compare(loading)


def _compare(loading: _Loading) -> None:
    dictionary = None if loading.task is None else task_dictionary(loading.task)
    if dictionary is not None:
        for path, state in loading.states:
            check_dictionary(state, dictionary, path)

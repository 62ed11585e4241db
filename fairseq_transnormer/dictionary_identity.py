"""Which dictionary a checkpoint was trained with: kept in it, compared by readers.

Embeddings mean nothing beside another dictionary, and one of equal size passes every
look at shapes. Checkpoints hold the hash of their symbols; those without it, of other
programs, pass, unless their data's ``report.json`` disagrees.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .safe_loading import CheckpointError

# its place in a checkpoint: state["extra_state"][KEY]
KEY = "dictionary_sha256"
# masked_lm and sentence_prediction append it to the dictionary of their data
MASK = "<mask>"
REPORT = "report.json"


def dictionary_sha256(symbols: Sequence[str], special: int = 4) -> str:
    """SHA-256 of a dictionary's symbols in their order, in hexadecimal.

    Args:
        symbols: of tokens 0, 1, ...; a ``<mask>`` behind all others is left out, since
            some tasks append it and dict.txt does not have it.
        special: how many of them fairseq put in front of those of dict.txt.
    """
    symbols = list(symbols)
    if symbols and symbols[-1] == MASK:
        symbols.pop()
    content = json.dumps([special, symbols], separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def check_dictionary(state: Mapping[str, Any], dictionary: Any, path: Any) -> None:
    """Refuse a dictionary other than the one that a checkpoint was trained with.

    Args:
        state: the checkpoint, as ``read_checkpoint`` or fairseq's loader returns it.
        dictionary: has ``symbols`` and, as fairseq's ``Dictionary``, ``nspecial``.
        path: of the checkpoint, for the message.

    Raises:
        CheckpointError: the checkpoint says that it was trained with another one.
    """
    extra = state.get("extra_state")
    trained_with = extra.get(KEY) if isinstance(extra, Mapping) else None
    if trained_with is None:
        return
    found = dictionary_sha256(dictionary.symbols, getattr(dictionary, "nspecial", 4))
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
    try:
        report = json.loads((dictionary.parent / REPORT).read_text(encoding="utf-8"))
        reported = report["files"][dictionary.name]["sha256"]
    # no report, or none of data_prep: nothing to compare with
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return
    found = hashlib.sha256(dictionary.read_bytes()).hexdigest()
    if found != reported:
        raise CheckpointError(
            f"{dictionary}: changed after the data was prepared: its SHA-256 is "
            f"{found}; allowed, by {REPORT} beside it: {reported}"
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
        state["extra_state"][KEY] = dictionary_sha256(
            dictionary.symbols, getattr(dictionary, "nspecial", 4)
        )
    return state

"""The identity of a checkpoint: SHA-256 of its weights, and its dictionary and labels.

With another dictionary of equal size all shapes match, but embeddings have another
meaning. The same holds for other subword units and another order of labels. So
checkpoints record the hash of their symbols, hashes of their subword files and the
names of their labels. Checkpoints of other programs lack them, and pass unless their
data's ``report.json`` disagrees.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import REPORT
from ..data.fingerprints import file_sha256, remembered
from ..data.subword_files import SPECIAL, dictionary_sha256, named_units, pieces_of
from .safe_loading import CheckpointError, read_checkpoint

# keys of a checkpoint's record; see ``said_by``
KEY = "dictionary_sha256"
DATA_KEY = "train_data_sha256"
VALID_KEY = "valid_data_sha256"  # of the split by which the best is chosen
NAME_KEY = "data_name"
UNITS_KEY = "subword_files_sha256"  # by name
LABELS_KEY = "labels"  # of the classes, in their order
SCALE_KEY = "target_scale"  # what the scores of a regression were divided by
LENGTH_KEY = "max_positions"  # tokens to which the data's texts were cut
# keys that must agree for a run to resume
OF_TRAINING = (DATA_KEY, UNITS_KEY, LABELS_KEY, SCALE_KEY)
# with a smaller share of its subwords in a dictionary, a sentencepiece model is foreign
KNOWN_SUBWORDS = 0.5


def identity_of(dictionary: Any) -> str:
    """``dictionary_sha256`` of a fairseq ``Dictionary``."""
    special = getattr(dictionary, "nspecial", len(SPECIAL))
    return dictionary_sha256(dictionary.symbols, special)


def said_by(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A checkpoint's record, by key: its ``extra_state``, if it has one."""
    extra = state.get("extra_state")
    return extra if isinstance(extra, Mapping) else {}


def compare(
    said: Mapping[str, Any], here: Mapping[str, Any], path: Any, allowed: str
) -> None:
    """Refuse values that differ from a checkpoint's record.

    Args:
        said: the record; keys that it lacks, as in earlier versions, pass.
        here: key -> value here; None if there is none.
        path: of the checkpoint, for the message.
        allowed: for the message.

    Raises:
        CheckpointError: a value differs, or labels are in another order.
    """
    for key, found in here.items():
        before = said.get(key)
        if None not in (before, found) and before != found:
            raise CheckpointError(
                f"{path}: its {key} is {str(before)[:200]}, here it is "
                f"{str(found)[:200]}; allowed: {allowed}"
            )


def check_labels(
    said: Mapping[str, Any], labels: list[str] | None, scale: float | None, path: Any
) -> None:
    """``compare`` of a fine-tuning's labels, or of the scale of its scores."""
    here = {LABELS_KEY: labels, SCALE_KEY: scale}
    compare(said, here, path, "those of the fine-tuning, in the same order")


def check_dictionary(said: Mapping[str, Any], dictionary: Any, path: Any) -> None:
    """``compare`` of a dictionary: ``symbols`` and, as in fairseq, ``nspecial``."""
    here = {KEY: identity_of(dictionary)}
    compare(said, here, path, "the dictionary of its training, in the same order")


def saved_units(said: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the subword files that a checkpoint names, by name; {} if none."""
    found = said.get(UNITS_KEY)
    return found if isinstance(found, dict) else {}


def check_units(
    saved: Mapping[str, str],
    files: Sequence[Path],
    dictionary: Any,
    data: Path,
    path: Any,
) -> None:
    """Refuse subword files other than those of the training.

    Args:
        saved: ``saved_units`` of the checkpoint. Without them, the report in ``data``
            must agree, or most subwords of a sentencepiece model be in the dictionary.
        files: the result of ``find_subword_files``.
        dictionary: has ``symbols``.
        data: folder of the dictionary.
        path: of the checkpoint, for the message.

    Raises:
        CheckpointError: they are other files, or damaged.
    """
    for name, file in named_units(files).items():
        found = file_sha256(file)
        if not saved:
            check_reported_file(data, name, file)
        elif saved.get(name) != found:
            raise CheckpointError(
                f"{file}: not what {path} was trained with, or damaged: its SHA-256 is "
                f"{found}; allowed: {saved}"
            )
    if saved or len(files) != 1:
        return
    try:
        subwords = pieces_of(files[0])
    except ImportError:  # code that divides a text needs the package, and says so
        return
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    missing = len({*subwords} - {*dictionary.symbols})
    if missing > (1 - KNOWN_SUBWORDS) * len(subwords):
        raise CheckpointError(
            f"{files[0]}: {missing:,} of its {len(subwords):,} subwords are not in the "
            f"dict.txt of {data}; allowed: the sentencepiece model of the training of "
            f"{path}"
        )


def check_dictionary_file(dictionary: Path) -> None:
    """Refuse a dict.txt that differs from the report of ``data_prep``.

    Raises:
        CheckpointError: it has changed since the data were prepared, or the report is
            damaged.
    """
    folder = dictionary.parent
    # input0/dict.txt of a folder of labelled texts has its report above
    for place, name in (
        (folder, dictionary.name),
        (folder.parent, f"{folder.name}/{dictionary.name}"),
    ):
        check_reported_file(place, name, dictionary)


def check_reported_file(folder: Path, name: str, file: Path) -> None:
    """Refuse a file that differs from the one that ``data_prep`` made.

    Args:
        folder: of prepared data; without a report of ``name``, any file passes.
        name: of the file in the report.
        file: to check.

    Raises:
        CheckpointError: the file differs, or the report is damaged.
    """
    reported = _reported(folder / REPORT, name)
    if reported is None:
        return
    found = file_sha256(file)
    if found != reported:
        raise CheckpointError(
            f"{file}: not the {name} with which {folder} was prepared, or changed "
            f"since: its SHA-256 is {found}; allowed, by {folder / REPORT}: {reported}"
        )


def _reported(path: Path, name: str) -> str | None:
    """The SHA-256 of a file in a report; None without a report of data_prep."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path}: damaged ({reason}); allowed: the report that data_prep wrote, or "
            "no file of this name"
        ) from error
    files = report.get("files") if isinstance(report, dict) else None
    return files[name]["sha256"] if isinstance(files, dict) and name in files else None


def task_dictionary(task: Any) -> Any:
    """The dictionary of a fairseq task's inputs, or None."""
    try:
        dictionary = task.source_dictionary
    # several languages, or none of it
    except (NotImplementedError, AttributeError):
        return None
    return dictionary if hasattr(dictionary, "symbols") else None


def weights_fingerprint(path: Path | str) -> str:
    """SHA-256 of a checkpoint's model, 64 hexadecimal digits.

    It hashes the names, dtypes, shapes and bytes of all tensors, in the order of their
    names. The optimizer's state, the settings and the file's place do not count.

    Raises:
        CheckpointError: there is no such file, or it is not a checkpoint of fairseq.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint file")
    return remembered(path, _hash_weights)


def _hash_weights(path: Path) -> str:
    # a file's fingerprint is the same in all versions that read it
    weights = read_checkpoint(path, mmap=True, as_saved=True)["model"]
    if not isinstance(weights, dict) or not weights:
        raise CheckpointError(f"{path}: no weights in its 'model'")
    digest = hashlib.sha256()
    for name in sorted(weights, key=str):
        tensor = weights[name]
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise CheckpointError(f"{path}: model[{name!r}] is not a tensor")
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content = tensor.detach().contiguous().view(-1).view(torch.uint8)
        digest.update(content.numpy().data)
    return digest.hexdigest()

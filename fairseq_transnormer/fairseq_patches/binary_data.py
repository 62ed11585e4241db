"""Damaged binary data are found at the start, not when training reaches them."""

import os
import shlex
from functools import lru_cache
from pathlib import Path

from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset

from ..checkpoints.identity import check_dictionary_file, task_dictionary
from ..data.binary_data import (
    AnotherFormatError,
    bin_file,
    idx_file,
    in_parts,
    read_binary_data,
)
from ..data.subword_files import RESERVED, control_ids
from .loading import training_folders
from .workers import call_on_first_rank

LABELS = "label"


def check_name_for_shell(build_index, dataset, path: str):
    """Around data/fasta_dataset.py, _build_index: ``cat {path} | ...`` in a shell.

    A checkpoint can name the format of the data and parts of the files' names.

    Raises:
        ValueError: the name has characters that mean something to a shell.
    """
    if shlex.quote(path) != path:
        raise ValueError(
            f"{path!r}: fairseq gives the name of a FASTA file to a shell; allowed: "
            "letters, digits and @ % + = : , . / - _"
        )
    return build_index(dataset, path)


def check_training_data(trainer) -> None:
    """Check all shards of the training data, on the first rank.

    Raises:
        ValueError: as ``check_shards`` does.
    """
    data = getattr(trainer.cfg.task, "data", None)
    if data:
        subset = trainer.cfg.dataset.train_subset
        call_on_first_rank(trainer, check_shards, trainer.task, data, subset)


def check_shards(task, data: str, subset: str) -> None:
    """Check all shards of a subset, of which training opens one an epoch.

    Args:
        task: fairseq's, which has the dictionaries.
        data: folders, with colons between them, as fairseq takes them.
        subset: such as "train".

    Raises:
        ValueError: as ``check_prefix`` and ``check_token_ids`` do.
    """
    for folder in training_folders(task, data):
        for level in ("", "*/"):  # labelled texts have a folder for each column
            for index in sorted(folder.glob(f"{level}{subset}*.idx")):
                prefix = str(index.with_suffix(""))
                check_prefix(prefix)
                # train.en-de.en may have another dictionary than train.en-de.de; they
                # are looked at when they are opened
                if index.stem.removeprefix(subset).isdecimal() or index.stem == subset:
                    is_label = level and index.parent.name == LABELS
                    dictionary = (
                        getattr(task, "label_dictionary", None)
                        if is_label
                        else task_dictionary(task)
                    )
                    if dictionary is not None:
                        check_token_ids(prefix, dictionary)


def check_prefix(prefix: str) -> None:
    """Check that PREFIX.idx is as it was written and PREFIX.bin as long as it says.

    Raises:
        ValueError: it is not; files in another format, which fairseq has errors for,
            are passed over.
    """
    _check_prefix(prefix, *_versions(prefix))


def check_token_ids(prefix: str, dictionary: Dictionary) -> None:
    """Check that all ids of PREFIX.bin are those of text; reads all of the file.

    fairseq does the same when it opens a file, so that it comes from the disk once.

    Args:
        prefix: of files that ``check_prefix`` has found to be right.
        dictionary: what the ids are numbers of.

    Raises:
        ValueError: an id is beyond it, or would begin, end, pad or mask a line; the
            file, the id and the dictionary are named.
    """
    size = len(dictionary)
    fault = _fault(prefix, size, control_ids(dictionary), *_versions(prefix))
    if fault is None:
        return
    file = getattr(dictionary, "file", None) or "the dictionary"
    raise ValueError(
        f"{fault}, since {file} has {size} symbols with {dictionary.nspecial} special "
        f"ones. Prepare the data again, of text without {', '.join(RESERVED)}, or put "
        "the dictionary there that they were made with"
    )


def _versions(prefix: str) -> list[tuple[int, int]]:
    """Change when one of the two files is written again."""
    found = [os.stat(path) for path in (idx_file(prefix), bin_file(prefix))]
    return [(status.st_size, status.st_mtime_ns) for status in found]


@lru_cache(maxsize=4096)
def _check_prefix(prefix: str, *versions: tuple[int, int]) -> None:
    try:
        read_binary_data(prefix)
    except AnotherFormatError:
        pass


@lru_cache(maxsize=4096)
def _fault(
    prefix: str, size: int, control: tuple[int, ...], *versions: tuple[int, int]
) -> str | None:
    try:
        data = read_binary_data(prefix)
    except AnotherFormatError:
        return None
    faults = (data.fault(*part, size, control) for part in in_parts(data.ids()))
    return next(filter(None, faults), None)


def check_index_and_open(open_data, dataset, path):
    """data/indexed_dataset.py, MMapIndexedDataset._do_init."""
    check_prefix(path)
    return open_data(dataset, path)


def note_dictionary_file(add_from_file, dictionary, file):
    """data/dictionary.py, add_from_file: messages shall name it."""
    if isinstance(file, str):
        dictionary.file = file
    return add_from_file(dictionary, file)


def check_ids_and_load(load, path, dictionary=None, *arguments, **keywords):
    """data/data_utils.py, load_indexed_dataset: where tasks open a split."""
    dataset = load(path, dictionary, *arguments, **keywords)
    if isinstance(dictionary, Dictionary):
        file = getattr(dictionary, "file", None)
        if file and Path(file).is_file():
            check_dictionary_file(Path(file))
        for part in getattr(dataset, "datasets", [dataset]):
            if isinstance(part, MMapIndexedDataset):
                check_token_ids(part._path, dictionary)
    return dataset

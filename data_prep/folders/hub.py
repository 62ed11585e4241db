"""Data sets of the Hugging Face hub at one revision, from there or from parquet files.

A revision is a commit of the data set's repository, so that two people get the same
files whatever is pushed there later. Files of a local copy that have the hub's names
are compared with its checksums, and every copy by its counts of labels.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_transnormer.data.fingerprints import file_sha256

from .downloads import one_line, reading
from .options import Source

LABEL = "label"
WAY_OUT = "--allow-other-sizes for a cut-down copy"
ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class HubData:
    """A data set of the hub.

    Attributes:
        name: on the hub.
        revision: the commit that is read.
        files: SHA-256 of train's and test's parquet file.
        labels: how many examples each of the labels 0, 1, ... has, by split.
    """

    name: str
    revision: str
    files: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Loaded:
    """The splits of a data set, of ``datasets``.

    ``where`` names the source in messages, ``identity`` identifies it in settings.
    """

    where: str
    identity: dict[str, Any]
    splits: Mapping[str, Any]

    def rows(self, split: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The values of these columns, row by row; ValueError where one is missing."""
        found = self.splits[split].features
        for name in columns:
            if name not in found:
                raise ValueError(
                    f"{self.where}: {split}: no column {name!r}, only {list(found)}"
                )
        with reading(f"{self.where}: {split}"):
            chosen = self.splits[split].select_columns(list(columns))
            for batch in chosen.iter(batch_size=ROWS_AT_ONCE):
                yield from zip(*(batch[name] for name in columns), strict=True)


def load(
    data: HubData,
    folder: Path | None,
    places: Iterable[str],
    splits: Iterable[str],
    config: str | None = None,
    accepted: str = "",
) -> Loaded:
    """A data set of the hub, from there or from a copy.

    Args:
        folder: the copy: files SPLIT-*.parquet; None: the hub, through the cache of
            ``datasets``.
        places: of which the first in ``folder`` that has such files is read.
        config: the configuration of a data set that has several.
        accepted: what else would have been a copy, for the message.

    Raises:
        ValueError: there is none, or a split, or one of its parts, is missing.
    """
    if folder is None:
        return _of_hub(data, config)
    for place in places:
        if any((folder / place).glob("*.parquet")):
            return _of_parquet(folder / place, splits)
    raise ValueError(
        f"--from-dir {folder}: holds no copy of {config or data.name}; accepted are "
        f"{accepted}the hub's parquet files"
    )


def _of_hub(data: HubData, config: str | None) -> Loaded:
    import datasets

    named = {"config": config} if config else {}
    try:
        splits = datasets.load_dataset(data.name, config, revision=data.revision)
    except Exception as error:  # no base class for the hub's and the net's errors
        raise ValueError(
            f"{' '.join([data.name, *named.values()])}: cannot be loaded from the "
            f"Hugging Face hub ({one_line(error)}); give a folder of the hub's parquet "
            "files with --from-dir"
        ) from error
    identity = {"hub": data.name, **named, "revision": data.revision}
    return Loaded(data.name, identity, splits)


def _of_parquet(place: Path, splits: Iterable[str]) -> Loaded:
    import datasets

    # it reports what it raises, too, in several lines
    logging.getLogger("datasets").setLevel(logging.CRITICAL)
    files = {split: sorted(place.glob(f"{split}[-.]*parquet")) for split in splits}
    if not all(files.values()):
        raise ValueError(f"{place}: no file {'.parquet, '.join(files)}.parquet")
    for first, *others in files.values():
        parts = re.search(r"-of-(\d+)", first.name)
        if parts and len(others) + 1 != int(parts[1]):
            raise ValueError(f"{first}: {len(others) + 1} of {int(parts[1])} parts")
    identity = {
        path.name: file_sha256(path) for each in files.values() for path in each
    }
    names = {split: [*map(str, paths)] for split, paths in files.items()}
    with reading(str(place)):
        # as a stream: otherwise they would first be copied into the cache
        loaded = datasets.load_dataset("parquet", data_files=names, streaming=True)
    return Loaded(str(place), identity, loaded)


def labelled_data(data: HubData, source: Source) -> Loaded:
    """``train`` and ``test`` of a data set with labels, from a copy or the hub.

    A copy is in the folder or in one below.

    Raises:
        ValueError: there is none, or, unless other sizes are allowed, it is not what
            is published.
    """
    folder = source.from_dir
    below = sorted(path.name for path in folder.glob("*/")) if folder else []
    loaded = load(data, folder, [".", *below], ("train", "test"))
    if source.allow_other_sizes:
        return loaded
    for split, expected in data.files.items():
        name = f"{split}-00000-of-00001.parquet"
        if loaded.identity.get(name, expected) != expected:
            raise ValueError(
                f"{loaded.where}/{name}: sha256 is {loaded.identity[name]}, expected "
                f"{expected} of {data.name} at {data.revision} ({WAY_OUT})"
            )
    for split, numbers in data.labels.items():
        counts = Counter(label for (label,) in loaded.rows(split, LABEL))
        if counts != dict(enumerate(numbers)):
            raise ValueError(
                f"{loaded.where}: {split}: examples by label {dict(counts)}, expected "
                f"{numbers}, as {data.name} has; truncated or another one ({WAY_OUT})"
            )
    return loaded

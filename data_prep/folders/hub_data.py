"""A data set of the Hugging Face hub at one revision, and what is published of it.

A revision is a commit of the data set's repository, so that two people get the same
files whatever is pushed there later. Files of a local copy that have the hub's names
are compared with its checksums, and every copy by its counts of labels: what was cut
short, or is another data set, is refused.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from data_prep.folders.errors import InputError

WAY_OUT = "--allow-other-sizes for a cut-down copy"


@dataclass(frozen=True)
class HubData:
    """A data set of the hub.

    Args:
        name: on the hub.
        revision: the commit that is read.
        files: SHA-256 of parquet files by name, without folders.
        labels: how many examples each of the labels 0, 1, ... has, by split.
        originals: the publisher's own files that a copy may be, too, for messages.
    """

    name: str
    revision: str
    files: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    originals: str = ""

    def identity(self, *config: str) -> dict[str, str]:
        """What a folder's settings say of data that were read from the hub."""
        configuration = {"config": config[0]} if config else {}
        return {"hub": self.name, **configuration, "revision": self.revision}

    def require_files(self, where: str, found: Mapping[str, Any]) -> None:
        """Raises InputError for a file with the hub's name and another SHA-256.

        ``found`` has the SHA-256 of the copy's files by name.
        """
        for name, expected in self.files.items():
            if name in found and found[name] != expected:
                raise InputError(
                    f"{where}/{name}: sha256 is {found[name]}, expected {expected} of "
                    f"{self.name} at {self.revision}; truncated or another file "
                    f"({WAY_OUT})"
                )

    def require_labels(self, where: str, split: str, labels: Iterable[Any]) -> None:
        """Raises InputError unless each label occurs as often as is published."""
        expected = self.labels[split]
        found = Counter(map(str, labels))
        problems = [
            (f"examples with label {label}", found[str(label)], count)
            for label, count in enumerate(expected)
        ]
        problems.insert(0, ("examples", found.total(), sum(expected)))
        for what, number, count in problems:
            if number != count:
                raise InputError(
                    f"{where}: {split}: {number:,} {what}, expected {count:,}, as "
                    f"{self.name} has; the copy is truncated or another one ({WAY_OUT})"
                )

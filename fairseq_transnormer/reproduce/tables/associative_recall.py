"""Associative recall: the kind of job of the tables ``recall`` and their data.

A cell names the pairs of a line by ``task.pairs``, for which there is a folder.
"""

from dataclasses import dataclass

from ...data import SPLITS
from ...data.fingerprints import files_fingerprint
from ...data.recall import RecallLines, read_settings
from ..errors import ReproduceError
from .corpora import FILES, Text
from .definitions import Cell
from .jobs import Conditions, HydraTrainWithoutText

PAIRS = "task.pairs"


@dataclass(frozen=True)
class RecallText(Text):
    """Lines of pairs and queries for ``associative_recall``.

    Attributes:
        pairs: of a line.
    """

    pairs: int = 0

    def fault(self) -> str | None:
        """What is wrong with the folder; None if a run can use it."""
        if missing := super().fault():
            return missing
        try:
            for split in SPLITS:
                RecallLines(self.folder, split, pairs=self.pairs)
        except (OSError, ValueError) as error:
            return f"data {error}"
        return None

    def fingerprint(self) -> str:
        """Changes with the lines, the dictionary, and what a line's places are."""
        return files_fingerprint(self.folder, FILES, read_settings(self.folder))


class Recall(HydraTrainWithoutText):
    """Training on one of the preset's folders."""

    def data(self, cell: Cell, conditions: Conditions) -> RecallText:
        """The folder of so many pairs."""
        pairs = cell.overrides.get(PAIRS)
        if not isinstance(pairs, int):
            raise ReproduceError(
                f"{cell.row}, {cell.column}: {PAIRS}={pairs!r}; allowed: pairs of a "
                "line, a whole number"
            )
        task = self._task(cell, conditions)
        return RecallText(conditions.data_folder(task) / str(pairs), task, pairs)

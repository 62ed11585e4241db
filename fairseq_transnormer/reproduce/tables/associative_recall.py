"""Associative recall: the kind of job of the tables ``recall`` and their data.

A cell names the pairs of a line by ``task.pairs``, for which there is a folder, or
several by ``task.mixture``.
"""

from dataclasses import dataclass
from functools import partial

from ...data import SPLITS
from ...data.fingerprints import files_fingerprint
from ...data.recall import RecallLines, mixed_folders, read_settings
from ..errors import ReproduceError
from ..runs.metrics import METRICS, RunResults
from .corpora import FILES, Text
from .definitions import Cell
from .jobs import Conditions, HydraTrainWithoutText

PAIRS, MIXTURE = "task.pairs", "task.mixture"
# pairs of which tables may ask for the accuracy, in a mixture
MIXED = (4, 16, 64, 256)


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


@dataclass(frozen=True)
class RecallMixture(Text):
    """The folders of several numbers of pairs, in ``folder``.

    Attributes:
        mixture: the numbers, with commas between them.
    """

    mixture: str = ""

    def fault(self) -> str | None:
        """What is wrong with the folders; None if a run can use them."""
        try:
            folders = mixed_folders(self.folder, self.mixture)
        except (OSError, ValueError) as error:
            return f"data {error}"
        parts = (RecallText(each, self.task, n) for n, each in folders.items())
        return next(filter(None, (part.fault() for part in parts)), None)

    def fingerprint(self) -> str:
        """Changes with any of the folders."""
        folders = mixed_folders(self.folder, self.mixture)
        names = [f"{number}/{name}" for number in folders for name in FILES]
        said = [read_settings(each) for each in folders.values()]
        return files_fingerprint(self.folder, names, said)


class Recall(HydraTrainWithoutText):
    """Training on one of the preset's folders, or on several."""

    def data(self, cell: Cell, conditions: Conditions) -> Text:
        """The folder of so many pairs, or what has those of a mixture."""
        task = self._task(cell, conditions)
        folder = conditions.data_folder(task)
        pairs, mixture = cell.overrides.get(PAIRS), cell.overrides.get(MIXTURE)
        if mixture:
            return RecallMixture(folder, task, mixture)
        if not isinstance(pairs, int):
            raise ReproduceError(
                f"{cell.row}, {cell.column}: {PAIRS}={pairs!r}; allowed: pairs of a "
                f"line, a whole number, unless there is {MIXTURE}"
            )
        return RecallText(folder / str(pairs), task, pairs)


def test_accuracy_of(results: RunResults, pairs: int) -> float | None:
    """Percent of the test split's lines of so many pairs, of the best checkpoint."""
    return results.at_best("test", f"accuracy_{pairs}")


for number in MIXED:
    METRICS.register(f"test_accuracy_{number}")(partial(test_accuracy_of, pairs=number))

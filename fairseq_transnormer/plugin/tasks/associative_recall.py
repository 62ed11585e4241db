"""``associative_recall``: the values of keys that a line named before."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask, register_task
from omegaconf import MISSING

from ...data.recall import RecallLines, mixed_folders, read_settings
from ...data.subword_files import DICTIONARY
from ...modules.options import described
from ..criterions.partial_cross_entropy import PartialCrossEntropy
from .bucketed_sequences import SizedDataset, check_criterion, is_for_training


@dataclass
class AssociativeRecallConfig(FairseqDataclass):
    """The data, and the places of a key and its value."""

    data: str = described(MISSING, "folder that python -m data_prep recall has made")
    stacked: bool = described(
        False,
        "put a key and its value at one place, where their embeddings are added, so "
        "that no layer has to join them",
    )
    pairs: int = described(
        0, "refuse a folder with other pairs in a line; 0: any", at_least=0
    )
    mixture: str = described(
        "",
        "read the folders DATA/N together, for each N of 4,16,64, which has N pairs a "
        "line; a batch is of one of them, and the accuracy of each is logged, too",
    )


class RecallDataset(SizedDataset):
    """Parts of a split, by pairs per line; all lines of a batch are of one part."""

    def __init__(self, parts: dict[int, RecallLines], shuffle: bool):
        self.pairs, self.parts, self.shuffle = [*parts], [*parts.values()], shuffle
        # a part's lines have the numbers from its start on
        self.starts = np.cumsum([0, *map(len, self.parts)])
        lengths = [each.targets.shape[1] for each in self.parts]
        self.sizes = np.repeat(lengths, [*map(len, self.parts)])

    def __len__(self):
        return int(self.starts[-1])

    def __getitem__(self, index) -> int:
        return int(index)

    def collater(self, samples):
        """Return a batch; an empty one for a worker without samples.

        ``net_input`` has ``src_tokens``, int64 (B, N) or (B, N, 2). ``target`` is
        int64 (B, N), with padding where no value is due. ``pairs`` is their number per
        line.
        """
        if not samples:
            return {}
        numbers = np.array(samples)
        part = int(self._part_of(numbers[0]))
        lines, inside = self.parts[part], numbers - self.starts[part]
        inputs = torch.from_numpy(lines.inputs[inside])
        targets = torch.from_numpy(lines.targets[inside])
        return {
            "id": numbers,
            "net_input": {"src_tokens": inputs, "padding": "none"},
            "pairs": self.pairs[part],
            "target": targets,
            "ntokens": targets.numel(),
            "nsentences": len(numbers),
        }

    def ordered_indices(self):
        """All indices, in the order in which batches take them."""
        # fairseq has seeded numpy, alike on all workers
        order = np.arange(len(self))
        return np.random.permutation(order) if self.shuffle else order

    def batch_by_size(self, indices, *arguments, **options):
        """fairseq's batches, of each part alone."""
        parts, batches = self._part_of(indices), []
        for part in range(len(self.parts)):
            own = indices[parts == part]
            batches += super().batch_by_size(own, *arguments, **options)
        return batches

    def _part_of(self, numbers):
        return np.searchsorted(self.starts, numbers, side="right") - 1


@register_task("associative_recall", dataclass=AssociativeRecallConfig)
class AssociativeRecallTask(FairseqTask):
    """Causal models that predict a key's value where the key occurs again.

    Train with ``partial_cross_entropy``. All other places have padding as target.
    """

    source_dictionary = target_dictionary = None  # of each task

    def __init__(self, cfg: AssociativeRecallConfig, folders: dict[int, Path]):
        super().__init__(cfg)
        self.folders = folders
        # what a checkpoint's training data are, and what is checked at the start
        self.training_folders = [*folders.values()] if cfg.mixture else None
        first = next(iter(folders.values()))
        self.source_dictionary = Dictionary.load(str(first / DICTIONARY))
        self.target_dictionary = self.source_dictionary
        self.length = max(read_settings(each)["length"] for each in folders.values())

    @classmethod
    def setup_task(cls, cfg: AssociativeRecallConfig, **kwargs):
        """Check the folder, or those of the mixture; refuse other kinds of data."""
        if not cfg.mixture:
            pairs = read_settings(cfg.data, cfg.pairs)["pairs"]
            return cls(cfg, {pairs: Path(cfg.data)})
        if cfg.pairs:
            raise ValueError(
                f"pairs={cfg.pairs}; allowed with mixture={cfg.mixture!r}: 0, since "
                "the mixture has the pairs of each folder"
            )
        return cls(cfg, mixed_folders(cfg.data, cfg.mixture))

    def build_criterion(self, cfg, from_checkpoint=False):
        """Build it; ValueError if it is not partial_cross_entropy."""
        found = super().build_criterion(cfg, from_checkpoint)
        return check_criterion(found, "partial_cross_entropy", PartialCrossEntropy)

    def load_dataset(self, split, **kwargs):
        """Read a split; the one for training is shuffled."""
        parts = {
            pairs: RecallLines(folder, split, self.cfg.stacked)
            for pairs, folder in self.folders.items()
        }
        self.datasets[split] = RecallDataset(parts, is_for_training(split, kwargs))

    def valid_step(self, sample, model, criterion):
        """fairseq's step, and right answers by number of pairs in a mixture."""
        loss, size, logged = super().valid_step(sample, model, criterion)
        counted = self.cfg.mixture and "right" in logged
        for pairs in self.folders if counted else ():
            # all workers log the same entries, whatever their batches are of
            here = sample["pairs"] == pairs
            logged[f"right_{pairs}"] = logged["right"] * here
            logged[f"count_{pairs}"] = logged["sample_size"] * here
        return loss, size, logged

    def reduce_metrics(self, logging_outputs, criterion):
        """The criterion's metrics, and in a validation of a mixture each accuracy."""
        super().reduce_metrics(logging_outputs, criterion)
        for pairs in self.folders:
            parts = [each for each in logging_outputs if f"count_{pairs}" in each]
            count = sum(int(each[f"count_{pairs}"]) for each in parts)
            right = sum(int(each[f"right_{pairs}"]) for each in parts)
            if count:  # nothing is said of a part that was not evaluated
                accuracy = 100 * right / count
                metrics.log_scalar(f"accuracy_{pairs}", accuracy, count, round=3)

    def max_positions(self):
        """Places of a line."""
        return self.length

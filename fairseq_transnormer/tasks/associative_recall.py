"""``associative_recall``: the values of keys that a line named before."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import MISSING

from ..data.recall import RecallLines, read_settings
from ..data.subword_files import DICTIONARY
from ..modules.options import described
from .bucketed_sequences import SizedDataset


@dataclass
class AssociativeRecallConfig(FairseqDataclass):
    """The data, and how a key and its value stand."""

    data: str = described(MISSING, "folder that python -m data_prep recall has made")
    stacked: bool = described(
        False,
        "let a key and its value share a place, where their embeddings are added, so "
        "that no layer has to bring them together",
    )
    pairs: int = described(
        0, "refuse a folder with other pairs in a line; 0: any", at_least=0
    )


class RecallDataset(SizedDataset):
    """``RecallLines`` as a dataset of fairseq's.

    Args:
        lines: of a split.
        shuffle: for training.
    """

    def __init__(self, lines: RecallLines, shuffle: bool):
        self.lines, self.shuffle = lines, shuffle
        self.sizes = np.full(len(lines), lines.targets.shape[1])

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index) -> int:
        return int(index)

    def collater(self, samples):
        """A batch; empty for a worker that has none left.

        ``net_input`` has ``src_tokens``, int64 (B, N) or (B, N, 2); ``target`` is
        int64 (B, N), padding where nothing is told.
        """
        if not samples:
            return {}
        numbers = np.array(samples)
        targets = torch.from_numpy(self.lines.targets[numbers])
        return {
            "id": numbers,
            "net_input": {
                "src_tokens": torch.from_numpy(self.lines.inputs[numbers]),
                "padding": "none",
            },
            "target": targets,
            "ntokens": targets.numel(),
            "nsentences": len(numbers),
        }

    def ordered_indices(self):
        """All indices in the order that batches are cut from."""
        # fairseq has seeded numpy, alike on all workers
        order = np.arange(len(self))
        return np.random.permutation(order) if self.shuffle else order


@register_task("associative_recall", dataclass=AssociativeRecallConfig)
class AssociativeRecallTask(FairseqTask):
    """Causal models that tell a key's value where the key stands again.

    Train with ``partial_cross_entropy``; all places but these have padding for target.
    """

    def __init__(
        self, cfg: AssociativeRecallConfig, dictionary: Dictionary, length: int
    ):
        super().__init__(cfg)
        self.dictionary, self.length = dictionary, length

    @classmethod
    def setup_task(cls, cfg: AssociativeRecallConfig, **kwargs):
        """Look at the folder.

        Raises:
            ValueError: it is of another kind.
        """
        length = read_settings(cfg.data, cfg.pairs)["length"]
        return cls(cfg, Dictionary.load(str(Path(cfg.data) / DICTIONARY)), length)

    def load_dataset(self, split, **kwargs):
        """Read a split; that of training is shuffled."""
        self.datasets[split] = RecallDataset(
            RecallLines(self.cfg.data, split, self.cfg.stacked), split == "train"
        )

    def max_positions(self):
        """Places of a line."""
        return self.length

    @property
    def source_dictionary(self):
        """Keys, values, and what stands between."""
        return self.dictionary

    @property
    def target_dictionary(self):
        """The same."""
        return self.dictionary

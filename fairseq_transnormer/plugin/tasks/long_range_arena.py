"""``long_range_arena``: a class for a sequence, or for a pair of sequences."""

from dataclasses import dataclass
from pathlib import Path

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.tasks import FairseqTask, register_task
from omegaconf import MISSING
from torch import nn

from ...data.labelled_sequences import LabelledSequences, read_manifest
from ...modules.options import Choice, described
from ..criterions.sums import SequenceClassificationCriterion
from .bucketed_sequences import BucketedSequences, check_criterion, is_for_training

ARENAS = ("text", "listops", "retrieval", "pathfinder", "image")


class Arena(Choice, values=("any", *ARENAS)):
    """Which of the data sets is read."""


@dataclass
class LongRangeArenaConfig(FairseqDataclass):
    """The data, their batches, and the limit of gradients."""

    data: str = described(MISSING, "folder that python -m data_prep lra has made")
    arena: Arena = described(
        Arena("any"), "refuse a folder that is not of this task of the arena"
    )
    max_positions: int = described(4096, "longest sequence", at_least=1)
    bucket_length: int = described(
        128, "batches are made of examples whose lengths differ by less", at_least=1
    )
    clip_value: float = described(
        1.0, "limit of each number of the gradient; 0: none", at_least=0
    )


@register_task("long_range_arena", dataclass=LongRangeArenaConfig)
class LongRangeArenaTask(FairseqTask):
    """Classification of bytes, symbols or pixels.

    data_name: which data they are, one of ``ARENAS``; checkpoints keep it.
    """

    source_dictionary = target_dictionary = None  # tokens and labels are numbers

    def __init__(self, cfg: LongRangeArenaConfig, manifest: dict):
        super().__init__(cfg)
        self.vocabulary_size = manifest["vocabulary"]
        self.num_classes = manifest["classes"]
        self.num_sequences = manifest["sequences"]
        self.data_name = manifest["settings"].get("data")

    @classmethod
    def setup_task(cls, cfg: LongRangeArenaConfig, **kwargs):
        """Check the folder.

        Raises:
            ValueError: its data are of another kind, or its sequences are too long.
        """
        manifest = read_manifest(cfg.data)
        found, expected = manifest["settings"].get("data"), str(cfg.arena)
        if expected not in ("any", found):
            raise ValueError(
                f"{Path(cfg.data)}: data of {found!r}; allowed with "
                f"arena={expected}: data of {expected!r}"
            )
        longest = max(split["longest"] for split in manifest["splits"].values())
        if longest > cfg.max_positions:
            raise ValueError(
                f"max_positions={cfg.max_positions}; allowed for {Path(cfg.data)}: "
                f"from {longest}, its longest sequence"
            )
        return cls(cfg, manifest)

    def build_criterion(self, cfg, from_checkpoint=False):
        """Build it; ValueError if it is not sequence_classification."""
        found = super().build_criterion(cfg, from_checkpoint)
        return check_criterion(
            found, "sequence_classification", SequenceClassificationCriterion
        )

    def load_dataset(self, split, **kwargs):
        """Map a split into memory; the one for training is shuffled."""
        self.datasets[split] = BucketedSequences(
            LabelledSequences(self.cfg.data, split),
            self.cfg.bucket_length,
            is_for_training(split, kwargs),
        )

    def optimizer_step(self, optimizer, model, update_num):
        """Step with gradients whose values are clipped."""
        if self.cfg.clip_value:
            clip_gradient_values(optimizer, self.cfg.clip_value)
        super().optimizer_step(optimizer, model=model, update_num=update_num)

    def max_positions(self):
        """Longest sequence."""
        return self.cfg.max_positions


def clip_gradient_values(optimizer: FairseqOptimizer, limit: float) -> None:
    """Clip every number of the gradient to [-limit, limit]; fairseq clips norms.

    At the optimizer's step, gradients are summed over workers and accumulated batches.
    fairseq's fp16 and bf16 optimizers keep the loss scale and the sample size in a
    factor, which is applied first.
    """
    apply_factor = getattr(optimizer, "_unscale_grads", None)
    if apply_factor is not None:
        apply_factor()
    # of the fp16 optimizer the float32 copies, which it steps with
    groups = optimizer.optimizer.param_groups
    nn.utils.clip_grad_value_([p for group in groups for p in group["params"]], limit)

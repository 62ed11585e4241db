"""Labelled sequences for fairseq: batches have rows of similar length."""

import numpy as np
from fairseq.data import FairseqDataset

from ...data.labelled_sequences import Example, LabelledSequences, collate


def is_for_training(split: str, keywords: dict) -> bool:
    """Whether ``load_dataset`` loads the split for training, whatever its name."""
    # fairseq's trainer alone gives one, for --train-subset
    return split == "train" or "data_selector" in keywords


def check_criterion(criterion, name: str, kind: type):
    """The criterion; ValueError if it is not one of this name, or derived from it.

    Others divide by all tokens of a sequence.
    """
    if not isinstance(criterion, kind):
        found = type(criterion).__name__
        raise ValueError(f"criterion {found}; allowed for this task: {name}")
    return criterion


class SizedDataset(FairseqDataset):
    """The lengths of examples, as fairseq asks for them."""

    sizes: np.ndarray  # of each example

    def num_tokens(self, index):
        """Of an example, or of several."""
        return self.sizes[index]

    num_tokens_vec = size = num_tokens


class BucketedSequences(SizedDataset):
    """``LabelledSequences`` behind fairseq's interface.

    Examples are sorted by length, in buckets of ``bucket_length`` tokens. The length of
    a pair is that of its longer sequence. ``shuffle`` draws a new order within each
    bucket in each epoch.
    """

    def __init__(self, examples: LabelledSequences, bucket_length: int, shuffle: bool):
        self.examples, self.bucket_length = examples, bucket_length
        self.shuffle, self.epoch = shuffle, 1
        self.sizes = examples.lengths.max(axis=1)

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index) -> tuple[int, Example]:
        return int(index), self.examples[int(index)]

    def collater(self, samples):
        """Return a batch; an empty one for a worker without samples.

        ``net_input`` has, for each sequence of an example, ``tokens``, int64 (B, N),
        ``lengths``, int64 (B,), and the places of pads. ``target`` is int64 (B,).
        """
        if not samples:
            return {}
        ids, examples = zip(*samples, strict=True)
        tokens, lengths, labels = collate(examples)
        padding = tuple(
            "none" if each.min() == rows.shape[1] else "right"
            for rows, each in zip(tokens, lengths, strict=True)
        )
        return {
            "id": np.array(ids),
            "net_input": {"tokens": tokens, "lengths": lengths, "padding": padding},
            "target": labels,
            "ntokens": int(sum(each.sum() for each in lengths)),
            "nsentences": len(ids),
        }

    def ordered_indices(self):
        """All indices, in the order in which batches take them."""
        # fairseq has seeded numpy, alike on all workers
        order = np.arange(len(self))
        if self.shuffle:
            seed = (np.random.randint(2**31 - 1), self.epoch)
            order = np.random.default_rng(seed).permutation(order)
        buckets = -(-self.sizes[order] // self.bucket_length)
        return order[np.argsort(buckets, kind="stable")]

    @property
    def can_reuse_epoch_itr_across_epochs(self):
        """Whether all epochs have the same batches."""
        return not self.shuffle

    def set_epoch(self, epoch):
        self.epoch = epoch

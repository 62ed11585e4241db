"""Labelled sequences as fairseq batches them: rows of like length together."""

import numpy as np
from fairseq.data import FairseqDataset

from ...data.labelled_sequences import Example, LabelledSequences, collate


def is_for_training(split: str, keywords: dict) -> bool:
    """Whether ``load_dataset`` is asked for what trains, whatever its name."""
    # fairseq's trainer alone gives one, for --train-subset
    return split == "train" or "data_selector" in keywords


class SizedDataset(FairseqDataset):
    """What fairseq asks of the lengths."""

    sizes: np.ndarray  # of each example

    def num_tokens(self, index):
        """Of an example, or of several."""
        return self.sizes[index]

    num_tokens_vec = size = num_tokens


class BucketedSequences(SizedDataset):
    """``LabelledSequences`` behind fairseq's interface.

    Examples are put in order by length, in steps of ``bucket_length`` tokens; an
    example of two sequences counts as long as its longer one. ``shuffle`` draws the
    order within a bucket anew each epoch.
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
        """A batch; empty for a worker that has none left.

        ``net_input`` has ``tokens``, int64 (B, N), ``lengths``, int64 (B,), and where
        pads are, of each of an example's sequences; ``target`` is int64 (B,).
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
        """All indices in the order that batches are cut from."""
        # fairseq has seeded numpy, alike on all workers
        order = np.arange(len(self))
        if self.shuffle:
            seed = (np.random.randint(2**31 - 1), self.epoch)
            order = np.random.default_rng(seed).permutation(order)
        buckets = -(-self.sizes[order] // self.bucket_length)
        return order[np.argsort(buckets, kind="stable")]

    @property
    def can_reuse_epoch_itr_across_epochs(self):
        """Whether batches stay the same ones."""
        return not self.shuffle

    def set_epoch(self, epoch):
        self.epoch = epoch

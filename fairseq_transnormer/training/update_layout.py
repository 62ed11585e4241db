"""Divide the sequences of an update among workers, into batches that accumulate.

    sequences = workers * batch * update_freq

The equation holds exactly. The total batch decides what a run learns, so it is the same
for any number of workers.
"""

import logging
import os
import re
from typing import NamedTuple

logger = logging.getLogger(__name__)

# sequences of an update: an environment variable, since fairseq has no such option
SEQUENCES = "SEQUENCES_PER_UPDATE"
# (task, half precision) -> GB of T1 and T2 with the plugin's criterions and fused_adam,
# computed from the tensors of a step: first weights, gradients and Adam's state, then
# each sequence of a batch
NEEDS = {
    ("language_modeling", False): (4.7, 0.08),
    ("language_modeling", True): (4.3, 0.06),
    ("masked_lm", False): (2.9, 0.29),
    ("masked_lm", True): (3.2, 0.2),
}
# the rest is for CUDA, NCCL and fragmentation
SHARE_OF_MEMORY = 0.9


class Layout(NamedTuple):
    """The share of each worker in an update."""

    batch: int  # sequences per batch
    update_freq: int  # batches to accumulate

    def described(self, workers: int) -> str:
        """The layout in words, for a log."""
        return (
            f"an update has {workers * self.batch * self.update_freq} sequences: "
            f"{workers} workers x {self.batch} at once x {self.update_freq} accumulated"
        )


def lay_out(
    sequences: int, workers: int, most: int | None = None, batch: int | None = None
) -> Layout:
    """Divide ``sequences`` among ``workers``.

    Args:
        sequences: of an update.
        workers: processes of all nodes together.
        most: upper limit of a batch; the largest divisor within it is chosen.
        batch: the size of a batch, instead of ``most``.

    Raises:
        ValueError: there are no sequences, or the number of workers or ``batch`` does
            not divide them. The message names the nearest numbers that do.
    """
    if sequences < 1:
        raise ValueError(f"{sequences} sequences of an update; allowed: 1, 2, ...")
    if sequences % workers:
        raise ValueError(
            f"{workers} workers do not divide the {sequences} sequences of an update; "
            f"nearest that do: {_nearest(sequences, workers)}"
        )
    share = sequences // workers
    if batch is None:
        batch = max(n for n in _divisors(share) if n <= (most or share))
    elif share % batch:
        raise ValueError(
            f"a batch of {batch} does not divide the {share} sequences of an update "
            f"that each of {workers} workers takes; nearest that do: "
            f"{_nearest(share, batch)}"
        )
    return Layout(batch, share // batch)


def fitting_batch(task: str, half: bool, gpus: int, most: int) -> int:
    """``most``, or the largest power of two that the first GPUs hold, by estimate.

    ``most`` for another task or without a GPU; 1 if nothing fits by the estimate.
    """
    import torch

    found = range(min(gpus, torch.cuda.device_count()))
    if (task, half) not in NEEDS or not found:
        return most
    memory = min(torch.cuda.get_device_properties(i).total_memory for i in found)
    model, sequence = NEEDS[task, half]
    batch, free = 1, SHARE_OF_MEMORY * memory / 1e9 - model
    if most * sequence <= free:
        return most
    while 2 * batch * sequence <= free:
        batch *= 2
    return batch


def declared(text: str) -> int | None:
    """The value of SEQUENCES_PER_UPDATE; None: any number; ValueError if invalid."""
    if not re.fullmatch("([1-9][0-9]{0,6})?", text):
        raise ValueError(f"{SEQUENCES}={text}; allowed: 1, 2, ... 9999999 or nothing")
    return int(text) if text else None


def check_update(cfg, workers: int) -> None:
    """Log the layout of an update, and check its size.

    Args:
        cfg: fairseq's configuration.
        workers: actual number, which Slurm or torchrun may have decided.

    Raises:
        ValueError: the size of an update differs from SEQUENCES_PER_UPDATE.
    """
    dataset, wanted = cfg.dataset, declared(os.environ.get(SEQUENCES, ""))
    if dataset.batch_size is None or dataset.max_tokens is not None:
        if wanted is None:
            return
        raise ValueError(
            f"dataset.max_tokens={dataset.max_tokens}: an update has no fixed number "
            f"of sequences; allowed with {SEQUENCES}={wanted}: dataset.batch_size alone"
        )
    for update_freq in cfg.optimization.update_freq:
        message = Layout(dataset.batch_size, update_freq).described(workers)
        if wanted not in (None, workers * dataset.batch_size * update_freq):
            raise ValueError(
                f"{message}; {SEQUENCES} is {wanted}; allowed: an empty {SEQUENCES}"
            )
        logger.info(message)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _nearest(number: int, wanted: int) -> str:
    near = [n for n in _divisors(number) if n < wanted][-1:]
    near += [n for n in _divisors(number) if n > wanted][:1]
    return ", ".join(map(str, near))

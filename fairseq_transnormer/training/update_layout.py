"""An update's sequences shared among workers: what each takes at once, and how often.

    sequences = workers * batch * update_freq

exactly: the total batch decides what a run learns, and is the paper's on any number of
workers.
"""

import logging
import os
import re
from typing import NamedTuple

logger = logging.getLogger(__name__)

# sequences of an update: the environment carries it, since fairseq has no option for it
SEQUENCES = "SEQUENCES_PER_UPDATE"
# value of update_freq that stands for: whatever fills the update
WORKED_OUT = [0]
# (task, half precision) -> GB of T1 and T2 with the plugin's criterions and fused_adam,
# worked out once from the tensors of a step: weights, gradients and Adam's state; each
# sequence of a batch
NEEDS = {
    ("language_modeling", False): (4.7, 0.08),
    ("language_modeling", True): (4.3, 0.06),
    ("masked_lm", False): (2.9, 0.29),
    ("masked_lm", True): (3.2, 0.2),
}
# the rest is CUDA's, NCCL's, and lost between tensors
SHARE_OF_MEMORY = 0.9


class Layout(NamedTuple):
    """What each worker does for an update."""

    batch: int  # sequences that it takes at once
    update_freq: int  # such batches, accumulated

    def described(self, workers: int) -> str:
        """For a log: how an update comes about."""
        return (
            f"an update has {workers * self.batch * self.update_freq} sequences: "
            f"{workers} workers x {self.batch} at once x {self.update_freq} accumulated"
        )


def lay_out(
    sequences: int, workers: int, most: int | None = None, batch: int | None = None
) -> Layout:
    """Share ``sequences`` among ``workers``.

    Args:
        sequences: of an update.
        workers: processes of all nodes together.
        most: sequences that one can take at once; the most that divide are taken.
        batch: sequences that one shall take at once, instead of ``most``.

    Raises:
        ValueError: there are none, or the workers, or ``batch``, do not divide them;
            the nearest numbers that do are named.
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
    """The largest power of two up to ``most`` that the first GPUs hold, by estimate.

    ``most`` for another task, or without a GPU; 1 where nothing fits, by the estimate.
    """
    import torch

    found = range(min(gpus, torch.cuda.device_count()))
    if (task, half) not in NEEDS or not found:
        return most
    memory = min(torch.cuda.get_device_properties(i).total_memory for i in found)
    model, sequence = NEEDS[task, half]
    batch, room = 1, SHARE_OF_MEMORY * memory / 1e9 - model
    while 2 * batch <= most and 2 * batch * sequence <= room:
        batch *= 2
    return batch


def declared(text: str) -> int | None:
    """The sequences that SEQUENCES_PER_UPDATE declares, None: any; or ValueError."""
    if not re.fullmatch("([1-9][0-9]{0,6})?", text):
        raise ValueError(f"{SEQUENCES}={text}; allowed: 1, 2, ... 9999999 or nothing")
    return int(text) if text else None


def set_update_layout(cfg, workers: int) -> None:
    """Work ``update_freq`` out where it is [0], and look that an update is as declared.

    One worker for which nothing is declared accumulates nothing.

    Args:
        cfg: fairseq's configuration; its batch_size and update_freq are set.
        workers: that really train, which Slurm or torchrun may have decided.

    Raises:
        ValueError: an update has not what SEQUENCES_PER_UPDATE declares.
    """
    dataset, optimization = cfg.dataset, cfg.optimization
    wanted = declared(os.environ.get(SEQUENCES, ""))
    works_out = list(optimization.update_freq) == WORKED_OUT
    if wanted is None and works_out:
        if workers > 1:
            raise ValueError(
                f"optimization.update_freq={WORKED_OUT}: {SEQUENCES} is not set; "
                "allowed: an update's sequences there, or batches to accumulate here"
            )
        optimization.update_freq = [1]
    if dataset.batch_size is None or dataset.max_tokens is not None:
        if wanted is None:
            return
        raise ValueError(
            f"dataset.max_tokens={dataset.max_tokens}: an update has no fixed number "
            f"of sequences; allowed with {SEQUENCES}={wanted}: dataset.batch_size alone"
        )
    if wanted is not None and works_out:
        layout = lay_out(wanted, workers, most=dataset.batch_size)
        dataset.batch_size = layout.batch
        optimization.update_freq = [layout.update_freq]
    for update_freq in optimization.update_freq:
        told = Layout(dataset.batch_size, update_freq).described(workers)
        if wanted not in (None, workers * dataset.batch_size * update_freq):
            raise ValueError(
                f"{told}; {SEQUENCES} is {wanted}; allowed: an empty {SEQUENCES}, or "
                f"optimization.update_freq={WORKED_OUT}, which fills it"
            )
        logger.info(told)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _nearest(number: int, wanted: int) -> str:
    near = [n for n in _divisors(number) if n < wanted][-1:]
    near += [n for n in _divisors(number) if n > wanted][:1]
    return ", ".join(map(str, near))

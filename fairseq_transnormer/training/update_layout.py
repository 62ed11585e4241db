"""An update's sequences shared among workers: what each takes at once, and how often.

    sequences = workers * batch * update_freq

exactly: the total batch decides what a run learns, and is the paper's on any number of
workers.
"""

import logging
import os
from typing import NamedTuple

logger = logging.getLogger(__name__)

# sequences of an update: the environment carries it, since fairseq has no option for it
SEQUENCES = "SEQUENCES_PER_UPDATE"
# Hydra overwrites the environment with this
IN_HYDRA = f"hydra.job.env_set.{SEQUENCES}="
# value of update_freq that stands for: whatever fills the update
WORKED_OUT = [0]


class Layout(NamedTuple):
    """What each worker does for an update.

    Attributes:
        batch: sequences that it takes at once.
        update_freq: such batches, accumulated.
    """

    batch: int
    update_freq: int


def lay_out(
    sequences: int, workers: int, most: int | None = None, batch: int | None = None
) -> Layout:
    """Share ``sequences`` among ``workers``.

    Args:
        sequences: of an update.
        workers: processes with a GPU each, or on the CPU, of all nodes together.
        most: sequences that a worker can take at once; the layout has the most of
            these that divide its share.
        batch: sequences that a worker shall take at once, instead of ``most``.

    Raises:
        ValueError: there are no sequences, or the workers, or ``batch``, do not divide
            them; the nearest numbers that do are named.
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


def described(sequences: int, workers: int, layout: Layout) -> str:
    """For a log: how an update comes about."""
    return (
        f"an update has {sequences} sequences: {workers} workers x {layout.batch} at "
        f"once x {layout.update_freq} accumulated"
    )


def check_shared_updates(cfg, workers: int) -> None:
    """Raise ValueError where they make their own, and SEQUENCES_PER_UPDATE is set."""
    apart = {
        "optimization.use_bmuf=true": cfg.optimization.use_bmuf,
        "distributed_training.ddp_backend=slowmo": (
            cfg.distributed_training.ddp_backend == "slowmo"
        ),
    }
    found = [name for name, chosen in apart.items() if chosen]
    if found and workers > 1 and _declared() is not None:
        raise ValueError(
            f"{found[0]}: each of {workers} workers makes updates of its own, so that "
            f"none has the sequences that {SEQUENCES}={_declared()} says; allowed: "
            f"neither, or an empty {SEQUENCES} (in Hydra {IN_HYDRA})"
        )


def set_update_layout(cfg, workers: int) -> None:
    """Work ``update_freq`` out where it is [0], and look that an update is as declared.

    One worker for which nothing is declared accumulates nothing.

    Args:
        cfg: fairseq's configuration; its batch_size and update_freq are set.
        workers: that really train, which Slurm or torchrun may have decided.

    Raises:
        ValueError: the sequences of an update cannot be, or are not, those that
            SEQUENCES_PER_UPDATE declares.
    """
    dataset, optimization = cfg.dataset, cfg.optimization
    wanted = _declared()
    work_out = list(optimization.update_freq) == WORKED_OUT
    if wanted is None and work_out:
        if workers > 1:
            raise ValueError(
                f"optimization.update_freq={WORKED_OUT}: {SEQUENCES} is not set; "
                "allowed: the sequences of an update there (in Hydra "
                f"++{IN_HYDRA}N), or the batches to accumulate here"
            )
        optimization.update_freq, work_out = [1], False
    if dataset.batch_size is None or dataset.max_tokens is not None:
        if wanted is not None:
            raise ValueError(
                f"dataset.max_tokens={dataset.max_tokens}: an update has no fixed "
                f"number of sequences; allowed with {SEQUENCES}={wanted}: "
                "dataset.batch_size alone"
            )
        return
    if work_out:
        layout = lay_out(wanted, workers, most=dataset.batch_size)
        dataset.batch_size, optimization.update_freq = (
            layout.batch,
            [layout.update_freq],
        )
    for update_freq in optimization.update_freq:
        layout = Layout(dataset.batch_size, update_freq)
        sequences = workers * layout.batch * layout.update_freq
        told = described(sequences, workers, layout)
        if wanted not in (None, sequences):
            raise ValueError(f"{told}; {_instead(wanted, workers, layout.batch)}")
        logger.info(told)


def _declared() -> int | None:
    text = os.environ.get(SEQUENCES, "")
    if text and (not text.isdecimal() or int(text) == 0):
        raise ValueError(f"{SEQUENCES}={text}; allowed: 1, 2, ... or nothing")
    return int(text) if text else None


def _instead(wanted: int, workers: int, batch: int) -> str:
    try:
        update_freq = lay_out(wanted, workers, batch=batch).update_freq
        allowed = f"optimization.update_freq=[{update_freq}]"
    except ValueError as error:
        allowed = f"others ({error})"
    return (
        f"{SEQUENCES} is {wanted}; allowed: {allowed}, or an empty {SEQUENCES} (in "
        f"Hydra {IN_HYDRA}) for any number"
    )


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _nearest(number: int, wanted: int) -> str:
    divisors = _divisors(number)
    below = [n for n in divisors if n < wanted][-1:]
    above = [n for n in divisors if n > wanted][:1]
    return ", ".join(map(str, below + above))

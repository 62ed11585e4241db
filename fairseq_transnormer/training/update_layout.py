"""An update's sequences shared among workers: what each takes at once, and how often.

    sequences = workers * batch * update_freq

exactly: the total batch decides what a run learns, and is the paper's on any number of
workers.
"""

from typing import NamedTuple

# sequences of an update: the environment carries it, since fairseq has no option for it
SEQUENCES = "SEQUENCES_PER_UPDATE"


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


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _nearest(number: int, wanted: int) -> str:
    divisors = _divisors(number)
    below = [n for n in divisors if n < wanted][-1:]
    above = [n for n in divisors if n > wanted][:1]
    return ", ".join(map(str, below + above))

"""Where runs run: slots, each for one run at a time."""

import os
from dataclasses import dataclass

from ..errors import ReproduceError


@dataclass(frozen=True)
class Slot:
    """A place for one run.

    Attributes:
        gpus: as CUDA_VISIBLE_DEVICES names them; empty on the CPU.
        threads: of the run's process, where it is on the CPU.
        runs_at_once: on the machine, which tell what its speed is worth.
    """

    gpus: tuple[str, ...] = ()
    threads: int = 1
    runs_at_once: int = 1

    def environment(self) -> dict[str, str]:
        """The environment of what runs here."""
        own = {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)}
        if not self.gpus and "OMP_NUM_THREADS" not in os.environ:
            own["OMP_NUM_THREADS"] = str(self.threads)
        return {**os.environ, **own, "PYTHONUNBUFFERED": "1"}

    def __str__(self) -> str:
        if self.gpus:
            place = "GPU " + ",".join(self.gpus)
        else:
            place = f"CPU, {self.environment()['OMP_NUM_THREADS']} threads"
        return f"{place}, {self.runs_at_once} at once"


def visible_gpus() -> list[str]:
    """This machine's GPUs as CUDA_VISIBLE_DEVICES names them: numbers, or UUIDs."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(count))
    return [name.strip() for name in names][:count]


def chosen_gpus(wanted: str) -> list[str]:
    """The GPUs that ``--gpus`` names: "auto", "none" or some such as "0,2".

    Raises:
        ReproduceError: the machine does not have them.
    """
    if wanted == "none":
        return []
    present = visible_gpus()
    if wanted == "auto":
        return present
    names = [name.strip() for name in wanted.split(",")]
    if not set(names) <= set(present):
        has = ",".join(present) or "no GPU"
        raise ReproduceError(
            f"--gpus {wanted}: this machine has {has}; allowed: auto, none, or some "
            "of its GPUs with commas between them"
        )
    return list(dict.fromkeys(names))


def make_slots(gpus: list[str], gpus_per_run: int, jobs: int | None) -> list[Slot]:
    """Slots for ``jobs`` runs at once.

    Args:
        gpus: to use; none means the CPU.
        gpus_per_run: that a run takes.
        jobs: runs at once; by default one a group of GPUs, or one on the CPU. More
            runs than groups share them.

    Raises:
        ReproduceError: there are fewer GPUs than one run takes.
    """
    if not gpus:
        jobs = jobs or 1
        threads = max(1, len(os.sched_getaffinity(0)) // jobs)
        return [Slot(threads=threads, runs_at_once=jobs)] * jobs
    if len(gpus) < gpus_per_run:
        raise ReproduceError(
            f"a run takes {gpus_per_run} GPUs and {len(gpus)} are there; "
            "--gpus-per-run N changes that and keeps the sequences of an update"
        )
    groups = [
        tuple(gpus[start : start + gpus_per_run])
        for start in range(0, len(gpus) - gpus_per_run + 1, gpus_per_run)
    ]
    jobs = jobs or len(groups)
    return [Slot(groups[i % len(groups)], runs_at_once=jobs) for i in range(jobs)]

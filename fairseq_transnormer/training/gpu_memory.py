"""How many sequences of 512 tokens the memory of a GPU holds, by an estimate.

Imports torch only where there is a driver, which is asked where a command line is made.
"""

import shutil
from pathlib import Path
from typing import NamedTuple


class Need(NamedTuple):
    """GB of the paper's models.

    Attributes:
        model: for weights, gradients and Adam's state.
        sequence: for one of a batch, while its gradients are computed.
    """

    model: float
    sequence: float


# of T1 and T2 with the plugin's criterions and fused_adam, by results/cost_model
NEEDS = {
    ("language_modeling", False): Need(4.7, 0.08),
    ("language_modeling", True): Need(4.3, 0.06),
    ("masked_lm", False): Need(2.9, 0.29),
    ("masked_lm", True): Need(3.2, 0.2),
}
# the rest is CUDA's, NCCL's, and lost between tensors
SHARE_OF_MEMORY = 0.9


def largest_batch(memory: float, need: Need, most: int) -> int:
    """The largest power of two that is at most ``most``, and fits in ``memory`` GB.

    It is 1 where nothing fits: the estimate may be wrong.
    """
    batch = 1
    while 2 * batch <= most and (
        need.model + 2 * batch * need.sequence <= SHARE_OF_MEMORY * memory
    ):
        batch *= 2
    return batch


def least_memory(gpus: int) -> float | None:
    """GB of the smallest of this machine's first GPUs; None if there is none."""
    if not (shutil.which("nvidia-smi") or Path("/dev/nvidiactl").exists()):
        return None
    import torch

    found = range(min(gpus, torch.cuda.device_count()))
    memory = (torch.cuda.get_device_properties(i).total_memory for i in found)
    return min(memory, default=0) / 1e9 or None


def described_batch(need: Need | None, gpus: int, most: int) -> tuple[int, str]:
    """The largest batch for this machine's first GPUs, and why it is that.

    Args:
        need: of the model; None where it is not known.
        gpus: that are used.
        most: sequences that a GPU is to take at most.

    Returns:
        ``most`` and nothing, where there is no GPU to ask.
    """
    memory = None if need is None else least_memory(gpus)
    if memory is None:
        return most, ""
    return largest_batch(memory, need, most), (
        f"{SHARE_OF_MEMORY:.0%} of its {memory:.0f} GB are to hold {need.model} GB and "
        f"{need.sequence} GB a sequence, by estimate; {most} at most"
    )

"""How many sequences of 512 tokens the memory of a GPU holds, by an estimate.

Imports torch only where there is a driver, so that scripts/train.sh can ask anywhere.
"""

import argparse
import shutil
import sys
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


HALF = ("fp16", "bf16")
# float32: configs/README.md; half precision: results/cost_model
NEEDS = {
    ("language_modeling", False): Need(2.5, 1.8),
    ("language_modeling", True): Need(3.1, 1.7),
    ("masked_lm", False): Need(2.0, 0.44),
    ("masked_lm", True): Need(2.5, 0.23),
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


def main() -> None:
    """Print the batch, and why it is that where a GPU was asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=sorted({task for task, _ in NEEDS}))
    parser.add_argument("precision", choices=["fp32", *HALF])
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--most", type=int, required=True)
    given = parser.parse_args()
    sys.path.pop(0)  # this folder's modules are not torch's
    memory = least_memory(given.gpus)
    if memory is None:
        print(given.most)
        return
    need = NEEDS[given.task, given.precision in HALF]
    print(
        f"{largest_batch(memory, need, given.most)} {SHARE_OF_MEMORY:.0%} of its "
        f"{memory:.0f} GB are to hold {need.model} GB and {need.sequence} GB a "
        f"sequence, by estimate; {given.most} at most"
    )


if __name__ == "__main__":
    main()

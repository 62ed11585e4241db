"""Drop what a finished fine-tuning no longer needs: the best weights stay.

python -m fairseq_transnormer.reproduce.slim_checkpoints FOLDER

A sweep leaves hundreds of checkpoints, two thirds of each the optimizer's state.
"""

import os
import sys
from pathlib import Path

BEST = "checkpoint_best.pt"


def slim(folder: Path) -> None:
    """Keep ``checkpoint_best.pt``, without the optimizer's state, and nothing else."""
    import torch

    from .. import models  # noqa: F401 (lets torch read fairseq's configurations)

    best = folder / BEST
    state = torch.load(best, map_location="cpu", weights_only=True)
    if state.get("last_optimizer_state") is not None:
        state["last_optimizer_state"] = None
        part = best.with_name(BEST + ".part")
        torch.save(state, part)
        os.replace(part, best)
    for path in folder.glob("checkpoint*.pt"):
        if path != best:
            path.unlink()


if __name__ == "__main__":
    slim(Path(sys.argv[1]))

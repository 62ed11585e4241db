"""One fine-tuning in the folder of its run: checked, trained, its best weights kept.

python -m fairseq_transnormer.reproduce.finetune_run config.yaml

Exit code 2: checkpoint or data do not fit, nothing was trained.
"""

import sys
from pathlib import Path
from typing import Any

from ..checkpoints.files import LAST, SAVED
from ..checkpoints.pretrained import PretrainedCheckpoint
from ..checkpoints.safe_loading import read_checkpoint
from ..data.labelled_texts import SentenceData
from ..data.whole_files import write_whole
from ..training.launch import train_file

BEST = "checkpoint_best.pt"


def check(configuration: dict[str, Any]) -> None:
    """Raise ValueError unless a fine-tuning can start as it is configured."""
    data = SentenceData.read(configuration["task"]["data"])
    start = configuration["checkpoint"]["finetune_from_model"]
    if start is not None:
        checkpoint = PretrainedCheckpoint.read(start)
        checkpoint.check_data(data)
        checkpoint.check_model(configuration["model"])


def slim(folder: Path) -> None:
    """Of fairseq's checkpoints keep the best alone, without the optimizer's state.

    A sweep leaves hundreds of checkpoints, two thirds of each the optimizer's state.
    """
    import torch

    best = folder / BEST
    state = read_checkpoint(best)
    if state.get("last_optimizer_state") is not None:
        state["last_optimizer_state"] = None
        write_whole(best, lambda file: torch.save(state, file))
    for path in folder.glob("checkpoint*.pt"):
        if path != best and (path.name == LAST or SAVED.fullmatch(path.name)):
            path.unlink()


def is_trained(folder: Path) -> bool:
    """Whether ``slim`` has been here: its process may have died before it could say."""
    best = folder / BEST
    if not best.exists() or (folder / LAST).exists():
        return False
    try:
        state = read_checkpoint(best, mmap=True)
    except ValueError:  # damaged: it is trained anew
        return False
    return state.get("last_optimizer_state") is None


def main(path: Path) -> int:
    """Run the fine-tuning of a configuration; the exit status."""
    import yaml

    try:
        check(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        print(f"finetune_run: {error}", file=sys.stderr)
        return 2
    folder = path.parent / "checkpoints"
    if is_trained(folder):
        print(f"finetune_run: {folder / BEST} is of a finished training")
    else:
        train_file(path)
        slim(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

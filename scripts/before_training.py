"""What train.sh and train_lra.sh look at before they start training.

The GPUs must be there, and with --arch the architecture, which a run that goes on must
have had.
"""

import argparse
import logging
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def check_architecture(arch: str, task: str) -> None:
    """Raise ValueError unless fairseq knows ``arch`` as a model for ``task``."""
    from fairseq.models import (
        ARCH_MODEL_REGISTRY,
        FairseqEncoderModel,
        FairseqLanguageModel,
    )

    kind = {
        "language_modeling": FairseqLanguageModel,
        "masked_lm": FairseqEncoderModel,
    }[task]
    known = ARCH_MODEL_REGISTRY
    if arch not in known or not issubclass(known[arch], kind):
        package = "fairseq_transnormer."
        ours = [
            name
            for name, model in known.items()
            if model.__module__.startswith(package) and issubclass(model, kind)
        ]
        raise ValueError(
            f"--arch {arch} is no model for {task}; allowed: {', '.join(sorted(ours))} "
            "and fairseq's own"
        )


def check_gpus(wanted: int) -> None:
    """Raise ValueError if this machine has fewer GPUs."""
    import torch

    if wanted > torch.cuda.device_count():
        raise ValueError(
            f"--gpus {wanted}: this machine has {torch.cuda.device_count()}; "
            "0 trains on the CPU"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", required=True, type=int)
    parser.add_argument("--arch", help="with --task and --save-dir")
    parser.add_argument("--task")
    parser.add_argument("--save-dir", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)  # fairseq reports missing packages for speech
    sys.path.insert(0, str(ROOT))
    try:
        check_gpus(arguments.gpus)
        if arguments.arch:
            from fairseq_transnormer.checkpoints.files import check_last_checkpoint

            check_architecture(arguments.arch, arguments.task)
            check_last_checkpoint(arguments.arch, arguments.save_dir)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()

"""What train.sh looks at before it starts fairseq-train.

The architecture and the GPUs must be there, and a run that goes on must be of that
architecture. A last checkpoint that a killed run left
half written is replaced by the newest complete one, since fairseq would stop at it.
"""

import argparse
import logging
import os
import shutil
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def repair_last_checkpoint(save_dir: Path) -> Path | None:
    """Replace a truncated ``checkpoint_last.pt``; it is kept under another name.

    Returns:
        the checkpoint that it is now a copy of, or None if nothing was wrong.

    Raises:
        ValueError: the folder has no complete checkpoint to put in its place.
    """
    last = save_dir / "checkpoint_last.pt"
    if not last.exists() or zipfile.is_zipfile(last):
        return None
    complete = [
        path
        for path in save_dir.glob("checkpoint*.pt")
        if path != last and zipfile.is_zipfile(path)
    ]
    if not complete:
        raise ValueError(
            f"{last} is damaged and {save_dir} has no complete checkpoint; "
            "remove it to start anew"
        )
    newest = max(complete, key=lambda path: path.stat().st_mtime)
    copy = last.with_name("checkpoint_last.pt.copy")
    shutil.copyfile(newest, copy)
    os.replace(last, last.with_name("checkpoint_last.pt.damaged"))
    os.replace(copy, last)
    return newest


def check_architecture(arch: str, task: str) -> None:
    """Raise ValueError unless fairseq knows ``arch`` as a model for ``task``."""
    from fairseq.models import (
        ARCH_MODEL_REGISTRY,
        FairseqEncoderModel,
        FairseqLanguageModel,
    )

    import fairseq_transnormer

    kind = {
        "language_modeling": FairseqLanguageModel,
        "masked_lm": FairseqEncoderModel,
    }[task]
    known = ARCH_MODEL_REGISTRY
    if arch not in known or not issubclass(known[arch], kind):
        package = fairseq_transnormer.__name__ + "."
        ours = [
            name
            for name, model in known.items()
            if model.__module__.startswith(package) and issubclass(model, kind)
        ]
        raise ValueError(
            f"--arch {arch} is no model for {task}; allowed: {', '.join(sorted(ours))} "
            "and fairseq's own"
        )


def check_last_checkpoint(arch: str, save_dir: Path) -> None:
    """Raise ValueError if the run in ``save_dir`` is of another architecture.

    T1 and T2 have the same parameters by name and shape: fairseq would go on.
    """
    import torch

    last = save_dir / "checkpoint_last.pt"
    if not last.exists():
        return
    state = torch.load(last, map_location="cpu", weights_only=True, mmap=True)
    found = (state.get("cfg") or {}).get("model", {}).get("_name", arch)
    if found != arch:
        raise ValueError(
            f"{last} is of {found}; allowed with it: --arch {found}, or another "
            f"--save-dir for --arch {arch}"
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
    parser.add_argument("--task", required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--gpus", required=True, type=int)
    parser.add_argument("--save-dir", required=True, type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)  # fairseq reports missing packages for speech
    sys.path.insert(0, str(ROOT))
    try:
        check_gpus(arguments.gpus)
        check_architecture(arguments.arch, arguments.task)
        copied = repair_last_checkpoint(arguments.save_dir)
        check_last_checkpoint(arguments.arch, arguments.save_dir)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    if copied is not None:
        print(f"checkpoint_last.pt was damaged; going on from {copied}")


if __name__ == "__main__":
    main()

"""``python -m fairseq_transnormer export``."""

from __future__ import annotations

import sys
from pathlib import Path


def export(checkpoint: Path, /, dest: Path, data: Path | None = None) -> None:
    """Export a checkpoint of fairseq-train as safetensors and JSON.

    The folder has config.json, model.safetensors and, if they are found, dict.txt and
    the subword files. fairseq_transnormer.checkpoints.load reads it, and so does
    transformers after "import fairseq_transnormer.hf". Neither needs fairseq or pickle.

    Args:
        checkpoint: of fairseq-train.
        dest: folder to make; it must not exist.
        data: folder with dict.txt; None: that of the training, or of the checkpoint.
    """
    from .export import export_checkpoint
    from .manifest import MANIFEST

    done = export_checkpoint(checkpoint, dest, data)
    files = ", ".join([MANIFEST, *done.manifest.files])
    print(f"{dest}: {done.manifest.architecture}, {files}")
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)

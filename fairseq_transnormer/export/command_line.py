"""Export a checkpoint of fairseq-train as safetensors and JSON.

The folder has config.json, model.safetensors and, where they are found, dict.txt and
the files of the subword units. fairseq_transnormer.export.load_exported reads it, and
transformers after "import fairseq_transnormer.hf"; neither needs fairseq or pickle.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..missing_packages import explanation
from .errors import ExportError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_transnormer export", description=__doc__
    )
    parser.add_argument("checkpoint", type=Path, help="of fairseq-train")
    parser.add_argument(
        "--dest", type=Path, required=True, help="folder to make; it must not exist"
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with dict.txt (default: the training's, or the checkpoint's)",
    )
    args = parser.parse_args(arguments)
    try:
        # fairseq: seconds that --help shall not cost
        from .. import plugin  # noqa: F401 (imports fairseq first)
        from .writing import export_checkpoint

        done = export_checkpoint(args.checkpoint, args.dest, args.data)
    except ImportError as error:
        print(f"{parser.prog}: error: {explanation(error)}", file=sys.stderr)
        return 2
    except ExportError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2
    print(f"{args.dest}: {done.architecture}, {', '.join(done.files)}")
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0

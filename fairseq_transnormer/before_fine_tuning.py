"""Look at a fine-tuning's checkpoint and data before it starts; exit code 2 if unfit.

python -m fairseq_transnormer.before_fine_tuning CONFIGURATION.yaml
"""

import sys
from pathlib import Path

import yaml

from .pretrained_checkpoint import PretrainedCheckpoint
from .sentence_data import SentenceData


def check(configuration: dict) -> None:
    """Raise ValueError unless a fine-tuning can start as it is configured."""
    data = SentenceData.read(configuration["task"]["data"])
    num_classes = configuration["task"]["num_classes"]
    if num_classes != data.num_classes:
        raise ValueError(
            f"num_classes={num_classes}; allowed with {data.folder}: {data.num_classes}"
        )
    start = configuration["checkpoint"]["finetune_from_model"]
    if start is not None:
        checkpoint = PretrainedCheckpoint.read(start)
        checkpoint.check_data(data)
        checkpoint.check_model(configuration["model"])


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        check(yaml.safe_load(Path(arguments[0]).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        print(f"before_fine_tuning: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

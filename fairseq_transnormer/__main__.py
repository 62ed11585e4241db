"""``python -m fairseq_transnormer COMMAND``: every command of the package."""

import logging
import sys

from .cli import Subcommand, run

COMMANDS = {
    "train": Subcommand(
        f"{__package__}.training.launch",
        "train by a configuration, on a CPU, GPUs or a cluster",
    ),
    "score": Subcommand(
        f"{__package__}.inference.score_command:score",
        "log-probability, perplexity and bits a byte of texts",
    ),
    "generate": Subcommand(
        f"{__package__}.inference.generate_command:generate",
        "continue prompts with a trained language model",
    ),
    "classify": Subcommand(
        f"{__package__}.inference.classify_command:classify",
        "label texts, evaluate or write a submission with a fine-tuned classifier",
    ),
    "export": Subcommand(
        f"{__package__}.checkpoints.export_command:export",
        "write a checkpoint as a folder that is loaded without fairseq",
    ),
    "verify": Subcommand(
        f"{__package__}.verify_command:verify",
        "try the Triton kernels on this device, ahead of a training",
    ),
    "reproduce": Subcommand(
        f"{__package__}.reproduce.commands",
        "run the paper's tables and compare results with its figures",
    ),
    "analyse": Subcommand(
        f"{__package__}.analysis.commands",
        "curves, summaries and the paper's analyses of runs and models",
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return run(
        f"python -m {__package__}",
        "TransNormer, trained by fairseq. To train: scripts/, or fairseq's commands.",
        COMMANDS,
        arguments,
    )


if __name__ == "__main__":
    # the log of a training is whole; where a model is only used, it is in the way
    if sys.argv[1:2] not in (["train"], ["reproduce"]):
        logging.getLogger("fairseq").setLevel(logging.WARNING)
    sys.exit(main())

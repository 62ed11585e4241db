"""``python -m fairseq_transnormer analyse NAME``: the analyses of runs and models."""

from ..cli import Subcommand, run

ANALYSES = {
    "summary": Subcommand(f"{__package__}.summary", "a run in a few lines"),
    "run_curves": Subcommand(f"{__package__}.run_curves", "loss curves of runs"),
    "gradient_statistics": Subcommand(
        f"{__package__}.gradient_statistics", "Table 2: how far gradients vary"
    ),
    "update_line": Subcommand(
        f"{__package__}.update_line", "the loss along one update of the weights"
    ),
    "gradient_bounds": Subcommand(
        f"{__package__}.gradient_bounds", "section 3.1: bounds of the gradients"
    ),
    "attention_scores": Subcommand(
        f"{__package__}.attention_scores", "Figures 1 and 3: where attention goes"
    ),
    "context_use": Subcommand(
        f"{__package__}.context_use", "perplexity over the length of the context"
    ),
    "frequency_baselines": Subcommand(
        f"{__package__}.frequency_baselines", "perplexity of unigram and bigram"
    ),
    "trivial_rules": Subcommand(
        f"{__package__}.trivial_rules", "accuracy of what needs no model"
    ),
    "images": Subcommand(f"{__package__}.images", "draw and complete images"),
    "precision_curves": Subcommand(
        f"{__package__}.precision_curves", "half precision beside float32"
    ),
    "systems": Subcommand(
        f"{__package__}.systems", "names, parameters and operations of every system"
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run an analysis; returns its exit code."""
    return run(
        "python -m fairseq_transnormer analyse",
        "Reads logs, checkpoints and data; docs/analyses.md explains what comes out.",
        ANALYSES,
        arguments,
    )

"""``python -m fairseq_transnormer analyse NAME``: the analyses of runs and models."""

from ..subcommands import Subcommand, run

_ROOT = __package__.rpartition(".")[0]
ANALYSES = {
    "summary": Subcommand(f"{_ROOT}.analysis.summary", "a run in a few lines"),
    "run_curves": Subcommand(f"{_ROOT}.analysis.run_curves", "loss curves of runs"),
    "gradient_statistics": Subcommand(
        f"{_ROOT}.analysis.gradient_statistics", "Table 2: how far gradients vary"
    ),
    "update_line": Subcommand(
        f"{_ROOT}.analysis.update_line", "the loss along one update of the weights"
    ),
    "gradient_bounds": Subcommand(
        f"{_ROOT}.analysis.gradient_bounds", "section 3.1: bounds of the gradients"
    ),
    "attention_scores": Subcommand(
        f"{_ROOT}.analysis.attention_scores", "Figures 1 and 3: where attention goes"
    ),
    "context_use": Subcommand(
        f"{_ROOT}.analysis.context_use", "perplexity over the length of the context"
    ),
    "frequency_baselines": Subcommand(
        f"{_ROOT}.analysis.frequency_baselines", "perplexity of unigram and bigram"
    ),
    "trivial_rules": Subcommand(
        f"{_ROOT}.analysis.trivial_rules", "accuracy of what needs no model"
    ),
    "images": Subcommand(f"{__package__}.reports.images", "draw and complete images"),
    "precision_curves": Subcommand(
        f"{__package__}.reports.precision_curves", "half precision beside float32"
    ),
    "systems": Subcommand(
        f"{_ROOT}.analysis.systems", "names, parameters and operations of every system"
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run an analysis; returns its exit code."""
    return run(
        f"python -m {_ROOT} analyse",
        "Reads logs, checkpoints and data; docs/analyses.md explains what comes out.",
        ANALYSES,
        arguments,
    )

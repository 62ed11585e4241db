"""Table and chart of ``compare_models``."""

from __future__ import annotations

from statistics import mean, stdev

from ..harness.charts import Panel
from ..harness.markdown import table
from ..harness.timing import Spread

TITLE = "Language models of one size on the same text"
X_LABEL = "update"


def by_row(run: dict) -> dict[str, list[dict]]:
    """Runs of each row, one a seed."""
    rows = {}
    for measurement in run["measurements"]:
        rows.setdefault(measurement["row"], []).append(measurement)
    return rows


def panels(run: dict) -> list[Panel]:
    """Training loss and validation perplexity, median and quartiles of the seeds."""

    def lines(kind: str, value: str) -> dict[str, dict[int, Spread]]:
        drawn = {}
        for row, seeds in by_row(run).items():
            points = {}
            for seed in seeds:
                for record in seed[kind]:
                    points.setdefault(record["update"], []).append(record[value])
            drawn[row] = {update: Spread.of(each) for update, each in points.items()}
        return drawn

    return [
        Panel("Training loss", "bits a token", lines("train", "loss")),
        Panel("Validation", "perplexity", lines("valid", "ppl")),
    ]


def tables(run: dict) -> str:
    """Final validation perplexity: mean, standard deviation, each seed."""
    rows = []
    for row, seeds in by_row(run).items():
        final = [seed["valid"][-1]["ppl"] for seed in seeds]
        spread = f" ± {stdev(final):.2f}" if len(final) > 1 else ""
        rows.append(
            [
                row,
                f"{seeds[0]['parameters']:,}",
                f"{mean(final):.2f}{spread}",
                ", ".join(f"{perplexity:.2f}" for perplexity in final),
            ]
        )
    header = ["", "parameters", "validation perplexity (mean ± s.d.)", "each seed"]
    return table(header, rows)

"""Tables and charts of ``generation_cost``."""

from __future__ import annotations

from ..harness.charts import Panel
from ..harness.markdown import milliseconds, ratio, size, table
from ..harness.phases import PREFILL, STEP
from ..harness.timing import Spread

TITLE = "Cost of generation over the context"
X_LABEL = "context (tokens)"


def lines(run: dict, phase: str) -> tuple[dict, dict]:
    """contestant -> context -> Spread of seconds, and -> bytes kept between tokens."""
    times, kept = {}, {}
    for row in run["measurements"]:
        if row["phase"] == phase and "skipped" not in row:
            name, context = row["contestant"], row["context"]
            times.setdefault(name, {})[context] = Spread.of(row["seconds"])
            if "kept_bytes" in row:
                kept.setdefault(name, {})[context] = row["kept_bytes"]
    return times, kept


def panels(run: dict) -> list[Panel]:
    """Time of a step, what is kept, time of the prefill."""
    steps, kept = lines(run, STEP)
    prefills, _ = lines(run, PREFILL)
    return [
        Panel("Time for one token", "milliseconds", steps),
        Panel("Kept between tokens", "MiB", kept),
        Panel("Time to take in the prompt", "milliseconds", prefills),
    ]


def tables(run: dict) -> str:
    """Time of a step, what is kept, time of the prefill; ratios."""
    steps, kept = lines(run, STEP)
    prefills, _ = lines(run, PREFILL)
    contexts = sorted({row["context"] for row in run["measurements"]})
    header = ["", *(f"context {n}" for n in contexts)]

    def rows(values: dict, shown) -> list[list[str]]:
        return [
            [name, *(shown(line[n]) if n in line else "-" for n in contexts)]
            for name, line in values.items()
        ]

    def ratios(times: dict) -> list[list[str]]:
        ours, *others = times
        return [
            [
                f"{name} / {ours}",
                *(
                    ratio(times[ours][n].median, times[name][n].median)
                    if n in times[name]
                    else "-"
                    for n in contexts
                ),
            ]
            for name in others
        ]

    parameters = ", ".join(
        f"{name} {count:,}" for name, count in run["settings"]["parameters"].items()
    )
    return "\n\n".join(
        [
            f"Parameters: {parameters}. The vocabulary of "
            f"{run['settings']['vocabulary']:,} is small for the paper's, so that the "
            "output layer, the same for all, does not hide the attention.",
            "**Milliseconds for one token**, median (quartiles), and ratios",
            table(header, rows(steps, milliseconds) + ratios(steps)),
            "**Kept between tokens**",
            table(header, rows(kept, size)),
            "**Milliseconds to take in the prompt**, median (quartiles), and ratios",
            table(header, rows(prefills, milliseconds) + ratios(prefills)),
            "fairseq fills its cache token by token only; the plain pass shows what a "
            "prefill in one pass would cost at the least. For its one-token steps the "
            "cache is filled with random numbers.",
        ]
    )

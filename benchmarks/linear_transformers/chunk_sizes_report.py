"""Tables and charts of ``chunk_sizes``."""

from __future__ import annotations

import statistics

from ..harness.charts import Panel
from ..harness.markdown import milliseconds, ratio, table
from ..harness.timing import Spread
from .chunk_sizes import MODES, OURS, PLAIN
from .fits import ChunkCost, Claim, chunk_cost, claims_table

TITLE = "The chunk size of causal linear attention"
X_LABEL = "chunk size c (tokens)"
# slower than the best chunk size by at most this counts as near it
NEAR = 1.25


def lines(run: dict, contestant: str, mode: str) -> dict[tuple[int, int], dict]:
    """(length, width) -> chunk size -> Spread of seconds."""
    found = {}
    for row in run["measurements"]:
        if (row["contestant"], row["mode"]) == (contestant, mode) and "seconds" in row:
            line = found.setdefault((row["length"], row["width"]), {})
            line[row["chunk_size"]] = Spread.of(row["seconds"])
    return dict(sorted(found.items()))


def cost(run: dict, contestant: str, mode: str, with_sums: bool) -> ChunkCost | None:
    """The post's formula fitted to all lengths and widths at once."""
    points = [
        (
            row["chunk_size"],
            row["width"],
            statistics.median(row["seconds"]) / _tokens_and_heads(run, row["length"]),
        )
        for row in run["measurements"]
        if (row["contestant"], row["mode"]) == (contestant, mode) and "seconds" in row
    ]
    return chunk_cost(points, with_sums) if len(points) > 3 else None


def panels(run: dict) -> list[Panel]:
    """Time over the chunk size; dashed, the fit with the sums."""
    drawn = []
    for contestant in (PLAIN, OURS):
        for mode in MODES:
            each = lines(run, contestant, mode)
            law = cost(run, contestant, mode, with_sums=True)
            names = {key: "n = {}, d = {}".format(*key) for key in each}
            fits = {
                names[n, d]: {
                    c: law.seconds(c, d) * _tokens_and_heads(run, n) for c in each[n, d]
                }
                for n, d in each
                if law
            }
            drawn.append(
                Panel(
                    f"{contestant}, {mode}",
                    "milliseconds",
                    {names[key]: line for key, line in each.items()},
                    fits=fits,
                )
            )
    return drawn


def tables(run: dict) -> str:
    """Claims, fitted costs, best chunk sizes, and all times."""
    parts = [
        "**What the post says and what was measured here**",
        claims_table(claims(run)),
        "**The cost fitted**, nanoseconds of a token and head: a d^2 + b c d is the "
        "post's t d^2 + t c d; with s d^2 / c the cumulative sum over the chunks, "
        "(t / c) d^2, which its listing names, comes in. Deviation: median error of "
        "the fit over all chunk sizes, lengths and widths. The chart shows the second "
        "dashed.",
        _laws(run),
        "**Best chunk size** beside the fixed one, "
        f"{run['settings']['fixed_chunk_size']}",
        _bests(run),
    ]
    sizes = sorted({row["chunk_size"] for row in run["measurements"]})
    for contestant in (PLAIN, OURS):
        for mode in MODES:
            rows = [
                [
                    f"n = {n}, d = {d}",
                    *(milliseconds(line[c]) if c in line else "-" for c in sizes),
                ]
                for (n, d), line in lines(run, contestant, mode).items()
            ]
            parts += [
                f"**{contestant}, {mode}: milliseconds**, median (quartiles)",
                table(["", *(f"c = {c}" for c in sizes)], rows),
            ]
    return "\n\n".join(parts)


def claims(run: dict) -> list[Claim]:
    """What the post says about the chunk size, and this package's own choice."""
    fixed = run["settings"]["fixed_chunk_size"]
    worst, deviations, losses = [], [], []
    for mode in MODES:
        for line in lines(run, PLAIN, mode).values():
            times = [spread.median for spread in line.values()]
            worst.append(max(times) / min(times))
        law = cost(run, PLAIN, mode, with_sums=False)
        if law:
            deviations.append(law.deviation)
        for line in lines(run, OURS, mode).values():
            if fixed in line:
                losses.append(line[fixed].median / min(s.median for s in line.values()))
    return [
        Claim(
            "the chunk size must be set correctly for the best performance",
            f"the worst takes {min(worst):.1f} to {max(worst):.1f} times the best"
            if worst
            else "-",
            min(worst) > NEAR if worst else None,
        ),
        Claim(
            "the cost is t d^2 + t c d",
            "median error of its fit "
            + ", ".join(
                f"{100 * deviation:.0f} % ({mode})"
                for mode, deviation in zip(MODES, deviations, strict=False)
            ),
            max(deviations) < 0.25 if deviations else None,
        ),
        Claim(
            f"(this package: {fixed} is near the best everywhere)",
            f"{min(losses):.2f} to {max(losses):.2f} times the best" if losses else "-",
            max(losses) <= NEAR if losses else None,
        ),
    ]


def _laws(run: dict) -> str:
    rows = []
    for contestant in (PLAIN, OURS):
        for mode in MODES:
            for with_sums in (False, True):
                law = cost(run, contestant, mode, with_sums)
                if law is None:
                    continue
                formula = "a d^2 + b c d" + (" + s d^2 / c" if with_sums else "")
                rows.append(
                    [
                        f"{contestant}, {mode}: {formula}",
                        f"{1e9 * law.state:.3g}",
                        f"{1e9 * law.scores:.3g}",
                        f"{1e9 * law.sums:.3g}" if with_sums else "-",
                        f"{100 * law.deviation:.0f} %",
                    ]
                )
    return table(["", "a", "b", "s", "deviation"], rows)


def _bests(run: dict) -> str:
    fixed = run["settings"]["fixed_chunk_size"]
    rows = []
    for contestant in (PLAIN, OURS):
        for mode in MODES:
            law = cost(run, contestant, mode, with_sums=True)
            for (n, d), line in lines(run, contestant, mode).items():
                best = min(line, key=lambda c, line=line: line[c].median)
                fitted = law.best(d) if law else None
                loss = "-"
                if fixed in line:
                    loss = ratio(line[best].median, line[fixed].median)
                rows.append(
                    [
                        f"{contestant}, {mode}, n = {n}, d = {d}",
                        str(best),
                        "-" if fitted is None else f"{fitted:.0f}",
                        loss,
                    ]
                )
    header = ["", "measured", "of the fit", f"time of {fixed} / time of the best"]
    return table(header, rows)


def _tokens_and_heads(run: dict, length: int) -> int:
    settings = run["settings"]
    return max(1, settings["tokens"] // length) * length * settings["heads"]

"""Tables and charts of ``linear_attention_forms``."""

from __future__ import annotations

from ..harness.charts import Panel
from ..harness.markdown import milliseconds, size, table
from ..harness.phases import FORWARD, TRAINING
from ..harness.timing import Spread
from . import linear_attention_forms as forms
from .fits import (
    Claim,
    claims_table,
    grows_like,
    growth,
    orders_faster,
    overtakes,
    shown_crossing,
)
from .linear_attention_forms import BATCH_1, CONSTANT_TOKENS, SOFTMAX, WIDTHS

TITLE = 'The forms of "Linear Transformers Are Faster"'
X_LABEL = "length n (tokens)"
MODES = (FORWARD, TRAINING)
PARALLEL, STATES = "attention parallel", "state parallel"
LENGTH_EXPONENTS = {
    "attention loop": 2,
    PARALLEL: 2,
    "state loop": 1,
    STATES: 1,
    "chunked": 1,
}


def lines(run: dict, sweep: str, mode: str) -> tuple[dict, dict]:
    """contestant -> length (or width) -> Spread of seconds, and -> peak bytes."""
    axis = "width" if sweep == WIDTHS else "length"
    times, peaks = {}, {}
    for row in run["measurements"]:
        if (row["sweep"], row["mode"]) == (sweep, mode) and "seconds" in row:
            name, at = row["contestant"], row[axis]
            times.setdefault(name, {})[at] = Spread.of(row["seconds"])
            peaks.setdefault(name, {})[at] = row["peak_bytes"]
    return times, peaks


def medians(times: dict) -> dict[str, dict[int, float]]:
    """contestant -> size -> median seconds."""
    return {
        name: {n: spread.median for n, spread in line.items()}
        for name, line in times.items()
    }


def panels(run: dict) -> list[Panel]:
    """Time and memory at batch 1, time at constant tokens and over the width."""
    drawn = []
    for what, sweep, unit, x_label in (
        ("Time, batch 1", BATCH_1, "milliseconds", None),
        ("Peak memory, batch 1", BATCH_1, "MiB", None),
        (
            f"Time of {run['settings']['tokens']} tokens",
            CONSTANT_TOKENS,
            "milliseconds",
            None,
        ),
        (f"Time, n = {_width_length(run)}", WIDTHS, "milliseconds", "head width d"),
    ):
        for mode in MODES:
            values = lines(run, sweep, mode)[unit == "MiB"]
            if values:
                drawn.append(Panel(f"{what}, {mode}", unit, values, x_label))
    return drawn


def tables(run: dict) -> str:
    """Claims, crossings, and times and memory of every sweep."""
    parts = [
        "**What the post says and what was measured here**, forward and backward at "
        "batch 1 unless it says otherwise. Exponents count as agreeing within "
        "0.25, orders of magnitude when rounded.",
        claims_table(claims(run)),
        "**From which length on each form is faster than softmax attention** "
        f"({SOFTMAX}), interpolated",
        crossings(run),
    ]
    for sweep, title in (
        (BATCH_1, "Batch 1"),
        (CONSTANT_TOKENS, f"{run['settings']['tokens']} tokens"),
        (WIDTHS, f"Head widths at n = {_width_length(run)}, batch 1"),
    ):
        for mode in MODES:
            times, peaks = lines(run, sweep, mode)
            if not times:
                continue
            parts += [
                f"**{title}, {mode}: milliseconds**, median (quartiles)",
                _by_size(run, sweep, times, milliseconds, medians(times)),
            ]
            if (sweep, mode) == (BATCH_1, TRAINING):
                parts += [
                    f"**{title}, {mode}: peak memory** beyond the inputs",
                    _by_size(run, sweep, peaks, size, peaks),
                ]
    errors = [row["error"] for row in run["measurements"] if "error" in row]
    if errors:
        batch, length, _ = forms.CHECKED_SHAPE
        parts.append(
            f"Before it was timed, each form was checked beside the definition in "
            f"float64 (batch {batch}, n = {length}, each width): relative errors up to "
            f"{max(errors):.1e}. Growth is the exponent over the last three steps; at "
            "a constant count of tokens it is one less than that of a sequence."
        )
    return "\n\n".join(parts)


def claims(run: dict) -> list[Claim]:
    """The post's claims about its four forms, the chunked one and softmax attention."""
    times, peaks = lines(run, BATCH_1, TRAINING)
    by_length = medians(times)
    by_width = medians(lines(run, WIDTHS, TRAINING)[0])
    chunked, softmax = by_length.get("chunked", {}), by_length.get(SOFTMAX, {})
    crossing = overtakes(by_length.get(STATES, {}), by_length.get(PARALLEL, {}))
    both = set(by_length.get(STATES, {})) & set(by_length.get(PARALLEL, {}))
    best = {
        n: min((line[n], name) for name, line in by_length.items() if n in line)[1]
        for n in sorted(softmax)
    }
    plain = [name for name in LENGTH_EXPONENTS if name in by_length]
    ahead = [
        n for n in chunked if all(chunked[n] <= by_length[p].get(n, 1e9) for p in plain)
    ]
    ours = next((n for n in by_length if n.startswith("linear_attention")), None)
    return [
        grows_like(
            "the attention forms take time t^2",
            by_length,
            {name: p for name, p in LENGTH_EXPONENTS.items() if p == 2},
        ),
        grows_like(
            "the state forms take time t, and so does the chunked one",
            by_length,
            {name: p for name, p in LENGTH_EXPONENTS.items() if p == 1},
        ),
        grows_like(
            "the attention forms take time d",
            by_width,
            {"attention loop": 1, PARALLEL: 1},
        ),
        grows_like(
            "the state forms take time d^2", by_width, {"state loop": 2, STATES: 2}
        ),
        orders_faster(
            "state parallel is an order of magnitude faster than the state loop",
            by_length.get(STATES, {}),
            by_length.get("state loop", {}),
            1,
        ),
        orders_faster(
            "attention parallel is two orders of magnitude faster than the attention "
            "loop",
            by_length.get(PARALLEL, {}),
            by_length.get("attention loop", {}),
            2,
        ),
        Claim(
            "a flash kernel of linear attention is ten times faster than attention "
            "parallel",
            "there is no such kernel here",
            None,
        ),
        Claim(
            "attention parallel is the faster one in short contexts; state parallel "
            "overtakes it at about 13,000",
            shown_crossing(crossing, both),
            None if crossing is None else 6500 <= crossing <= 26000,
        ),
        Claim(
            "chunked is as fast as or faster than the other linear forms in all "
            "settings (with the best chunk size)",
            f"chunk size {run['settings']['chunk_size']}: the fastest of the five at "
            f"{len(ahead)} of {len(chunked)} lengths",
            len(ahead) == len(chunked) if len(chunked) > 1 else None,
        ),
        Claim(
            "the straightforward recurrent form is slower than softmax attention in "
            "the contexts of training",
            shown_crossing(
                overtakes(by_length.get("state loop", {}), softmax),
                by_length.get("state loop", {}),
            ),
            _slower(by_length.get("state loop", {}), softmax),
        ),
        Claim(
            "the optimised linear form is faster than softmax attention at all lengths",
            f"{ours}: {shown_crossing(overtakes(by_length[ours], softmax), softmax)}; "
            f"the fastest of all: {', '.join(f'{n} {best[n]}' for n in best)}"
            if ours
            else "-",
            _ahead(by_length[ours], softmax) if ours else None,
        ),
        grows_like(
            "FlashAttention takes dramatically less memory than traditional attention "
            "(t against t^2)",
            peaks,
            {PARALLEL: 2, SOFTMAX: 1, "chunked": 1},
        ),
    ]


def crossings(run: dict) -> str:
    """A row a linear form: where it overtakes softmax attention."""
    header, columns = [""], []
    for sweep in (BATCH_1, CONSTANT_TOKENS):
        for mode in MODES:
            header.append(f"{sweep}, {mode}")
            columns.append(medians(lines(run, sweep, mode)[0]))
    names = dict.fromkeys(name for times in columns for name in times)
    rows = []
    for name in names:
        if name == SOFTMAX:
            continue
        row = [name]
        for times in columns:
            line, softmax = times.get(name, {}), times.get(SOFTMAX, {})
            both = set(line) & set(softmax)
            row.append(shown_crossing(overtakes(line, softmax), both))
        rows.append(row)
    return table(header, rows)


def _slower(line: dict[int, float], softmax: dict[int, float]) -> bool | None:
    crossing = overtakes(line, softmax)
    return None if crossing is None else crossing == float("inf")


def _ahead(line: dict[int, float], softmax: dict[int, float]) -> bool | None:
    crossing = overtakes(line, softmax)
    return None if crossing is None else crossing == 0


def _width_length(run: dict) -> int | str:
    rows = run["measurements"]
    return next((row["length"] for row in rows if row["sweep"] == WIDTHS), "-")


def _by_size(run: dict, sweep: str, values: dict, shown, numbers: dict) -> str:
    axis, letter = ("width", "d") if sweep == WIDTHS else ("length", "n")
    sizes = sorted({r[axis] for r in run["measurements"] if r["sweep"] == sweep})
    rows = []
    for name, line in values.items():
        slope = growth(numbers[name])
        cells = [shown(line[at]) if at in line else "-" for at in sizes]
        growth_cell = "-" if slope is None else f"{letter}^{slope:.2f}"
        rows.append([name, *cells, growth_cell])
    return table(["", *(f"{letter} = {at}" for at in sizes), "growth"], rows)

"""Tables and charts of ``sampling_layer``."""

from __future__ import annotations

from ..harness.charts import Panel
from ..harness.markdown import milliseconds, ratio, size, table
from ..harness.timing import Spread
from . import sampling_layer as layer
from .fits import Claim, claims_table, grows_like, growth, overtakes, shown_crossing

TITLE = "Sampling: one attention layer, one token, over the context"
X_LABEL = "context (tokens)"
STATES = layer.OUR_STATE, layer.PLAIN_STATE
CACHES = layer.WRITTEN_CACHE, layer.GROWN_CACHE


def lines(run: dict) -> tuple[dict, dict]:
    """contestant -> context -> Spread of seconds, and -> bytes kept between tokens."""
    times, kept = {}, {}
    for row in run["measurements"]:
        if "seconds" in row:
            name, context = row["contestant"], row["context"]
            times.setdefault(name, {})[context] = Spread.of(row["seconds"])
            if row["kept_bytes"]:
                kept.setdefault(name, {})[context] = row["kept_bytes"]
    return times, kept


def medians(run: dict) -> dict[str, dict[int, float]]:
    """contestant -> context -> median seconds."""
    return {
        name: {n: spread.median for n, spread in line.items()}
        for name, line in lines(run)[0].items()
    }


def panels(run: dict) -> list[Panel]:
    """Time for a token and what is kept."""
    times, kept = lines(run)
    return [
        Panel("Time for one token", "milliseconds", times),
        Panel("Kept between tokens", "MiB", kept),
    ]


def tables(run: dict) -> str:
    """Claims, times, what is kept, and where the states overtake the caches."""
    times, kept = lines(run)
    each = medians(run)
    contexts = sorted({row["context"] for row in run["measurements"]})
    header = ["", *(f"context {n}" for n in contexts)]
    time_rows = []
    for name, line in times.items():
        slope = growth(each[name])
        cells = [milliseconds(line[n]) if n in line else "-" for n in contexts]
        time_rows.append([name, *cells, "-" if slope is None else f"n^{slope:.2f}"])
    kept_rows = [
        [name, *(size(line[n]) if n in line else "-" for n in contexts)]
        for name, line in kept.items()
    ]
    crossing_rows = [
        [
            state,
            *(
                shown_crossing(overtakes(each[state], each[cache]), each[cache])
                for cache in CACHES
            ),
        ]
        for state in STATES
        if state in each and all(cache in each for cache in CACHES)
    ]
    return "\n\n".join(
        [
            "**What the post says and what was measured here**",
            claims_table(claims(run)),
            "**Milliseconds for one token**, median (quartiles); growth is the "
            "exponent over the last three steps",
            table([*header, "growth"], time_rows),
            "**Kept between tokens**",
            table(header, kept_rows),
            "**From which context on a state is faster than a cache**, interpolated",
            table(["", *CACHES], crossing_rows),
            "Whole models, with fairseq's cache, are in the section on the cost of "
            "generation.",
        ]
    )


def claims(run: dict) -> list[Claim]:
    """What the post says about sampling."""
    each = medians(run)
    state, cache = each.get(layer.OUR_STATE, {}), each.get(layer.WRITTEN_CACHE, {})
    both = set(state) & set(cache)
    longest = max(both, default=None)
    return [
        grows_like(
            "the linear transformer's time for a token is independent of the context",
            each,
            dict.fromkeys(STATES, 0),
        ),
        grows_like(
            "with a cache of keys and values it grows linearly",
            each,
            dict.fromkeys(CACHES, 1),
        ),
        Claim(
            "this leads to a large gap in long contexts",
            f"{ratio(state[longest], cache[longest])} at context {longest}"
            if both
            else "-",
            cache[longest] > 3 * state[longest] if both else None,
        ),
    ]

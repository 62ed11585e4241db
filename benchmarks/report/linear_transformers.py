"""The reports on the linear transformers: claims and figures beside measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pandas import DataFrame, Series

from ..harness.markdown import plain, table
from ..harness.phases import FORWARD, TRAINING
from ..linear_transformers import sampling_layer as layer
from ..linear_transformers.attention_lengths import FUSED, MATRIX
from ..linear_transformers.chunk_sizes import OURS, PLAIN
from ..linear_transformers.fits import ChunkCost, chunk_cost, growth, overtakes
from ..linear_transformers.linear_attention_forms import (
    BATCH_1,
    CHECKED_SHAPE,
    CONSTANT_TOKENS,
    SOFTMAX,
    WIDTHS,
)
from .sections import CONTEXT, LENGTH, Parts
from .tables import MEMORY, MILLISECONDS, Axis, Ratios, Table, by_name, rows_of

MODES = (FORWARD, TRAINING)
CLAIMS = "**What the post says and what was measured here**"
EXPONENT_TOLERANCE = 0.25
# slower than the best chunk size by at most this counts as near it
NEAR = 1.25


class Claim(NamedTuple):
    """agrees: None where nothing here can tell."""

    post: str
    measured: str
    agrees: bool | None


def claims_table(claims: Iterable[Claim]) -> str:
    """A row a claim."""
    frame = DataFrame(claims).set_index("post").rename_axis("The post")
    verdicts = {True: "yes", False: "no", None: "not measured"}
    return table(frame.assign(agrees=[verdicts[each] for each in frame.agrees]))


def grows_like(
    post: str, lines: Mapping[str, Series], expected: Mapping[str, float]
) -> Claim:
    """Whether the exponents of the lines are near those expected.

    lines: name -> values by size; one too short for a fit is left out.
    """
    found = {name: growth(lines[name]) for name in expected if name in lines}
    found = {name: exponent for name, exponent in found.items() if exponent is not None}
    if not found:
        return Claim(post, "too few points", None)
    measured = ", ".join(f"{name} {exponent:.2f}" for name, exponent in found.items())
    agrees = all(
        abs(exponent - expected[name]) <= EXPONENT_TOLERANCE
        for name, exponent in found.items()
    )
    return Claim(post, measured, agrees)


def orders_faster(post: str, fast: Series, slow: Series, orders: int) -> Claim:
    """Whether slow / fast is nearest to 10^orders at the longest length of both."""
    quotients = (slow / fast).dropna()
    if len(quotients) < 2:
        return Claim(post, "too few common lengths", None)
    n, quotient = quotients.index[-1], quotients.iloc[-1]
    agrees = round(math.log10(quotient)) == orders
    return Claim(post, f"{plain(quotient)}x at n = {n}", agrees)


def shown_crossing(line: Series, other: Series) -> str:
    """From which n on a line is below another one, in words."""
    crossing, both = overtakes(line, other), (line / other).dropna().index
    if crossing is None:
        return "-"
    if crossing == 0:
        return f"ahead from n = {both[0]}"
    if crossing == math.inf:
        return f"not up to n = {both[-1]}"
    return f"n = {crossing:.0f}"


PARALLEL, STATES = "attention parallel", "state parallel"
LENGTH_EXPONENTS = {
    "attention loop": 2,
    PARALLEL: 2,
    "state loop": 1,
    STATES: 1,
    "chunked": 1,
}
WIDTH = Axis("width", "d = {}", "head width d")


def attention_lengths(run: dict) -> Parts:
    """Time and memory of a sequence, and both beside softmax attention."""
    rows = rows_of(run)
    for name in ("time", "time_lower", "time_upper", "peak_bytes"):
        rows[name] /= rows.batch
    yield Table("Time of a sequence", rows, "time", MILLISECONDS, LENGTH, letter="n")
    beyond = " beyond the inputs"
    title = "Peak memory of a sequence"
    yield Table(title, rows, "peak_bytes", MEMORY, LENGTH, note=beyond, letter="n")
    for peer in (MATRIX, FUSED):
        beside = f"**Beside {peer}**: time and memory divided by its"
        yield Ratios(beside, rows, ["time", "peak_bytes"], LENGTH, peer)


def linear_attention_forms(run: dict) -> Parts:
    """Claims, crossings, and times and memory of every sweep."""
    rows = rows_of(run)
    yield (
        f"{CLAIMS}, forward and backward at batch 1 unless it says otherwise. "
        f"Exponents count as agreeing within {EXPONENT_TOLERANCE}, orders of magnitude "
        "when rounded."
    )
    yield claims_table(claims_on_forms(rows, run["settings"]["chunk_size"]))
    yield (
        "**From which length on each form is faster than softmax attention** "
        f"({SOFTMAX}), interpolated"
    )
    yield table(crossings(rows))
    widths = rows[rows.sweep == WIDTHS].length
    for sweep, title, axis in (
        (BATCH_1, "Batch 1", LENGTH),
        (CONSTANT_TOKENS, f"{run['settings']['tokens']} tokens", LENGTH),
        (WIDTHS, f"Head widths at n = {widths.max()}, batch 1", WIDTH),
    ):
        letter = axis.column[0]
        for mode in MODES:
            these = rows[(rows.sweep == sweep) & (rows["mode"] == mode)]
            if these.time.isna().all():
                continue
            name = f"{title}, {mode}"
            yield Table(name, these, "time", MILLISECONDS, axis, letter=letter)
            if sweep == BATCH_1:
                memory, beyond = f"{name}: peak memory", " beyond the inputs"
                yield Table(
                    memory, these, "peak_bytes", MEMORY, axis, note=beyond, letter="n"
                )
    if rows.error.notna().any():
        batch, length, _ = CHECKED_SHAPE
        yield (
            f"Before it was timed, each form was checked beside the definition in "
            f"float64 (batch {batch}, n = {length}, each width): relative errors up to "
            f"{rows.error.max():.1e}. Growth is the exponent over the last three "
            "steps; at a constant count of tokens it is one less than that of a "
            "sequence."
        )


def _of(rows: DataFrame, sweep: str, mode: str, value: str = "time"):
    these = rows[(rows.sweep == sweep) & (rows["mode"] == mode)]
    return by_name(these, WIDTH if sweep == WIDTHS else LENGTH, value)


def claims_on_forms(rows: DataFrame, chunk_size: int) -> list[Claim]:
    """The post's claims about its four forms, the chunked one and softmax attention."""
    by_length, by_width = (_of(rows, sweep, TRAINING) for sweep in (BATCH_1, WIDTHS))
    peaks = _of(rows, BATCH_1, TRAINING, "peak_bytes")
    nothing = Series(dtype=float)
    chunked, softmax, loop, parallel, states = (
        by_length.get(name, nothing)
        for name in ("chunked", SOFTMAX, "state loop", PARALLEL, STATES)
    )
    crossing = overtakes(states, parallel)
    every = DataFrame(by_length)
    plain_forms = every[[name for name in LENGTH_EXPONENTS if name in every]]
    whole = set(LENGTH_EXPONENTS) <= set(plain_forms)
    forms = "the five" if whole else f"{plain_forms.shape[1]} forms"
    ahead = plain_forms.loc[chunked.index].idxmin(axis=1) == "chunked"
    best = every.loc[softmax.index].idxmin(axis=1)
    ours = next((n for n in by_length if n.startswith("linear_attention")), None)
    op = by_length.get(ours, nothing)
    loop_crossing, op_crossing = overtakes(loop, softmax), overtakes(op, softmax)
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
            states,
            loop,
            1,
        ),
        orders_faster(
            "attention parallel is two orders of magnitude faster than the attention "
            "loop",
            parallel,
            by_length.get("attention loop", nothing),
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
            shown_crossing(states, parallel),
            None if crossing is None else 6500 <= crossing <= 26000,
        ),
        Claim(
            "chunked is as fast as or faster than the other linear forms in all "
            "settings (with the best chunk size)",
            f"chunk size {chunk_size}: the fastest of {forms} at {ahead.sum()} of "
            f"{len(ahead)} lengths",
            bool(ahead.all()) if len(ahead) > 1 and whole else None,
        ),
        Claim(
            "the straightforward recurrent form is slower than softmax attention in "
            "the contexts of training",
            shown_crossing(loop, softmax),
            None if loop_crossing is None else loop_crossing == math.inf,
        ),
        Claim(
            "the optimised linear form is faster than softmax attention at all lengths",
            f"{ours}: {shown_crossing(op, softmax)}; the fastest of all: "
            + ", ".join(f"{n} {name}" for n, name in best.items())
            if ours
            else "-",
            None if op_crossing is None else op_crossing == 0,
        ),
        grows_like(
            "FlashAttention takes dramatically less memory than traditional attention "
            "(t against t^2)",
            peaks,
            {PARALLEL: 2, SOFTMAX: 1, "chunked": 1},
        ),
    ]


def crossings(rows: DataFrame) -> DataFrame:
    """A row a linear form: where it overtakes softmax attention."""
    columns = {}
    for sweep in (BATCH_1, CONSTANT_TOKENS):
        for mode in MODES:
            lines = _of(rows, sweep, mode)
            softmax = lines.pop(SOFTMAX, Series(dtype=float))
            columns[f"{sweep}, {mode}"] = {
                name: shown_crossing(line, softmax) for name, line in lines.items()
            }
    return DataFrame(columns, dtype=object).fillna("-")


def chunk_sizes(run: dict) -> Parts:
    """Claims, fitted costs, best chunk sizes, and all times."""
    rows, fixed = rows_of(run), run["settings"]["fixed_chunk_size"]
    rows = rows.sort_values(["length", "width"], kind="stable")
    tokens = rows.length * (run["settings"]["tokens"] // rows.length).clip(lower=1)
    tokens_and_heads = tokens * run["settings"]["heads"]
    rows["a_token"] = rows.time / tokens_and_heads
    rows["line"] = [
        f"n = {n}, d = {d}" for n, d in zip(rows.length, rows.width, strict=True)
    ]
    groups = {
        (contestant, mode): rows[
            (rows.contestant == contestant) & (rows["mode"] == mode)
        ]
        for contestant in (PLAIN, OURS)
        for mode in MODES
    }
    laws = {key: _laws(group) for key, group in groups.items()}
    yield CLAIMS
    yield claims_table(claims_on_chunks(groups, laws, fixed))
    yield (
        "**The cost fitted**, nanoseconds of a token and head: a d^2 + b c d is the "
        "post's t d^2 + t c d; with s d^2 / c the cumulative sum over the chunks, "
        "(t / c) d^2, which its listing names, comes in. Deviation: median error of "
        "the fit over all chunk sizes, lengths and widths. The chart shows the second "
        "dashed."
    )
    lines = {}
    for key, pair in laws.items():
        for law, formula in zip(pair, ("", " + s d^2 / c"), strict=False):
            lines[f"{', '.join(key)}: a d^2 + b c d{formula}"] = {
                "a": f"{1e9 * law.state:.3g}",
                "b": f"{1e9 * law.scores:.3g}",
                "s": f"{1e9 * law.sums:.3g}" if formula else "-",
                "deviation": f"{100 * law.deviation:.0f} %",
            }
    yield table(DataFrame.from_dict(lines, orient="index"))
    yield f"**Best chunk size** beside the fixed one, {fixed}"
    yield table(best_chunk_sizes(groups, laws, fixed))
    sizes = Axis("chunk_size", "c = {}", "chunk size c (tokens)")
    for key, group in groups.items():
        if laws[key]:
            law = laws[key][1]
            seconds = [*map(law.seconds, group.chunk_size, group.width)]
            group = group.assign(fit=seconds * tokens_and_heads[group.index])
        fitted = "fit" if laws[key] else None
        name = ", ".join(key)
        yield Table(
            name, group, "time", MILLISECONDS, sizes, index="line", fitted=fitted
        )


def _laws(rows: DataFrame) -> list[ChunkCost]:
    """The post's formula, and with the sums, fitted to all lengths and widths."""
    rows = rows[rows.time.notna()]
    points = [*zip(rows.chunk_size, rows.width, rows.a_token, strict=True)]
    fits = len(points) > 3
    return [chunk_cost(points, with_sums) for with_sums in (False, True) if fits]


Groups = Mapping[tuple[str, str], DataFrame]
Laws = Mapping[tuple[str, str], list[ChunkCost]]


def _times(group: DataFrame) -> Iterable[tuple[str, int, Series]]:
    """Of each length and width: its name, the width, times by chunk size."""
    for line, rows in group[group.time.notna()].groupby("line", sort=False):
        yield line, rows.width.iloc[0], rows.set_index("chunk_size").time


def claims_on_chunks(groups: Groups, laws: Laws, fixed: int) -> list[Claim]:
    """What the post says about the chunk size, and this package's own choice."""
    plain_times, our_times = (
        [times for mode in MODES for *_, times in _times(groups[name, mode])]
        for name in (PLAIN, OURS)
    )
    worst = [times.max() / times.min() for times in plain_times]
    losses = [times[fixed] / times.min() for times in our_times if fixed in times]
    deviations = {m: laws[PLAIN, m][0].deviation for m in MODES if laws[PLAIN, m]}
    shown = (f"{100 * each:.0f} % ({mode})" for mode, each in deviations.items())
    return [
        Claim(
            "the chunk size must be set correctly for the best performance",
            f"the worst takes {min(worst):.1f} to {max(worst):.1f} times the best"
            if worst
            else "-",
            bool(min(worst) > NEAR) if worst else None,
        ),
        Claim(
            "the cost is t d^2 + t c d",
            "median error of its fit " + ", ".join(shown),
            max(deviations.values()) < 0.25 if deviations else None,
        ),
        Claim(
            f"(this package: {fixed} is near the best everywhere)",
            f"{min(losses):.2f} to {max(losses):.2f} times the best" if losses else "-",
            bool(max(losses) <= NEAR) if losses else None,
        ),
    ]


def best_chunk_sizes(groups: Groups, laws: Laws, fixed: int) -> DataFrame:
    """A row a contestant, mode, length and width."""
    lines = {}
    for key, group in groups.items():
        for line, width, times in _times(group):
            fitted = laws[key][1].best(width) if laws[key] else None
            loss = f"{plain(times[fixed] / times.min())}x" if fixed in times else "-"
            lines[", ".join((*key, line))] = {
                "measured": times.idxmin(),
                "of the fit": "-" if fitted is None else f"{fitted:.0f}",
                f"time of {fixed} / time of the best": loss,
            }
    return DataFrame.from_dict(lines, orient="index")


STATEFUL = layer.OUR_STATE, layer.PLAIN_STATE
CACHES = layer.WRITTEN_CACHE, layer.GROWN_CACHE


def sampling_layer(run: dict) -> Parts:
    """Claims, times, what is kept, and where the states overtake the caches."""
    rows = rows_of(run)
    rows["kept_bytes"] = rows.kept_bytes.where(rows.kept_bytes > 0)
    lines = by_name(rows, CONTEXT)
    yield CLAIMS
    yield claims_table(claims_on_sampling(lines))
    yield Table("One token", rows, "time", MILLISECONDS, CONTEXT, letter="n")
    yield "Growth is the exponent over the last three steps."
    yield Table("Kept between tokens", rows, "kept_bytes", MEMORY, CONTEXT)
    yield "**From which context on a state is faster than a cache**, interpolated"
    states, caches = ([n for n in names if n in lines] for names in (STATEFUL, CACHES))
    yield table(
        DataFrame(
            [[shown_crossing(lines[s], lines[c]) for c in caches] for s in states],
            index=states,
            columns=caches,
        )
    )
    yield (
        "Whole models, with fairseq's cache, are in the section on the cost of "
        "generation."
    )


def claims_on_sampling(lines: Mapping[str, Series]) -> list[Claim]:
    """What the post says about sampling; lines: times by context."""
    nothing = Series(dtype=float)
    state, cache = (
        lines.get(name, nothing) for name in (layer.OUR_STATE, layer.WRITTEN_CACHE)
    )
    gap = (cache / state).dropna()
    return [
        grows_like(
            "the linear transformer's time for a token is independent of the context",
            lines,
            dict.fromkeys(STATEFUL, 0),
        ),
        grows_like(
            "with a cache of keys and values it grows linearly",
            lines,
            dict.fromkeys(CACHES, 1),
        ),
        Claim(
            "this leads to a large gap in long contexts",
            f"{plain(gap.iloc[-1])}x at context {gap.index[-1]}" if len(gap) else "-",
            bool(gap.iloc[-1] > 3) if len(gap) else None,
        ),
    ]

"""What the report shows of training: an update, its parts, and how they are done."""

from __future__ import annotations

from collections.abc import Iterator

from pandas import DataFrame, Series

from ..harness.markdown import table
from ..harness.phases import (
    ALL_LOGITS,
    FAIRSEQS,
    LAYER,
    MODEL,
    OURS,
    STACK,
    WITH_SDPA,
)
from .tables import (
    MEMORY,
    MILLISECONDS,
    TOKENS_A_SECOND,
    Axis,
    Ratios,
    Table,
    pivot,
    rows_of,
)

Parts = Iterator[str | Table | Ratios]

LENGTH = Axis("length", "n = {}", "length n (tokens)")
TOKENS = Axis("tokens", "{:,} tokens", "tokens of a batch")
DIVIDED = "and memory divided by its"

# A training step of the layers, without the output layer that costs all the same, in
# bfloat16 on a GPU: tokens a second, divided by those of the vanilla transformer with
# SDPA, at a length; and less memory at every length
SPEED_TARGETS = {512: 1.0, 8192: 2.0}


def training_step(run: dict) -> Parts:
    """The targets; speed, memory and their ratios of each part."""
    rows, settings = rows_of(run), run["settings"]
    tokens = rows.batch * rows.length
    rows["rate"] = tokens / rows.time
    rows["rate_lower"], rows["rate_upper"] = (
        tokens / rows.time_upper,
        tokens / rows.time_lower,
    )
    yield (
        f"Each step has {settings['tokens']:,} tokens in sequences of n. The output "
        f"layer over {settings['vocabulary']:,} entries costs all models the same; "
        f"without it the layers are seen alone. Weights are in {settings['dtype']} and "
        "Adam in float32, as fairseq trains. The loss is fairseq's cross entropy in "
        "float32; without the output layer, the squared error of the features. SDPA: "
        "fairseq's model with its attention through torch's "
        "scaled_dot_product_attention, same weights and same output. The n x n mask "
        "that fairseq as shipped keeps between steps is not counted."
    )
    yield (
        "**Targets**: the training step of T2's layers beside those of fairseq's "
        "transformer_lm, SDPA, in bfloat16 on a GPU"
    )
    yield table(training_targets(rows[rows.part == STACK], run))
    axis = LENGTH._replace(label=f"{LENGTH.label}, at a constant number of tokens")
    for part, title in (
        (MODEL, "Training step of the language model"),
        (STACK, "Training step of the layers, without the output layer"),
        (LAYER, "One layer, forward and backward"),
    ):
        of_part = rows[rows.part == part]
        if of_part.time.isna().all():
            continue
        memory, beyond = f"{title}: peak memory", " beyond weights and Adam's sums"
        yield Table(title, of_part, "rate", TOKENS_A_SECOND, axis)
        yield Table(memory, of_part, "peak_bytes", MEMORY, axis, note=beyond)
        beside = f"**{title}: beside {WITH_SDPA}**, tokens a second {DIVIDED}"
        yield Ratios(beside, of_part, ["rate", "peak_bytes"], axis, WITH_SDPA)


def optimizer_step(run: dict) -> Parts:
    """Time and memory of both kinds of Adam."""
    rows = rows_of(run)
    weights = Axis("weights", "{:,} weights", "float32 weights in one tensor")
    yield (
        "A step must read weights, gradient and both sums and write all but the "
        "gradient: 28 bytes a weight, which fused_adam's kernel does."
    )
    yield Table("Time of a step", rows, "time", MILLISECONDS, weights)
    beyond = " beyond weights, gradient and sums"
    yield Table(
        "Peak memory of a step", rows, "peak_bytes", MEMORY, weights, note=beyond
    )
    yield Ratios("**Time divided by that of adam**", rows, ["time"], weights, "adam")


def training_targets(rows: DataFrame, run: dict) -> DataFrame:
    """Target -> what was measured, and "met", "missed" or why neither.

    rows: of a training step of the layers, with ``rate``, tokens a second.
    """
    on_gpu = "cuda" in run["environment"] and run["settings"]["dtype"] == "bfloat16"
    missing = "-", "not measured" if on_gpu else "not measured on a GPU"
    names = ["TransNormer T2 (triton)", "TransNormer T2 (torch)"]
    measured = {*rows[rows.time.notna()].contestant}
    ours = next((name for name in names if name in measured), names[0])
    faster, smaller = (
        lines.loc[ours].div(lines.loc[WITH_SDPA]).dropna()
        if on_gpu
        else Series(dtype=float)
        for value in ("rate", "peak_bytes")
        for lines in [
            pivot(rows, "contestant", LENGTH, value).reindex([ours, WITH_SDPA])
        ]
    )

    def judged(measured: str, met: bool) -> tuple[str, str]:
        return f"{measured}, {ours}", "met" if met else "missed"

    lines = {}
    for length, wanted in SPEED_TARGETS.items():
        reached = faster.get(length)
        lines[f"at least {wanted:g}x the tokens a second at n = {length}"] = (
            judged(f"{reached:.3g}x", reached >= wanted) if reached else missing
        )
    shown = ", ".join(f"{share:.3g}x at {n}" for n, share in smaller.items())
    lines["less memory at every n"] = (
        judged(shown, smaller.max() < 1) if shown else missing
    )
    return DataFrame.from_dict(lines, orient="index", columns=["measured", "verdict"])


# ours divided by fairseq's: tokens a second of an update, and memory beyond weights and
# Adam's sums at the largest batch
FASTER, SMALLER = 1.5, 0.35


def update_cost(run: dict) -> Parts:
    """Both ways to train each model, and the models beside each other."""
    rows = rows_of(run)
    rows["contestant"] = rows.model + ", " + rows.way
    rows["rate"] = rows.tokens / rows.time
    rows["rate_lower"] = rows.tokens / rows.time_upper
    rows["rate_upper"] = rows.tokens / rows.time_lower
    yield (
        "An update by fairseq's own classes, random tokens. fairseq's: its criterion "
        "`cross_entropy` and its `adam`; ours: `chunked_cross_entropy` and "
        "`fused_adam`. Memory is the most that a step holds beyond weights and Adam's "
        "sums; gradients are in it. SDPA: fairseq's model with its attention through "
        "torch's scaled_dot_product_attention."
    )
    for length, of_length in rows.groupby("length"):
        if of_length.time.isna().all():
            continue
        title = f"An update, sequences of {length}"
        yield Table(title, of_length, "rate", TOKENS_A_SECOND, TOKENS)
        yield Table(f"{title}: memory", of_length, "peak_bytes", MEMORY, TOKENS)
        for heading, compared in (
            ("ours beside fairseq's way, tokens a second and memory", _ways_compared),
            (f"ours, tokens a second divided by {WITH_SDPA}'s", _models_compared),
        ):
            lines = compared(of_length)
            if len(lines):
                yield f"**{title}: {heading}**"
                yield table(lines)
    yield (
        f"Goals: {FASTER:g}x the tokens a second, {SMALLER:g}x the memory at 4,096 "
        "tokens; T2 at least 1x SDPA's at 512, 1.5x at 2,048, both in our way."
    )


def _ways_compared(rows: DataFrame) -> DataFrame:
    """Model -> tokens a second and memory of ours, divided by fairseq's."""
    lines = {}
    for (model, tokens), each in rows.groupby(["model", "tokens"], sort=False):
        values = each.set_index("way")[["rate", "peak_bytes"]]
        if not {OURS, FAIRSEQS} <= {*values.dropna().index}:
            continue
        rate, memory = values.loc[OURS] / values.loc[FAIRSEQS]
        line = lines.setdefault(model, {})
        line[f"{tokens:,} tokens"] = f"{rate:.2f}x, {memory:.2f}x"
    return DataFrame(lines).T.fillna("-")


def _models_compared(rows: DataFrame) -> DataFrame:
    lines = pivot(rows[rows.way == OURS], "model", TOKENS, "rate")
    if WITH_SDPA not in lines.index:
        return DataFrame()
    quotients = (lines / lines.loc[WITH_SDPA]).drop(WITH_SDPA)
    quotients.columns = [TOKENS.column.format(at) for at in quotients.columns]
    return quotients.map("{:.2f}x".format).rename_axis(None)


def output_loss(run: dict) -> Parts:
    """Time, memory and errors of the output layer and its loss."""
    rows = rows_of(run)
    settings = run["settings"]
    yield (
        f"Features of width {settings['width']}, {settings['vocabulary']:,} words, in "
        f"{settings['dtype']}: the loss and both gradients. Memory is the most that "
        "they hold; the gradients are in it. Errors against float64 "
        f"({settings['errors']}): relative, Frobenius norm."
    )
    yield Table("Time", rows, "time", MILLISECONDS, TOKENS)
    yield Table("Peak memory", rows, "peak_bytes", MEMORY, TOKENS)
    beside = "**Time and memory divided by those of fairseq's criterion**"
    yield Ratios(beside, rows, ["time", "peak_bytes"], TOKENS, ALL_LOGITS)
    first = rows[rows.tokens == rows.tokens.min()].set_index("contestant")
    names = ["loss_error", "features_error", "weight_error"]
    if {*names} <= {*first}:
        errors = first[names].dropna()
        errors.columns = ["loss", "features", "weight"]
        yield "**Errors**: of the loss, and of the gradients of features and weight"
        yield table(errors.map("{:.1e}".format).rename_axis(None))

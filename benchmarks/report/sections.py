"""What the report shows of each benchmark: titles, pivots, peers and sentences.

A section is a function of a run that yields Markdown, ``Table`` and ``Ratios`` in the
order of the page. Those of the linear transformers are in linear_transformers.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from pandas import DataFrame, Series, concat

from ..generation import image_generation as images
from ..generation.token_cost import OURS
from ..harness.markdown import plain, table
from ..harness.phases import (
    FORWARD,
    GRAPH,
    INFERENCE,
    LAUNCHED,
    PREFILL,
    STEP,
    TRAINING,
    TRAINING_STEP,
)
from ..kernels import targets
from .tables import (
    BITS_A_TOKEN,
    IMAGES_A_SECOND,
    MEMORY,
    MILLISECONDS,
    PERPLEXITY,
    STEPS_A_SECOND,
    Axis,
    Ratios,
    Table,
    add_quartiles,
    rows_of,
)

Parts = Iterator[str | Table | Ratios]

ROWWISE = ("rms_norm", "gated_silu", "feature_map_and_lrpe")

LENGTH = Axis("length", "n = {}", "length n (tokens)")
CONTEXT = Axis("context", "context {}", "context (tokens)")
DIVIDED = "and memory divided by its"


def compare_models(run: dict) -> Parts:
    """Final validation perplexity of each seed; losses over the updates."""
    runs = DataFrame(run["measurements"])
    update = Axis("update", "{}", "update")
    for title, kind, value, unit in (
        ("Training loss", "train", "loss", BITS_A_TOKEN),
        ("Validation", "valid", "ppl", PERPLEXITY),
    ):
        records = runs.explode(kind, ignore_index=True)
        records = records[["row"]].join(DataFrame(records[kind].tolist()))
        curves = records.groupby(["row", "update"], sort=False)[value]
        curves = curves.agg(list).reset_index(name="seeds")
        add_quartiles(curves, value, curves.seeds)
        yield Table(title, curves, value, unit, update, index="row", listed=False)
    runs["final"] = [records[-1]["ppl"] for records in runs.valid]
    lines = {}
    for row, seeds in runs.groupby("row", sort=False):
        spread = f" ± {seeds.final.std():.2f}" if len(seeds) > 1 else ""
        lines[row] = {
            "parameters": f"{seeds.parameters.iloc[0]:,}",
            "validation perplexity (mean ± s.d.)": f"{seeds.final.mean():.2f}{spread}",
            "each seed": ", ".join(f"{each:.2f}" for each in seeds.final),
        }
    yield table(DataFrame.from_dict(lines, orient="index"))


def generation_cost(run: dict) -> Parts:
    """Time of a step, what is kept, time of the prefill; ratios to our states."""
    rows = rows_of(run)
    yield _sizes(run)
    for phase, title in ((STEP, "One token"), (PREFILL, "Taking in the prompt")):
        of_phase = rows[rows.phase == phase]
        yield Table(title, of_phase, "time", MILLISECONDS, CONTEXT)
        for ours in of_phase[of_phase.time.notna()].contestant[:1]:
            beside = f"**{title}: time divided by that of {ours}**"
            yield Ratios(beside, of_phase, ["time"], CONTEXT, ours)
        if phase == STEP:
            yield Table("Kept between tokens", of_phase, "kept_bytes", MEMORY, CONTEXT)
    yield (
        "fairseq fills its cache token by token only; the plain pass shows what a "
        "prefill in one pass would cost at the least. For its one-token steps the "
        "cache is filled with random numbers."
    )


def token_cost(run: dict) -> Parts:
    """Time of a token, what is kept; times of T2's beside Llama's."""
    rows = rows_of(run)
    yield _sizes(run)
    title = "One token"
    yield Table(title, rows, "time", MILLISECONDS, CONTEXT)
    beside = f"**{title}: time divided by that of {OURS}**"
    yield Ratios(beside, rows, ["time"], CONTEXT, OURS)
    yield Table("Kept between tokens", rows, "kept_bytes", MEMORY, CONTEXT)


def _sizes(run: dict) -> str:
    settings = run["settings"]
    parameters = (f"{name} {n:,}" for name, n in settings["parameters"].items())
    return (
        f"Parameters: {', '.join(parameters)}. The vocabulary of "
        f"{settings['vocabulary']:,} is small for the paper's, so that the output "
        "layer, the same for all, does not hide the attention."
    )


# "Transformers are RNNs", Tables 1 and 4: MNIST on a GPU
PRINTED = {
    f"vanilla, {images.AGAIN}": "0.45 (1x)",
    f"LSH-1, {images.AGAIN}": "0.68 (1.5x)",
    f"LSH-4, {images.AGAIN}": "0.27 (0.6x)",
    f"vanilla, {images.CACHE}": "7.56 (16.8x)",
    f"1+elu, {images.STATE}": "142.8 (317x)",
}


def image_generation(run: dict) -> Parts:
    """Images a second, ratios to softmax attention recomputed, what is kept."""
    rows = rows_of(run)
    add_quartiles(rows, "rate", _rates(rows, rows.batch))
    pixels = Axis("context", "{} pixels", "pixels of an image")
    beside = f"; {run['settings']['images']} side by side"
    yield Table("Speed", rows, "rate", IMAGES_A_SECOND, pixels, note=beside)
    softmax = f"vanilla, {images.AGAIN}"
    title = f"**Times as fast as {softmax}**, medians"
    yield Ratios(title, rows, ["rate"], pixels, softmax)
    title = "Kept of an image between two pixels"
    yield Table(title, rows, "kept_bytes", MEMORY, pixels)
    yield (
        "**The paper**: MNIST, 784 pixels, 8 layers of width 256, on a GPU with as "
        "many images side by side as fit"
    )
    yield table(Series(PRINTED).to_frame("images a second"))


def lra_speed(run: dict) -> Parts:
    """Steps a second as in Table 7, memory, and both beside vanilla."""
    rows = rows_of(run)
    add_quartiles(rows, "rate", _rates(rows, 1))
    # the median of the times, not of their inverses
    rows["rate"] = 1 / rows.time
    yield (
        f"A step takes {run['settings']['batch']} sequences of n random bytes; the "
        "paper does not tell its number. A dash: out of memory, or left out as said "
        "below."
    )
    for phase, title in ((INFERENCE, "Inference"), (TRAINING_STEP, "Training")):
        of_phase = rows[rows.phase == phase]
        if of_phase.time.isna().all():
            continue
        memory, beyond = f"{title}: peak memory", " beyond weights and AdamW's sums"
        yield Table(title, of_phase, "rate", STEPS_A_SECOND, LENGTH)
        yield Table(memory, of_phase, "peak_bytes", MEMORY, LENGTH, note=beyond)
        for peer, label in (
            ("Transformer", "Transformer, its attention as a matrix"),
            ("Transformer, SDPA", "Transformer through torch's fused attention"),
        ):
            beside = f"**{title}: beside {label}**, steps a second {DIVIDED}"
            yield Ratios(beside, of_phase, ["rate", "peak_bytes"], LENGTH, peer)


def _rates(rows: DataFrame, work: Series | int) -> list[list[float]]:
    """Of each sample: work a second."""
    return (work / rows.explode("seconds").seconds).groupby(level=0).agg(list)


def kernels(run: dict) -> Parts:
    """Time, memory and errors of each group, then the targets."""
    bandwidth = run["settings"]["copy_bandwidth"]["bytes_per_second"]
    yield (
        f"Speed: the share of the copy bandwidth, {bandwidth / 1e9:.4g} GB/s read and "
        "written, that moving every input and output once in the time of a call would "
        "take; in brackets that time, the median in milliseconds. Caches are cold. "
        f'"{LAUNCHED}" waits for an idle device, so it holds Python and the launches; '
        f'"{GRAPH}" does not. '
        "Italics: computes something else at the same shape."
    )
    rows = measured_kernels(run)
    if rows.empty:
        return
    for (group, variant), of_group in rows.groupby(["group", "variant"], sort=False):
        yield from _group(group, variant, of_group)
    yield (
        "### Targets\n\nStated for an H200, bfloat16, B n = 65,536 and 8 heads of 64; "
        "the worst value over the lengths. Peers whose results are wrong do not count. "
        "The backward pass alone is what forward and backward take beyond the forward."
    )
    yield table(targets.judged(rows, on_gpu="capability" in run["environment"]))


def measured_kernels(run: dict) -> DataFrame:
    """Rows of ``benchmarks kernels`` that have a time.

    share: of the copy bandwidth, in which each input and output is moved once. place:
    length, or what varies instead. name: italics where something else is computed.
    text: share and time.
    """
    rows = rows_of(run)
    rows = rows[rows.time.notna()].copy()
    if rows.empty:
        return rows
    bandwidth = run["settings"]["copy_bandwidth"]["bytes_per_second"]
    rows["share"] = rows.least_bytes / rows.time / bandwidth
    rows["place"] = rows.length.where(rows.group != "decode_step", rows.batch)
    rowwise = rows.group.isin(ROWWISE)
    rows["place"] = rows.place.where(~rowwise, rows.batch * rows.length)
    rows["name"] = [
        (name if same else f"*{name}*") + (" (WRONG)" if wrong else "")
        for name, same, wrong in zip(
            rows.contestant, rows.same, rows.wrong, strict=True
        )
    ]
    rows["text"] = [
        f"{share:.0%} ({plain(1e3 * time)})"
        for time, share in zip(rows.time, rows.share, strict=True)
    ]
    return rows


def _group(group: str, variant: str, rows: DataFrame) -> Parts:
    """One group of the kernels."""
    title = f"{group}, {variant}" if variant else group
    axis = Axis("place", "{:,}", LENGTH.label)
    computed = [*rows[rows.same.astype(bool)].computes, "-"][0]
    yield f"### {title}\n\nComputes {computed}."
    for mode in (FORWARD, TRAINING):
        of_mode = rows[rows["mode"] == mode]
        launched, graphs = (of_mode[of_mode.timing == t] for t in (LAUNCHED, GRAPH))
        name, beyond = mode.capitalize(), " beyond the inputs"
        if len(of_mode):
            yield f"**{name}: share of the bandwidth (milliseconds)**"
            yield table(speeds(concat([launched, graphs])))
            yield Table(
                f"{name}: peak memory", launched, "peak_bytes", MEMORY, axis, "name",
                beyond,
            )  # fmt: skip
    yield "**Relative error** against float64, in brackets that of plain torch"
    # the same in all rows of a contestant
    errors = {row["name"]: _errors(row) for _, row in rows.iterrows()}
    yield table(DataFrame.from_dict(errors, orient="index"))


def speeds(rows: DataFrame) -> DataFrame:
    """A line for each contestant, two columns for each place: launched, as a graph."""
    cells = rows.pivot(index="name", columns=["place", "timing"], values="text")
    order = [LAUNCHED, GRAPH]
    columns = sorted(cells.columns, key=lambda at: (at[0], order.index(at[1])))
    cells = cells.reindex(rows.name.unique())[columns].fillna("-").rename_axis(None)
    # a place is a float where other groups have none
    names = [f"{int(place):,}, {timing}" for place, timing in columns]
    return cells.set_axis(names, axis=1)


def _errors(row: Series) -> dict[str, str]:
    def shown(value: float | str | None) -> str:
        return "-" if value is None else f"{float(value):.1e}"

    errors = {
        key: f"{shown(row.errors[key])} ({shown(row.yardstick[key])})"
        for key in ("forward", "gradients")
    }
    return errors | {"": "WRONG" if row.wrong else "right"}

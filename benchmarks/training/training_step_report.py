"""Tables and charts of ``training_step``, and whether it meets the targets."""

from __future__ import annotations

from ..harness.charts import Panel
from ..harness.markdown import rate, ratio, size, table
from ..harness.phases import LAYER, MODEL, STACK, WITH_SDPA
from ..harness.timing import Spread

TITLE = "Training step over the length"
X_LABEL = "length n (tokens), at a constant number of tokens"
HEADINGS = {
    MODEL: "Training step of the language model",
    STACK: "Training step of the layers, without the output layer",
    LAYER: "One layer, forward and backward",
}
# The model's training step in bfloat16 on a GPU: tokens a second, divided by those of
# the vanilla transformer with SDPA, at a length; and less memory at every length
SPEED_TARGETS = {512: 1.0, 8192: 2.0}
NOT_ON_A_GPU = "not measured on a GPU"


def lines(run: dict, part: str) -> tuple[dict, dict]:
    """contestant -> length -> Spread of tokens a second, and -> peak bytes."""
    speeds, peaks = {}, {}
    for row in run["measurements"]:
        if row["part"] == part and "skipped" not in row:
            name, length = row["contestant"], row["length"]
            tokens, spread = row["batch"] * length, Spread.of(row["seconds"])
            speeds.setdefault(name, {})[length] = Spread(
                tokens / spread.median,
                tokens / spread.upper,
                tokens / spread.lower,
                spread.count,
            )
            peaks.setdefault(name, {})[length] = row["peak_bytes"]
    return speeds, peaks


def panels(run: dict) -> list[Panel]:
    """Speed and memory of each part."""
    drawn = []
    for part in _parts(run):
        speeds, peaks = lines(run, part)
        drawn.append(Panel(HEADINGS[part], "tokens a second", speeds))
        drawn.append(Panel("Its peak memory", "MiB", peaks))
    return drawn


def tables(run: dict) -> str:
    """The targets; speed, memory and their ratios of each part."""
    settings = run["settings"]
    parts = [
        f"Each step has {settings['tokens']:,} tokens in sequences of n. The output "
        f"layer over {settings['vocabulary']:,} entries costs all models the same; "
        f"without it the layers are seen alone. Weights are in {settings['dtype']} and "
        "Adam in float32, as fairseq trains. The loss is fairseq's cross entropy in "
        "float32; without the output layer, the squared error of the features. SDPA: "
        "fairseq's model with its attention through torch's "
        "scaled_dot_product_attention, same weights and same output. The n x n mask "
        "that fairseq as shipped keeps between steps is not counted.",
        "**Targets**: the training step of T2 beside fairseq transformer_lm, SDPA, in "
        "bfloat16 on a GPU",
        table(["", "measured", "verdict"], targets(run)),
    ]
    for part in _parts(run):
        speeds, peaks = lines(run, part)
        lengths = sorted({row["length"] for row in run["measurements"]})
        header = ["", *(f"n = {n}" for n in lengths)]

        def rows(values: dict, shown, lengths=lengths) -> list[list[str]]:
            return [
                [name, *(shown(line[n]) if n in line else "-" for n in lengths)]
                for name, line in values.items()
            ]

        parts += [
            f"**{HEADINGS[part]}: tokens a second**, median (quartiles)",
            table(header, rows(speeds, rate)),
            f"**{HEADINGS[part]}: peak memory** beyond weights and Adam's sums",
            table(header, rows(peaks, size)),
            f"**{HEADINGS[part]}: beside {WITH_SDPA}**, tokens a second and memory "
            "divided by its",
            table(header, _beside_sdpa(speeds, peaks, lengths)),
        ]
    return "\n\n".join(parts)


def targets(run: dict) -> list[list[str]]:
    """Target, what was measured, and "met", "missed" or why neither."""
    speeds, peaks = lines(run, MODEL)
    ours = next(
        (
            name
            for name in ("TransNormer T2 (triton)", "TransNormer T2 (torch)")
            if name in speeds
        ),
        None,
    )
    on_gpu = "cuda" in run["environment"] and run["settings"]["dtype"] == "bfloat16"
    both = set(speeds.get(ours, ())) & set(speeds.get(WITH_SDPA, ())) if on_gpu else ()
    missing = "not measured" if on_gpu else NOT_ON_A_GPU
    judged = []
    for length, wanted in SPEED_TARGETS.items():
        target = f"at least {wanted:g}x the tokens a second at n = {length}"
        if length not in both:
            judged.append([target, "-", missing])
            continue
        reached = speeds[ours][length].median / speeds[WITH_SDPA][length].median
        judged.append([target, f"{reached:.3g}x, {ours}", _verdict(reached >= wanted)])
    target = "less memory at every n"
    if not both:
        return [*judged, [target, "-", missing]]
    shares = {n: peaks[ours][n] / peaks[WITH_SDPA][n] for n in sorted(both)}
    shown = ", ".join(f"{share:.3g}x at {n}" for n, share in shares.items())
    met = max(shares.values()) < 1
    return [*judged, [target, f"{shown}, {ours}", _verdict(met)]]


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def _beside_sdpa(speeds: dict, peaks: dict, lengths: list[int]) -> list[list[str]]:
    peer, peer_peaks = speeds.get(WITH_SDPA, {}), peaks.get(WITH_SDPA, {})
    return [
        [
            name,
            *(
                f"{ratio(peer[n].median, line[n].median)}, "
                f"{ratio(peer_peaks[n], peaks[name][n])}"
                if n in line and n in peer
                else "-"
                for n in lengths
            ),
        ]
        for name, line in speeds.items()
        if name != WITH_SDPA
    ]


def _parts(run: dict) -> list[str]:
    """Those with a measured row, in the order of ``HEADINGS``."""
    measured = {r["part"] for r in run["measurements"] if "skipped" not in r}
    return [part for part in HEADINGS if part in measured]

"""Tables and charts of ``lra_speed``."""

from __future__ import annotations

from statistics import median

from ..harness.charts import Panel
from ..harness.markdown import plain, size, table
from ..harness.phases import INFERENCE, TRAINING_STEP
from ..harness.timing import Spread

TITLE = "Long-Range Arena: speed and memory over the length"
X_LABEL = "length n (tokens)"
HEADINGS = {INFERENCE: "Inference", TRAINING_STEP: "Training"}
VANILLA = {
    "Transformer": "Transformer, its attention as a matrix",
    "Transformer, SDPA": "Transformer through torch's fused attention",
}

Lines = dict[str, dict[int, object]]


def lines(run: dict, phase: str) -> tuple[Lines, Lines]:
    """contestant -> length -> Spread of steps a second, and -> peak bytes."""
    speeds, peaks = {}, {}
    for row in run["measurements"]:
        if row["phase"] == phase and "seconds" in row:
            name, length = row["contestant"], row["length"]
            rates = [1 / seconds for seconds in row["seconds"]]
            # the median of the times, not of their inverses
            spread = Spread.of(rates)._replace(median=1 / median(row["seconds"]))
            speeds.setdefault(name, {})[length] = spread
            peaks.setdefault(name, {})[length] = row["peak_bytes"]
    return speeds, peaks


def panels(run: dict) -> list[Panel]:
    """Speed and memory of each phase."""
    drawn = []
    for phase in _phases(run):
        speeds, peaks = lines(run, phase)
        drawn.append(Panel(HEADINGS[phase], "steps a second", speeds))
        drawn.append(Panel(f"{HEADINGS[phase]}: peak memory", "MiB", peaks))
    return drawn


def tables(run: dict) -> str:
    """Steps a second as in Table 7, memory, and both beside vanilla."""
    settings = run["settings"]
    parts = [
        f"A step takes {settings['batch']} sequences of n random bytes; the paper does "
        "not tell its number. A dash: out of memory, or left out as said below."
    ]
    for phase in _phases(run):
        speeds, peaks = lines(run, phase)
        measured = [row for row in run["measurements"] if row["phase"] == phase]
        lengths = sorted({row["length"] for row in measured})
        names = list(dict.fromkeys(row["contestant"] for row in measured))
        header = ["", *(f"n = {n}" for n in lengths)]

        def rows(shown, names=names, lengths=lengths) -> list[list[str]]:
            return [[name, *(shown(name, n) for n in lengths)] for name in names]

        def rate(name: str, n: int, speeds=speeds) -> str:
            found = speeds.get(name, {}).get(n)
            return plain(found.median) if found else "-"

        def peak(name: str, n: int, peaks=peaks) -> str:
            found = peaks.get(name, {}).get(n)
            return size(found) if found else "-"

        title = HEADINGS[phase]
        parts += [
            f"**{title}: steps a second**, median",
            table(header, rows(rate)),
            f"**{title}: peak memory** beyond weights and AdamW's sums",
            table(header, rows(peak)),
        ]
        for vanilla, label in VANILLA.items():

            def beside(name, n, vanilla=vanilla, speeds=speeds, peaks=peaks) -> str:
                ours, peer = (speeds.get(x, {}).get(n) for x in (name, vanilla))
                if not (ours and peer):
                    return "-"
                share = peaks[name][n] / peaks[vanilla][n]
                return f"{plain(ours.median / peer.median)}x, {plain(share)}x"

            if vanilla in speeds:
                parts += [
                    f"**{title}: beside {label}**, steps a second and memory divided "
                    "by its",
                    table(header, rows(beside)),
                ]
    return "\n\n".join(parts)


def _phases(run: dict) -> list[str]:
    """Those with a measured row, in the order of ``HEADINGS``."""
    measured = {row["phase"] for row in run["measurements"] if "seconds" in row}
    return [phase for phase in HEADINGS if phase in measured]

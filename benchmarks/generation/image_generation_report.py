"""Tables and charts of ``image_generation``."""

from __future__ import annotations

from ..harness.charts import Panel
from ..harness.markdown import plain, ratio, size, table
from ..harness.timing import Spread
from . import image_generation as images

TITLE = "Images a second, pixel by pixel"
X_LABEL = "pixels of an image"
SOFTMAX = f"vanilla, {images.AGAIN}"
# "Transformers are RNNs", Tables 1 and 4: MNIST on a GPU
PRINTED = {
    f"vanilla, {images.AGAIN}": (0.45, 1),
    f"vanilla, {images.CACHE}": (7.56, 16.8),
    f"1+elu, {images.STATE}": (142.8, 317),
}


def lines(run: dict) -> tuple[dict, dict]:
    """contestant -> pixels -> Spread of images a second, and -> bytes kept an image."""
    rates, kept = {}, {}
    for row in run["measurements"]:
        name, pixels = row["contestant"], row["context"]
        kept.setdefault(name, {})[pixels] = row["kept_bytes"]
        if "seconds" in row:
            rate = Spread.of([row["batch"] / seconds for seconds in row["seconds"]])
            rates.setdefault(name, {})[pixels] = rate
    return rates, kept


def panels(run: dict) -> list[Panel]:
    """Images a second and what is kept."""
    rates, kept = lines(run)
    return [
        Panel("Images a second", "images a second", rates),
        Panel("Kept of an image between two pixels", "MiB", kept),
    ]


def tables(run: dict) -> str:
    """Images a second, ratios to softmax attention recomputed, what is kept."""
    rates, kept = lines(run)
    pixels = sorted({row["context"] for row in run["measurements"]})
    header = ["", *(f"{n} pixels" for n in pixels)]

    def rows(values: dict, shown) -> list[list[str]]:
        return [
            [name, *(shown(name, n) if n in line else "-" for n in pixels)]
            for name, line in values.items()
        ]

    def rate(name: str, n: int) -> str:
        median, lower, upper = map(plain, rates[name][n][:3])
        return f"{median} ({lower}-{upper})"

    def times(name: str, n: int) -> str:
        if n not in rates.get(SOFTMAX, {}):
            return "-"
        return ratio(rates[SOFTMAX][n].median, rates[name][n].median)

    printed = [
        [name, f"{value} ({factor}x)"] for name, (value, factor) in PRINTED.items()
    ]
    return "\n\n".join(
        [
            f"**Images a second**, {run['settings']['images']} side by side, median "
            "(quartiles)",
            table(header, rows(rates, rate)),
            f"**Times as fast as {SOFTMAX}**, medians",
            table(header, rows(rates, times)),
            "**Kept of an image between two pixels**",
            table(header, rows(kept, lambda name, n: size(kept[name][n]))),
            "**The paper**: MNIST, 784 pixels, 8 layers of width 256, on a GPU with as "
            "many images side by side as fit",
            table(["", "images a second"], printed),
        ]
    )

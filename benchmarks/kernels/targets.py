"""The bar for the kernels, and where a run stands.

Stated for an H200 in bfloat16 with 65,536 tokens and 8 heads of 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pandas import DataFrame, Series

from ..harness.phases import FORWARD, GRAPH, LAUNCHED, TRAINING
from .contestants.published_shapes import SHAPES

KERNEL = "ours (triton)"
# the smallest of the published shapes, under CUDA graphs
SMALL, SMALL_SECONDS = SHAPES[0], 0.10e-3
# whichever of torch's two is faster
SOFTMAX = ("SDPA flash", "SDPA cuDNN")
# beginnings of the names of those that a user would take for blocks
ON_BLOCKS = ("SDPA ", "FlexAttention", "varlen_attn")
# other packages' kernels
PACKAGES = ("fla ", "lightning")
BLOCKS = tuple(
    f"{activation} {direction}"
    for activation in ("softmax", "relu")
    for direction in ("causal", "bidirectional")
)


class Target(NamedTuple):
    """The least that a value of our kernel shall have, at every length of a range.

    value: of our row and of all rows of its group, variant, length and timing; None
        where it was not measured.
    """

    what: str
    least: float
    value: Callable[[Series, DataFrame], float | None]
    group: str
    variants: tuple[str, ...] = ("causal",)
    mode: str = TRAINING
    first: int = 1
    last: float = float("inf")
    shown: str = "{:.2f}x"
    strictly: bool = False
    timings: tuple[str, ...] = (LAUNCHED, GRAPH)

    def bar(self) -> str:
        """The least value, written."""
        return f"{'>' if self.strictly else '>='} {self.shown.format(self.least)}"

    def cell(self, rows: DataFrame, timing: str) -> str:
        """The worst value, its place and the verdict.

        rows: measured, with ``time``, the median in seconds, and ``share``, that of the
            copy bandwidth in which each input and output is moved once.
        """
        if timing not in self.timings:
            return "no target"
        rows = rows[(rows.group == self.group) & (rows.timing == timing)]
        ours = rows[(rows.contestant == KERNEL) & (rows["mode"] == self.mode)]
        ours = ours[ours.variant.isin(self.variants)]
        ours = ours[ours.length.between(self.first, self.last)]
        wrong = ours[ours.wrong.astype(bool)]
        if len(wrong):
            return f"MISSED: wrong results ({wrong.variant.iloc[0]})"
        values = {}
        for _, row in ours.iterrows():
            beside = (rows.variant == row.variant) & (rows.length == row.length)
            value = self.value(row, rows[beside])
            if value is not None:
                values[row.variant, int(row.length)] = value
        if not values:
            return "not measured"
        (variant, length), worst = min(values.items(), key=lambda item: item[1])
        met = worst > self.least if self.strictly else worst >= self.least
        verdict = "met" if met else "MISSED"
        return f"{self.shown.format(worst)} ({variant}, n = {length:,}): {verdict}"


def beside(*names: str, same: bool = True) -> Callable:
    """The time over ours of the fastest peer that is right.

    names: beginnings of the names of peers.
    """

    def value(ours: Series, rows: DataFrame) -> float | None:
        rows = rows[(rows["mode"] == ours["mode"]) & (rows.same == same)]
        peers = rows[~rows.ours.astype(bool) & ~rows.wrong.astype(bool)]
        times = peers[peers.contestant.str.startswith(names)].time
        return None if times.empty else times.min() / ours.time

    return value


def share_of_bandwidth(ours: Series, rows: DataFrame) -> float:
    """Least bytes over time, as a share of the copy bandwidth."""
    return ours.share


def share_in_backward(ours: Series, rows: DataFrame) -> float | None:
    """The same for what forward and backward take beyond the forward."""
    forward = rows[(rows.contestant == KERNEL) & (rows["mode"] == FORWARD)]
    if forward.empty or ours.time <= forward.time.iloc[0]:
        return None
    moved = ours.share * ours.time - forward.share.iloc[0] * forward.time.iloc[0]
    return moved / (ours.time - forward.time.iloc[0])


TARGETS = [
    Target(
        "causal linear attention alone, forward and backward, beside the fastest "
        "kernel of another package",
        1.3,
        beside(*PACKAGES),
        "linear_attention",
        first=512,
        last=65536,
    ),
    Target(
        f"the same at {SMALL}: {SMALL_SECONDS * 1e3:.2f} ms over its time (on an H100 "
        "flash-linear-attention publishes 0.796 ms, Helion 0.755 ms)",
        1.0,
        lambda ours, rows: SMALL_SECONDS / ours.time,
        "published_shapes",
        variants=(str(SMALL),),
        timings=(GRAPH,),
    ),
    Target(
        "NormAttention (causal; phi, LRPE, attention, norm), forward and backward, "
        "beside the fastest peer that computes the same",
        1.3,
        beside(*PACKAGES),
        "norm_attention",
    ),
    Target(
        "the same beside softmax attention, the faster of flash and cuDNN, from "
        "n = 1,024 on",
        1.0,
        beside(*SOFTMAX, same=False),
        "norm_attention",
        first=1024,
        strictly=True,
    ),
    Target(
        "the same at n = 8,192",
        5.0,
        beside(*SOFTMAX, same=False),
        "norm_attention",
        first=8192,
        last=8192,
    ),
    *(
        Target(
            f"{name} alone, {direction}, share of the copy bandwidth, "
            "from n = 4,096 on",
            least,
            value,
            group,
            variants,
            mode,
            first=4096,
            shown="{:.0%}",
        )
        for name, group, variants in (
            ("causal linear attention", "linear_attention", ("causal",)),
            ("block attention", "block_attention", BLOCKS),
        )
        for direction, least, value, mode in (
            ("forward", 0.6, share_of_bandwidth, FORWARD),
            ("backward", 0.5, share_in_backward, TRAINING),
        )
    ),
    *(
        Target(
            f"block attention, {mode}, beside the fastest of SDPA on blocks, "
            "FlexAttention and varlen_attn",
            1.5,
            beside(*ON_BLOCKS),
            "block_attention",
            BLOCKS,
            mode,
        )
        for mode in (FORWARD, TRAINING)
    ),
]


def judged(rows: DataFrame, on_gpu: bool) -> DataFrame:
    """Target -> bar, and a verdict for each timing.

    rows: see ``Target.cell``.
    """

    def verdict(target: Target, timing: str) -> str:
        return target.cell(rows, timing) if on_gpu else "not measured (no GPU results)"

    return DataFrame(
        [
            [target.bar(), *(verdict(target, each) for each in (LAUNCHED, GRAPH))]
            for target in TARGETS
        ],
        index=[target.what for target in TARGETS],
        columns=["bar", LAUNCHED, GRAPH],
    ).rename_axis("target")

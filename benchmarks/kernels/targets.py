"""The bar for the kernels, and where a run stands.

Stated for an H200 in bfloat16 with 65,536 tokens and 8 heads of 64.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..harness.phases import FORWARD, GRAPH, LAUNCHED, TRAINING

KERNEL = "ours (triton)"
FLASH = "SDPA flash"
# beginnings of the names of those that a user would take for blocks
ON_BLOCKS = ("SDPA ", "FlexAttention", "varlen_attn")
BLOCKS = tuple(
    f"{activation} {direction}"
    for activation in ("softmax", "relu")
    for direction in ("causal", "bidirectional")
)


class Where(NamedTuple):
    """What was timed how."""

    group: str
    variant: str
    mode: str
    timing: str


class Run:
    """What a run measured."""

    def __init__(self, run: dict):
        self.on_gpu = "capability" in run["environment"]
        self.bandwidth = run["settings"]["copy_bandwidth"]["bytes_per_second"]
        self._rows = {}
        for row in run["measurements"]:
            if "skipped" not in row:
                where = Where(*(row[field] for field in Where._fields))
                place = self._rows.setdefault((where, row["length"]), {})
                place[row["contestant"]] = row

    def lengths(self, where: Where) -> list[int]:
        """Where our kernel was measured."""
        return sorted(n for w, n in self._rows if w == where and self.kernel(w, n))

    def kernel(self, where: Where, length: int) -> dict | None:
        """The row of our kernel."""
        return self._rows.get((where, length), {}).get(KERNEL)

    def fastest(
        self, where: Where, length: int, names: tuple[str, ...], same: bool
    ) -> float | None:
        """Seconds of the fastest peer that is right; names: beginnings of theirs."""
        return min(
            (
                seconds(row)
                for name, row in self._rows[where, length].items()
                if name.startswith(names)
                and row["same"] == same
                and not row["ours"]
                and not row["wrong"]
            ),
            default=None,
        )


class Target(NamedTuple):
    """The least that a value of our kernel shall have, at every length of a range.

    value: of a run, a place and a length; None where it was not measured.
    """

    what: str
    least: float
    value: Callable[[Run, Where, int], float | None]
    group: str
    variants: tuple[str, ...] = ("causal",)
    mode: str = TRAINING
    first: int = 1
    last: float = float("inf")
    shown: str = "{:.2f}x"
    strictly: bool = False

    def bar(self) -> str:
        """The least value, written."""
        return f"{'>' if self.strictly else '>='} {self.shown.format(self.least)}"

    def cell(self, run: Run, timing: str) -> str:
        """The worst value, its place and the verdict."""
        if not run.on_gpu:
            return "not measured (no GPU results)"
        values, wrong = {}, []
        for where, length in self._places(run, timing):
            if run.kernel(where, length)["wrong"]:
                wrong.append(where.variant)
            value = self.value(run, where, length)
            if value is not None:
                values[where.variant, length] = value
        if wrong:
            return f"MISSED: wrong results ({wrong[0]})"
        if not values:
            return "not measured"
        (variant, length), worst = min(values.items(), key=lambda item: item[1])
        met = worst > self.least if self.strictly else worst >= self.least
        value = self.shown.format(worst)
        verdict = "met" if met else "MISSED"
        return f"{value} ({variant}, n = {length:,}): {verdict}"

    def _places(self, run: Run, timing: str) -> Iterable[tuple[Where, int]]:
        for variant in self.variants:
            where = Where(self.group, variant, self.mode, timing)
            for length in run.lengths(where):
                if self.first <= length <= self.last:
                    yield where, length


def seconds(row: dict) -> float:
    """The median."""
    return statistics.median(row["seconds"])


def beside(*names: str, same: bool = True) -> Callable:
    """The fastest peer's time over ours; no names: of all."""

    def value(run: Run, where: Where, length: int) -> float | None:
        peer = run.fastest(where, length, names or ("",), same)
        return None if peer is None else peer / seconds(run.kernel(where, length))

    return value


def share_of_bandwidth(run: Run, where: Where, length: int) -> float:
    """Least bytes over time, as a share of the copy bandwidth."""
    row = run.kernel(where, length)
    return row["least_bytes"] / seconds(row) / run.bandwidth


def share_in_backward(run: Run, where: Where, length: int) -> float | None:
    """The same for what forward and backward take beyond the forward."""
    both = run.kernel(where, length)
    forward = run.kernel(where._replace(mode=FORWARD), length)
    if forward is None or seconds(both) <= seconds(forward):
        return None
    moved = both["least_bytes"] - forward["least_bytes"]
    return moved / (seconds(both) - seconds(forward)) / run.bandwidth


TARGETS = [
    Target(
        "NormAttention (causal; phi, LRPE, attention, norm), forward and backward, "
        "beside the fastest peer that computes the same",
        1.3,
        beside(),
        "norm_attention",
    ),
    Target(
        "the same beside SDPA flash, from n = 1,024 on",
        1.0,
        beside(FLASH, same=False),
        "norm_attention",
        first=1024,
        strictly=True,
    ),
    Target(
        "the same beside SDPA flash at n = 8,192",
        5.0,
        beside(FLASH, same=False),
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


def rows(run: dict) -> list[list[str]]:
    """For a table: target, bar, and a cell for each timing."""
    read = Run(run)
    return [
        [t.what, t.bar(), *(t.cell(read, timing) for timing in (LAUNCHED, GRAPH))]
        for t in TARGETS
    ]

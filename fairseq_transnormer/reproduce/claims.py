"""Whether the paper's claims hold: its sentences, judged by what reports measured.

A claim says in which order a table's rows are to stand. The verdict is not written by
hand: it follows from the rows' seeds, and a reservation can only weaken it.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..data.typed_mappings import ABOVE_0, TEXT, list_of
from .errors import ReproduceError
from .markdown import number, updates_of
from .reporting import read_report
from .yaml_files import checked_mapping, named_mappings, read_yaml_mapping

HOLDS, IN_KIND = "holds", "holds in kind"
UNCLEAR, CONTRADICTED, NOT_RUN = "not separated", "contradicted", "not run"
VERDICTS = (HOLDS, IN_KIND, UNCLEAR, CONTRADICTED, NOT_RUN)
FEWEST_SEEDS = 2  # of each row, for a verdict
CLAIM_KINDS = {
    "where": TEXT,
    "table": TEXT,
    "columns": list_of(TEXT),
    "orders": list_of(list_of(TEXT)),
    "least_ratio": ABOVE_0,
    "reservation": TEXT,
    "note": TEXT,
    "next": TEXT,
}
_REQUIRED = ("where", "table", "columns", "orders", "next")


@dataclass(frozen=True)
class Claim:
    """A sentence, and the figures that would show it.

    Attributes:
        sentence: what is claimed.
        where: section or table.
        table: whose report has the figures.
        columns: of the table, in each of which the orders must be found.
        orders: lists of rows, from the lowest figure to the highest.
        next: the experiment that would settle it.
        least_ratio: between two rows, that separates them with a single run each;
            for speeds, and for differences that no seed makes.
        reservation: why the order, where it is found, does not show the claim.
        note: what a reader must know besides.
    """

    sentence: str
    where: str
    table: str
    columns: list[str]
    orders: list[list[str]]
    next: str
    least_ratio: float | None = None
    reservation: str = ""
    note: str = ""

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Column, the row that is to be lower, the row that is to be higher."""
        for column in self.columns:
            for order in self.orders:
                for low, high in pairwise(order):
                    yield column, low, high

    def rows(self) -> list[str]:
        """Each once, in their order."""
        return list(dict.fromkeys(row for order in self.orders for row in order))


@dataclass(frozen=True)
class Judged:
    """A claim, the report that has its figures, and what follows.

    Attributes:
        claim: what is claimed.
        measured: the table's report; None where there is none.
        page: that of the report.
        verdict: one of ``VERDICTS``.
        why: of a verdict that the figures alone do not explain.
    """

    claim: Claim
    measured: dict[str, Any] | None
    page: Path | None
    verdict: str
    why: str


def load_claims(path: Path) -> dict[str, list[Claim]]:
    """Section -> its claims.

    Raises:
        ReproduceError: the file is not as it should be.
    """
    sections = {}
    for section, claims in read_yaml_mapping(path).items():
        sections[section] = [
            Claim(
                sentence,
                **checked_mapping(f"{path}: {sentence}", each, CLAIM_KINDS, _REQUIRED),
            )
            for sentence, each in named_mappings(f"{path}: {section}", claims).items()
        ]
    return sections


def judge(claim: Claim, reports: list[Path]) -> Judged:
    """The claim by the first of these folders that has figures of its rows.

    Args:
        claim: what is claimed.
        reports: folders of reports, a preset's each.

    Raises:
        ReproduceError: a report lacks a row or a column that the claim names.
    """
    for folder in reports:
        path = folder / f"{claim.table}.json"
        measured = read_report(path, folder.name) if path.exists() else None
        if measured is None:
            continue
        cells = _cells(claim, measured)
        if any(cell["measured"] is not None for cell in cells.values()):
            page = path.with_suffix(".md")
            return Judged(claim, measured, page, *_verdict(claim, measured, cells))
    return Judged(claim, None, None, NOT_RUN, "")


def _cells(claim: Claim, measured: dict[str, Any]) -> dict[tuple[str, str], dict]:
    """(row, column) -> the report's cell."""
    for what, named, there in (
        ("row", claim.rows(), list(measured["rows"])),
        ("column", claim.columns, measured["columns"]),
    ):
        for name in named:
            if name not in there:
                raise ReproduceError(
                    f"claim {claim.sentence!r}: {what} {name!r} of {claim.table}; "
                    f"allowed: {', '.join(there)}"
                )
    return {
        (row, column): measured["rows"][row][column]
        for row in claim.rows()
        for column in claim.columns
    }


def _verdict(
    claim: Claim, measured: dict[str, Any], cells: dict[tuple[str, str], dict]
) -> tuple[str, str]:
    found = {
        (column, low, high): _separated(
            cells[low, column], cells[high, column], claim.least_ratio
        )
        for column, low, high in claim.pairs()
    }
    against = [pair for pair, sign in found.items() if sign == -1]
    if against:
        column, low, high = against[0]
        many = f"; so do {len(against) - 1} more pairs" if len(against) > 1 else ""
        return CONTRADICTED, f"{low} has more than {high} ({column}){many}"
    unclear = [pair for pair, sign in found.items() if sign != 1]
    if unclear:
        reasons = {
            _why_unclear(cells[low, column], cells[high, column])
            for column, low, high in unclear
        }
        return UNCLEAR, "; ".join(sorted(reasons))
    if claim.reservation:
        return UNCLEAR, claim.reservation
    return (HOLDS if measured["paper_sizes"] else IN_KIND), ""


def _separated(low: dict, high: dict, least_ratio: float | None) -> int | None:
    """1: in the order claimed; -1: in the other; 0: cannot be told; None: not there."""
    first, second = low["seeds"].values(), high["seeds"].values()
    if not first or not second:
        return None
    if min(len(first), len(second)) >= FEWEST_SEEDS:
        return (max(first) < min(second)) - (max(second) < min(first))
    if least_ratio is not None:
        a, b = low["measured"], high["measured"]
        return (b >= least_ratio * a) - (a >= least_ratio * b)
    return 0


def _why_unclear(low: dict, high: dict) -> str:
    seeds = min(len(low["seeds"]), len(high["seeds"]))
    if seeds == 0:
        return "not all rows were run"
    return "a row has one seed" if seeds < FEWEST_SEEDS else "seeds overlap"


def claims_page(judged: dict[str, list[Judged]], place: Path, command: str) -> str:
    """The page: a table a section, a row a claim.

    Args:
        judged: section -> its claims.
        place: the page's folder, for its links.
        command: that makes it.
    """
    lines = [_INTRODUCTION]
    for section, claims in judged.items():
        lines += [f"## {section}", _counted(claims)]
        rows = [
            f"| {judged.claim.sentence} ({judged.claim.where}) | {_run(judged, place)} "
            f"| {_figures(judged)} | {_said(judged)} | {judged.claim.next} |"
            for judged in claims
        ]
        lines.append("\n".join([_HEADING, *(" ".join(row.split()) for row in rows)]))
    lines += ["## Made by", f"```\n{command}\n```"]
    return "\n\n".join(lines) + "\n"


_INTRODUCTION = f"""# Does the paper hold?

A row is a claim, what was run of it, the paper's figures beside those measured, and a
verdict. Sentences, the order that a claim asks of a table's rows, and reservations are
written in `configs/claims/`; figures and verdicts follow from `results/`:

* **{HOLDS}**: at the paper's size every seed of one row is before every seed of the
  other.
* **{IN_KIND}**: the same at another size, on other data or for fewer updates.
* **{UNCLEAR}**: a row has fewer than {FEWEST_SEEDS} seeds, seeds overlap, or the order
  has another cause, which is said.
* **{CONTRADICTED}**: every seed the other way round.
* **{NOT_RUN}**: there are no figures.

Speeds have no seeds; there a ratio that the claim names separates two rows. ± is the
standard deviation over seeds, and figures without one are of a single run."""
_HEADING = """\
| claim | what was run | figures: paper; **here** | verdict | what would settle it |
|---|---|---|---|---|"""


def _counted(claims: list[Judged]) -> str:
    counts = [sum(each.verdict == verdict for each in claims) for verdict in VERDICTS]
    found = [f"{v} {count}" for v, count in zip(VERDICTS, counts, strict=True) if count]
    return f"Claims: {len(claims)}; {', '.join(found)}."


def _run(judged: Judged, place: Path) -> str:
    """Sizes and updates of the runs of the claim's rows, with a link to their page."""
    measured, claim = judged.measured, judged.claim
    if measured is None or judged.page is None:
        return "nothing"
    names = {
        measured["rows"][row][column]["run"]
        for row in claim.rows()
        for column in claim.columns
    }
    runs = [run for name in names for run in measured["runs"].get(name, {}).values()]
    link = Path(os.path.relpath(judged.page, place)).as_posix()
    parts = [f"[{measured['table']}, preset {measured['preset']}]({link})"]
    parts.append(_range([run["params_m"] for run in runs], " M parameters"))
    if updates := updates_of(measured):
        parts.append(f"{updates} updates{_samples(measured)}")
    devices = {device.split(",")[0] for run in runs for device in run["devices"]}
    parts += [f"on {', '.join(sorted(devices))}"] if devices else []
    return ", ".join(filter(None, parts))


def _samples(measured: dict[str, Any]) -> str:
    """How large an update was, where the runs agree."""
    equal = measured["conditions"]["equal"]
    samples = equal.get("dataset.batch_size")
    if samples is None:
        return ""
    samples *= (equal.get("optimization.update_freq") or [1])[0]
    samples *= equal.get("distributed_training.distributed_world_size") or 1
    if length := equal.get("task.tokens_per_sample"):
        return f" of {samples} samples of at most {length:,} tokens"
    return f" of {samples:,} samples"


def _range(values: list[float | None], unit: str) -> str:
    there = sorted({number(value) for value in values if value is not None}, key=float)
    return " to ".join(dict.fromkeys([there[0], there[-1]])) + unit if there else ""


def _figures(judged: Judged) -> str:
    """Each row's figures: the paper's; those measured, with their seeds."""
    measured, claim = judged.measured, judged.claim
    if measured is None:
        return ""
    lines = []
    for row in claim.rows():
        for column in claim.columns:
            cell = measured["rows"][row][column]
            name = row if len(claim.columns) == 1 else f"{row}, {column}"
            here = number(cell["measured"]) or "not run"
            if cell["deviation"] is not None:
                here += f" ± {number(cell['deviation'])}"
            seeds = len(cell["seeds"])
            here = f"**{here}**" + (f" ({seeds} seeds)" if seeds > 1 else "")
            printed = number(cell["paper"])
            lines.append(f"{name}: {printed}; {here}" if printed else f"{name}: {here}")
    return "<br>".join(lines)


def _said(judged: Judged) -> str:
    said = ": ".join(filter(None, [f"**{judged.verdict}**", judged.why]))
    return f"{said}. {judged.claim.note}" if judged.claim.note else said

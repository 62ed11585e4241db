"""Whether the paper's claims hold: its sentences, judged by what reports measured.

A claim says which rows of a table are to have less than which others. The verdict is
not written by hand: it follows from the rows' seeds, and a reservation only weakens it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...data.typed_mappings import NUMBER, TEXT, Kind, list_of, mapping_of
from ..errors import ReproduceError
from ..tables.definitions import load_table
from ..yaml_files import checked_mapping, named_mappings, read_yaml_mapping
from .reporting import of_other_table, read_report

HOLDS, IN_KIND = "holds", "holds in kind"
UNCLEAR, CONTRADICTED, NOT_RUN = "not separated", "contradicted", "not run"
# what contradicts comes first on the page
VERDICTS = (CONTRADICTED, HOLDS, IN_KIND, UNCLEAR, NOT_RUN)
# part of a metric's name -> what the row with the larger figure is; scores have none
_MORE = {"gradient_rsd": "varies more than", "_memory": "takes more memory than"}
_MORE |= dict.fromkeys(("infer_", "train_"), "is faster than")
_MORE |= dict.fromkeys(("ppl", "loss"), "is worse than")
_MORE |= dict.fromkeys(("params_m", "updates_", "minutes"), "takes more than")
_MORE |= {"": "is better than"}
FEWEST_SEEDS = 2  # of each row, for a verdict
ALWAYS = "always"
# in which runs of a claim may differ
NOT_COMPARED = ("commit", "seeds", "version of ", "task.seed", "dataset.num_workers")
NOT_COMPARED += ("common.cpu", "common.log_", "distributed_training.")
_NAMES = Kind(
    "a list of different names, one at least",
    lambda value: list_of(TEXT).fits(value) and 0 < len(value) == len(set(value)),
)
_PAIR = Kind("a pair of rows", lambda value: _NAMES.fits(value) and len(value) == 2)
CLAIM_KINDS = {
    "where": TEXT,
    "table": TEXT,
    "columns": _NAMES,
    "less_than": Kind(
        "a list of pairs of rows, one at least",
        lambda value: list_of(_PAIR).fits(value) and len(value) > 0,
    ),
    "least_ratio": Kind(
        "a number above 1", lambda value: NUMBER.fits(value) and value > 1
    ),
    "sweep_from": TEXT,
    "reservation": TEXT,
    "notes": mapping_of(TEXT),
    "next": TEXT,
}
_REQUIRED = ("where", "table", "columns", "less_than", "next")

Cell = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A sentence, and the figures that would show it.

    Attributes:
        sentence: what is claimed.
        where: section or table.
        table: whose report has the figures.
        columns: of the table, in each of which the pairs must be found.
        less_than: pairs of rows, the first of which is to have the lower figure.
        next: the experiment that would settle it.
        least_ratio: between two figures of a single run each, that separates them; for
            speeds, which have no seeds.
        sweep_from: folder beside that of the reports, as "rates" beside "tables", whose
            report of the same preset and table chose the values of the rows' sweep, in
            shorter trainings; only those need be run then.
        reservation: why the order, where it is found, does not show the claim.
        notes: verdict, or "always" -> what a reader must know besides.
    """

    sentence: str
    where: str
    table: str
    columns: list[str]
    less_than: list[list[str]]
    next: str
    least_ratio: float | None = None
    sweep_from: str = ""
    reservation: str = ""
    notes: dict[str, str] = field(default_factory=dict)

    def comparisons(self) -> Iterator[tuple[str, str, str]]:
        """Column, the row that is to be lower, the row that is to be higher."""
        for column in self.columns:
            for low, high in self.less_than:
                yield column, low, high

    def rows(self) -> list[str]:
        """Each once, in their order."""
        return list(dict.fromkeys(row for pair in self.less_than for row in pair))


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
    why: str = ""

    def cell(self, row: str, column: str) -> Cell:
        """The report's; one without figures where the report has no such row."""
        return _cell(self.measured or {"rows": {}}, row, column)


def load_claims(configs: Path, name: str) -> dict[str, list[Claim]]:
    """Section -> its claims, of ``claims/NAME.yaml``.

    Raises:
        ReproduceError: the file is not as it should be, or names what a table has not.
    """
    path = configs / "claims" / f"{name}.yaml"
    sections = {}
    for section, claims in read_yaml_mapping(path).items():
        named = named_mappings(f"{path}: {section}", claims)
        sections[str(section)] = [
            _checked(configs, path, sentence, each) for sentence, each in named.items()
        ]
    return sections


def _checked(configs: Path, path: Path, sentence: str, content: Any) -> Claim:
    where = f"{path}: {sentence}"
    claim = Claim(sentence, **checked_mapping(where, content, CLAIM_KINDS, _REQUIRED))
    table = load_table(configs, claim.table)
    for what, named, there in (
        ("table", [claim.table], [table.name]),
        ("row", claim.rows(), table.rows),
        ("column", claim.columns, table.columns),
        ("notes", list(claim.notes), [ALWAYS, *VERDICTS]),
    ):
        for name in named:
            if name not in there:
                raise ReproduceError(
                    f"{where}: {what} {name!r}; allowed: {', '.join(there)}"
                )
    return claim


def judge(claim: Claim, reports: list[Path]) -> Judged:
    """The claim by the first of these folders that has all its figures, or else by that
    which has most of them.

    Args:
        claim: what is claimed.
        reports: folders of reports, a preset's each.

    Raises:
        ReproduceError: a report is of another form.
    """
    best, most = Judged(claim, None, None, NOT_RUN), 0
    for folder in reports:
        path = folder / f"{claim.table}.json"
        if not path.exists():
            continue
        measured = _report(path, folder.name)
        try:
            cells = [_cell(measured, r, c) for r in claim.rows() for c in claim.columns]
            there = sum(bool(cell["seeds"]) for cell in cells)
            if there > most:
                page = path.with_suffix(".md")
                choice = _choice(claim, folder)
                best = Judged(claim, measured, page, *_verdict(claim, measured, choice))
                most = there
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ReproduceError(
                f"{path}: of another form ({error!r}); report it from its runs"
            ) from error
        if most == len(cells):
            break
    return best


def _cell(measured: dict[str, Any], row: str, column: str) -> Cell:
    """A report of before a row was added has no figures of it."""
    nothing = {"measured": None, "paper": None, "deviation": None, "seeds": {}}
    return measured["rows"].get(row, {}).get(column, nothing | {"run": None})


def _choice(claim: Claim, folder: Path) -> dict[str, Any] | None:
    """The report that chose the values of the rows' sweep; None: the table's own."""
    if not claim.sweep_from:
        return None
    chosen = folder.parent.parent / claim.sweep_from / folder.name
    path = chosen / f"{claim.table}.json"
    return _report(path, folder.name) if path.exists() else {"rows": {}}


def _report(path: Path, preset: str) -> dict[str, Any]:
    measured = read_report(path, preset)
    if measured is None:
        raise ReproduceError(f"{path}: {of_other_table(path, preset)}")
    return measured


def _verdict(
    claim: Claim, measured: dict[str, Any], choice: dict[str, Any] | None
) -> tuple[str, str]:
    """The verdict, and why."""
    against, unclear = [], set()
    for column, low, high in claim.comparisons():
        pair = _cell(measured, low, column), _cell(measured, high, column)
        sign = _separated(*pair, claim.least_ratio)
        reasons = _unequal(measured, *pair)
        for row, cell in zip((low, high), pair, strict=True):
            reasons += _lacking(
                row, cell, None if choice is None else _cell(choice, row, column)
            )
        if not sign:
            reasons.append(_why_unclear(*pair, claim.least_ratio))
        if reasons:
            unclear.update(reasons)
        elif sign == -1:
            against.append((column, low, high))
    of_paper = measured["paper_sizes"] is True
    as_printed = of_paper and not measured["conditions"]["set_by_hand"]
    if against:
        size = "" if as_printed else "with other settings than the paper's, "
        return CONTRADICTED, size + _other_way_round(measured, against)
    if unclear:
        return UNCLEAR, "; ".join(sorted(unclear))
    if claim.reservation:
        return UNCLEAR, claim.reservation
    return (HOLDS if as_printed else IN_KIND), ""


def _other_way_round(
    measured: dict[str, Any], pairs: list[tuple[str, str, str]]
) -> str:
    """Which rows have more than which, of columns with the same rows at once."""
    columns: dict[str, list[str]] = {}
    for column, row in dict.fromkeys((column, low) for column, low, _ in pairs):
        others = (high for c, low, high in pairs if (c, low) == (column, row))
        metric = _cell(measured, row, column)["metric"]
        says = next(words for part, words in _MORE.items() if part in metric)
        columns.setdefault(f"{row} {says} {', '.join(others)}", []).append(column)
    return "; ".join(f"{said} ({', '.join(of)})" for said, of in columns.items())


def _unequal(measured: dict[str, Any], *cells: Cell) -> list[str]:
    """In what the runs of compared cells differ besides their rows."""
    names = {cell["run"] for cell in cells}
    found = []
    for key, values in measured["conditions"].get("unequal", {}).items():
        theirs = {
            str(value)
            for run, value in values.items()
            if run.rpartition("/")[0] in names
        }
        if len(theirs) > 1 and not key.startswith(NOT_COMPARED):
            found.append(f"runs differ in {key}: {', '.join(sorted(theirs))}")
    return found


def _lacking(row: str, cell: Cell, choice: Cell | None) -> list[str]:
    """What a figure of several seeds or values of a sweep is without."""
    if not cell["seeds"]:
        return []
    found = [
        f"seed {seed} of {row}: {state}"
        for seed, state in cell.get("unfinished", {}).items()
    ]
    if cell.get("not_measured"):
        found.append(f"{row}: {cell['not_measured']}")
    without = cell.get("not_complete")
    if "sweep" not in cell:
        return found or ([f"{row}: {without}"] if without else [])
    if without is None or _is_chosen(cell, choice):
        return found
    tried = [each for each in cell["sweep"] if each["seeds"] or each["not_measured"]]
    of = f"{len(tried)} of {len(cell['sweep'])}"
    return [*found, f"of the sweep of {row} {of} values were run"]


def _is_chosen(cell: Cell, choice: Cell | None) -> bool:
    """Whether a whole sweep elsewhere has chosen what a cell's figure is of."""
    if choice is None or choice.get("not_complete"):
        return False
    return _swept(cell) == _swept(choice)


def _swept(cell: Cell) -> dict[str, Any] | None:
    """The values of a sweep that a cell's figure is of."""
    values = (e["values"] for e in cell.get("sweep", ()) if e["run"] == cell["run"])
    return next(values, None)


def _separated(low: Cell, high: Cell, least_ratio: float | None) -> int | None:
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


def _why_unclear(low: Cell, high: Cell, least_ratio: float | None) -> str:
    seeds = min(len(low["seeds"]), len(high["seeds"]))
    if seeds == 0:
        return "not all rows were run"
    if seeds >= FEWEST_SEEDS:
        return "seeds overlap"
    if least_ratio is not None:
        return f"figures closer than {least_ratio:g} times"
    return "a row has one seed"

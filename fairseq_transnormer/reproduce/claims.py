"""Whether the paper's claims hold: its sentences, judged by rows of results.

A claim says which rows are to have less than which others. The verdict follows from the
rows' seeds, not from a hand; a reservation only weakens it.
"""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import inf
from pathlib import Path
from typing import Any

from ..analysis.figures import Row, dots
from ..data.whole_files import make_folder_of, write_text
from .measured import Measured, MeasuredTable, measure, unequal
from .results import Results
from .schema import Table, load_preset, load_table, named_in, read_yaml
from .text import anchor, fine, number

# of the verdicts, as pages order them; all eyes tell them apart
COLOURS = {"contradicted": "#d55e00", "holds": "#00366b", "holds in kind": "#2a86d1"}
COLOURS |= {"not separated": "0.5", "not run": "white"}
VERDICTS = CONTRADICTED, HOLDS, IN_KIND, UNCLEAR, NOT_RUN = tuple(COLOURS)
# part of a metric's name -> how the row with the larger figure compares
FASTER, TAKES = " is faster than", " takes more than"
MORE = {"gradient_rsd": "'s gradients vary more (worse) than", "params_m": TAKES}
MORE |= {"_memory": " takes more memory than", "train_": FASTER, "infer_": FASTER}
MORE |= {"ppl": "'s perplexity is higher (worse) than", "updates_": TAKES}
MORE |= {"loss": "'s loss is higher (worse) than", "minutes": TAKES}
MORE |= {"accuracy": "'s accuracy is higher (better) than"}
MORE |= {"": "'s score is higher (better) than"}  # of any other metric
Pair = tuple[Measured, Measured]
FEWEST_SEEDS = 2  # of each row, for a verdict
HEADING = "claim | paper, **here** | note"


@dataclass
class Claim:
    """A sentence, and the figures that would show it."""

    where: str  # section or table
    table: str  # that has the figures
    columns: list[str]  # in each of which the pairs must be found
    less_than: list[list[str]]  # pairs of rows: the first is to have the lower figure
    short: str = ""  # the sentence, for the picture
    least_ratio: float | None = None  # that separates two rows of a single run each
    sweep_from: str = ""  # label of shorter runs, which chose the values of the sweep
    reservation: str = ""  # why the order, where it is found, does not show the claim
    note: str = ""  # two sentences at most
    sentence: str = ""  # its key in the file
    section: str = ""  # the key above it


@dataclass
class _File:
    claims: dict[str, Claim]


@dataclass
class Judged:
    """A claim, the table that has most of its figures, and what follows."""

    claim: Claim
    measured: MeasuredTable
    verdict: str = NOT_RUN
    why: str = ""

    @property
    def cells(self) -> list[Measured]:
        """Those of each row that the claim names, in each column."""
        rows = dict.fromkeys(chain(*self.claim.less_than))
        return [self.measured.cells[e] for e in product(rows, self.claim.columns)]

    @property
    def pairs(self) -> list[Pair]:
        """In each column, the cell to be lower and the one to be higher."""
        of, claim = self.measured.cells, self.claim
        return [(of[a, c], of[b, c]) for c in claim.columns for a, b in claim.less_than]


def load(path: Path, table_of: Callable[[str], Table]) -> dict[str, list[Claim]]:
    """Section -> its claims, of a file of ``claims/``.

    ValueError of a mistake, as a row or a column that the claim's table lacks.
    """

    def as_file(content: Any) -> dict[str, Any]:
        sections = ((s, k, v) for s, of in content.items() for k, v in of.items())
        return {"claims": {k: {**v, "section": s} for s, k, v in sections}}

    found: dict[str, list[Claim]] = {}
    for sentence, claim in read_yaml(path, _File, as_file).claims.items():
        table = table_of(claim.table)
        for row in chain(*claim.less_than):
            named_in(f"{path}: {sentence}: row of {table.name}", row, table.rows)
        for column in claim.columns:
            what = f"{path}: {sentence}: column of {table.name}"
            named_in(what, column, table.columns)
        found.setdefault(claim.section, []).append(replace(claim, sentence=sentence))
    return found


def write(
    configs: Path, page: Path, results: Path, presets: Sequence[str], command: str
) -> None:
    """Judge the claims of ``claims/PAGE.yaml``; write the page and results/claims.png.

    The page begins with ``claims/PAGE.md``. A preset's changed labels come after it.
    """
    make_folder_of(page, "--page")
    found, known = Results.read(results), [load_preset(configs, e) for e in presets]
    as_printed = [preset.name for preset in known if preset.paper_sizes]
    sentences = configs / "claims" / f"{page.stem}.yaml"
    table_of = functools.cache(functools.partial(load_table, configs))

    @functools.cache
    def tables(name: str) -> list[MeasuredTable]:
        table = table_of(name)
        labels = found.runs.loc[found.runs["table"] == name, "preset"]
        return [
            measure(table, found, label, preset)
            for preset in known
            for label in dict.fromkeys([preset.name, *labels])
            if label == preset.name or label.startswith(f"{preset.name}+")
        ]

    judged = {
        section: [judge(claim, tables(claim.table), as_printed) for claim in claims]
        for section, claims in load(sentences, table_of).items()
    }
    _draw(judged, picture := results / "claims.png")
    links = [os.path.relpath(each, page.parent) for each in (picture, results)]
    text = sentences.with_suffix(".md").read_text("utf-8")
    lines = [text.format(picture=links[0], results=links[1])]
    lines += [*_sections(judged, links[1]), f"Made by `{command}`."]
    write_text(page, "\n".join(lines) + "\n")


def _draw(sections: dict[str, list[Judged]], target: Path) -> None:
    """A row a claim: what should be higher over what should be lower."""
    rows = []
    for section, judged in sections.items():
        rows.append(Row(section))
        for each in sorted(judged, key=lambda each: VERDICTS.index(each.verdict)):
            name = each.claim.short or each.claim.sentence
            rows.append(Row(name, each.verdict, *effect(each.pairs)))
    unit = "what should be higher / what should be lower (right of 1: as claimed)"
    title = "Do the paper's claims hold?"
    dots(rows, COLOURS, target, limits=(0.5, 8.0), x=unit, title=title)


def effect(pairs: Sequence[Pair]) -> tuple[list[float], float | None]:
    """What should be higher over what should be lower, of the pair that is weakest.

    It is the ratio of each seed, or of all pairs of seeds where the rows' differ; and
    the paper's.
    """

    def ratio(high: float | None, low: float | None) -> float:
        return high / low if high and low else inf

    def ratios(pair: Pair) -> tuple[float, float]:
        low, high = pair
        return ratio(high.value, low.value), ratio(high.cell.paper, low.cell.paper)

    low, high = weakest = min(pairs, key=ratios)
    first, second = low.values, high.values
    are_equal = first.keys() == second.keys()
    seeds = ((a, b) for a, b in product(first, second) if a == b or not are_equal)
    printed = ratios(weakest)[1]
    here = [ratio(second[b], first[a]) for a, b in seeds]
    return here, None if printed == inf else printed


def judge(
    claim: Claim, tables: Sequence[MeasuredTable], as_printed: Collection[str] = ()
) -> Judged:
    """The claim by the first table that has all its figures, or else most of them."""

    def found(judged: Judged) -> int:
        return sum(bool(each.values) for each in judged.cells)

    judged = max((Judged(claim, each) for each in tables), key=found)
    label, source = judged.measured.label, claim.sweep_from
    if found(judged):
        # what another size chose is nothing to this one
        is_own = source.startswith(f"{label}+")
        own = [each for each in tables if is_own and each.label == source]
        chose = own[0] if own else None
        judged.verdict, judged.why = verdict(judged, label in as_printed, chose)
    return judged


def verdict(
    judged: Judged, as_printed: bool, chose: MeasuredTable | None
) -> tuple[str, str]:
    """The verdict, and why; ``chose`` has the runs that chose the sweep's values."""
    claim, against, unclear = judged.claim, [], set()
    for pair in judged.pairs:
        sign, why = _order(*pair, claim.least_ratio)
        reasons = [why] if why else []
        columns = zip(*(_parts(judged.measured, each) for each in pair), strict=True)
        for both in columns:
            for key, values in unequal(judged.measured, both).items():
                reasons.append(f"runs differ in {key}: {', '.join(sorted(values))}")
        for cell in pair:
            place = cell.cell.row, cell.cell.column
            reasons += _lacking(cell, chose.cells[place] if chose else None)
        unclear.update(reasons)
        if sign == -1 and not reasons:
            against.append(pair)
    if against:
        size = "at the paper's size, " if as_printed else ""
        return CONTRADICTED, size + _other_way_round(against)
    if unclear or claim.reservation:
        return UNCLEAR, "; ".join(filter(None, [*sorted(unclear), claim.reservation]))
    return (HOLDS if as_printed else IN_KIND), ""


def _order(low: Measured, high: Measured, ratio: float | None) -> tuple[int, str]:
    """1: as claimed; -1: the other way round; 0: neither, and why."""
    first, second = (each.values.values() for each in (low, high))
    if low.value is None or high.value is None:
        return 0, "not all rows were run"
    if min(len(first), len(second)) >= FEWEST_SEEDS:
        sign = (max(first) < min(second)) - (max(second) < min(first))
        return sign, "" if sign else "seeds overlap"
    if ratio is None:
        return 0, "a row has one seed"
    sign = (high.value >= ratio * low.value) - (low.value >= ratio * high.value)
    return sign, "" if sign else f"figures closer than {ratio:g} times"


def _parts(measured: MeasuredTable, cell: Measured) -> list[Measured]:
    """The cells whose mean a cell is; itself of no mean."""
    names = cell.cell.mean_of
    return [measured.cells[cell.cell.row, name] for name in names] or [cell]


def _lacking(cell: Measured, choice: Measured | None) -> list[str]:
    """What a figure of several seeds or values of a sweep is without."""
    row, without = cell.cell.row, cell.unfinished | cell.reasons
    found = [f"seed {seed} of {row}: {why}" for seed, why in without.items()]
    is_whole = choice and choice.values and not choice.incomplete
    is_chosen = is_whole and choice.chosen and choice.chosen == cell.chosen
    if cell.incomplete and not found and not is_chosen:
        found.append(f"{row}: {cell.incomplete.partition(';')[0]}")
    return found


def _other_way_round(pairs: Iterable[tuple[Measured, Measured]]) -> str:
    """Which rows have a higher figure than which, and in which columns."""
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for low, high in pairs:
        says = next(words for part, words in MORE.items() if part in low.cell.metric)
        owner = "'s" if says.startswith("'s") else ""
        others, columns = found.setdefault(_quoted(low.cell.row) + says, ({}, {}))
        others[_quoted(high.cell.row) + owner] = columns[low.cell.column] = None
    return "; ".join(
        f"{a} {', '.join(others)} ({', '.join(columns)})"
        for a, (others, columns) in found.items()
    )


def _quoted(name: str) -> str:
    """A name with a comma in quotes, so that a list of names can be read."""
    return f'"{name}"' if "," in name else name


def _sections(judged: dict[str, list[Judged]], results: str) -> list[str]:
    """Of each section its claims: a table a verdict."""
    lines = list[str]()
    for section, claims in judged.items():
        lines += [f"## {section}", ""]
        for verdict in VERDICTS:
            of = [each for each in claims if each.verdict == verdict]
            if of:
                lines += [f"### {verdict} ({len(of)})", ""]
                lines += [f"| {HEADING} |", "|---|---|---|"]
                lines += [_line(each, results) for each in of] + [""]
    return lines


def _line(judged: Judged, results: str) -> str:
    """The sentence with its table, the figures, and the note."""
    claim, label, table = judged.claim, judged.measured.label, judged.measured.table
    page = f"{results}/tables/{label}.md#{anchor(table.file.title)}"
    where = f"{claim.where}; "
    where += (
        table.name if judged.verdict == NOT_RUN else f"[{table.name}, {label}]({page})"
    )
    notes = [f"**{judged.why}**" if judged.why else "", claim.note]
    note = " ".join(f"{each.strip()}." for each in notes if each)
    cells = [f"{claim.sentence} ({where})", _figures(judged), note]
    line = " | ".join(cell.replace("|", "\\|") for cell in cells)
    return f"| {' '.join(line.split())} |"


def _figures(judged: Judged) -> str:
    """A line a row, of each column the paper's figure and the mean of the seeds."""
    columns, of = judged.claim.columns, judged.measured.cells
    lines = [f"*{'; '.join(columns)}*"] if len(columns) > 1 else []
    for row in dict.fromkeys(each.cell.row for each in judged.cells):
        shown = []
        for each in (of[row, column] for column in columns):
            here = "not run"
            if each.value is not None:
                here = f"**{fine(each.value)}**"
            if len(seeds := each.values.values()) > 1:
                here += f" ({fine(min(seeds))}–{fine(max(seeds))})"
            paper = each.cell.paper
            shown.append(f"{number(paper)}, {here}" if paper is not None else here)
        lines.append(f"{row}: {'; '.join(shown)}")
    return "<br>".join(lines)

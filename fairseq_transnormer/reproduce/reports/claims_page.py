"""The page of the claims: a table a section, a row a claim, notes as footnotes."""

import os
from pathlib import Path
from typing import Any

from .claims import (
    ALWAYS,
    CONTRADICTED,
    FEWEST_SEEDS,
    HOLDS,
    IN_KIND,
    NOT_RUN,
    UNCLEAR,
    VERDICTS,
    Judged,
)
from .markdown import deviation_of, number

_INTRODUCTION = f"""# Does the paper hold?

Each row has a claim, its verdict, what was run, and the paper's figures next to ours.
Claims, reservations and notes are written by hand in `configs/claims/`. Figures and
verdicts are computed from the reports of the tables:

* **{HOLDS}**: at the paper's size, with nothing set by hand, every seed of the one row
  is below every seed of the other, in each pair and column that the claim names.
* **{IN_KIND}**: the same at another size, on other data or for fewer updates.
* **{UNCLEAR}**: the runs do not decide. The verdict gives the reason: a row has fewer
  than {FEWEST_SEEDS} seeds, seeds overlap or did not finish, runs differ in data or
  settings, a sweep is incomplete, or the order has another cause.
* **{CONTRADICTED}**: every seed of at least one pair has the opposite order.
* **{NOT_RUN}**: there are no figures.

Each section begins with its claims by verdict. With two seeds each, two equal systems
separate in the claimed direction by luck in 1 of 6 cases; with three, in 1 of 20.
Speeds have no seeds: there the claim names the ratio that separates two rows. Figures
are the mean ± the standard deviation, followed by each seed.
[Presets](reproduction.md#tables-and-presets) are sizes of models and trainings. The
text of `small` and `medium` is Debian's documentation with a vocabulary of 500
subwords; the paper's is WikiText-103. Their masked models mask 40% of the tokens, the
paper's 15%."""
_HEADING = """\
| claim | verdict | what was run | figures: paper; **here** | what would settle it |
|---|---|---|---|---|"""


def claims_page(judged: dict[str, list[Judged]], place: Path, command: str) -> str:
    """The page as Markdown.

    Args:
        judged: section -> its claims.
        place: the page's folder, for its links.
        command: that makes it.
    """
    lines, notes = [_INTRODUCTION], []
    for section, claims in judged.items():
        rows = []
        for each in claims:
            verdict = ": ".join(filter(None, [f"**{each.verdict}**", each.why]))
            if note := _note(each):
                notes.append(f"[^{len(notes) + 1}]: {note}")
                verdict += f"[^{len(notes)}]"
            claim = each.claim
            said = f"{claim.sentence} ({claim.where})"
            rows.append([said, verdict, _run(each, place), _figures(each), claim.next])
        table = "\n".join([_HEADING, *map(_row, rows)])
        lines += [f"## {section}", _overview(claims), table]
    lines += ["## Made by", f"```\n{command}\n```", *notes]
    return "\n\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    plain = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(plain)} |"


def _overview(claims: list[Judged]) -> str:
    """The section's claims by verdict, and why those that do not hold do not."""
    lines = []
    for verdict in VERDICTS:
        found = [each for each in claims if each.verdict == verdict]
        lines += [f"* **{verdict}** ({len(found)})"] if found else []
        for each in found:
            said = ": ".join(filter(None, [each.claim.sentence, each.why]))
            lines.append(f"    * {' '.join(said.split())}")
    return "\n".join(lines)


def _run(judged: Judged, place: Path) -> str:
    """Sizes and updates of the runs of the claim's rows, with a link to their page."""
    measured, claim = judged.measured, judged.claim
    if measured is None or judged.page is None:
        return "nothing"
    names = dict.fromkeys(
        judged.cell(row, column)["run"]
        for row in claim.rows()
        for column in claim.columns
    )
    runs = [
        run
        for name in names
        for run in measured["runs"].get(name, {}).values()
        if run["state"] == "finished"
    ]
    link = Path(os.path.relpath(judged.page, place)).as_posix()
    parts = [f"[{measured['table']}, preset {measured['preset']}]({link})"]
    parts.append(_range([run["params_m"] for run in runs], ".2f", " M parameters"))
    updates = _range([run["updates"] for run in runs], ",.0f", " updates")
    parts.append(updates and updates + _samples(measured))
    devices = {device.split(",")[0] for run in runs for device in run["devices"]}
    parts += [f"on {', '.join(sorted(devices))}"] if devices else []
    return ", ".join(filter(None, parts))


def _samples(measured: dict[str, Any]) -> str:
    """How large an update was, where the runs agree."""
    equal = measured["conditions"]["equal"]
    samples = equal.get("dataset.batch_size")
    if samples is None:
        return ""
    batches = (equal.get("optimization.update_freq") or [1])[0]
    batches *= equal.get("distributed_training.distributed_world_size") or 1
    samples *= batches
    if tokens := equal.get("dataset.max_tokens"):  # of a batch, pads included
        return f" of at most {samples:,} samples and {tokens * batches:,} tokens"
    if length := equal.get("task.tokens_per_sample"):
        return f" of {samples} samples of at most {length:,} tokens"
    return f" of {samples:,} samples"


def _range(values: list[float | None], form: str, unit: str) -> str:
    there = sorted(value for value in values if value is not None)
    shown = [format(value, form) for value in there[:1] + there[-1:]]
    return " to ".join(dict.fromkeys(shown)) + unit if there else ""


def _figures(judged: Judged) -> str:
    """Each row's figures: the paper's; those measured, with their seeds."""
    if judged.measured is None:
        return ""
    lines = []
    for row in judged.claim.rows():
        for column in judged.claim.columns:
            cell = judged.cell(row, column)
            name = row if len(judged.claim.columns) == 1 else f"{row}, {column}"
            here = f"**{_measured(cell['measured']) or 'not run'}**"
            if cell["deviation"] is not None:
                seeds = ", ".join(map(_measured, cell["seeds"].values()))
                here += deviation_of(cell["measured"], cell["deviation"])
                here += f" ({seeds})"
            printed = number(cell["paper"])
            lines.append(f"{name}: {printed}; {here}" if printed else f"{name}: {here}")
    return "<br>".join(lines)


def _note(judged: Judged) -> str:
    """What a reader must know besides the verdict, on one line."""
    notes = [judged.claim.notes.get(key, "") for key in (judged.verdict, ALWAYS)]
    return " ".join(f"{' '.join(each.split()).rstrip('.')}." for each in notes if each)


def _measured(value: float | None) -> str:
    """With a digit more below 1, where seeds of two rows may differ in it alone."""
    small = value is not None and 0.01 <= abs(value) < 1
    return f"{value:.3f}" if small else number(value)

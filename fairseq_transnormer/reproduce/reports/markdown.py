"""A measured table as Markdown."""

from collections.abc import Callable, Iterable
from typing import Any

from ..runs.progress import duration
from .comparisons import EARLIER_ENDS
from .ranks import FEWEST_ROWS

# of runs that were not run, before they are counted
SHOWN_NAMES = 6


def table_page(measured: dict[str, Any], pictures: dict[str, str]) -> str:
    """The page of one table: figures, order of the rows, runs, conditions.

    Args:
        measured: what ``results.measure`` returns, with the report's own entries.
        pictures: image beside the page -> what it shows.
    """
    order = _agreement(measured)
    parts = [
        f"# {measured['title']}",
        measured["task"],
        _figures(measured),
        _not_measured(measured),
        _per_cell("Not complete:", measured, "not_complete"),
        _per_cell("**Missing**, although the runs are finished:", measured, "errors"),
        _attached(measured),
        *measured["remarks"],
        "## Order of the rows" if order else "",
        order,
        *(f"![{shows}]({image})" for image, shows in pictures.items()),
        _sweep(measured),
        "## Runs",
        _runs(measured),
        "## Conditions",
        _conditions(measured),
        "## Made by",
        f"```\n{measured['command']}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def overview(tables: list[dict[str, Any]], preset: str, description: str) -> str:
    """The page that lists all tables, and of each the columns that have figures."""
    lines = [
        f"# Tables, preset `{preset}`",
        "",
        description[:1].upper() + description[1:] + ".",
        "",
        "| table | column | figures | Spearman | Kendall | pairs in another order "
        "| updates | data |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for measured in tables:
        # a table without an order to compare has a line for all of its columns
        agreement = {
            (name,): each
            for name, each in measured["agreement"].items()
            if _count(measured, [name])[0]
        }
        for columns, found in (agreement or {(*measured["columns"],): None}).items():
            there, of = _count(measured, columns)
            correlations = (
                [*correlations_of(found), str(len(found["disagreements"]))]
                if found
                else ["", "", ""]
            )
            conditions = [updates_of(measured), _names_of_data(measured)]
            lines.append(
                f"| [{measured['title']}]({measured['table']}.md) "
                f"| {', '.join(columns)} | "
                f"{there} of {of} | {' | '.join(correlations + conditions)} |"
            )
    return "\n".join(lines) + "\n"


def _count(measured: dict[str, Any], columns: Iterable[str]) -> tuple[int, int]:
    """How many cells of some columns have a figure, and how many there are."""
    cells = [row[each] for row in measured["rows"].values() for each in columns]
    return sum(cell["measured"] is not None for cell in cells), len(cells)


def correlations_of(found: dict[str, Any]) -> list[str]:
    """Spearman's and Kendall's; empty where they say nothing."""
    if why_no_correlation(found):
        return ["", ""]
    return [number(found[name]) or "-" for name in ("spearman", "kendall")]


def why_no_correlation(found: dict[str, Any]) -> str:
    """Too few rows, or rows no further apart than equal ones; "" otherwise."""
    if found["rows"] < FEWEST_ROWS:
        return "too few for a rank correlation"
    if found.get("is_within_error"):  # reports of before do not know
        return "within twice the standard error of their means: no rank correlation"
    return ""


def updates_of(measured: dict[str, Any]) -> str:
    """How many the finished runs had: one figure, or the fewest and the most."""
    runs = [run for seeds in measured["runs"].values() for run in seeds.values()]
    # of a run's log the last line may be some updates before its end
    conditions = measured["conditions"]
    equal = conditions["equal"].get("optimization.max_update")
    ends = conditions["equal"] | conditions.get("unequal", {})
    if any(ends.get(key) not in (None, none) for key, none in EARLIER_ENDS.items()):
        equal = None  # a run may have ended before
    found = {equal or int(run["updates"]) for run in runs if run["updates"]}
    if not found:
        return ""
    return " to ".join(f"{each:,}" for each in sorted({min(found), max(found)}))


def _names_of_data(measured: dict[str, Any]) -> str:
    """Without the fingerprints, which the table's page has."""
    names = [each.rpartition(" (")[0] for each in measured["conditions"]["data"]]
    return ", ".join(dict.fromkeys(names))


def number(value: float | None, sign: bool = False) -> str:
    """Two decimals, or three digits of what is smaller than that shows."""
    if value is None:
        return ""
    text = f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"
    return "+" + text if sign and value > 0 else text


def deviation_of(value: float, deviation: float | None) -> str:
    """ " ± ..." after a mean over seeds, no finer than it; "" for a single seed."""
    if deviation is None:
        return ""
    shown = f"{deviation:.2f}" if abs(value) >= 1 else number(deviation)
    return f" ± {shown}"


def _paper(cell: dict[str, Any]) -> str:
    return "-" if cell["paper_dash"] else number(cell["paper"])


def _measured(cell: dict[str, Any]) -> str:
    if cell["measured"] is None and cell["not_measured"]:
        return "-"
    measured = cell["measured"]
    if measured is None:
        return ""
    return number(measured) + deviation_of(measured, cell["deviation"])


def _figures(measured: dict[str, Any]) -> str:
    columns = {
        column: _parts(
            measured["paper_sizes"],
            [cells[column] for cells in measured["rows"].values()],
        )
        for column in measured["columns"]
    }
    headings = [
        f"{column}, {part}" if part == next(iter(parts)) else part
        for column, parts in columns.items()
        for part in parts
    ]
    lines = [f"| | {' | '.join(headings)} |", "|---|" + "--:|" * len(headings)]
    for row, cells in measured["rows"].items():
        shown = [
            show(cells[column])
            for column, parts in columns.items()
            for show in parts.values()
        ]
        lines.append(f"| {row} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _parts(paper_sizes: bool, cells: list[dict[str, Any]]) -> dict[str, Callable]:
    """What is shown of a column's cells. Other sizes' figures are not subtracted."""
    printed = any(cell["paper"] is not None for cell in cells)
    parts: dict[str, Callable] = {}
    if printed:
        parts["paper"] = _paper
    parts["measured"] = _measured
    if printed and paper_sizes:
        parts["difference"] = lambda cell: number(cell["difference"], sign=True)
    return parts


def _not_measured(measured: dict[str, Any]) -> str:
    """Why there are dashes."""
    return _per_cell("Not measured:", measured, "not_measured")


def _per_cell(heading: str, measured: dict[str, Any], key: str) -> str:
    """What cells have under ``key``: the columns of each row and text."""
    found: dict[tuple[str, str], list[str]] = {}
    for row, cells in measured["rows"].items():
        for column, cell in cells.items():
            texts = cell[key] if isinstance(cell[key], list) else [cell[key]]
            for text in filter(None, texts):
                found.setdefault((row, text), []).append(column)
    lines = [
        f"* {row}, {', '.join(columns)}: {text}"
        for (row, text), columns in found.items()
    ]
    return "\n".join([heading, "", *lines]) if lines else ""


def _attached(measured: dict[str, Any]) -> str:
    page = measured["attached"]
    return f"All of the measurement: [{page}]({page})." if page else ""


def _agreement(measured: dict[str, Any]) -> str:
    parts = []
    for column, found in measured["agreement"].items():
        printed = [row[column]["paper"] for row in measured["rows"].values()]
        if not any(figure is not None for figure in printed):
            continue
        if found is None:
            parts.append(f"**{column}**: fewer than two rows to compare.")
            continue
        pairs = found["disagreements"]
        verdict = (
            f"{_pairs(pairs)} of rows the other way round"
            if pairs
            else "no pair of rows the other way round"
            if found["ties"]
            else "the paper's order"
        )
        if found["ties"]:
            verdict += f", {_pairs(found['ties'])} equal here"
        spearman, kendall = correlations_of(found)
        ranks = f"Spearman {spearman}, Kendall {kendall}, " if spearman else ""
        without = f", {why}" if (why := why_no_correlation(found)) else ""
        parts.append(f"**{column}**: {verdict}. {ranks}{found['rows']} rows{without}.")
        if pairs:
            parts.append("\n".join(_disagreement(pair) for pair in pairs))
    return "\n\n".join(parts)


def _pairs(found: list) -> str:
    return f"{len(found)} pair{'s' if len(found) > 1 else ''}"


def _disagreement(pair: dict[str, Any]) -> str:
    first, second = pair["rows"]
    noise = {
        None: "",
        True: "; within the seeds' deviation",
        False: "; beyond the seeds' deviation",
    }[pair["within_deviation"]]
    return (
        f"* {first} less {second}: {number(pair['paper_difference'], sign=True)} in "
        f"the paper, {number(pair['measured_difference'], sign=True)} measured{noise}"
    )


def _sweep(measured: dict[str, Any]) -> str:
    """Every value that was run; the figure above is that of the marked one."""
    if not measured["sweep"]:
        return ""
    not_run = set()
    keys = measured["sweep"]
    lines = [
        "## Sweep",
        "",
        f"| | | {' | '.join(keys)} | mean | seeds |",
        "|---|---|" + "--:|" * len(keys) + "--:|---|",
    ]
    for row, cells in measured["rows"].items():
        for column, cell in cells.items():
            for each in cell.get("sweep", []):
                if not measured["runs"].get(each["run"]):
                    not_run.add(each["run"])
                    continue
                values = " | ".join(str(each["values"][key]) for key in keys)
                mean = number(each["measured"])
                mean = f"**{mean}**" if mean and each["run"] == cell["run"] else mean
                seeds = ", ".join(map(number, each["seeds"].values()))
                lines.append(f"| {row} | {column} | {values} | {mean} | {seeds} |")
    if not_run:
        lines += ["", f"Values that were not run: {len(not_run)}."]
    return "\n".join(lines)


def _runs(measured: dict[str, Any]) -> str:
    lines = [
        "| run | seed | state | updates | parameters (M) | tokens/s "
        "| peak memory (GiB) | time | device |",
        "|---|--:|---|--:|--:|--:|--:|--:|---|",
    ]
    for name, seeds in measured["runs"].items():
        for seed, run in seeds.items():
            speed, seconds = run["tokens_per_second"], run["wall_seconds"]
            lines.append(
                f"| {name} | {seed} | {run['state']} | {run['updates'] or 0:.0f} | "
                f"{number(run['params_m'])} | {f'{speed:,.0f}' if speed else ''} | "
                f"{number(run['peak_memory_gib'])} | "
                f"{duration(seconds) if seconds else ''} | "
                f"{'; '.join(run['devices'])} |"
            )
    not_run = [name for name, seeds in measured["runs"].items() if not seeds]
    if not_run and not measured["sweep"]:  # which has a line of its own
        few = len(not_run) <= SHOWN_NAMES
        names = ", ".join(not_run) if few else f"{len(not_run)} runs"
        lines += ["", f"Not run: {names}."]
    return "\n".join(lines)


def _conditions(measured: dict[str, Any]) -> str:
    conditions = measured["conditions"]
    lines = [f"* `{key}`: {value}" for key, value in conditions["equal"].items()]
    lines += [f"* data: {each}" for each in conditions["data"]]
    lines.append(f"* seeds: {', '.join(map(str, conditions['seeds'])) or 'none'}")
    found = [run for seeds in measured["runs"].values() for run in seeds.values()]
    for title, key in (("commits", "commits"), ("machines", "machines")):
        values = sorted({value for run in found for value in run[key]})
        lines.append(f"* {title}: {'; '.join(values)}")
    versions = sorted({f"{k} {v}" for run in found for k, v in run["versions"].items()})
    lines.append(f"* versions: {', '.join(versions)}")
    cells = [cell for row in measured["rows"].values() for cell in row.values()]
    if any(cell["metric"] == "test_ppl" for cell in cells):
        lines.append(
            "* test perplexity: fairseq's own validation on the test split, with the "
            "training's tokens a sample, at the update of the best validation"
        )
    steps = conditions["equal"].get("dataset.max_valid_steps")
    if steps is not None:  # fairseq ends after the batch of that number, from 0
        lines.append(
            f"* validated on {steps + 1} batches of a split at most, which each seed "
            "draws: rows of one seed have the same ones, seeds others"
        )
    for column in measured["columns"]:
        of = cells[measured["columns"].index(column)].get("mean_of")
        if of:
            lines.append(f"* {column}: mean of {', '.join(of)}")
    if measured.get("added"):
        shown = ", ".join(measured["added"])
        lines.append(f"* of earlier reports, their folders not there any more: {shown}")
    for values, names in conditions["changed_models"].items():
        lines.append(
            f"* model, beside its configuration file: {values} ({', '.join(names)})"
        )
    for key, values in conditions["set_by_hand"].items():
        shown = "; ".join(
            f"{value} ({', '.join(names)})" for value, names in values.items()
        )
        lines.append(f"* set by hand, `{key}`: {shown}")
    starts = {
        run["weights"]: run["checkpoint"] for run in found if run["weights"] is not None
    }
    lines += [f"* weights at the start: {w} ({path})" for w, path in starts.items()]
    for key, values in conditions["unequal"].items():
        shown = "; ".join(f"{name}: {value}" for name, value in values.items())
        lines.append(f"* **not equal**, `{key}`: {shown}")
    return "\n".join(lines)

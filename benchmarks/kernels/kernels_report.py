"""Tables and charts of ``kernels``."""

from __future__ import annotations

from ..harness.charts import Panel
from ..harness.markdown import plain, size, table
from ..harness.phases import FORWARD, GRAPH, LAUNCHED, TRAINING
from ..harness.timing import Spread
from . import targets

TITLE = "Kernels beside their peers, at one token count"
X_LABEL = "length n (tokens)"
ROWWISE = ("rms_norm", "gated_silu", "feature_map_and_lrpe")
MODES = (FORWARD, TRAINING)


def place(row: dict) -> int:
    """What varies inside the row's group."""
    if row["group"] in ROWWISE:
        return row["batch"] * row["length"]
    return row["batch"] if row["group"] == "decode_step" else row["length"]


def measured(run: dict) -> dict[tuple[str, str], list[dict]]:
    """(group, variant) -> rows with samples, in the order of measurement."""
    groups = {}
    for row in run["measurements"]:
        rows = groups.setdefault((row["group"], row["variant"]), [])
        if "skipped" not in row:
            rows.append(row)
    return {key: rows for key, rows in groups.items() if rows}


def panels(run: dict) -> list[Panel]:
    """Time of each group over the length in the mode that it is used in, and memory.

    CUDA graphs where there are some, so that what is drawn is the kernels. Groups
    without a length have two sizes and no line: their tables say it, unless a run has
    no others.
    """
    groups = measured(run)
    over_length = {
        key: rows
        for key, rows in groups.items()
        if key[0] not in (*ROWWISE, "decode_step")
    }
    drawn, memory = [], []
    for (group, variant), rows in (over_length or groups).items():
        mode = rows[-1]["mode"]
        rows = [row for row in rows if row["mode"] == mode]
        timing = GRAPH if any(row["timing"] == GRAPH for row in rows) else LAUNCHED
        rows = [row for row in rows if row["timing"] == timing]
        name = ", ".join(filter(None, (group, variant)))
        drawn.append(Panel(f"{name}: {mode}", "milliseconds", _lines(rows, _spread)))
        if variant == "causal":
            lines = _lines(rows, lambda row: row["peak_bytes"])
            memory.append(Panel(f"{name}: peak memory, {mode}", "MiB", lines))
    return drawn + memory


def tables(run: dict) -> str:
    """Time, memory and errors of each group, then the targets."""
    bandwidth = run["settings"]["copy_bandwidth"]
    parts = [
        "Time: median in milliseconds, in brackets the share of the copy bandwidth, "
        f"{bandwidth['bytes_per_second'] / 1e9:.4g} GB/s read and written, that moving "
        "every input and output once in that time would take. Caches are cold. "
        f'"{LAUNCHED}" waits for an idle device, so it holds Python and the launches; '
        f'"{GRAPH}" does not. Italics: computes something else at the same shape.',
    ]
    for (group, variant), rows in measured(run).items():
        computed = next((row["computes"] for row in rows if row["same"]), "-")
        parts += [
            f"### {', '.join(filter(None, (group, variant)))}",
            f"Computes {computed}.",
        ]
        for mode in MODES:
            of_mode = [row for row in rows if row["mode"] == mode]
            if of_mode:
                parts += _of_mode(mode, of_mode, bandwidth["bytes_per_second"])
        parts += _errors(rows)
    parts += [
        "### Targets",
        "Stated for an H200, bfloat16, B n = 65,536 and 8 heads of 64; the worst value "
        "over the lengths. Peers whose results are wrong do not count. The backward "
        "pass alone is what forward and backward take beyond the forward.",
        table(["target", "bar", LAUNCHED, GRAPH], targets.rows(run)),
    ]
    return "\n\n".join(parts)


def _of_mode(mode: str, rows: list[dict], bandwidth: float) -> list[str]:
    places = sorted({place(row) for row in rows})
    header = ["", *(f"{at:,}" for at in places)]

    def time(row: dict) -> str:
        median = _spread(row).median
        return f"{plain(1e3 * median)} ({row['least_bytes'] / median / bandwidth:.0%})"

    times = [
        [f"{name}, {timing}", *cells]
        for timing in (LAUNCHED, GRAPH)
        for name, cells in _cells(
            [row for row in rows if row["timing"] == timing], places, time
        )
    ]
    launched = [row for row in rows if row["timing"] == LAUNCHED]
    peaks = _cells(launched, places, lambda row: size(row["peak_bytes"]))
    return [
        f"**{mode.capitalize()}: time**",
        table(header, times),
        f"**{mode.capitalize()}: peak memory** beyond the inputs",
        table(header, [[name, *cells] for name, cells in peaks]),
    ]


def _cells(rows: list[dict], places: list[int], shown) -> list[tuple[str, list[str]]]:
    return [
        (name, [shown(line[at]) if at in line else "-" for at in places])
        for name, line in _lines(rows, lambda row: row, _shown_name).items()
    ]


def _errors(rows: list[dict]) -> list[str]:
    """Of each contestant once; they are the same in all of its rows."""
    lines = {_shown_name(row): row for row in rows}

    def error(value: float | str | None) -> str:
        return "-" if value is None else f"{float(value):.1e}"

    return [
        "**Relative error** against float64, in brackets that of plain torch",
        table(
            ["", "forward", "gradients", ""],
            [
                [
                    name,
                    *(
                        f"{error(row['errors'][key])} ({error(row['yardstick'][key])})"
                        for key in ("forward", "gradients")
                    ),
                    "WRONG" if row["wrong"] else "right",
                ]
                for name, row in lines.items()
            ],
        ),
    ]


def _lines(rows: list[dict], value, name=lambda row: row["contestant"]) -> dict:
    lines = {}
    for row in rows:
        lines.setdefault(name(row), {})[place(row)] = value(row)
    return lines


def _shown_name(row: dict) -> str:
    name = row["contestant"] if row["same"] else f"*{row['contestant']}*"
    return f"{name} (WRONG)" if row["wrong"] else name


def _spread(row: dict) -> Spread:
    return Spread.of(row["seconds"])

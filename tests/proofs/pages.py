"""The figures of the pages in results/tables: the first table of each section."""

from __future__ import annotations

from tests.paths import ROOT

FOLDER = ROOT / "results/tables"


def figures() -> dict[str, dict[str, list[str]]]:
    """Page and section -> row -> the cells after its name."""
    return {
        f"{path.stem}: {section.partition(chr(10))[0]}": first_table(section)
        for path in sorted(FOLDER.glob("*.md"))
        for section in path.read_text(encoding="utf-8").split("\n## ")[1:]
    }


def first_table(text: str) -> dict[str, list[str]]:
    """The rows of the first table, without its heading."""
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name] = cells
        elif rows:
            break
    return {name: cells for name, cells in rows.items() if not set(name) <= set(":-")}

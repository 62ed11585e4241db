"""The figures of the pages in results/tables: each page's first table."""

from __future__ import annotations

from tests.paths import ROOT

FOLDER = ROOT / "results/tables"


def figures() -> dict[str, dict[str, list[str]]]:
    """Page -> row -> the cells after its name."""
    pages = sorted(path for path in FOLDER.glob("*/*.md") if path.name != "README.md")
    return {str(path.relative_to(FOLDER)): first_table(path) for path in pages}


def first_table(path) -> dict[str, list[str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("|"):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name] = cells
        elif rows:
            break
    return {name: cells for name, cells in rows.items() if not set(name) <= set(":-")}

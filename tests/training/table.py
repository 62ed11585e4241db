"""The table of results/faults.md: python -m tests.training.table FILE

FILE is what ``FAULTS_JSON=FILE python -m pytest tests/training`` wrote.
"""

import json
import re
import sys
from pathlib import Path


def table(faults: list[dict]) -> str:
    """Markdown, a row for each fault, with the beginning of what was said."""
    rows = [
        "| what was done | exit codes | updates done | resumed from | lost | said |",
        "|---|---|---:|---:|---:|---|",
    ]
    for fault in sorted(faults, key=lambda each: each["fault"]):
        codes = ", ".join(map(str, fault["exit_codes"]))
        said = re.sub(r"\S*/(?=checkpoint|train\.)", "", fault["said"])
        said = re.split(r"[.;] ", said)[0].replace("|", "\\|")
        rows.append(
            f"| {fault['fault']} | {codes} | {fault['updates_done']} | "
            f"{fault['went_on_at']} | {fault['updates_lost']} | {said} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())["faults"]))

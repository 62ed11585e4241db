"""The table of results/workers/README.md: python -m tests.workers.table FILE

FILE is what ``WORKERS_JSON=FILE python -m pytest tests/workers`` wrote.
"""

import json
import sys
from pathlib import Path

METRICS = ("valid_ppl", "valid_accuracy", "valid_f1", "valid_mcc")


def table(runs: list[dict]) -> str:
    """Markdown: losses in nats, and by how much those of the workers differ at most."""
    lines = [
        "| task | workers | update 1 | 6 | 12 | validation | largest difference to 1 "
        "worker, relative | metrics in the log |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    one = {run["task"]: run["losses"] for run in runs if run["workers"] == 1}
    for run in sorted(runs, key=lambda run: (run["task"], run["workers"])):
        pairs = zip(run["losses"], one[run["task"]], strict=True)
        difference = max(abs(ours / theirs - 1) for ours, theirs in pairs)
        losses = [run["losses"][i] for i in (0, 5, 11)] + [run["valid_loss"]]
        logged = run["valid_metrics"]
        metrics = [f"{key[6:]} {logged[key]}" for key in METRICS if key in logged]
        cells = [run["task"], str(run["workers"]), *(f"{each:.7f}" for each in losses)]
        cells += [f"{difference:.0e}" if difference else "0", ", ".join(metrics)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())))

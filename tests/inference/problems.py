"""Small problems in the layout of data_prep, whose classes are told by their words."""

import json
import random
from pathlib import Path

from fairseq.data import Dictionary

from tests.binary_data import dictionary_of, numbered_words, write_binary_data

WORDS = 40


def dictionary() -> Dictionary:
    return numbered_words(WORDS)


def write_problem(
    folder: Path,
    labels=("no", "yes"),
    counts=None,
    pairs=False,
    task="own",
    max_positions=512,
    words=None,
) -> Path:
    """Write report.json, input0, input1 (pairs), label; no labels: a regression."""
    draw = random.Random(0)
    classes = len(labels) or 6
    counts = counts or {"train": 48, "valid": 21, "test": 5}
    words = words or dictionary()
    texts, targets = {}, {}
    for split, count in counts.items():
        targets[split] = [draw.randrange(classes) for _ in range(count)]
        texts[split] = [
            " ".join(
                f"w{WORDS // classes * target + draw.randrange(WORDS // classes)}"
                for _ in range(4 + i % 9)
            )
            for i, target in enumerate(targets[split])
        ]
    for part in ("input0", "input1") if pairs else ("input0",):
        write_binary_data(folder / part, words, texts)
    labelled = {s: rows for s, rows in targets.items() if not s.startswith("test")}
    if labels:
        rows = {s: [labels[t] for t in each] for s, each in labelled.items()}
        write_binary_data(folder / "label", dictionary_of(labels), rows)
    else:
        (folder / "label").mkdir()
        for split, each in labelled.items():
            lines = "".join(f"{target / 5}\n" for target in each)
            (folder / "label" / f"{split}.label").write_text(lines)
    report = {
        "task": task,
        "labels": list(labels),
        "splits": counts,
        "regression": not labels,
        "target_scale": 5.0 if not labels else 1.0,
        "subword": {},
        "max_positions": max_positions,
    }
    (folder / "report.json").write_text(json.dumps(report))
    return folder

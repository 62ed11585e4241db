"""Reads the logs of trainings.

Their records are lines of JSON. They are a run's own train.log
(data/training_records.py), or what fairseq printed with --log-format json. Anything may
stand in front of them.
"""

import json
import math
import re
from pathlib import Path

from ..data.training_records import LOG

# fairseq-train's own format, and Hydra's
_SAVED = re.compile(r"Saved checkpoint .* @ (\d+) updates, score (?!None)")
_JSON = re.compile(r"\{\".*\}$", re.MULTILINE)
Records = dict[str, list[dict]]


def read_training_log(path: Path) -> Records:
    """``parse_training_log`` of a file, or of train.log in a run's folder or by its
    checkpoints.

    Raises:
        ValueError: there is no such log, or it has no record of training.
    """
    if path.is_dir():
        places = (path / LOG, path / "checkpoints" / LOG)
        path = next((place for place in places if place.exists()), places[0])
    records = parse_training_log(path.read_text(encoding="utf-8", errors="replace"))
    if not records["train_inner"]:
        raise ValueError(
            f"{path}: no training records; give train.log, or a log of fairseq-train "
            "with --log-format json, of log_interval updates at least"
        )
    return records


def parse_training_log(log: str) -> Records:
    """Records by kind: "train_inner", "valid", other splits.

    Where a run was resumed, later records of the same update replace earlier ones. A
    training of fewer updates than log_interval has none of "train_inner".

    Args:
        log: the text of a log.

    Returns:
        kind -> records by update: numbers, or text as fairseq writes them. Names other
        than "epoch" have the kind in front, but those of "train_inner".
    """
    records: dict[str, dict[int, dict]] = {"train_inner": {}, "valid": {}}
    for found in _JSON.findall(log):
        try:
            record = json.loads(found)
        except ValueError:  # a killed attempt's last line, and the next one's first
            continue
        key = next((name for name in record if name.endswith("num_updates")), "")
        kind = record.pop("kind", None) or key.removesuffix("num_updates").rstrip("_")
        if not key or kind == "train":  # of a whole epoch
            continue
        # what is no number is null in a train.log
        record = {k: math.nan if v is None else v for k, v in record.items()}
        # fairseq writes updates from a million on as 1e+06
        updates = int(float(record[key]))
        record[key] = str(updates) if isinstance(record[key], str) else updates
        records.setdefault(kind or "train_inner", {})[updates] = record
    return {kind: [each[n] for n in sorted(each)] for kind, each in records.items()}


def saved_updates(log: str) -> set[int]:
    """Updates, as records have them, whose validation decided about checkpoint_best.pt.

    fairseq validates at updates at which it saves nothing, too.
    """
    return {int(float(f"{int(update):g}")) for update in _SAVED.findall(log)}


def series(records: list[dict], key: str) -> tuple[list[int], list[float]]:
    """Updates and values of a key, where records have it."""
    updates = "valid_num_updates" if key.startswith("valid_") else "num_updates"
    points = [each for each in records if key in each]
    return [int(e[updates]) for e in points], [float(e[key]) for e in points]

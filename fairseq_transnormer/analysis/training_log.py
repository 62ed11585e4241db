"""Reads the logs of fairseq-train (--log-format json) and of fairseq-eval-lm."""

import json
import re
from pathlib import Path

# fairseq-train's own format, and Hydra's
_SAVED = re.compile(r"Saved checkpoint .* @ (\d+) updates, score (?!None)")
_RECORD = re.compile(r"(?:\| INFO \| (\w+) \| |\[(\w+)\]\[INFO\] - )(\{\".*\})$", re.M)


def read_training_log(path: Path) -> dict[str, list[dict]]:
    """``parse_training_log`` of a file.

    Raises:
        ValueError: the log has no record of training.
    """
    records = parse_training_log(path.read_text(encoding="utf-8", errors="replace"))
    if not records["train_inner"]:
        raise ValueError(
            f"{path}: no training records; allowed: logs of fairseq-train with "
            "--log-format json, of log_interval updates at least"
        )
    return records


def parse_training_log(log: str) -> dict[str, list[dict]]:
    """Records of a JSON training log by kind: "train_inner", "valid", other splits.

    Where a run was resumed, later records of the same update replace earlier ones. A
    training of fewer updates than log_interval has none of "train_inner".

    Args:
        log: what fairseq-train or fairseq-hydra-train printed.
    """
    records: dict[str, dict[int, dict]] = {"train_inner": {}, "valid": {}}
    for plain, hydra, text in _RECORD.findall(log):
        kind = plain or hydra
        try:
            record = json.loads(text)
        except ValueError:  # a killed attempt's last line, and the next one's first
            continue
        key = "num_updates" if kind == "train_inner" else f"{kind}_num_updates"
        if kind != "train" and key in record:
            records.setdefault(kind, {})[int(record[key])] = record
    return {
        kind: [by_update[n] for n in sorted(by_update)]
        for kind, by_update in records.items()
    }


def saved_updates(log: str) -> set[int]:
    """Updates whose validation decided about checkpoint_best.pt.

    fairseq validates at updates at which it saves nothing, too.
    """
    return {int(update) for update in _SAVED.findall(log)}


def read_evaluation_log(path: Path) -> float:
    """Perplexity in a log of fairseq-eval-lm.

    Raises:
        ValueError: there is none.
    """
    found = re.findall(r"Perplexity: ([0-9.]+)", path.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{path}: no perplexity; allowed: logs of fairseq-eval-lm")
    return float(found[-1])

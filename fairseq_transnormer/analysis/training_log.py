"""Reads the logs of fairseq-train (--log-format json) and of fairseq-eval-lm."""

import json
import re
from pathlib import Path


def read_training_log(path: Path) -> dict[str, list[dict]]:
    """``parse_training_log`` of a file."""
    return parse_training_log(path.read_text(encoding="utf-8"), str(path))


def parse_training_log(log: str, name: str) -> dict[str, list[dict]]:
    """Records of a JSON training log by kind: "train_inner" and "valid".

    Where a run was resumed, later records of the same update replace earlier ones.

    Args:
        log: what fairseq-train printed.
        name: of the log, for the error.

    Raises:
        ValueError: the log has no record of training.
    """
    records = {"train_inner": {}, "valid": {}}
    pattern = re.compile(r"\| INFO \| (train_inner|valid) \| (\{.*\})")
    for kind, text in pattern.findall(log):
        record = json.loads(text)
        number = record["num_updates" if kind == "train_inner" else "valid_num_updates"]
        records[kind][int(number)] = record
    if not records["train_inner"]:
        raise ValueError(
            f"{name}: no training records; allowed: logs of fairseq-train with "
            "--log-format json"
        )
    return {
        kind: [by_update[n] for n in sorted(by_update)]
        for kind, by_update in records.items()
    }


def read_evaluation_log(path: Path) -> float:
    """Perplexity in a log of fairseq-eval-lm.

    Raises:
        ValueError: there is none.
    """
    found = re.findall(r"Perplexity: ([0-9.]+)", path.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{path}: no perplexity; allowed: logs of fairseq-eval-lm")
    return float(found[-1])

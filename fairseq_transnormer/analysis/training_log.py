"""Reads the logs of trainings, however they were started and logged.

A run's own train.log (data/training_records.py); what fairseq-train,
fairseq-hydra-train or a script printed with --log-format json, simple or tqdm; what
fairseq's --log-file has; and the logs of fairseq-eval-lm. What a line is of is found in
its content, since these have different things in front of it, or nothing.
"""

import json
import math
import re
from pathlib import Path

from ..data.training_records import LOG

# fairseq-train's own format, and Hydra's
_SAVED = re.compile(r"Saved checkpoint .* @ (\d+) updates, score (?!None)")
_JSON = re.compile(r"\{\".*\}$")
# simple, within an epoch:  epoch 001:     10 / 38 loss=6.9, ppl=119.4, num_updates=10
# tqdm's bar:  epoch 001:  26%|##6   | 10/38 [00:00<00:01, 15.3it/s, loss=6.9, ...]
_WITHIN = re.compile(r"epoch (\d+):.*?\W(\w+=.*\bnum_updates=\d+.*)$")
_PAIR = re.compile(r"(\w+)=([^\s,\]]+)")
# simple and tqdm, at the end:  epoch 001 | valid on 'valid' subset | loss 6.6 | ppl 94
_AT_THE_END = re.compile(
    r"epoch (\d+) \| (?:valid on '(.+?)' subset \| )?(\w+ \S+ \|.*)$"
)
Records = dict[str, list[dict]]

ALLOWED = (
    "train.log of a run, or a log of fairseq-train with --log-format json, simple or "
    "tqdm, with a record of log_interval updates or an epoch"
)


def log_of(path: Path) -> Path:
    """The log that a file is, or that a folder has: train.log, by its checkpoints."""
    if not path.is_dir():
        return path
    places = (path / LOG, path / "checkpoints" / LOG)
    return next((place for place in places if place.exists()), places[0])


def read_training_log(path: Path) -> Records:
    """``parse_training_log`` of a file, or of the log in a run's folder.

    A log without a record within epochs, as --log-format tqdm leaves in a file, has
    those of whole epochs as "train_inner".

    Raises:
        ValueError: there is no such log, or it has no record of training.
    """
    path = log_of(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file; allowed: {ALLOWED}")
    records = _parse(path.read_text(encoding="utf-8", errors="replace"))
    epochs = records.pop("train")
    if not records["train_inner"]:
        records["train_inner"] = [
            {name.removeprefix("train_"): value for name, value in record.items()}
            for record in epochs
        ]
    if not records["train_inner"]:
        raise ValueError(f"{path}: no training records; allowed: {ALLOWED}")
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
    records = _parse(log)
    del records["train"]
    return records


def _parse(log: str) -> Records:
    """All records, those of whole epochs, "train", among them."""
    records: dict[str, dict[int, dict]] = {"train_inner": {}, "valid": {}, "train": {}}
    for line in re.split(r"[\r\n]+", log):
        kind, record = _record_in(line)
        key = _named(kind, "num_updates")
        try:
            # fairseq writes updates from a million on as 1e+06
            updates = int(float(record[key]))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if isinstance(record[key], str):
            record[key] = str(updates)
        records.setdefault(kind, {})[updates] = record
    return {
        kind: [by_update[n] for n in sorted(by_update)]
        for kind, by_update in records.items()
    }


def _record_in(line: str) -> tuple[str, dict]:
    """The kind and the record of a line; an empty one if it has none."""
    if found := _JSON.search(line):
        try:
            record = json.loads(found[0])
        except ValueError:  # a killed attempt's last line, and the next one's first
            return "", {}
        # what is no number is null in a train.log
        record = {k: math.nan if v is None else v for k, v in record.items()}
        return record.pop("kind", None) or _kind_by_names(record), record
    if found := _WITHIN.search(line):
        pairs = dict(_PAIR.findall(found[2]))
        return "train_inner", {"epoch": int(found[1]), **pairs}
    if found := _AT_THE_END.search(line):
        kind = found[2] or "train"
        pairs = [each.split(" ", 1) for each in found[3].split(" | ") if " " in each]
        values = {_named(kind, name): value.strip() for name, value in pairs}
        return kind, {"epoch": int(found[1]), **values}
    return "", {}


def _kind_by_names(record: dict) -> str:
    """train_inner has num_updates, others their own: valid_num_updates."""
    names = [name for name in record if name.endswith("num_updates")]
    prefix = names[0].removesuffix("num_updates") if names else ""
    return prefix.removesuffix("_") or "train_inner"


def _named(kind: str, name: str) -> str:
    return name if kind == "train_inner" else f"{kind}_{name}"


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

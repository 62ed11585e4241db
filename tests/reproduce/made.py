"""Tables, logs and folders of runs by hand: nothing is trained."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

# of two rows, whose runs are tiny/blm_t1 and tiny/blm_t2
TABLE = {
    "title": "Mine",
    "config": "blm",
    "columns": {"ppl": {"metric": "valid_ppl"}, "test": {"metric": "test_ppl"}},
    "rows": {
        "T1": {"system": "t1", "paper": [3.0, 4.0]},
        "T2": {"system": "t2", "paper": [2.0, None]},
    },
}
CONFIGURATION = {
    "common": {"seed": 1},
    "model": {"_name": "x", "dropout": 0.1},
    "optimization": {"max_update": 3, "lr": [0.1]},
}
ATTEMPT = {
    "started": 0.0,
    "device": "CPU, 1 threads, 1 at once",
    "machine": "here",
    "commit": "abc",
    "versions": {"torch": "2"},
    "weights": None,
    "mark": None,
}


def write_yaml(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def record(kind: str, updates: int, **values: object) -> str:
    """A line of fairseq's log: a validation, or what is within an epoch."""
    front = "" if kind == "train_inner" else f"{kind}_"
    named = {f"{front}{name}": str(value) for name, value in values.items()}
    named[f"{front}num_updates"] = str(updates)
    return f"[2026][{kind}][INFO] - {json.dumps(named)}"


def saved(updates: int) -> str:
    return f"Saved checkpoint checkpoints/x.pt (epoch 1 @ {updates} updates, score 1.0)"


def validations(ppls: Iterable[float]) -> list[str]:
    """Of updates 1, 2, ...: perplexity and loss; those of test are 1 more."""
    return [
        record(split, number, ppl=ppl + more, loss=ppl + more)
        for number, ppl in enumerate(ppls, 1)
        for split, more in (("valid", 0), ("test", 1))
    ]


def write_run(
    path: Path,
    log: Iterable[str] = (),
    *,
    seed: int = 1,
    exit_code: int | None = 0,
    attempts: Iterable[dict] = ({},),
    configuration: dict | None = None,
    **facts: Any,
) -> Path:
    """The folder of a run as the runner leaves it.

    Args:
        path: of the folder; its name below that of all runs is its last three parts.
        log: lines of its training, in its last attempt.
        exit_code: of that one; None: it has no end.
        attempts: what each adds to ``ATTEMPT``, or changes in it.
        configuration: group -> values beside ``CONFIGURATION``, with this seed.
        facts: of run.json, beside what all have.
    """
    cfg = json.loads(json.dumps(CONFIGURATION))
    for group, values in (configuration or {}).items():
        cfg.setdefault(group, {}).update(values)
    cfg["common"]["seed"] = seed
    write_yaml(path / "config.yaml", cfg)
    usual = {
        "name": "/".join(path.parts[-3:]),
        "seed": seed,
        "data": "/data-bin/words",
        "data_fingerprint": "d1",
        "updates": 3,
        "needs": [],
        "start": "",
        "command": [sys.executable, "-c", ""],
    }
    (path / "run.json").write_text(json.dumps(usual | facts))
    lines = []
    for each in attempts:
        attempt = {"kind": "attempt"} | ATTEMPT | each
        if lines:
            lines.append('{"kind": "attempt_end", "seconds": 5.0, "exit_code": 75}')
        lines.append(json.dumps(attempt))
    lines += log
    if exit_code is not None and lines:
        end = {"kind": "attempt_end", "seconds": 90.0, "exit_code": exit_code}
        lines.append(json.dumps(end))
    (path / "train.log").write_text("".join(f"\n{line}\n" for line in lines))
    return path


def write_script(path: Path, script: str, *words: object, **facts: Any) -> Path:
    """The folder of a run whose command is a Python script, and that never ran."""
    command = [sys.executable, "-c", script, *map(str, words)]
    return write_run(path, attempts=(), command=command, data_fingerprint="", **facts)

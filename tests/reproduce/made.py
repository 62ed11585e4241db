"""Tables, logs and folders of runs by hand: nothing is trained."""

import copy
import functools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.messages import refuses

refused = functools.partial(refuses, ValueError, alone=True)
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
ATTEMPT = {"kind": "attempt", "started": 0.0, "device": "CPU, 1 threads, 1 at once"}
ATTEMPT |= {"machine": "here", "commit": "abc", "versions": {"torch": "2"}}
FACTS = {"data": "/data-bin/words", "data_fingerprint": "d1", "updates": 3}
FACTS |= {"task": "", "part": ""}
FACTS |= {"needs": [], "start": "", "command": [sys.executable, "-c", ""]}


def write_yaml(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def files(folder: Path) -> dict[Path, bytes | bool]:
    """All that is below a folder, with its content; False for folders."""
    return {p: p.is_file() and p.read_bytes() for p in folder.rglob("*")}


def record(kind: str, updates: int, **values: object) -> str:
    """A line of fairseq's log: a validation, or what is within an epoch."""
    front = "" if kind == "train_inner" else f"{kind}_"
    named = {f"{front}{key}": str(v) for key, v in values.items()}
    named[f"{front}num_updates"] = str(updates)
    return f"[2026][{kind}][INFO] - {json.dumps(named)}"


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
    """The folder of a run as the runner leaves it; its name is its last three parts.

    ``log``: lines of the last attempt. ``attempts``: what each has beside ``ATTEMPT``;
    the last ends with ``exit_code``, None: it has no end. ``configuration``: group ->
    values beside ``CONFIGURATION``. ``facts``: of run.json, beside ``FACTS``.
    """
    cfg = copy.deepcopy(CONFIGURATION)
    for group, values in (configuration or {}).items():
        cfg.setdefault(group, {}).update(values)
    cfg["common"]["seed"] = seed
    write_yaml(path / "config.yaml", cfg)
    own = {"name": "/".join(path.parts[-3:]), "seed": seed}
    (path / "run.json").write_text(json.dumps(FACTS | own | facts))
    end, lines = '{{"kind": "attempt_end", "seconds": {}, "exit_code": {}}}', []
    for each in attempts:
        lines += [end.format(5.0, 75)] * bool(lines) + [json.dumps(ATTEMPT | each)]
    is_over = lines and exit_code is not None
    lines += [*log, *[end.format(90.0, exit_code)] * bool(is_over)]
    (path / "train.log").write_text("".join(f"\n{line}\n" for line in lines))
    return path

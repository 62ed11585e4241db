"""In the place of the runner's trainings: no fairseq, a moment each.

A training copies $STAND_IN_CHECKPOINT; a fine-tuning's score comes from the bytes of
the checkpoint that it starts from. As of few updates, there are no records of training.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

import yaml


def score_of(checkpoint: Path) -> float:
    """Percent, with two decimals."""
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    return int(digest[:8], 16) % 10_000 / 100


def log(kind: str, **record) -> None:
    named = {f"{kind}_{key}": str(value) for key, value in record.items()}
    print(f"[2026][{kind}][INFO] - {json.dumps(named)}", flush=True)


def main() -> None:
    configuration = yaml.safe_load(Path("configuration.yaml").read_text())
    start = configuration["checkpoint"]["finetune_from_model"]
    checkpoints = Path("checkpoints")
    checkpoints.mkdir(exist_ok=True)
    print("num. shared model params: 1,000 (num. trained: 1,000)", flush=True)
    updates = configuration["optimization"]["max_update"]
    shutil.copy(os.environ["STAND_IN_CHECKPOINT"], checkpoints / "checkpoint_best.pt")
    if start is None:
        log("valid", loss=1.0, ppl=2.0, num_updates=updates)
        return
    if "STAND_IN_STOPS" in os.environ:
        raise SystemExit(1)
    score = score_of(Path(start))
    for split in ("valid", "valid1"):
        log(split, accuracy=score, mcc=score, num_updates=updates)


if __name__ == "__main__":
    main()

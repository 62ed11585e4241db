"""Logs as fairseq writes them with --log-format json."""

import json


def line(kind: str, record: dict) -> str:
    """One line of a training log; fairseq writes numbers as strings."""
    text = json.dumps({k: v if k == "epoch" else str(v) for k, v in record.items()})
    return f"2026-01-01 00:00:00 | INFO | {kind} | {text}\n"


def training_log(updates, valid=()) -> str:
    """A log of (update, loss) records and (update, perplexity) validations."""
    text = "2026 | INFO | fairseq_cli.train | num. shared model params: 1,234 (...)\n"
    for number, loss in updates:
        record = {"epoch": 1, "loss": loss, "wps": 100.5, "num_updates": number}
        text += line("train_inner", record)
    for number, perplexity in valid:
        record = {"epoch": 1, "valid_loss": 2.0, "valid_ppl": perplexity}
        text += line("valid", record | {"valid_num_updates": number})
    return text + "2026 | INFO | fairseq_cli.train | done training in 9.9 seconds\n"

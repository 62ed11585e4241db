"""A tiny text to pre-train on, a problem to fine-tune on, and a table of both."""

import shutil
from pathlib import Path

import yaml

from tests.inference.problems import WORDS, dictionary, write_problem
from tests.paths import CONFIGS
from tests.tiny_data import write_tiny_data

FINE_TUNING = "fairseq_transnormer.reproduce.tables.fine_tuning:FineTune"


def preset_with_data(folder: Path) -> dict:
    """The smoke preset over a text and a problem of the same words in ``folder``."""
    text = write_tiny_data(folder / "text", words=WORDS)
    dictionary().save(str(text / "dict.txt"))
    for kind in ("bin", "idx"):
        shutil.copy(text / f"valid.{kind}", text / f"test.{kind}")
    write_problem(folder / "problem")
    preset = yaml.safe_load((CONFIGS / "presets/smoke.yaml").read_text())
    preset["tasks"]["masked_lm"]["data"] = str(text)
    preset["tasks"]["sentence_prediction"]["data"] = str(folder / "problem")
    return preset


def write_preset_and_table(
    folder: Path, preset: dict, columns: dict, row: dict
) -> None:
    """Write tiny.yaml, and one.yaml: one row, ``columns``, one learning rate."""
    table = {
        "title": "One",
        "job": FINE_TUNING,
        "sweep": {"optimization.lr": [[0.01]]},
        "columns": columns,
        "rows": {"T2": row},
    }
    for name, content in (("tiny", preset), ("one", table)):
        text = yaml.safe_dump(content, sort_keys=False)
        (folder / f"{name}.yaml").write_text(text)

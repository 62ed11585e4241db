"""Tiny data, a preset and tables over them, and the command in this process."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fairseq_transnormer.reproduce import commands, schema
from fairseq_transnormer.reproduce.plan import Conditions
from tests.paths import CONFIGS

from .made import TABLE, write_yaml


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Path:
    """tiny.yaml: the preset smoke, over text/ and problem/; mine.yaml: TABLE."""
    from tests.inference.problems import WORDS, dictionary, write_problem
    from tests.tiny_data import write_tiny_data

    folder = tmp_path_factory.mktemp("place")
    text = write_tiny_data(folder / "text", words=WORDS)
    dictionary().save(str(text / "dict.txt"))
    for kind in ("bin", "idx"):
        shutil.copy(text / f"valid.{kind}", text / f"test.{kind}")
    counts = {"train": 400, "valid": 21, "test": 5}
    write_problem(folder / "problem", counts=counts)
    preset = yaml.safe_load((CONFIGS / "presets/smoke.yaml").read_text())
    tasks = {name: preset["tasks"][name] for name in ("masked_lm", "language_modeling")}
    tuning = preset["tasks"]["sentence_prediction"] | {"prepare": []}
    tuning |= dict.fromkeys(("sequences_per_device", "sequences_per_update"), 8)
    for task, data in (
        (tuning, "problem"),
        *((task, "text") for task in tasks.values()),
    ):
        task["data"] = str(folder / data)
    preset["tasks"] = tasks | {"sentence_prediction": tuning}
    for key in ("columns", "sweep_values"):
        del preset[key]
    preset["overrides"]["task.tokens_per_sample"] = 64
    write_yaml(folder / "tiny.yaml", preset)
    write_yaml(folder / "mine.yaml", TABLE)
    return folder


@pytest.fixture
def conditions(place):
    """conditions(preset="tiny", fields): what all rows have in common."""

    def make(preset: str = "tiny", **given) -> Conditions:
        name = str(place / "tiny.yaml") if preset == "tiny" else preset
        changes = {key: given.pop(key) for key in ("tasks",) if key in given}
        loaded = replace(schema.load_preset(CONFIGS, name), **changes)
        return Conditions(CONFIGS, CONFIGS.parent, loaded, **given)

    return make


@pytest.fixture
def command(place, tmp_path, capsys):
    """command(word, ...): its exit code, output and errors; runs and results in tmp."""

    def run(word: str, *words: object) -> tuple[int, str, str]:
        usual = {"--preset": place / "tiny.yaml", "--runs-dir": tmp_path / "runs"}
        if word in ("report", "finetune"):
            usual["--results"] = tmp_path / "results"
        if word in ("run", "finetune"):
            usual["--gpus"] = 0
        given = [word, *map(str, words)]
        for option, value in usual.items() if word != "list" else ():
            given += [option, str(value)] if option not in given else []
        capsys.readouterr()
        try:
            code = commands.main(given)
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run

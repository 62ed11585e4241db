"""fairseq's own commands run with the plugin and give the same texts."""

import importlib
import io
import math
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from fairseq_cli import generate, interactive

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.plugin.models import TransNormerLanguageModel
from tests.inference.models import run_fairseq
from tests.messages import refuses

PROMPTS = [
    "the river",
    "an old king found the bridge for many years . the river crosses",
    "",
    "her brother looks at",
]


def printed(output: str, kind: str) -> dict[int, list[str]]:
    """The fields behind "KIND-NUMBER" of each line that fairseq printed."""
    rows = [line.split("\t") for line in output.splitlines()]
    return {
        int(row[0][len(kind) + 1 :]): row[1:]
        for row in rows
        if row[0].startswith(f"{kind}-")
    }


def same_texts(found: dict[int, list[str]], results) -> None:
    assert sorted(found) == list(range(len(results)))
    for number, result in enumerate(results):
        score, text = found[number]
        assert text == result.text
        # fairseq prints scores in base 2
        assert float(score) * math.log(2) == pytest.approx(result.score, abs=1e-5)


@pytest.mark.parametrize(("name", "beam"), [("t1", 1), ("t2", 4)])
def test_interactive(zoo, capsys, monkeypatch, name, beam):
    trained = zoo.trained[name]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(PROMPTS) + "\n"))
    # fmt: off
    run_fairseq(
        interactive.cli_main, trained.data, "--task", "language_modeling",
        "--path", trained.path, "--beam", beam, "--max-len-a", 1, "--max-len-b", 11,
    )
    # fmt: on
    found = printed(capsys.readouterr().out, "D")
    same_texts(found, trained.generator.generate(PROMPTS, beam=beam, max_new_tokens=12))


def test_generate(t1, capsys):
    """Of the first three words of each test line."""
    # fmt: off
    run_fairseq(
        generate.cli_main, t1.data, "--task", "language_modeling",
        "--path", t1.path, "--beam", 3, "--max-len-b", 15, "--prefix-size", 3,
        "--sample-break-mode", "eos", "--batch-size", 4, "--num-workers", 0,
        "--required-batch-size-multiple", 1, "--no-progress-bar",
    )
    # fmt: on
    output = capsys.readouterr().out
    lines = printed(output, "T")
    prompts = [" ".join(lines[i][0].split()[:3]) for i in range(6)]
    same_texts(
        printed(output, "H"), t1.generator.generate(prompts, beam=3, max_new_tokens=12)
    )


@pytest.mark.parametrize("command", ["eval_lm", "validate", "generate", "interactive"])
def test_what_does_not_belong_to_a_checkpoint(t2, command, monkeypatch, tmp_path):
    """A dictionary of equal size, and overrides of what is not there."""
    lines = (Path(t2.data) / "dict.txt").read_text().splitlines()
    other = shutil.copytree(t2.data, tmp_path / "other")
    (other / "dict.txt").write_text("\n".join(reversed(lines)) + "\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    main = importlib.import_module(f"fairseq_cli.{command}").cli_main
    more = ["--task", "language_modeling", "--path", t2.path]
    more += ["--batch-size", 1, "--num-workers", 0]
    if command in ("eval_lm", "generate"):
        with refuses(CheckpointError, Path(t2.path), "dictionary_sha256"):
            run_fairseq(main, other, *more)
        return
    overrides = {"dropuot": 0.3, "block_size": 4}
    with refuses(ValueError, "dropuot", Path(t2.path), "dropout"):
        run_fairseq(main, t2.data, *more, "--model-overrides", overrides)
    if command == "interactive":  # nothing to go through
        overrides["dropout"] = overrides.pop("dropuot")
        run_fairseq(main, t2.data, *more, "--model-overrides", overrides)


def test_an_archive_of_a_model(t2, tmp_path):
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(t2.path, "model/model.pt")
        archive.add(Path(t2.data) / "dict.txt", "model/dict.txt")
    hub = TransNormerLanguageModel.from_pretrained(str(path))
    assert hub.sample("the river", beam=1) == t2.hub.sample("the river", beam=1)
    assert [each.name for each in tmp_path.iterdir()] == ["model.tar.gz"]

"""The comparison of language models: its commands, resuming and table."""

import json

import pytest

from benchmarks.report import command as report
from benchmarks.training import compare_models
from fairseq_transnormer.modules import CausalLanguageModel, LanguageModelT2Config
from tests.analysis.logs import training_log
from tests.messages import command_refuses, refuses


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "dict.txt").write_text("a 1\n")
    return folder


@pytest.fixture
def fairseq_train(monkeypatch):
    """In place of fairseq-train: writes a log, and counts its calls."""
    commands = []

    class Done:
        returncode = 0

    def run(command, stdout, **options):
        commands.append(command)
        seed = int(command[command.index("--seed") + 1])
        stdout.write(training_log([(4, 3.0)], [(2, 40.0 + seed), (4, 30.0 + seed)]))
        return Done()

    monkeypatch.setattr(compare_models.subprocess, "run", run)
    return commands


def test_finished_runs_are_not_repeated(data, tmp_path, fairseq_train):
    out = tmp_path / "results" / "compare.json"
    arguments = ["--data", data, "--out", out, "--runs", tmp_path / "runs"]
    arguments = [str(a) for a in arguments] + ["--updates", "4", "--seeds", "1", "2"]
    assert compare_models.main(arguments) == 0
    assert len(fairseq_train) == 2 * len(compare_models.ROWS)
    assert compare_models.main(arguments) == 0
    assert len(fairseq_train) == 2 * len(compare_models.ROWS)
    run = json.loads(out.read_text())
    assert {m["parameters"] for m in run["measurements"]} == {1234}
    report.main(["--folder", str(out.parent)])
    page = (out.parent / "README.md").read_text()
    assert "| TransNormer T2 | 1,234 | 31.50 ± 0.71 | 31.00, 32.00 |" in page
    assert (out.parent / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_other_data_are_other_runs(data, tmp_path, fairseq_train):
    arguments = ["--data", data, "--runs", tmp_path / "runs", "--updates", 4]
    arguments += ["--out", tmp_path / "results" / "compare.json", "--seeds", 1, 1]
    rows = len(compare_models.ROWS)
    for count, change in enumerate((None, "dict.txt", "train.bin", "valid.idx"), 1):
        if change:
            (data / change).write_text("b 1\n")
        assert compare_models.main([str(each) for each in arguments]) == 0
        # a seed that is given twice is one
        assert len(fairseq_train) == count * rows
    run = json.loads((tmp_path / "results" / "compare.json").read_text())
    assert len(run["measurements"]) == rows


def test_updates_need_not_be_a_multiple_of_the_interval_of_the_log(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(training_log([(300, 3.0)], [(300, 41.0), (310, 40.0)]))
    assert compare_models.finished(log, 310)["valid"][-1] == {"update": 310, "ppl": 40}
    assert compare_models.finished(log, 311) is None


def test_a_run_that_stopped_early_is_told(data, tmp_path, monkeypatch):
    class Done:
        returncode = 0

    def run(command, stdout, **options):
        stdout.write(training_log([(2, 3.0)], [(2, 41.0)]))
        return Done()

    monkeypatch.setattr(compare_models.subprocess, "run", run)
    with refuses(RuntimeError, "TransNormer T1", "seed 1", "update 4"):
        compare_models.run("TransNormer T1", 1, data, tmp_path / "runs", 4)


def test_a_failed_run_shows_the_end_of_its_log(data, tmp_path, monkeypatch):
    class Failed:
        returncode = 1

    def run(command, stdout, **options):
        stdout.write("ValueError: what went wrong\n")
        return Failed()

    monkeypatch.setattr(compare_models.subprocess, "run", run)
    with refuses(RuntimeError, "TransNormer T1", "seed 1", "went wrong"):
        compare_models.run("TransNormer T1", 1, data, tmp_path / "runs", 4)


def test_rows_have_as_many_parameters(data, tmp_path):
    ours = CausalLanguageModel(
        LanguageModelT2Config(
            attention_types="diag*2,norm*2", embed_dim=128, num_heads=2, ffn_dim=341
        ),
        4000,
    )
    # fairseq's pre-norm layer: attention, two norms, feed-forward; and a final norm
    layer = 4 * (128**2 + 128) + 4 * 128 + 2 * 128 * 512 + 512 + 128
    vanilla = 4000 * 128 + 4 * layer + 2 * 128
    count = sum(p.numel() for p in ours.parameters())
    assert abs(count / vanilla - 1) < 0.01


def test_data_must_be_there(tmp_path, capsys):
    arguments = ["--data", tmp_path]
    command_refuses(compare_models.main, arguments, capsys, tmp_path, "dict.txt")

"""A run's score is that of the weights that it started from, and of no others."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from fairseq_transnormer.checkpoints import identity
from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.data import fingerprints
from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from fairseq_transnormer.reproduce.runs.scheduling import run_all
from fairseq_transnormer.reproduce.tables import fine_tuning, jobs
from fairseq_transnormer.reproduce.tables.presets import load_preset
from fairseq_transnormer.training.config import compose
from tests.inference.problems import WORDS
from tests.messages import assert_names
from tests.paths import CONFIGS

from . import stand_in_trainings
from .stand_in_trainings import score_of
from .tiny_problem import preset_with_data, write_preset_and_table

PRETRAINING = "blm_t2/seed1"
TUNING = "blm_t2+classification=own+optimization.lr=0.01/seed1"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data, a preset, a table, and checkpoints "one" and "two" of one architecture."""
    folder = tmp_path_factory.mktemp("place")
    columns = {
        "accuracy": {
            "metric": "accuracy",
            "overrides": {"classification": "own"},
            "ranked": False,
        }
    }
    row = {"config": "blm", "system": "t2"}
    write_preset_and_table(folder, preset_with_data(folder), columns, row)
    configuration = compose(CONFIGS, "blm", {"model": "blm_t2"})
    load_preset(CONFIGS, str(folder / "tiny.yaml")).scale(
        configuration["model"], "masked_lm"
    )
    # the words, four special symbols and <mask>
    rows = WORDS + 5
    for number, name in enumerate(("one", "two")):
        torch.manual_seed(number)
        weights = {"encoder.sentence_encoder.embed_tokens.weight": torch.randn(rows, 4)}
        cfg = {"model": configuration["model"], "task": {"_name": "masked_lm"}}
        torch.save({"cfg": cfg, "model": weights}, folder / f"{name}.pt")
    return folder


class Runner:
    """The runner with stand-ins for trainings, in a folder of the test's own."""

    def __init__(self, place: Path, folder: Path, capsys, monkeypatch) -> None:
        self.place, self.folder, self._capsys = place, folder, capsys
        self.monkeypatch = monkeypatch
        self.preset = ["--preset", str(place / "tiny.yaml")]
        self.preset += ["--runs-dir", str(folder / "runs")]
        self.runs = folder / "runs/tiny"
        self.table = str(place / "one.yaml")
        self.checkpoint = folder / "given.pt"
        self.use("one")

    def use(self, name: str) -> str:
        """Let "one" or "two" be what is given, and what pre-training makes."""
        source = self.place / f"{name}.pt"
        self.monkeypatch.setenv("STAND_IN_CHECKPOINT", str(source))
        shutil.copy(source, self.checkpoint)
        return weights_fingerprint(source)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(list(map(str, arguments)))
        return code, *self._capsys.readouterr()

    def finetune(self, *more: str, checkpoint: Path | None = None):
        out = ["--out", self.folder / "out", "--lr", "0.01", "--gpus", "none"]
        given = ["finetune", checkpoint or self.checkpoint, "own"]
        return self(*given, *self.preset, *out, *more)

    def run(self, *more: str):
        return self("run", self.table, *self.preset, "--gpus", "none", *more)

    def report(self):
        out = ["--out", self.folder / "out"]
        return self("report", self.table, *self.preset, *out)

    def measured(self, name: str = "one") -> dict:
        path = self.folder / "out/tiny" / f"{name}.json"
        return json.loads(path.read_text())

    def score(self) -> float | None:
        return self.measured()["rows"]["T2"]["accuracy"]["measured"]


@pytest.fixture
def runner(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fine_tuning, "FINE_TUNING_RUN", stand_in_trainings.__name__)
    command = [jobs.sys.executable, "-m", stand_in_trainings.__name__]
    monkeypatch.setattr(jobs, "training_command", lambda: command)
    return Runner(place, tmp_path, capsys, monkeypatch)


def test_the_same_command_on_other_weights_is_another_run(runner):
    scores = {}
    for name in ("one", "two"):
        weights = runner.use(name)
        code, out, error = runner.finetune()
        assert code == 0, error
        assert "1 runs, 1 to do" in out
        row = f"roberta_transnormer_t2-{weights[:12]}"
        # on the console, too
        (line,) = [line for line in out.splitlines() if line.startswith(f"{row} own")]
        scores[name] = runner.measured(row)["rows"][row]["own"]["measured"]
        assert scores[name] == score_of(runner.checkpoint)
        assert_names(line, f"{scores[name]:.2f}", "optimization.lr=0.01")
    assert scores["one"] != scores["two"]


def test_moved_weights_are_the_same_run(runner):
    assert runner.finetune()[0] == 0
    moved = runner.folder / "moved.pt"
    runner.checkpoint.rename(moved)
    code, out, _ = runner.finetune(checkpoint=moved)
    assert code == 0 and "1 runs, 0 to do" in out
    # other weights where it was before
    runner.use("two")
    assert runner.finetune(checkpoint=moved)[0] == 0


def test_a_name_is_of_one_checkpoint(runner):
    first, name = runner.use("one"), ("--name", "mine")
    assert runner.finetune(*name)[0] == 0
    assert runner.finetune(*name)[0] == 0
    second = runner.use("two")
    for more in ((), ("--lr", "0.02"), ("--seeds", "2"), ("--pooling", "mean")):
        code, out, error = runner.finetune(*name, *more)
        assert code == 2 and "to do" not in out
        assert_names(error, "--name mine", first, second)
        assert error.count("\n") == 1
    # nor by the run's own check, of one that was renamed by hand
    code, _, error = runner.finetune("--name", "other")
    assert code == 0, error


def test_weights_that_change_before_the_start_are_refused(runner):
    first = runner.use("one")
    prepared = []

    def queue(folders, *others):
        prepared.extend(folders)
        return {"failed": [], "interrupted": []}

    runner.monkeypatch.setattr(command_line, "run_all", queue)
    assert runner.finetune("--name", "mine")[0] == 0
    runner.monkeypatch.setattr(command_line, "run_all", run_all)
    second = runner.use("two")
    (folder,) = prepared
    code, out, _ = runner("execute", folder.path, "--gpus", "none")
    assert code == 1
    assert_names(out, folder.path, first, second)
    assert not (folder.path / "train.log").exists()


def test_run_json_has_the_weights_that_a_fine_tuning_started_from(runner):
    weights = runner.use("one")
    code, out, error = runner.run()
    assert code == 0 and "2 runs, 2 to do" in out, error
    description = json.loads((runner.runs / TUNING / "run.json").read_text())
    assert description["start"]["weights"] == weights
    code, out, _ = runner.report()
    assert code == 0
    assert runner.score() == score_of(runner.place / "one.pt")
    runs = runner.measured()["runs"]["tiny/" + TUNING.rpartition("/")[0]]
    assert runs["1"]["weights"] == weights
    assert weights in (runner.folder / "out/tiny/one.md").read_text()


def replaced(runner) -> tuple[str, str]:
    """A finished fine-tuning whose pre-training has other results since."""
    first = runner.use("one")
    assert runner.run()[0] == 0
    second = runner.use("two")
    best = runner.runs / PRETRAINING / "checkpoints/checkpoint_best.pt"
    shutil.copy(runner.place / "two.pt", best)
    return first, second


def test_a_score_of_other_weights_is_not_reported(runner):
    both = replaced(runner)
    code, _, error = runner.run()
    assert code == 2
    assert_names(error, runner.runs / TUNING, *both)
    code, _, error = runner.report()
    assert code == 1
    assert_names(error, runner.runs / TUNING, *both)
    assert runner.score() is None
    assert both[1] in (runner.folder / "out/tiny/one.md").read_text()
    code, out, _ = runner("status", runner.table, *runner.preset)
    assert code == 0
    assert_names(out, "not reported", *both)


def test_a_pre_training_that_is_run_again(runner):
    """... is refused while fine-tunings of the first are there: hours come first."""
    first = runner.use("one")
    assert runner.run()[0] == 0
    shutil.rmtree(runner.runs / PRETRAINING)
    runner.use("two")
    code, _, error = runner.run()
    assert code == 2
    assert_names(error, runner.runs / TUNING, first, runner.runs / PRETRAINING)
    assert not (runner.runs / PRETRAINING).exists()
    # the score is still that of what it was made of
    assert runner.report()[0] == 0
    assert runner.score() == score_of(runner.place / "one.pt")
    shutil.rmtree(runner.runs / TUNING.partition("/")[0])
    assert runner.run()[0] == 0 and runner.report()[0] == 0
    assert runner.score() == score_of(runner.place / "two.pt")


def test_a_pre_training_whose_checkpoint_was_removed_keeps_its_scores(runner):
    assert runner.run()[0] == 0
    (runner.runs / PRETRAINING / "checkpoints/checkpoint_best.pt").unlink()
    code, out, error = runner.run()
    assert code == 0 and "2 runs, 0 to do" in out, error
    assert runner.report()[0] == 0 and runner.score() is not None


def test_an_interrupted_fine_tuning_resumes_with_its_own_weights_only(runner):
    first = runner.use("one")
    runner.monkeypatch.setenv("STAND_IN_STOPS", "1")
    assert runner.run()[0] == 1
    runner.monkeypatch.delenv("STAND_IN_STOPS")
    second = runner.use("two")
    best = runner.runs / PRETRAINING / "checkpoints/checkpoint_best.pt"
    shutil.copy(runner.place / "two.pt", best)
    code, _, error = runner.run()
    assert code == 2
    assert_names(error, runner.runs / TUNING, first, second)
    # a job that is queued again asks nobody but the folder
    code, out, _ = runner("execute", runner.runs / TUNING, "--gpus", "none")
    assert code == 1
    assert_names(out, first, second)
    shutil.copy(runner.place / "one.pt", best)
    assert runner.run()[0] == 0


def test_a_run_that_does_not_say_its_weights_is_not_reported(runner):
    assert runner.run()[0] == 0
    path = runner.runs / TUNING / "run.json"
    description = json.loads(path.read_text())
    del description["start"]
    path.write_text(json.dumps(description))
    code, _, error = runner.run()
    assert code == 2
    assert_names(error, path.parent, "weights", runner.use("one"))
    code, _, error = runner.report()
    assert code == 1 and runner.score() is None
    assert_names(error, path.parent, "fingerprint")


def test_weights_that_a_training_is_given_by_hand_count(runner):
    first = runner.use("one")
    given = ["--set", f"masked_lm:checkpoint.finetune_from_model={runner.checkpoint}"]
    rows = ["--rows", "T2", *given]
    assert runner.run(*rows)[0] == 0
    second = runner.use("two")
    code, _, error = runner.run(*rows)
    assert code == 2
    assert_names(error, runner.runs / PRETRAINING, first, second)


def test_weights_are_read_once(runner):
    """Not for every run of a sweep, and not at all for a report or a status."""
    assert runner.run("--seeds", "1", "2")[0] == 0
    hashed = []
    original = identity._hash_weights
    runner.monkeypatch.setattr(fingerprints, "_known", {})
    runner.monkeypatch.setattr(
        identity, "_hash_weights", lambda p: hashed.append(p) or original(p)
    )
    assert runner("status", runner.table, *runner.preset)[0] == 0
    assert runner.report()[0] == 0
    assert hashed == []
    assert runner.run("--seeds", "1", "2")[0] == 0
    assert len(hashed) == 1


def test_run_folder_of_another_name_is_another_run(runner):
    assert runner.run()[0] == 0
    copy = runner.runs / TUNING.replace("0.01", "0.02")
    shutil.copytree(runner.runs / TUNING, copy)
    description = RunFolder(copy).description()
    assert description["name"].endswith(TUNING)
    table = yaml.safe_load(Path(runner.table).read_text())
    table["sweep"] = {"optimization.lr": [[0.02]]}
    runner.table = str(runner.folder / "one.yaml")
    Path(runner.table).write_text(yaml.safe_dump(table))
    code, _, error = runner.report()
    assert code == 2
    assert_names(error, copy / "run.json", description["name"])

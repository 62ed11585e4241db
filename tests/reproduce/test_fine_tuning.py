"""Pre-training, fine-tuning after it, a report and labels, by the real commands."""

import json

import pytest
import torch

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.checkpoints.pretrained import PretrainedCheckpoint
from fairseq_transnormer.data.labelled_texts import SentenceData, updates_of_training
from fairseq_transnormer.inference.classify_command import main as classify
from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.reports.results import measure
from fairseq_transnormer.reproduce.runs import fine_tuning_run
from fairseq_transnormer.reproduce.runs.fine_tuning_run import is_trained, slim
from fairseq_transnormer.reproduce.runs.forking import ForkedProcess
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from fairseq_transnormer.reproduce.runs.scheduling import run_all
from fairseq_transnormer.reproduce.tables.definitions import (
    chosen_cells,
    load_table,
    load_tables,
)
from fairseq_transnormer.reproduce.tables.fine_tuning import FineTune, checkpoint_table
from fairseq_transnormer.reproduce.tables.jobs import Conditions, HydraTrain, with_needs
from fairseq_transnormer.reproduce.tables.presets import load_preset
from tests.inference.problems import dictionary, write_problem
from tests.messages import assert_names, command_refuses, lines_naming, refuses
from tests.paths import CONFIGS, ROOT

from .stand_in import finished_run, plan
from .tiny_problem import preset_with_data, write_preset_and_table


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data for both trainings, a preset and a table of one row."""
    folder = tmp_path_factory.mktemp("place")
    preset = preset_with_data(folder)
    sequences = dict.fromkeys(("sequences_per_device", "sequences_per_update"), 8)
    data = preset["tasks"]["sentence_prediction"]["data"]
    preset["tasks"]["sentence_prediction"] = {"data": data} | sequences
    # no update is logged: the fine-tuning has 18
    preset["overrides"] |= {"common.log_interval": 100, "task.tokens_per_sample": 64}
    del preset["sweep_values"]
    own = {"classification": "own"}
    columns = {
        "accuracy": {"metric": "accuracy", "overrides": own},
        "mcc": {"metric": "mcc", "overrides": own},
        "AVG": {"mean_of": ["accuracy", "mcc"]},
        "params_m": {"metric": "params_m", "job": "hydra_train", "seed": 1},
    }
    row = {"config": "blm", "system": "t2", "paper": [90.0, 50.0, 70.0, None]}
    write_preset_and_table(folder, preset, columns, row)
    return folder


# the rows of table 5 that scripts/test.sh trains take the same way
@pytest.mark.slow
def test_from_pre_training_to_labels(place, capsys, monkeypatch):
    monkeypatch.setattr(command_line, "LoggedProcess", ForkedProcess)
    options = ["--preset", str(place / "tiny.yaml"), "--runs-dir", str(place / "runs")]
    arguments = ["run", str(place / "one.yaml"), *options, "--gpus", "none"]
    assert main(arguments) == 0, capsys.readouterr()
    assert "2 runs, 2 to do" in capsys.readouterr().out
    folder = place / "runs/tiny/blm_t2+classification=own+optimization.lr=0.01/seed1"
    cfg = RunFolder(folder).configuration()
    # 48 examples, 8 an update, 3 epochs; 6 % of that
    assert cfg["optimization"]["max_update"] == 18
    assert cfg["lr_scheduler"]["warmup_updates"] == 1
    assert cfg["task"]["num_classes"] == 2
    log = (folder / "train.log").read_text()
    assert lines_naming(log, "Loaded checkpoint", "blm_t2/seed1", "checkpoint_best.pt")
    # after the training, the best weights, the log and an open lock are left
    left = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert left == ["checkpoint_best.pt", "train.log", "training.lock"]
    best = folder / "checkpoints/checkpoint_best.pt"
    assert torch.load(best, weights_only=True)["last_optimizer_state"] is None
    # a runner that was killed meanwhile was not told
    content = best.read_bytes()
    status = json.loads((folder / "status.json").read_text())
    RunFolder(folder).write_status(status | {"state": "running", "steps_done": []})
    assert main(arguments) == 0
    assert "2 runs, 1 to do" in capsys.readouterr().out
    assert best.read_bytes() == content
    assert main(arguments) == 0
    assert "2 runs, 0 to do" in capsys.readouterr().out
    assert "[train_inner]" not in (folder / "train.log").read_text()

    assert main(["report", *arguments[1:6], "--out", str(place / "out")]) == 0
    measured = json.loads((place / "out/tiny/one.json").read_text())
    cells = measured["rows"]["T2"]
    expected = (cells["accuracy"]["measured"] + cells["mcc"]["measured"]) / 2
    assert cells["AVG"]["measured"] == pytest.approx(expected)
    assert cells["AVG"]["difference"] == pytest.approx(expected - 70)
    assert cells["params_m"]["measured"] > 0
    # one value of the sweep was run: nothing to compare
    assert not (place / "out/tiny/one_sweep.png").exists()

    capsys.readouterr()
    start = place / "runs/tiny/blm_t2/seed1/checkpoints/checkpoint_best.pt"
    evaluation = ["--path", str(best), "--evaluate", "valid"]
    assert classify(evaluation) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == pytest.approx(cells["accuracy"]["measured"], rel=1e-5)
    assert found["weights"] == weights_fingerprint(best)
    started_from = RunFolder(folder).start().weights
    assert started_from == weights_fingerprint(start)
    assert started_from != found["weights"]
    assert classify(["--path", str(best), "--text", "w1 w2 w3 w4"]) == 0
    label, probability = capsys.readouterr().out.split()
    assert label in ("no", "yes") and 0.5 <= float(probability) <= 1

    # the same start under the command for a checkpoint that is there
    given = ["finetune", str(start), "own", *options, "--gpus", "none", "--dry-run"]
    assert main(given) == 0
    assert capsys.readouterr().out.count("new ") == 4
    check_refusals(place, given, start, capsys)


def check_refusals(place, given, start, capsys):
    """What does not fit the checkpoint is told before anything is touched."""

    def refused(arguments, *parts):
        command_refuses(main, arguments, capsys, *parts, alone=True)

    words = dictionary()
    words.add_symbol("one more")
    cases = {
        # and <mask>
        ("input0/dict.txt", len(words) + 1, len(words)): {"words": words},
        ("up to 600", "max_positions"): {"max_positions": 600},
    }
    for number, (parts, changes) in enumerate(cases.items()):
        data = write_problem(place / f"other{number}", **changes)
        more = ["--data", f"sentence_prediction={data}"]
        refused([*given, *more], data, "allowed", start, *parts)
    refused([*given, "--set", "model.block_size=16"], "model.block_size=16", "pooling")
    assert main([*given, "--set", "model.dropout=0.2"]) == 0
    refused([*given[:2], "mrcp", *given[3:]], "'mrcp'", "cola", "mrpc", "own")
    truncated = place / "truncated.pt"
    truncated.write_bytes(start.read_bytes()[:5000])
    refused(["finetune", truncated, *given[2:]], truncated, "damaged")
    refused(["finetune", "none.pt", *given[2:]], "none.pt", "no such")
    state = torch.load(start, weights_only=True)
    state["cfg"]["task"]["_name"] = "language_modeling"
    causal = place / "causal.pt"
    torch.save(state, causal)
    parts = ("language_modeling", "allowed", "bidirectional", "masked_lm")
    refused(["finetune", causal, *given[2:]], causal, *parts)
    checkpoint = PretrainedCheckpoint.read(start)
    other = checkpoint.model | {"block_size": 16, "dropout": 0.5}
    with refuses(ValueError, start, "model.block_size=64", 16) as caught:
        checkpoint.check_model(other)
    assert "dropout" not in str(caught.value)
    broken = write_problem(place / "broken")
    (broken / "label/valid.bin").unlink()
    more = ["--data", f"sentence_prediction={broken}"]
    refused([*given, *more], broken, "label/valid.bin")


@pytest.mark.parametrize(
    ("examples", "batch", "devices", "accumulated", "expected"),
    # the paper's: MNLI, MRPC and CoLA on one GPU; MRPC on four; accumulated
    [
        (392_702, 32, 1, 1, 36_816),
        (3_668, 16, 1, 1, 690),
        (8_551, 16, 1, 1, 1_605),
        (3_668, 4, 4, 1, 690),
        (3_668, 4, 1, 4, 690),
    ],
)
def test_updates_are_those_of_three_epochs(
    examples, batch, devices, accumulated, expected
):
    assert updates_of_training(examples, batch, devices, accumulated, 3) == expected


def test_table_5_is_the_papers():
    table = load_table(CONFIGS, "table5")
    for row in table.rows:
        *printed, average, _ = (table.cell(row, c).paper for c in table.columns)
        # what did not converge counts nothing
        mean = sum(each or 0 for each in printed) / 7
        assert mean == pytest.approx(average, abs=0.01)
    cells = with_needs(chosen_cells([table], ["TransNormer T2"]))
    conditions = Conditions(CONFIGS, ROOT, load_preset(CONFIGS, "paper"))
    tuned = [c for c in cells if "classification" in c.overrides]
    names = {FineTune().name(c, conditions) for c in tuned}
    # both columns of MNLI share their runs
    assert len(tuned) == 28 and len(names) == 24
    assert [c.seed for c in cells if c.job == "hydra_train"] == [1] * 29


def test_the_best_value_of_a_sweep_is_chosen_on_valid(tmp_path):
    """By the mean over the seeds, and by the matched set for the mismatched one."""
    table = load_table(CONFIGS, "table5")
    conditions = Conditions(CONFIGS, ROOT, load_preset(CONFIGS, "smoke"))
    figures = {
        0.00001: [(60, 99), (62, 99)],
        0.00003: [(70, 50), (80, 60)],
        0.00006: [(90, 40), (10, 40)],
    }
    for cell in table.cell("TransNormer T2", "MNLI-m").candidates():
        (rate,) = cell.overrides["optimization.lr"]
        for seed, (matched, other) in enumerate(figures.get(rate, []), 1):
            name = FineTune().name(cell, conditions.of(seed))
            finished_run(tmp_path / name, classified(rate, seed), 7.0, seed)
            record = {"valid_accuracy": matched, "valid_num_updates": 3}
            second = {"valid1_accuracy": other, "valid1_num_updates": 3}
            log = '[2026][train_inner][INFO] - {"num_updates": "3", "wps": "1"}\n'
            log += f"[2026][valid][INFO] - {json.dumps(record)}\n"
            log += f"[2026][valid1][INFO] - {json.dumps(second)}\n"
            (tmp_path / name / "train.log").write_text(log)
    measured = measure(table, conditions, tmp_path)
    cells = measured["rows"]["TransNormer T2"]
    assert cells["MNLI-m"]["measured"] == 75 and cells["MNLI-mm"]["measured"] == 55
    assert [each["measured"] for each in cells["MNLI-m"]["sweep"]] == [61, 75, 50, None]
    assert cells["AVG"]["measured"] is None
    assert measured["conditions"]["unequal"] == {}


def test_what_a_preset_leaves_out():
    """smoke has one learning rate and two problems; small has no data for GLUE."""
    smoke = load_preset(CONFIGS, "smoke")
    (table,) = load_tables(CONFIGS, ["table5"], smoke)
    cells = chosen_cells([table], ["TransNormer T2"], None, smoke.columns)
    tuned = [each for cell in cells for each in cell.candidates() if cell.sweep]
    rates = {each.overrides["optimization.lr"][0] for each in tuned}
    assert [each.column for each in tuned] == ["MNLI-m", "MNLI-mm", "CoLA"]
    assert rates == {0.00001} and table.sweep == {"optimization.lr": [[0.00001]]}
    assert len(chosen_cells([table], ["TransNormer T2"], ["QQP"], smoke.columns)) == 1

    def names(preset):
        tables = load_tables(CONFIGS, ["all"], load_preset(CONFIGS, preset))
        return {table.name for table in tables}

    assert {"table5", "topics"} <= names("smoke")
    assert names("smoke") - names("small") == {
        "table5", "precision", "tnl", "learning_rates"
    }  # fmt: skip
    assert names("smoke") - names("paper") == {"topics", "precision", "learning_rates"}
    small = load_preset(CONFIGS, "small")
    assert load_tables(CONFIGS, ["table5"], small)[0].sweep == {
        "optimization.lr": [[0.00001], [0.00003], [0.00006], [0.0001]]
    }


def test_settings_of_one_task_and_values_of_a_sweep(place, capsys):
    options = ["--preset", str(place / "tiny.yaml"), "--runs-dir", str(place / "few")]
    arguments = ["run", "topics", *options, "--gpus", "none", "--dry-run", "--rows"]
    arguments += ["T1", "--columns", "accuracy"]
    some = ["--sweep", "optimization.lr=[0.0003]", "--sweep", "optimization.lr=0.001"]
    some += ["--set", "masked_lm:optimization.lr=[0.5]"]
    some += ["sentence_prediction:optimization.max_epoch=2"]
    assert main([*arguments, *some]) == 0, capsys.readouterr()
    found = capsys.readouterr().out.splitlines()
    assert [line.split("lr=")[-1].split("/")[0] for line in found[1:]] == [
        "0.0003", "0.001"
    ]  # fmt: skip
    table = load_table(CONFIGS, "topics")
    preset = load_preset(CONFIGS, str(place / "tiny.yaml"))
    overrides = {
        "masked_lm:optimization.lr": [0.5],
        "sentence_prediction:optimization.max_epoch": 2,
    }
    conditions = Conditions(CONFIGS, ROOT, preset, overrides=overrides)
    (cell, *_) = table.cell("T1", "accuracy").candidates()
    (needed,) = FineTune().needs(cell)
    pretraining = HydraTrain().plan(needed, conditions).configuration["optimization"]
    tuning = FineTune().plan(cell, conditions).configuration["optimization"]
    assert pretraining["lr"] == [0.5] and pretraining["max_epoch"] == 0
    assert tuning["lr"] == [0.00003] and tuning["max_update"] == 12
    # as many as it takes
    overrides |= {"sentence_prediction:optimization.max_epoch": 0}
    overrides |= {"sentence_prediction:optimization.max_update": 40}
    tuning = FineTune().plan(cell, conditions).configuration["optimization"]
    assert tuning["max_update"] == 40

    tuned, start = "sentence_prediction:", "checkpoint.finetune_from_model"
    rate = "optimization.lr"
    for option, value, *parts in (
        ("--sweep", f"{rate}=0.5", f"--sweep {rate}=0.5", "3e-05", 0.0001),
        ("--sweep", "seed=1", "--sweep seed=1", "no such sweep"),
        ("--set", f"{rate}=[0.5]", f"--set {rate}", "--sweep", "--lr"),
        ("--set", f"mlm:{rate}=[0.5]", f"mlm:{rate}", "masked_lm"),
        ("--set", "language_modeling:a=1", "language_modeling:a", "masked_lm"),
        ("--data", "maskedlm=/data", "--data maskedlm", "masked_lm"),
        # it begins with the pre-trained model
        ("--set", f"{tuned}{start}=/x.pt", start, "pre-training"),
        ("--set", f"{tuned}model.block_size=16", "model.block_size=16", "pooling"),
        ("--set", f"{tuned}model.nope=16", "model.nope=16", "pooling"),
    ):
        more = [*arguments, option, value]
        command_refuses(main, more, capsys, *parts, alone=True)


def test_all_are_the_papers_columns(place):
    (table5,) = load_tables(CONFIGS, ["table5"])
    paper = [name for name in table5.columns if name not in ("AVG", "params_m")]
    table = checkpoint_table(CONFIGS, place / "one.pt", ["all", "mrpc"], [0.1], "mine")
    assert table.columns == paper
    parts = ("'glue'", "all", "mnli", "own")
    with refuses(ReproduceError, *parts):
        checkpoint_table(CONFIGS, place / "one.pt", ["glue"], [0.1])


def test_the_folder_of_a_problem(tmp_path):
    """In that of all problems, or that folder itself; of GLUE's, never another's."""
    (topics,) = load_tables(CONFIGS, ["topics"])
    (table5,) = load_tables(CONFIGS, ["table5"])

    def corpus(table, row, column):
        preset = load_preset(CONFIGS, "paper")
        data = {"sentence_prediction": str(tmp_path)}
        conditions = Conditions(CONFIGS, ROOT, preset, data=data)
        return FineTune().data(table.cell(row, column), conditions)

    of_all = corpus(table5, "LS", "SST-2")
    assert of_all.folder == tmp_path / "SST-2" and "No such file" in of_all.fault()
    write_problem(tmp_path)
    assert corpus(topics, "T1", "accuracy").folder == tmp_path
    assert corpus(topics, "T1", "accuracy").fault() is None
    assert corpus(table5, "LS", "SST-2").fault().endswith("of 'own', allowed: 'SST-2'")
    write_problem(tmp_path / "SST-2", task="SST-2")
    write_problem(tmp_path / "topics", task="topics")
    assert corpus(table5, "LS", "SST-2").fault() is None
    assert corpus(topics, "T1", "accuracy").folder == tmp_path / "topics"


def classified(rate, seed):
    return {
        "model": {"_name": "x"},
        "optimization": {"lr": [rate], "max_update": 3},
        "common": {"seed": seed},
        "checkpoint": {
            "best_checkpoint_metric": "accuracy",
            "maximize_best_checkpoint_metric": True,
        },
    }


def test_a_run_waits_for_what_it_needs(tmp_path):
    from fairseq_transnormer.reproduce.runs.devices import Slot
    from fairseq_transnormer.reproduce.runs.progress import Progress

    def prepare(name, needs=(), **options):
        made = plan(name, **options)
        made.needs = needs
        folder = RunFolder(tmp_path / name)
        folder.prepare(made)
        return folder

    late = prepare("late/seed1", ("early/seed1",))
    lost = prepare("lost/seed1", ("broken/seed1",))
    early = prepare("early/seed1", seconds=0.2)
    broken = prepare("broken/seed1", fail_at=1)
    told = []
    folders = [late, lost, early, broken]
    ended = run_all(folders, [Slot()] * 4, Progress(folders, 60, told.append))
    assert ended["finished"] == [early, late]
    assert {folder.path.parent.name for folder in ended["failed"]} == {"broken", "lost"}
    assert any("it needs" in line and "broken" in line for line in told)
    assert not (lost.path / "train.log").exists()


def test_data_without_a_report_are_told(tmp_path):
    path = tmp_path / "report.json"
    with refuses(
        ValueError,
        path,
        "data_prep glue",
        "data_prep classification",
    ):
        SentenceData.read(tmp_path)
    path.write_text("{")
    with refuses(ValueError, path, "damaged"):
        SentenceData.read(tmp_path)


def test_a_finished_training_is_not_repeated(tmp_path, monkeypatch, capsys):
    """As after a runner that was killed; what would train is not even imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fine_tuning_run, "check", lambda configuration: None)
    (tmp_path / "configuration.yaml").write_text("{}")
    best = tmp_path / "checkpoints/checkpoint_best.pt"
    best.parent.mkdir()
    torch.save({"model": {}, "last_optimizer_state": None}, best)
    content = best.read_bytes()
    assert fine_tuning_run.main() == 0
    assert_names(capsys.readouterr().out, "checkpoint_best.pt", "finished")
    assert best.read_bytes() == content
    best.write_bytes(content[:-100])
    assert not is_trained(best.parent)


def test_checkpoints_of_the_users_stay(tmp_path):
    """A fine-tuning leaves its best weights alone, among fairseq's own names."""
    ours = ["checkpoint_last.pt", "checkpoint3.pt", "checkpoint_1_12.pt"]
    users = ["checkpoint_keep.pt", "checkpoint_average.pt"]
    state = {"model": {"w": torch.ones(1)}, "last_optimizer_state": {"step": 1}}
    for name in ("checkpoint_best.pt", *ours, *users):
        torch.save(state, tmp_path / name)
    assert not is_trained(tmp_path)
    slim(tmp_path)
    assert is_trained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint_best.pt", *users}
    assert torch.load(tmp_path / "checkpoint_best.pt")["last_optimizer_state"] is None

"""Files that are not as they should be: a line names file and value, exit code 2."""

import json

import pytest
import yaml

from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.yaml_files import read_yaml_mapping
from tests.messages import assert_names, refuses
from tests.paths import CONFIGS

from .stand_in import finished_run

TASK = {"data": "x", "sequences_per_device": 4}
TABLE = {
    "title": "Mine",
    "columns": {"ppl": {"metric": "valid_ppl"}},
    "rows": {"T1": {"config": "blm", "system": "t1"}},
}
DEEP = "[" * 100_000
METRIC = "fairseq_transnormer.reproduce.runs.metrics"


class Commands:
    def __init__(self, folder, capsys) -> None:
        self.folder, self._capsys = folder, capsys
        self.table, self.preset = folder / "mine.yaml", folder / "smoke.yaml"
        self.write(self.table, TABLE)
        self.preset.write_text((CONFIGS / "presets/smoke.yaml").read_text())
        self.run = folder / "runs/smoke/blm_t1/seed1"
        configuration = {"model": {"_name": "x"}, "checkpoint": {}}
        finished_run(self.run, configuration, 7.0)

    def write(self, path, content) -> None:
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    def refused(self, command: str, *parts) -> None:
        """The command ends with 2 and a line that names ``parts``."""
        more = ["--out", str(self.folder / "out")] if command == "report" else []
        given = [command, str(self.table), "--preset", str(self.preset), *more]
        self._capsys.readouterr()
        code = main([*given, "--runs-dir", str(self.folder / "runs")])
        error = self._capsys.readouterr().err
        assert code == 2, error
        assert_names(error, *parts)
        assert error.count("\n") == 1 and len(error) < 700


@pytest.fixture
def commands(tmp_path, capsys):
    return Commands(tmp_path, capsys)


@pytest.mark.parametrize(
    "text", [DEEP, "{", "3", "[a]", "- a: [\n", "\xff", "a: &a [*a]", "? [1]\n: 2"]
)
def test_no_table(commands, text):
    commands.table.write_bytes(text.encode("latin-1"))
    commands.refused("status", commands.table)


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ("title: Other", ("title", 1)),
        ("after: {a: [x], b: [y], a: [z]}", ("'a'",)),
        ("overrides:\n  model.x: 1\n  model.y: 2\n  model.x: 3", ("model.x",)),
    ],
)
def test_a_key_that_is_there_twice(commands, more, parts):
    """YAML's own loader takes the last: a row vanishes without a word."""
    text = commands.table.read_text()
    commands.table.write_text(text + more)
    last = len((text + more).splitlines())
    commands.refused("status", commands.table, last, *parts)
    commands.write(commands.table, TABLE)
    preset = commands.preset.read_text()
    commands.preset.write_text(preset + "description: Other\n")
    commands.refused("status", commands.preset, "description")


@pytest.mark.parametrize(
    "text",
    [
        "one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}\n",
        # a mapping is merged before it is made itself
        "in: {one: &one {<<: {a: 1, b: 2}, b: 3}}\ntwo: {<<: *one}\n",
        "in: [&one {<<: {a: 1, b: 2}, b: 3}]\ntwo: {<<: *one}\nthree: {<<: *one}",
    ],
)
def test_what_is_merged_into_a_mapping_may_be_there_again(tmp_path, text):
    path = tmp_path / "some.yaml"
    path.write_text(text)
    assert read_yaml_mapping(path)["two"] == {"a": 1, "b": 3}
    path.write_text(text + "\nlast: {<<: {a: 1}, b: 1, b: 2}")
    with refuses(ReproduceError, path, "'b'", "twice"):
        read_yaml_mapping(path)


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (
            {"one": {"system": "t1", "label": "Both"}, "two": {"label": "Both"}},
            ("'one'", "'two'", "'Both'"),
        ),
        ({"cosformer": {}, "cosFormer": {"system": "t1"}}, ("cosformer", "cosFormer")),
        ({1: {"system": "t1"}, "1": {"system": "t2"}}, ("rows", 1)),
    ],
)
def test_rows_of_one_label(commands, rows, parts):
    rows = {key: {"config": "blm"} | each for key, each in rows.items()}
    commands.write(commands.table, TABLE | {"rows": rows})
    commands.refused("status", commands.table, *parts)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"title": 3}, ("title", 3)),
        ({"columns": 3}, ("columns", 3)),
        ({"columns": ["ppl"]}, ("columns", "ppl")),
        ({"columns": {}}, ("columns",)),
        ({"columns": {"ppl": 3}}, ("columns", 3)),
        ({"columns": {"ppl": {"metric": 3}}}, ("column ppl", "metric", 3)),
        ({"columns": {"ppl": {"metric": "m", "ranked": 3}}}, ("ranked", 3)),
        ({"columns": {"ppl": {"metric": "m", "seed": "x"}}}, ("seed", "x")),
        ({"columns": {"ppl": {"metric": "m", "job": 3}}}, ("job", 3)),
        ({"columns": {"ppl": {"mean_of": 3}}}, ("mean_of", 3)),
        ({"columns": {"ppl": {"mean_of": [{}]}}}, ("mean_of",)),
        ({"rows": [3]}, ("rows", 3)),
        ({"rows": {"T1": [3]}}, ("rows", 3)),
        ({"rows": {"T1": {"config": 3}}}, ("row T1", "config", 3)),
        ({"rows": {"T1": {"overrides": [3]}}}, ("row T1", "overrides", 3)),
        ({"rows": {"T1": {"config": "c", "paper": 3}}}, ("paper", 3)),
        ({"rows": {"T1": {"config": "c", "paper": [True]}}}, ("paper", "True")),
        ({"overrides": "x"}, ("overrides", "x")),
        ({"after": {"scores": "echo"}}, ("after", "echo")),
        ({"figure": {"command": "echo", "each_row": []}}, ("command", "echo")),
        ({"figure": 3}, ("figure", 3)),
        ({"bubbles": 3}, ("bubbles", 3)),
        ({"bubbles": {"x": ["a"], "y": "a", "size": "a"}}, ("x", "a")),
        ({"sweep": {"optimization.lr": 3}}, ("sweep", 3)),
        ({"sweep": {"optimization.lr": []}}, ("sweep",)),
        ({"curve": 3}, ("curve", 3)),
        ({"attach": 3}, ("attach", 3)),
        ({"conditions": 3}, ("conditions", 3)),
        ({"curve": "foo"}, ("curve", "foo", "valid_ppl")),
        ({"columns": {"ppl": {"metric": "nomod:f"}}}, ("column ppl", "nomod:f")),
        ({"columns": {"ppl": {"metric": f"{METRIC}:GIBIBYTE"}}}, ("GIBIBYTE",)),
        ({"columns": {"ppl": {"metric": "m", "seed": 2**32}}}, ("seed", 2**32 - 1)),
        ({"after": {"z": ["python", "{"]}}, ("after", "z", "{data}")),
        ({"after": {"z": ["python", "{dat}"]}}, ("after", "z", "{dat}", "{data}")),
        ({"after": {"z": ["python", "{data.x}"]}}, ("after", "z", "{data}")),
        ({"after": {"z": []}}, ("after", "z", "[]")),
        ({"after": {"train": ["echo"]}}, ("after", "'train'")),
        ({"after": {"measure": ["echo"]}}, ("after", "'measure'")),
        ({"after": {"a/b": ["echo"]}}, ("after", "'a/b'")),
        ({"after": {"": ["echo"]}}, ("after", "''")),
        ({"figure": {"command": ["{"], "each_row": []}}, ("figure", "{output}")),
        ({"figure": {"command": [], "each_row": ["{x}"]}}, ("each_row", "{row}")),
        ({"job": "no_such:Job"}, ("job", "no_such:Job")),
        ({"job": ":"}, ("job", ":")),
        ({"colums": {}}, ("colums", "after", "attach", "columns")),
        ({"rows": {"T1": {}}}, ("row T1", "column ppl", "config", "missing")),
        ({"rows": {"T1": {"config": "c", "paper": [1, 2]}}}, ("row T1", "[1, 2]")),
        ({"rows": {"T1": {"config": "c", "paper": ["32,05"]}}}, ("'32,05'", "null")),
        ({"rows": {"T1": {"config": "blm", "system": "t9"}}}, ("'t9'", "cosformer")),
        ({"rows": {"cosformer": {"config": "glm"}}}, ("config='glm'", "glm.yaml")),
        ({"bubbles": {"x": "ppl", "y": "MEAN", "size": "ppl"}}, ("y='MEAN'", "ppl")),
    ],
)
def test_a_value_of_a_table(commands, changes, parts):
    commands.write(commands.table, TABLE | changes)
    commands.refused("status", *parts)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"tasks": 3}, ("tasks", 3)),
        ({"tasks": {"masked_lm": 3}}, ("tasks", 3)),
        ({"tasks": {"masked_lm": {"data": "x"}}}, ("sequences_per_device",)),
        (
            {"tasks": {"masked_lm": {"data": 3, "sequences_per_device": 4}}},
            ("masked_lm", "data", 3),
        ),
        (
            {"tasks": {"masked_lm": {"data": "x", "sequences_per_device": 0}}},
            ("masked_lm", "sequences_per_device", 0),
        ),
        ({"scaled": "embed_dim"}, ("scaled", "embed_dim")),
        ({"scaled": ["embed_dims"]}, ("scaled", "embed_dims", "embed_dim")),
        (
            {"tasks": {"masked_lm": TASK | {"scaled": ["ffn_type"]}}},
            ("masked_lm", "scaled", "ffn_type", "ffn_dim"),
        ),
        (
            {"tasks": {"masked_lm": TASK | {"factors": {"dropout": 2}}}},
            ("masked_lm", "factors", "dropout", "block_size"),
        ),
        ({"overrides": [3]}, ("overrides", 3)),
        ({"prepare": ["python"]}, ("prepare", "python")),
        ({"sweep_values": 0}, ("sweep_values", 0)),
        ({"columns": {"table5": "MNLI"}}, ("columns", "MNLI")),
        ({"gpus_per_run": "x"}, ("gpus_per_run", "x")),
        ({"speed": 3}, ("speed", 3)),
    ],
)
def test_a_value_of_a_preset(commands, changes, parts):
    preset = yaml.safe_load(commands.preset.read_text())
    commands.write(commands.preset, preset | changes)
    commands.refused("status", commands.preset, *parts)


@pytest.mark.parametrize("command", ["status", "report"])
@pytest.mark.parametrize("name", ["run.json", "status.json", "configuration.yaml"])
@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\xff", DEEP])
def test_no_file_of_a_run(commands, command, name, text):
    (commands.run / name).write_bytes(text.encode("latin-1"))
    commands.refused(command, commands.run / name)


@pytest.mark.parametrize("lost", ["run.json", "status.json"])
def test_status_names_a_run_that_lost_a_file(commands, capsys, lost):
    (commands.run / lost).unlink()
    checkpoints = commands.run / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    (checkpoints / "checkpoint_last.pt").write_bytes(b"")
    given = ["status", str(commands.table), "--preset", str(commands.preset)]
    assert main([*given, "--runs-dir", str(commands.folder / "runs")]) == 0
    assert_names(capsys.readouterr().out, commands.run, lost)


@pytest.mark.parametrize(
    ("name", "changes", "parts"),
    [
        ("run.json", {"steps": 3}, ("steps", 3)),
        ("run.json", {"steps": [{"name": "train"}]}, ("steps", "command")),
        ("run.json", {"steps": [{"name": 3, "command": []}]}, ("steps", "name", 3)),
        ("run.json", {"seed": "x"}, ("seed", "x")),
        ("run.json", {"seed": 2}, ("seed", 2)),
        ("run.json", {"updates": None}, ("updates",)),
        ("run.json", {"data": 3}, ("data", 3)),
        ("run.json", {"needs": 3}, ("needs", 3)),
        ("run.json", {"start": 3}, ("start", 3)),
        ("run.json", {"start": {"checkpoint": 3}}, ("start",)),
        (
            "run.json",
            {"start": {"checkpoint": "x", "weights": 3, "mark": None}},
            ("weights", 3),
        ),
        ("status.json", {"state": "sleeping"}, ("sleeping", "finished")),
        ("status.json", {"steps_done": 3}, ("steps_done", 3)),
        ("status.json", {"attempts": [3]}, ("attempts", 3)),
        ("status.json", {"attempts": [{"step": "train"}]}, ("attempts", "started")),
        (
            "status.json",
            {"attempts": [{"step": "train", "started": "x"}]},
            ("started", "x"),
        ),
        (
            "status.json",
            {"attempts": [{"step": "train", "started": 1, "versions": 3}]},
            ("versions", 3),
        ),
    ],
)
def test_a_value_of_a_runs_file(commands, name, changes, parts):
    path = commands.run / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    commands.refused("report", path, *parts)

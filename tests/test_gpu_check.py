"""benchmarks/gpu_check.py: its runner of steps, its stages at tiny sizes, no GPU."""

import json
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as benchmarks
from benchmarks import gpu_check, measure, registry
from benchmarks.gpu_check import Step, run_steps
from tests.messages import command_refuses
from tests.paths import ROOT

from .benchmarks.runs import run_command
from .forked_trainings import start_command, wait_for
from .tiny_data import write_tiny_data


def python(code):
    return [sys.executable, "-c", code]


def run(steps, out, seconds=60):
    (out / "results").mkdir()
    packed = out / "s.tgz"
    passed = run_steps(steps, seconds, packed, out, {"stage": "s"})
    with tarfile.open(packed) as archive:
        summary = json.load(archive.extractfile("s/summary.json"))
    assert summary["stage"] == "s"
    lines = packed.with_suffix(".txt").read_text().splitlines()
    records = {record["step"]: record for record in summary["steps"]}
    assert [line.split(": ")[1:3] for line in lines] == [
        [name, record["status"]] for name, record in records.items()
    ]
    return passed, records


def test_a_failed_step_stops_no_other(tmp_path):
    passed, records = run(
        [
            Step("good", 1, python("print(1)")),
            Step("bad", 1, python("print('because'); raise SystemExit(7)")),
            Step("last", 1, python("print('seen')")),
        ],
        tmp_path,
    )
    assert not passed
    statuses = [record["status"] for record in records.values()]
    assert statuses == ["passed", "failed", "passed"]
    assert records["bad"]["reason"] == "exit code 7"
    assert "because" in records["bad"]["output"]
    assert (tmp_path / "results/last.log").read_text() == "seen\n"


def test_the_archive_is_there_after_each_step(tmp_path):
    last = "import tarfile, sys; print(tarfile.open({!r}).getnames())"
    steps = [
        Step("one", 1, python("print(7)")),
        Step("two", 1, python(last.format(str(tmp_path / "s.tgz")))),
    ]
    assert run(steps, tmp_path)[0]
    seen = (tmp_path / "results/two.log").read_text()
    assert "s/one.log" in seen and "two.log" not in seen


def test_a_slow_step_ends_with_its_children(tmp_path):
    mark = tmp_path / "pid"
    code = (
        "import subprocess, sys, time, pathlib;"
        "child = subprocess.Popen(['sleep', '600']);"
        f"pathlib.Path({str(mark)!r}).write_text(str(child.pid));"
        "print('begun', flush=True); time.sleep(600)"
    )
    slow, quick = Step("slow", 0.1, python(code)), Step("quick", 0.1, python("1"))
    passed, records = run([slow, quick], tmp_path, seconds=30)
    assert not passed
    assert records["slow"]["status"] == "timeout"
    assert records["slow"]["reason"] == "not ready after 3 s"
    # interrupted as by Ctrl-C, so that pytest writes its results
    assert "begun" in records["slow"]["output"]
    assert "KeyboardInterrupt" in records["slow"]["output"]
    assert records["quick"]["status"] == "passed"
    assert not is_running(int(mark.read_text()))


def is_running(pid):
    """Whether the process comes to an end within a while; a zombie has ended."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tiny_data(tmp_path_factory.mktemp("data"), lines=30)


def steps_of(stage, folder, data):
    steps = gpu_check.steps_of(stage, folder, data, 7)
    for step in steps:
        step.command[:] = ["99" if word == "SECONDS" else word for word in step.command]
    return steps


# what makes the commands small enough for a CPU, by their name or by the step's
FEW = "--cpu --tokens-per-sample 32 --batch-size 2 --max-update 2 --log-interval 1"
SHORT = "--device cpu --tokens 64 --lengths 64"
SMALL = "--device cpu --backends torch --width 32 --heads 2 --layers 2 --vocabulary 50"
TINY = {
    "ops": f"{SHORT} --check-length 64",
    "smoke": f"{SHORT} --check-length 64 --ops rms_norm",
    "training_step": f"{SMALL} --ways eager --tokens 64 --lengths 64",
    "update_cost": "--device cpu --vocabulary 50 --batches 8x8 --models 1+elu",
    "generation_cost": f"{SMALL} --contexts 8",
    "transformer_lm": f"{FEW} --decoder-embed-dim 32 --decoder-ffn-embed-dim 32",
    "fairseq_cli.train": f"{FEW} --embed-dim 32 --ffn-dim 32 --num-heads 2",
}


@pytest.mark.parametrize("stage", gpu_check.STAGES)
def test_every_step_that_a_cpu_can_do_leaves_its_file(
    stage, data, tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(measure, "FLUSHED_BYTES", 1000)
    monkeypatch.setitem(measure.COPIED_BYTES, "cpu", 1000)
    monkeypatch.setattr(registry, "LENGTH", 64)
    trainings, criterions, results = [], set(), tmp_path / "results"
    results.mkdir()
    for step in steps_of(stage, tmp_path, data):
        _, _, module, *words = step.command
        kinds = (step.name, words[0], module)
        tiny = next((TINY[kind] for kind in kinds if kind in TINY), None)
        if step.name.endswith("seed2") or tiny is None:
            continue  # but for the number as the others; for a GPU alone
        words += tiny.split()
        if module == "benchmarks":
            once = ["--least-repeats", "1", "--most-repeats", "1", "--threads", "1"]
            assert run_command([*words, *once]) == 0
            written = json.loads((results / f"{step.name}.json").read_text())
            rows = written["measurements"]
            assert any("seconds" in row or "errors" in row for row in rows), rows
        elif module == "fairseq_cli.train":
            criterions.add("--criterion" in words)
            words.remove("--user-dir")
            words.remove(str(ROOT / "fairseq_transnormer"))
            log = tmp_path / f"{step.name}.log"
            trainings.append((log, start_command("train", words, log)))
    wait_for([process for _, process in trainings])
    for log, process in trainings:
        assert process.exitcode == 0, log.read_text()
        assert "num_updates" in log.read_text()
    assert len(criterions) < 2  # their speeds are compared


@pytest.mark.parametrize(
    ("file", "name", "expected"),
    [
        # what the measured pages of both devices say
        (
            "h100",
            "ops_peers",
            {1.3: (0.98, 4096), 0.6: (0.53, 65536), 0.5: (0.49, 65536)},
        ),
        ("h200", "ops", {0.6: (0.47, 8192), 0.5: (0.41, 16384)}),
        ("h200", "ops_blocks", {1.5: (1.38, 16384)}),
    ],
)
def test_targets_are_read_from_the_rows(file, name, expected, tmp_path):
    run = json.loads((ROOT / f"results/gpu/{file}.json").read_text())[name]
    path = tmp_path / "ops.json"
    path.write_text(json.dumps(run))
    found = gpu_check.read_targets(path)
    values = {
        each["least"]: (round(each["measured"], 2), each["length"]) for each in found
    }
    assert values == expected and not any(each["met"] for each in found)
    for row in run["measurements"]:
        if row["provider"] == "ours (triton)":
            row["wrong"] = True
    path.write_text(json.dumps(run))
    assert {each["measured"] for each in gpu_check.read_targets(path)} == {0.0}


def test_a_stage(tmp_path, data, monkeypatch, capsys):
    def steps(stage, folder, data, updates):
        assert (stage, updates) == ("second", 300)
        code = "import pathlib; pathlib.Path({!r}).write_text('7')"
        one = Step("one", 1, python(code.format(str(folder / "results/one.json"))))
        return [one, Step("two", 1, ["false"])]

    monkeypatch.setattr(gpu_check, "steps_of", steps)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(measure, "describe", lambda device: {"device": device})
    out = tmp_path / "out"
    words = ["gpu_check", "--stage", "second", "--out", str(out)]
    words += ["--data", str(data), "--seconds", "60", "--steps", "one"]
    assert run_command(words) == 0
    with tarfile.open(out / "second.tgz") as archive:
        assert archive.extractfile("second/one.json").read() == b"7"
        summary = json.load(archive.extractfile("second/summary.json"))
    assert summary["environment"] == {"device": "cuda"}
    assert sorted(path.name for path in out.iterdir()) == ["second.tgz", "second.txt"]
    # what is there is not written over
    command_refuses(benchmarks.main, words, capsys, "--out", "second.tgz", alone=True)

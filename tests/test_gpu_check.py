"""benchmarks/gpu_check.py: its runner of steps, its readers, and no GPU."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check
from tests.messages import command_refuses, lines_naming, refuses
from tests.paths import ROOT


def python(code):
    return [sys.executable, "-c", code]


def run(steps, out, seconds=60):
    passed = gpu_check.run_steps(steps, out, seconds, {"measured": True})
    summary = json.loads((out / "summary.json").read_text())
    assert summary["measured"]
    return passed, {record["step"]: record for record in summary["steps"]}


def test_a_failed_step_stops_only_those_that_need_it(tmp_path):
    step = gpu_check.Step
    passed, records = run(
        [
            step("good", 1, python("print(1)"), read=lambda text: int(text)),
            step("bad", 1, python("print('because'); raise SystemExit(7)")),
            step("after bad", 1, python("print('never')"), needs="bad"),
            step("unreadable", 1, python("print('x')"), read=int),
            step("after good", 1, python("print('seen')"), needs="good"),
        ],
        tmp_path,
    )
    assert not passed
    statuses = {name: record["status"] for name, record in records.items()}
    assert statuses == {
        "good": "passed",
        "bad": "failed",
        "after bad": "skipped",
        "unreadable": "failed",
        "after good": "passed",
    }
    assert records["good"]["result"] == 1
    assert records["bad"]["reason"] == "exit code 7"
    assert "because" in records["bad"]["output"]
    assert records["after bad"]["reason"] == "bad did not pass"
    assert "cannot be read" in records["unreadable"]["reason"]
    log = (tmp_path / "log.txt").read_text()
    assert "because" in log and "seen" in log and "never" not in log


def test_all_passed(tmp_path):
    passed, _ = run([gpu_check.Step("one", 1, python("1"))], tmp_path)
    assert passed


def test_a_slow_step_ends_with_its_children(tmp_path):
    mark = tmp_path / "pid"
    code = (
        "import subprocess, sys, time, pathlib;"
        "child = subprocess.Popen(['sleep', '600']);"
        f"pathlib.Path({str(mark)!r}).write_text(str(child.pid));"
        "print('begun', flush=True); time.sleep(600)"
    )
    slow = gpu_check.Step("slow", 0.1, python(code))
    quick = gpu_check.Step("quick", 0.1, python("1"))
    passed, records = run([slow, quick], tmp_path, seconds=30)
    assert not passed
    assert records["slow"]["status"] == "timeout"
    assert records["slow"]["reason"] == "not ready after 3 s"
    assert "begun" in records["slow"]["output"]
    assert records["quick"]["status"] == "passed"
    assert not is_running(int(mark.read_text()))


def test_a_step_out_of_time_can_still_write_its_results(tmp_path):
    code = "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('42')"
    step = gpu_check.Step("slow", 0.1, python(code), read=int)
    # 8 s, in which a busy machine still starts Python
    _, records = run([step], tmp_path, seconds=80)
    assert records["slow"]["status"] == "timeout"
    assert records["slow"]["result"] == 42


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


def test_nothing_begins_when_the_time_is_over(tmp_path):
    steps = [gpu_check.Step("late", 1, python("1"))]
    _, records = run(steps, tmp_path, seconds=0.5)
    assert records["late"]["status"] == "skipped"
    assert records["late"]["reason"] == "no time is left"


def test_results_of_tests(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2\n"
        "@pytest.mark.skip\n"
        "def test_not(): pass\n"
    )
    xml = tmp_path / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={xml}"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([*command, "test_it.py"], cwd=tmp_path, env=environment)
    result = gpu_check.read_tests(xml)
    (name,) = result.pop("failed")
    assert name == "test_it::test_bad"
    assert result == {"tests": 3, "failures": 1, "errors": 0, "skipped": 1}
    only = [*command, "test_it.py::test_not"]
    subprocess.run(only, cwd=tmp_path, env=environment)
    with refuses(ValueError, xml, "no test"):
        gpu_check.read_tests(xml)


def test_training_logs_become_losses_and_speed(tmp_path):
    def line(kind, **numbers):
        return f"2026 | INFO | {kind} | {json.dumps(numbers)}\n"

    log = "".join(
        line("train_inner", loss=f"{10 - i}", wps=f"{100 * i}", num_updates=f"{5 * i}")
        for i in (1, 2, 3, 4)
    ) + line("valid", valid_loss="5.5", valid_num_updates="20")
    path = tmp_path / "training.json"
    for name in ("one", "two"):
        result = gpu_check.read_training(log, name, path)
        assert result == {
            "first_loss": 9,
            "last_loss": 6,
            "valid_loss": 5.5,
            "tokens_a_second": 350,
            "updates": 20,
        }
    trainings = json.loads(path.read_text())
    assert set(trainings) == {"one", "two"}
    assert trainings["one"]["loss_by_update"][0] == [5, 9]


def test_trainings_use_flags_that_fairseq_knows(tmp_path):
    from .resolved_configs import command_line_config

    steps = gpu_check.training_steps(tmp_path, tmp_path)
    configurations = []
    for step in steps:
        assert step.command[1:3] == ["-m", "fairseq_cli.train"]
        cfg = command_line_config(step.command[3:])
        assert cfg.optimization.max_update == gpu_check.UPDATES and cfg.common.bf16
        configurations.append(cfg)
    # our kernels beside our torch ops and beside fairseq's own model
    backends = {
        (cfg.model._name, step.environment.get("FAIRSEQ_TRANSNORMER_BACKEND"))
        for cfg, step in zip(configurations, steps, strict=True)
    }
    ours = "transnormer_t2"
    assert {(ours, "triton"), (ours, "torch"), ("transformer_lm", None)} <= backends


def test_no_step_writes_over_anothers_file(tmp_path):
    steps = gpu_check.check_steps(tmp_path, tmp_path / "work")
    written = [
        Path(part.rpartition("=")[2])
        for step in steps
        for part in step.command
        if str(tmp_path) in part and Path(part).suffix in (".json", ".xml")
    ]
    assert len(written) > 3 and all(path.parent == tmp_path for path in written)
    # those that the runner and the trainings write besides
    names = [path.name for path in written]
    names += ["summary.json", "log.txt", "training.json"]
    assert sorted(set(names)) == sorted(names)


def test_a_step_comes_after_what_it_needs(tmp_path):
    steps = gpu_check.check_steps(tmp_path, tmp_path / "work")
    names = [step.name for step in steps]
    assert all(step.needs in (None, *names[:i]) for i, step in enumerate(steps))
    needed = {step.needs for step in steps if step.command[2] == "fairseq_cli.train"}
    assert needed == {"data"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_nothing_is_measured(tmp_path):
    out = tmp_path / "results"
    done = subprocess.run(
        ["bash", ROOT / "scripts" / "gpu_check.sh", "--out", out],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert lines_naming(done.stderr, "measured", "torch", "CUDA device")
    assert [path.name for path in out.iterdir()] == ["summary.json"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["measured"] is False and "no CUDA device" in summary["reason"]


def test_a_python_that_does_not_run(tmp_path):
    python = tmp_path / "none"
    done = subprocess.run(
        ["bash", ROOT / "scripts" / "gpu_check.sh", "--out", tmp_path / "results"],
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert lines_naming(done.stderr, "PYTHON", "does not run", python)


def test_wrong_usage(tmp_path, capsys):
    (tmp_path / "old.json").touch()
    for arguments, parts in (
        (["--out", tmp_path], ["--out", tmp_path, "empty", "new"]),
        (
            ["--out", tmp_path / "new", "--seconds", "0"],
            ["--seconds", "'0'", "above 0"],
        ),
        ([], ["--out", "required"]),
    ):
        command_refuses(gpu_check.main, arguments, capsys, *parts)

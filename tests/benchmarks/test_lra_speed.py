"""The measurement of the arena's classifiers: what it runs, and its tables."""

import json

import pytest
import torch

from benchmarks import lra_speed, report
from benchmarks.phases import INFERENCE, TRAINING_STEP

QUICK = "--threads 1 --least-repeats 2 --most-repeats 2 --lengths 32 64 --batch 2"


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_rows_and_report(tmp_path):
    # 2 sequences, 2 heads, 64 x 64 float32: 64 KiB
    path = tmp_path / "lra_speed_cpu.json"
    limit = f"--quadratic-limit-gib {60 / 2**20}"
    lra_speed.main([*QUICK.split(), *limit.split(), "--output", str(path)])
    run = json.loads(path.read_text())
    assert run["complete"]
    found = {
        (row["contestant"], row["phase"], row["length"]): row
        for row in run["measurements"]
    }
    assert len(found) == 17 * 2 * 2 == len(run["measurements"])
    skipped = {key for key, row in found.items() if "skipped" in row}
    assert {(name, length) for name, _, length in skipped} == {
        ("Transformer", 64),
        ("Kernelized Attention", 64),
    }
    for key, row in found.items():
        if key not in skipped:
            assert len(row["seconds"]) == 2 and row["peak_bytes"] > 0
    report.main(["--folder", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "**Training: beside Transformer through torch's fused attention**" in text
    line = next(x for x in text.splitlines() if x.startswith("| Transformer, SDPA | "))
    assert line.count("|") == 4
    assert "| Kernelized Attention | " in text and "--quadratic-limit-gib" in text


def test_steps_do_what_they_say():
    options = lra_speed.parse(QUICK.split())
    step = lra_speed.Contestant("TransNormer T2", options)
    before = [p.clone() for p in step.model.parameters()]
    tokens, labels = torch.zeros(2, 32, dtype=torch.long), torch.tensor([0, 1])
    step.step(INFERENCE, tokens, labels)
    after = list(step.model.parameters())
    assert all(map(torch.equal, before, after)) and not step.model.training
    step.step(TRAINING_STEP, tokens, labels)
    changed = [not torch.equal(*pair) for pair in zip(before, after, strict=True)]
    assert sum(changed) > len(changed) / 2
    assert all(p.grad is None for p in after)


def test_both_vanilla_transformers_are_one_function():
    options = lra_speed.parse(QUICK.split())
    matrix, fused = (
        lra_speed.Contestant(name, options)
        for name in (lra_speed.MATERIALISED, lra_speed.FUSED)
    )
    fused.model.load_state_dict(matrix.model.state_dict())
    tokens = torch.randint(256, (2, 32))
    outputs = []
    for each in (matrix, fused):
        each.model.register_forward_hook(lambda m, i, out: outputs.append(out))
        each.step(INFERENCE, tokens, torch.tensor([0, 1]))
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("phase", [INFERENCE, TRAINING_STEP])
def test_the_fused_transformer_keeps_no_matrix(phase):
    options = lra_speed.parse([*QUICK.split(), "--lengths", "320", "--batch", "1"])
    tokens, labels = torch.zeros(1, 320, dtype=torch.long), torch.tensor([0])

    def largest(name: str) -> int:
        step = lra_speed.Contestant(name, options)
        with torch.profiler.profile(record_shapes=True) as profile:
            step.step(phase, tokens, labels)
        shapes = (shape for event in profile.events() for shape in event.input_shapes)
        return max(shape.count(320) for shape in shapes if shape)

    assert largest(lra_speed.MATERIALISED) == 2
    assert largest(lra_speed.FUSED) == 1


def test_out_of_memory_is_a_dash_for_one_contestant(monkeypatch):
    step = lra_speed.Contestant.step

    def failing(self, phase, tokens, labels):
        if self.name == "Reformer":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return step(self, phase, tokens, labels)

    monkeypatch.setattr(lra_speed.Contestant, "step", failing)
    systems = ["--systems", "Reformer", "1+elu", "--lengths", "16"]
    (rows,) = lra_speed.measure(lra_speed.parse([*QUICK.split(), *systems]))
    reasons = {row["contestant"]: row.get("skipped") for row in rows}
    assert reasons == {"Reformer": "out of memory: CUDA out of memory", "1+elu": None}

"""The measurement of the arena's classifiers: what it runs, and its tables."""

import json

import pytest
import torch

from benchmarks.harness.phases import INFERENCE, TRAINING_STEP
from benchmarks.report import command as report
from benchmarks.training import lra_speed
from tests.messages import assert_names, lines_naming

QUICK = "--threads 1 --least-repeats 2 --most-repeats 2 --lengths 32 64 --batch 2"


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# two that keep matrices, their twin that does not, and ours
FEW = [
    lra_speed.MATERIALISED,
    "Kernelized Attention",
    lra_speed.FUSED,
    "TransNormer T2",
]


@pytest.mark.parametrize(
    "systems", [FEW, pytest.param([*lra_speed.SYSTEMS], marks=pytest.mark.slow)]
)
def test_rows_and_report(systems, tmp_path):
    # 2 sequences, 2 heads, 64 x 64 float32: 64 KiB
    path = tmp_path / "lra_speed_cpu.json"
    limit = f"--quadratic-limit-gib {60 / 2**20}"
    words = [*QUICK.split(), *limit.split(), "--output", str(path)]
    lra_speed.main([*words, "--systems", *systems])
    run = json.loads(path.read_text())
    assert run["complete"]
    found = {
        (row["contestant"], row["phase"], row["length"]): row
        for row in run["measurements"]
    }
    assert len(found) == len(systems) * 2 * 2 == len(run["measurements"])
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
    assert lines_naming(text, "Training", "Transformer", "fused attention")
    line = next(x for x in text.splitlines() if x.startswith("| Transformer, SDPA | "))
    assert line.count("|") == 4
    assert "| Kernelized Attention | " in text and "--quadratic-limit-gib" in text


def test_steps_do_what_they_say():
    options = lra_speed.parse(QUICK.split())
    step = lra_speed.Contestant("TransNormer T2", options, 32)
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
        lra_speed.Contestant(name, options, 32)
        for name in (lra_speed.MATERIALISED, lra_speed.FUSED)
    )
    fused.model.load_state_dict(matrix.model.state_dict())
    tokens = torch.randint(256, (2, 32))
    outputs = []
    for each in (matrix, fused):
        each.model.register_forward_hook(lambda m, i, out: outputs.append(out))
        each.step(INFERENCE, tokens, torch.tensor([0, 1]))
    torch.testing.assert_close(*outputs)


def test_the_fused_transformer_keeps_no_matrix():
    options = lra_speed.parse([*QUICK.split(), "--lengths", "320", "--batch", "1"])
    tokens, labels = torch.zeros(1, 320, dtype=torch.long), torch.tensor([0])

    def largest(name: str) -> int:
        step = lra_speed.Contestant(name, options, 320)
        with torch.profiler.profile(record_shapes=True) as profile:
            step.step(TRAINING_STEP, tokens, labels)
        shapes = (shape for event in profile.events() for shape in event.input_shapes)
        return max(shape.count(320) for shape in shapes if shape)

    assert largest(lra_speed.MATERIALISED) == 2
    assert largest(lra_speed.FUSED) == 1


def test_there_are_seventeen():
    assert len(lra_speed.parse(QUICK.split()).systems) == 17


@pytest.mark.parametrize("name", ["Linformer", "1+elu"])
def test_a_short_sequence_does_not_pay_for_the_longest(name):
    options = lra_speed.parse([*QUICK.split(), "--lengths", "64", "4096"])
    counts = [
        sum(p.numel() for p in lra_speed.build(name, options, length).parameters())
        for length in (64, 128)
    ]
    # 64 more positions of 64; Linformer's two layers have 2 x 128 weights for each
    of_projections = 64 * 2 * 2 * 128 if name == "Linformer" else 0
    assert counts[1] - counts[0] == 64 * 64 + of_projections


def test_what_would_not_fit_on_a_cpu_is_out_of_memory(monkeypatch):
    monkeypatch.setattr(lra_speed, "available_bytes", lambda: 2**20)
    systems = ["--systems", "Transformer", "1+elu", "--lengths", "256"]
    options = lra_speed.parse([*QUICK.split(), *systems, "--phases", TRAINING_STEP])
    (rows,) = lra_speed.measure(options)
    # 2 sequences, 2 heads, 256 x 256 floats: 1 MiB, seven times
    left_out, run = (row.get("skipped") for row in rows)
    assert_names(left_out, "out of memory", "0.00684 GiB", 0.000977)
    assert run is None


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("no memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_is_a_dash_for_one_contestant(monkeypatch, error):
    step = lra_speed.Contestant.step

    def failing(self, phase, tokens, labels):
        if self.name == "Reformer":
            raise error
        return step(self, phase, tokens, labels)

    monkeypatch.setattr(lra_speed.Contestant, "step", failing)
    systems = ["--systems", "Reformer", "1+elu", "--lengths", "16"]
    (rows,) = lra_speed.measure(lra_speed.parse([*QUICK.split(), *systems]))
    reasons = {row["contestant"]: row.get("skipped") for row in rows}
    assert_names(reasons.pop("Reformer"), "out of memory", error)
    assert reasons == {"1+elu": None}


def test_other_errors_end_the_run(monkeypatch):
    def failing(self, phase, tokens, labels):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(lra_speed.Contestant, "step", failing)
    options = lra_speed.parse([*QUICK.split(), "--systems", "1+elu"])
    with pytest.raises(RuntimeError, match="shapes differ"):
        next(lra_speed.measure(options))

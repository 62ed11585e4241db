"""The measurement of the arena's classifiers: what it runs."""

import pytest
import torch

from benchmarks import lra_speed
from benchmarks.lra_speed import Classifier
from benchmarks.options import LRASpeed

from .runs import rows_of, run_of

# two that keep matrices, their twin that does not, and ours
FEW = [
    lra_speed.MATERIALISED,
    "Kernelized Attention",
    lra_speed.FUSED,
    "TransNormer T2",
]


def options(**values):
    return LRASpeed(**{"batch": 2, **values})


@pytest.mark.parametrize(
    "systems", [FEW, pytest.param([*lra_speed.SYSTEMS], marks=pytest.mark.slow)]
)
def test_rows(systems, tmp_path):
    # 2 sequences, 2 heads, 64 x 64 float32: 64 KiB
    words = f"--lengths 32 64 --batch 2 --quadratic-limit-gib {60 / 2**20} --systems"
    names = " ".join(map(repr, systems))
    run = run_of(f"lra_speed {words} {names}", tmp_path / "l.json")
    found = rows_of(run, "provider", "phase", "length")
    assert len(found) == len(systems) * 2 * 2
    skipped = {(k[0], k[2]) for k, row in found.items() if "skipped" in row}
    assert skipped == {("Transformer", 64), ("Kernelized Attention", 64)}
    assert all("skipped" in row or row["peak_bytes"] > 0 for row in found.values())


def test_steps_do_what_they_say():
    step = Classifier("TransNormer T2", options(), 32)
    before = [p.clone() for p in step.model.parameters()]
    tokens, labels = torch.zeros(2, 32, dtype=torch.long), torch.tensor([0, 1])
    step.step("inference", tokens, labels)
    after = list(step.model.parameters())
    assert all(map(torch.equal, before, after)) and not step.model.training
    step.step("training", tokens, labels)
    changed = [not torch.equal(*pair) for pair in zip(before, after, strict=True)]
    assert sum(changed) > len(changed) / 2
    assert all(p.grad is None for p in after)


def test_both_vanilla_transformers_are_one_function():
    matrix, fused = (
        Classifier(name, options(), 32)
        for name in (lra_speed.MATERIALISED, lra_speed.FUSED)
    )
    fused.model.load_state_dict(matrix.model.state_dict())
    tokens = torch.randint(256, (2, 32))
    outputs = []
    for each in (matrix, fused):
        each.model.register_forward_hook(lambda m, i, out: outputs.append(out))
        each.step("inference", tokens, torch.tensor([0, 1]))
    torch.testing.assert_close(*outputs)


def test_the_fused_transformer_keeps_no_matrix():
    tokens, labels = torch.zeros(1, 320, dtype=torch.long), torch.tensor([0])

    def largest(name: str) -> int:
        step = Classifier(name, options(batch=1), 320)
        with torch.profiler.profile(record_shapes=True) as profile:
            step.step("training", tokens, labels)
        shapes = (shape for event in profile.events() for shape in event.input_shapes)
        return max(shape.count(320) for shape in shapes if shape)

    assert largest(lra_speed.MATERIALISED) == 2
    assert largest(lra_speed.FUSED) == 1

"""An update in both ways: the same loss, and what does not fit."""

import pytest

from benchmarks import update_cost
from benchmarks.fairseq_transformer import build_transformer
from benchmarks.models import WITH_SDPA
from benchmarks.update_cost import FAIRSEQS

from .runs import run_of


@pytest.fixture
def small_models(monkeypatch):
    for name, arch in update_cost.MODELS.items():
        if arch is not None:
            monkeypatch.setitem(update_cost.MODELS, name, f"{arch}_tiny")
    build = "benchmarks.fairseq_transformer.build_transformer"
    monkeypatch.setattr(build, lambda *size: build_transformer(32, 2, 2, *size[3:]))


@pytest.mark.parametrize(
    ("dtype", "close"), [("float32", 1e-5), ("bfloat16", 1e-2)], ids=str
)
def test_both_ways_have_the_same_loss(tmp_path, dtype, close, small_models):
    models = f"--models 'TransNormer T2' '{WITH_SDPA}' --batches 32x16"
    words = f"{models} --vocabulary 80 --dtype {dtype}"
    rows = run_of(f"update_cost {words}", tmp_path / "u.json")["measurements"]
    assert {row["model"] for row in rows} == {"TransNormer T2", WITH_SDPA}
    for theirs, ours in zip(rows[::2], rows[1::2], strict=True):
        assert (theirs["way"], ours["way"]) == (FAIRSEQS, "ours")
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=close)
        assert theirs["peak_bytes"] and ours["peak_bytes"]

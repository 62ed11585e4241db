"""A fingerprint is of weights alone; what a run resumes from is whole."""

import os

import pytest
import torch

from fairseq_transnormer.checkpoints import identity
from fairseq_transnormer.checkpoints.files import repair_last_checkpoint
from fairseq_transnormer.checkpoints.identity import weights_fingerprint


def state(**changes) -> dict:
    torch.manual_seed(1)
    model = {"b": torch.randn(3, 2), "a": torch.randn(4), "n": torch.tensor(3)}
    model |= {"half": torch.randn(5).bfloat16(), "none": torch.zeros(0)}
    return {"model": model | changes, "cfg": None}


def fingerprint(path, content) -> str:
    torch.save(content, path)
    return weights_fingerprint(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.pt"


def test_only_the_weights_count(path, tmp_path):
    expected = fingerprint(path, state())
    assert len(expected) == 64 and int(expected, 16)
    other_order = {"model": dict(reversed(state()["model"].items()))}
    for content in (
        other_order,
        state() | {"last_optimizer_state": {"m": torch.ones(3)}},
        # the same numbers as columns of memory
        state(b=state()["model"]["b"].t().contiguous().t()),
    ):
        assert fingerprint(path, content) == expected
    moved = tmp_path / "elsewhere.pt"
    path.rename(moved)
    assert weights_fingerprint(moved) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"a": torch.zeros(4)},
        {"b": state()["model"]["b"].view(2, 3)},
        {"n": torch.tensor(3, dtype=torch.int32)},
        {"half": state()["model"]["half"].view(torch.float16)},
        {"more": torch.zeros(1)},
    ],
)
def test_any_tensor_counts(path, changes):
    assert fingerprint(path, state()) != fingerprint(path, state(**changes))


def test_a_swap_of_names_counts(path):
    model = state()["model"] | {"b": torch.zeros(4)}
    swapped = model | {"a": model["b"], "b": model["a"]}
    first = fingerprint(path, {"model": model})
    assert first != fingerprint(path, {"model": swapped})


def test_a_file_is_hashed_once_until_it_changes(path, monkeypatch):
    expected = fingerprint(path, state())

    def again(*_, **__):
        raise AssertionError("read again")

    with monkeypatch.context() as patched:
        patched.setattr(identity, "read_checkpoint", again)
        assert weights_fingerprint(path) == expected
    # of equal size, and made as old as the other
    times = path.stat()
    torch.save(state(a=torch.zeros(4)), path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    assert weights_fingerprint(path) != expected


def test_a_damaged_last_checkpoint_gives_way_to_the_newest(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    assert repair_last_checkpoint(tmp_path) is None
    for age, name in enumerate(
        ["checkpoint_best", "checkpoint_1_20", "checkpoint_1_10"]
    ):
        path = tmp_path / f"{name}.pt"
        torch.save({"model": {}, "name": name}, path)
        os.utime(path, (1000 - age, 1000 - age))
    torch.save({"model": {}, "name": "last"}, last)
    assert repair_last_checkpoint(tmp_path) is None
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-50])
    assert repair_last_checkpoint(tmp_path).name == "checkpoint_1_20.pt"
    assert torch.load(last)["name"] == "checkpoint_1_20"
    assert (tmp_path / "checkpoint_last.pt.damaged").exists()

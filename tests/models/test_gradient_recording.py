"""What the recorder writes for gradients that are known."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairseq_transnormer.plugin.models import gradient_recording
from fairseq_transnormer.plugin.models.gradient_recording import (
    GradientRecorder,
    record_gradients,
)
from tests.messages import refuses

OPTIMIZER = SimpleNamespace()
HEADER = {"parameters": {"weight": 6, "bias": 3}}


def linear_with_gradients(dtype=torch.float32):
    model = nn.Linear(2, 3).to(dtype)
    model.weight.grad = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]], dtype=dtype)
    model.bias.grad = torch.tensor([1.0, -2.0, 2.0], dtype=dtype)
    return model


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_norm_and_mean_of_each_parameter(dtype, tmp_path):
    path = tmp_path / "folder" / "gradients.jsonl"
    model = linear_with_gradients(dtype)
    # what fairseq's half-precision optimizers do to the gradient when they step
    scaled = SimpleNamespace(_multiply_factor=torch.tensor(0.5))
    recorder = GradientRecorder(model, path)
    recorder.count({"nsentences": 2, "ntokens": 9})
    recorder.count({"nsentences": 3, "ntokens": torch.tensor(4)})  # accumulated
    recorder.record(OPTIMIZER, 1)
    recorder.record(scaled, 2)
    model.weight.grad = None
    recorder.record(OPTIMIZER, 3)
    header, *found = lines(path)
    assert header == HEADER
    assert [line["update"] for line in found] == [1, 2, 3]
    assert [(a["sequences"], a["tokens"]) for a in found] == [(5, 13), (0, 0), (0, 0)]
    assert [line["norm"] for line in found] == [[5, 3], [2.5, 1.5], [0, 3]]
    means = [[7 / 6, 1 / 3], [7 / 12, 1 / 6], [0, 1 / 3]]
    assert [line["mean"] for line in found] == [pytest.approx(m, 1e-5) for m in means]


def test_squares_beyond_float16(tmp_path):
    model = linear_with_gradients(torch.float16)
    model.weight.grad *= 10_000
    GradientRecorder(model, tmp_path / "file").record(OPTIMIZER, 1)
    assert lines(tmp_path / "file")[1]["norm"] == [50_000, 3]


def test_frozen_parameters_are_left_out(tmp_path):
    model = linear_with_gradients()
    model.weight.requires_grad_(False)
    GradientRecorder(model, tmp_path / "file").record(OPTIMIZER, 1)
    assert lines(tmp_path / "file")[0] == {"parameters": {"bias": 3}}


def test_an_overflow_is_no_update(tmp_path):
    model = linear_with_gradients()
    recorder = GradientRecorder(model, tmp_path / "file")
    model.bias.grad[0] = torch.inf
    recorder.record(OPTIMIZER, 1)
    model.bias.grad[0] = 1.0
    recorder.record(OPTIMIZER, 1)
    assert [line.get("update") for line in lines(tmp_path / "file")] == [None, 1]


def test_batches_that_were_dropped_are_not_of_the_update(tmp_path):
    """As after an overflow of fp16, where no optimizer steps."""
    model = linear_with_gradients()
    recorder = GradientRecorder(model, tmp_path / "file")
    for sequences in (9, 2):
        model.zero_grad()
        recorder.count({"nsentences": sequences, "ntokens": 7})
    model.bias.grad = torch.ones(3)
    recorder.count({"nsentences": 1, "ntokens": 1})
    recorder.record(OPTIMIZER, 1)
    _, line = lines(tmp_path / "file")
    assert (line["sequences"], line["tokens"]) == (3, 8)


@pytest.mark.parametrize("half_a_line", ["", '{"update":5,"no'])
def test_a_resumed_run_writes_no_update_twice(half_a_line, tmp_path):
    path, model = tmp_path / "file", linear_with_gradients()
    killed = GradientRecorder(model, path)
    for update in (1, 2, 3, 4):
        killed.record(OPTIMIZER, update)
    killed.file.close()
    with path.open("a") as file:
        file.write(half_a_line)
    model.bias.grad *= 2
    resumed = GradientRecorder(model, path)
    for update in (3, 4, 5):
        resumed.record(OPTIMIZER, update)
    header, *found = lines(path)
    assert header == HEADER
    norms = {line["update"]: line["norm"][1] for line in found}
    assert norms == {1: 3, 2: 3, 3: 6, 4: 6, 5: 6} and len(found) == 5


@pytest.mark.parametrize("before", ["", '{"parameters": {"a": 1}}\n', '{"parameters":'])
def test_a_run_from_the_start_begins_a_new_file(tmp_path, before):
    path = tmp_path / "file"
    path.write_text(before)
    GradientRecorder(linear_with_gradients(), path).record(OPTIMIZER, 1)
    assert [line.get("update") for line in lines(path)] == [None, 1]
    assert [x.read_text() for x in tmp_path.glob("*.earlier-1")] == [before] * bool(
        before
    )


@pytest.mark.parametrize("update", [1, 5])
@pytest.mark.parametrize("text", ["notes\nof mine\n", "notes"])
def test_a_file_of_others_stays(tmp_path, update, text):
    path = tmp_path / "file"
    path.write_text(text)
    with refuses(ValueError, f"gradient_statistics='{path}'", "program"):
        GradientRecorder(linear_with_gradients(), path).record(OPTIMIZER, update)
    assert path.read_text() == text


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_records_and_every_rank_steps(rank, tmp_path, monkeypatch):
    stepped = []
    task = SimpleNamespace(
        train_step=lambda sample, model: model,
        optimizer_step=lambda optimizer, model, update_num: stepped.append(update_num),
    )
    monkeypatch.setattr(gradient_recording, "get_global_rank", lambda: rank)
    record_gradients(linear_with_gradients(), task, tmp_path / "file")
    assert task.train_step(sample={"nsentences": 1, "ntokens": 1}, model=task) is task
    task.optimizer_step(OPTIMIZER, model=None, update_num=0)
    assert stepped == [0]
    assert (tmp_path / "file").exists() == (rank == 0)

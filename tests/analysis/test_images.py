"""Images: the given half stays, states equal recomputation, bits a pixel."""

import json
import math

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_transnormer.analysis import images
from fairseq_transnormer.analysis.images import NO_LEVEL, ImageGenerator
from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.inference import TextGenerator
from fairseq_transnormer.plugin.criterions.partial_cross_entropy import (
    PartialCrossEntropy,
)
from tests.commands import command
from tests.data_prep.commands import digits
from tests.inference import models
from tests.messages import refuses

SYSTEMS = [
    "transnormer_t2_tiny",
    *(
        pytest.param(f"{name}_transformer_tiny", marks=pytest.mark.slow)
        for name in ("linear", "vanilla")
    ),
]
ARGUMENTS = ["--criterion", "partial_cross_entropy", "--sample-break-mode", "eos"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "data"
    assert digits(["--dest", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module", params=SYSTEMS)
def checkpoint(request, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    more = [*ARGUMENTS, "--max-update", 10, "--optimizer", "radam"]
    return models.train(data, folder, request.param, *more)


@pytest.fixture
def model(checkpoint, data) -> ImageGenerator:
    return ImageGenerator(TextGenerator.from_checkpoint(checkpoint, device="cpu"), data)


def test_the_given_half_stays_and_the_other_is_drawn(model, data):
    originals = model.images(data, "test", 5)
    assert originals.shape == (5, 8, 8) and originals.max() == 16
    completed = model.complete(originals[:, :4], seed=3)
    assert (completed[:, :4] == originals[:, :4]).all()
    assert (completed[:, 4:] != originals[:, 4:]).any()
    assert (completed == model.complete(originals[:, :4], seed=3)).all()
    assert (completed != model.complete(originals[:, :4], seed=4)).any()


def test_states_draw_what_recomputing_draws(model, data):
    """... all tokens at each step, without states."""
    nothing = np.zeros((6, 0, 8), int)
    drawn = model.complete(nothing, seed=7)
    assert drawn.shape == (6, 8, 8)
    assert drawn.min() >= NO_LEVEL and drawn.max() <= 16
    assert len({picture.tobytes() for picture in drawn}) > 1
    model.generator.model.generation_config.use_cache = False
    assert (model.complete(nothing, seed=7) == drawn).all()


def test_loss_is_the_bits_a_pixel(checkpoint):
    """The criterion, in batches, and -log2 p summed pixel by pixel in float64."""
    (network,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)]
    )
    network.eval()
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    samples = [dataset[i] for i in range(5)]
    criterion = PartialCrossEntropy(task, None)
    with torch.no_grad():
        loss, size, _ = criterion(network, dataset.collater(samples))
        bits = 0.0
        for sample in samples:
            pixels = sample["target"].tolist()[:-1]
            read = [task.dictionary.eos()]
            for pixel in pixels:
                logits = network(torch.tensor([read]))[0][0, -1].double()
                bits -= logits.log_softmax(0)[pixel].item() / math.log(2)
                read.append(pixel)
    assert size == 5 * 64
    assert loss.item() / size / math.log(2) == pytest.approx(bits / (5 * 64), rel=1e-5)


def test_the_sheet(checkpoint, data, tmp_path, capsys):
    export_checkpoint(checkpoint, tmp_path / "exported")
    arguments = [f"one={checkpoint}", f"same={tmp_path / 'exported'}"]
    arguments += ["--data", data, "--output", tmp_path]
    arguments += ["--count", 3, "--top-k", 4]
    assert command("analyse", "images")(arguments) == 0
    assert (tmp_path / "images.png").read_bytes().startswith(b"\x89PNG")
    assert f"written: {tmp_path / 'images.png'}" in capsys.readouterr().out


def test_a_folder_without_images(tmp_path):
    (tmp_path / "report.json").write_text(json.dumps({"settings": {"height": 8}}))
    with refuses(ValueError, tmp_path, "report.json", "data_prep digits"):
        ImageGenerator(None, tmp_path)


def test_other_symbols_are_no_level(model):
    tokens = [3] + 63 * [4] + [2]
    levels = model._levels(tokens)
    assert levels[0, 0] == NO_LEVEL and (levels.ravel()[1:] == 0).all()
    assert isinstance(levels, np.ndarray)


def test_images_stand_side_by_side():
    levels = np.array([[0, 255], [51, NO_LEVEL]])
    drawn = images.strip(np.stack([levels, levels]), 256)
    one, white, two = drawn[:, :2], drawn[:, [2, 5]], drawn[:, 3:5]
    assert (one == two).all() and (white == 1).all()
    assert one[:, :, 0].tolist() == [[0, 1], [0.2, images.MISSING[0]]]
    assert (one == one[:, :, :1]).all(2).tolist() == [[True, True], [True, False]]

"""The contestant without states draws the same images, and remembers tokens only."""

import pytest
import torch

from benchmarks.generation.image_generation import draw
from benchmarks.generation.pixel_models import (
    SYSTEMS,
    build_model,
    pixel_task,
    text_generator,
)
from benchmarks.generation.recomputing import recomputing


@pytest.mark.parametrize("system", SYSTEMS)
def test_images_are_those_of_the_states(system, monkeypatch):
    task = pixel_task(6)
    model = build_model(system, 16, 2, 2, task)
    lengths = []
    features = type(model.decoder.model).features

    def recorded(self, tokens, states=None, return_states=False):
        lengths.append((tokens.shape[1], states is None))
        return features(self, tokens, states, return_states)

    drawn = []
    for each in (model, recomputing(model)):
        torch.manual_seed(5)
        drawn.append(draw(text_generator(each, task), pixels=9, images=3))
        if each is model:
            monkeypatch.setattr(type(model.decoder.model), "features", recorded)
    assert drawn[0] == drawn[1] and all(len(tokens) == 10 for tokens in drawn[0])
    # the line's beginning, and one pixel more in each step
    assert lengths == [(n, True) for n in range(1, 10 + 1)]

"""What is frozen in values.json is still so."""

import json

import pytest

from . import data_sets, models, trainings
from .make import VALUES

FROZEN = json.loads(VALUES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_logits_and_gradients(name):
    found, frozen = models.values_of(name), FROZEN["models"][name]
    assert found["logits"] == pytest.approx(frozen["logits"], rel=1e-3, abs=1e-4)
    for norm in ("norm", "gradients"):
        assert found[norm] == pytest.approx(frozen[norm], rel=1e-3), norm


def test_no_architecture_came_or_went():
    assert set(models.ARCHITECTURES) == set(FROZEN["models"])


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_parameters_at_the_papers_size(name):
    assert models.count(name) == FROZEN["counts"][name]


@pytest.fixture(scope="module")
def curves(tmp_path_factory):
    return trainings.curves(tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize("name", FROZEN["trainings"])
def test_losses_and_gradient_norms_of_24_updates(name, curves):
    for key, frozen in FROZEN["trainings"][name].items():
        rel = 0.01 if key == "loss" else 0.05
        assert curves[name][key] == pytest.approx(frozen, rel=rel, abs=0.002), key


def test_prepared_data_byte_for_byte(tmp_path):
    assert data_sets.digests(tmp_path) == FROZEN["data"]

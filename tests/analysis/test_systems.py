"""The tables of the documentation are the command's."""

import pytest

from fairseq_transnormer.analysis import systems
from fairseq_transnormer.modules.systems import SYSTEMS
from tests.paths import DOCS


@pytest.mark.slow
def test_the_documentation_has_the_tables():
    for page, table in (
        ("systems.md", systems.language_models()),
        ("lra.md", systems.arena()),
    ):
        assert table in (DOCS / page).read_text(encoding="utf-8"), page


def test_systems_have_a_similar_size():
    """Without positions, which are alike; Linformer's projections are its own."""
    vanilla = systems.classifier_parameters(SYSTEMS["vanilla"], "listops")
    vanilla -= 2048 * 64

    # embedding, two layers of attention, FFN and LayerNorms, a final one, the head
    layer = 4 * (64**2 + 64) + 2 * 64 * 128 + 128 + 64 + 4 * 64
    head = 64 * 128 + 128 + 128 * 10 + 10
    assert vanilla == 15 * 64 + 2 * layer + 2 * 64 + head
    for system in SYSTEMS.values():
        if "lra" not in system.kinds or system.name == "linformer":
            continue
        count = systems.classifier_parameters(system, "listops") - 2048 * 64
        assert abs(count / vanilla - 1) < 0.12, system.name

"""The table of the documentation is the command's."""

from fairseq_transnormer.reproduce import lra_parameters
from tests.paths import DOCS

PAGE = DOCS / "long_range_arena.md"


def test_the_documentation_has_the_table():
    assert lra_parameters.table() in PAGE.read_text(encoding="utf-8")


def test_systems_have_a_similar_size():
    """Without positions, which are alike; Linformer's projections are its own."""
    vanilla = lra_parameters.count("lra_vanilla_transformer", "listops") - 2048 * 64
    # embedding, two layers of attention, FFN and LayerNorms, a final one, the head
    layer = 4 * (64**2 + 64) + 2 * 64 * 128 + 128 + 64 + 4 * 64
    head = 64 * 128 + 128 + 128 * 10 + 10
    assert vanilla == 15 * 64 + 2 * layer + 2 * 64 + head
    for name in lra_parameters.architectures():
        count = lra_parameters.count(name, "listops") - 2048 * 64
        if name != "lra_linformer":
            assert abs(count / vanilla - 1) < 0.12, name

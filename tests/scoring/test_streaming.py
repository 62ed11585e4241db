"""Texts are read as they are needed, and scores come as soon as they can."""

import pytest

from fairseq_transnormer.scoring import Context, TextScorer
from fairseq_transnormer.scoring.context import windows
from tests.inference.models import sentences


@pytest.fixture(scope="module")
def path(zoo):
    return zoo.checkpoints["t2"]


def counted(items, taken: list):
    for item in items:
        taken.append(item)
        yield item


def test_a_score_comes_before_the_next_text_is_read(path):
    scorer, taken = TextScorer.from_checkpoint(path, device="cpu"), []
    found = scorer.stream(counted(sentences(5), taken))
    assert taken == []
    for number in range(1, 6):
        next(found)
        assert len(taken) == number


@pytest.mark.parametrize("context", [Context(), Context(16, 8)])
def test_a_long_text_is_never_held(path, context, monkeypatch):
    """What is read and not yet scored is bounded, however long the text is."""
    scorer = TextScorer.from_checkpoint(
        path, device="cpu", context=context, batch_tokens=64
    )
    taken, most = [], 0
    inner = scorer.scorer._of_rows

    def watched(features, targets):
        nonlocal most, scored
        most = max(most, sum(len(x.split()) + 1 for x in taken) - scored)
        scored += sum(map(len, targets))
        return inner(features, targets)

    scored = 0
    monkeypatch.setattr(scorer.scorer, "_of_rows", watched)
    lines = sentences(600)
    (found,) = scorer.stream([counted(lines, taken)])
    assert found.tokens == sum(len(line.split()) + 1 for line in lines) > 5000
    assert most < 2600


def test_windows_cover_a_text_once():
    for fresh, read, start in ((3, 0, []), (3, 1, [9]), (2, 4, [9]), (5, 2, [])):
        cut = list(windows(range(11), fresh, read, start))
        assert sum((each.scored for each in cut), []) == list(range(11))
        for each in cut:
            first = each.scored[0]
            text = [*start, *range(11)]
            before = text[: first + len(start)]
            assert each.read == (before[-read:] if read else [])

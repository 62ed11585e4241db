"""Models generate what they say, and keep what they claim to keep."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from benchmarks import generation, measure
from benchmarks.generation import (
    DEFAULT,
    OURS,
    PIXEL_SYSTEMS,
    STATIC,
    by_graph,
    by_states,
    draw,
    kept_bytes,
    pixel_generator,
    recomputing,
)
from benchmarks.models import build_transnormer
from benchmarks.options import ImageGeneration, TokenCost

from .runs import rows_of, run_of

SIZE = dict(width=32, heads=4, layers=2, vocabulary=60)
MODELS = "--width 32 --heads 2 --layers 2 --vocabulary 50"
LENGTH, STEPS = 60, 8


@pytest.fixture
def tokens():
    return torch.randint(4, SIZE["vocabulary"], (1, LENGTH + STEPS))


def logits_of(make, model, tokens):
    """Of each token after ``LENGTH``, by steps."""
    token, found = torch.full((1, 1), 4), []
    with torch.no_grad():
        step, _ = make(model, tokens[:, :LENGTH], token)
        for each in tokens[:, LENGTH:].split(1, 1):
            token.copy_(each)
            found.append(step().clone())
    return torch.cat(found, 1)


# ops whose result or whose result's shape the CPU must know
WAITS = ("_local_scalar_dense", "nonzero", "equal", "masked_select", "unique")


class Recorder(TorchDispatchMode):
    """What torch computes: each op with its shapes and numbers."""

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        shapes = tree_map_only(torch.Tensor, lambda x: tuple(x.shape), (args, kwargs))
        self.ops.append((str(op), repr(shapes)))
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("variant", ["T1", "T2"])
def test_steps_follow_a_plain_pass(variant, tokens, monkeypatch):
    """Over the beginning of a block. What a graph replays are the same ops at each
    token, none of which asks for a value."""
    recorded = []

    def replayed(make_call):
        """As a graph: it runs before, which must leave no trace."""
        call = make_call()
        call()

        def replay():
            with Recorder() as recorder:
                call()
            recorded.append(recorder.ops)

        return replay

    monkeypatch.setattr(measure, "captured", replayed)
    model = build_transnormer(**SIZE, variant=variant)
    with torch.no_grad():
        expected = model(tokens)[:, LENGTH:]
    for make in (by_states, by_graph):
        torch.testing.assert_close(logits_of(make, model, tokens), expected)
    assert recorded[0] and all(ops == recorded[0] for ops in recorded[1:])
    assert not [op for op, _ in recorded[0] if any(name in op for name in WAITS)]
    with torch.no_grad():
        again, kept = recomputing(model, tokens[:, :-1], tokens[:, -1:])
        torch.testing.assert_close(again(), expected[:, -1:])
    assert kept == tokens.nbytes


def test_the_state_does_not_grow(tokens):
    model = build_transnormer(**SIZE)
    with torch.no_grad():
        kept = [by_states(model, tokens[:, :n], tokens[:, :1])[1] for n in (10, 60)]
    # a block of 64 keys and values, 4 heads' 8 x 8 sums, float32; two int64 lengths
    assert kept == [2 * 64 * 32 * 4 + 4 * 8 * 8 * 4 + 2 * 8] * 2


def test_generation_cost(tmp_path):
    words = f"{MODELS} --contexts 5 9 --dtype bfloat16 --backends torch triton"
    run = run_of(f"generation_cost {words}", tmp_path / "g.json")
    rows = rows_of(run, "provider", "context")
    assert len(rows) == 2 * 7
    measured = {name for (name, _), row in rows.items() if "seconds" in row}
    ours = {f"TransNormer T2 (torch), {way}" for way in ("states", "recomputing")}
    assert measured == {*ours, "fairseq transformer_lm, cache"}
    for (name, _), row in rows.items():
        assert "CUDA" in row.get("skipped", "CUDA"), name


OPTIONS = TokenCost(
    width=32, heads=4, layers=2, vocabulary=60, contexts=[70], tokens=3,
    least_repeats=2, most_repeats=2,
)  # fmt: skip


def test_texts_go_on_as_without_a_cache():
    models = generation.build_models(OPTIONS)
    prompt = torch.randint(4, 60, (1, 70))
    texts = generation.texts(models, prompt, OPTIONS)
    for name, text in texts.items():
        for _ in range(2):
            text.write(3)
        assert text.tokens.shape == (1, 76)
        with torch.no_grad():
            logits = text.model(text.tokens, use_cache=False).logits
        # the special tokens below 4 are never written by ours
        for at in range(70, 76):
            left_out = {0, 1, 2, 3} if name == OURS else {2}
            scores = logits[0, at - 1].clone()
            scores[list(left_out)] = -torch.inf
            assert text.tokens[0, at] == scores.argmax(), (name, at)
    kept = {name: text.kept_bytes() for name, text in texts.items()}
    # a key and a value of 32 float32 in each of 2 layers: 75 tokens, and room for 79
    assert kept[DEFAULT] == 75 * 2 * 2 * 32 * 4
    assert kept[STATIC] == 79 * 2 * 2 * 32 * 4
    # of a Diag layer a block, of a Norm layer 4 heads of 2 x 8 x 8, whatever the text
    longer = generation.texts(models, torch.cat((prompt, prompt), 1), OPTIONS)
    assert longer[OURS].kept_bytes() == kept[OURS]


@pytest.mark.parametrize("system", PIXEL_SYSTEMS)
def test_images_are_those_of_the_states(system, monkeypatch):
    options = ImageGeneration(width=16, heads=2, layers=2, levels=6)
    drawn, lengths = [], []
    for keeps_states in (True, False):
        torch.manual_seed(3)
        made = pixel_generator(options, system, keeps_states)
        # without states, the tokens that each step reads anew
        assert (kept_bytes(made, pixels=9) == 10 * 8) != keeps_states
        features = made.model.model.features

        def recorded(tokens, *given, features=features, **options):
            lengths.append(tokens.shape[1])
            return features(tokens, *given, **options)

        monkeypatch.setattr(made.model.model, "features", recorded)
        torch.manual_seed(5)
        drawn.append(draw(made, pixels=9, images=3))
    assert drawn[0] == drawn[1] and all(len(tokens) == 10 for tokens in drawn[0])
    # the line's beginning and each pixel
    assert lengths == [*([1] * 10), *range(1, 11)]

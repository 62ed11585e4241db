"""Contestants generate what their models say, and keep what they claim to keep."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from benchmarks.generation import token_cost
from benchmarks.generation.decoders import (
    CachingTransformer,
    GraphedTransNormer,
    RecomputingTransNormer,
    StatefulTransNormer,
)
from benchmarks.generation.image_generation import draw
from benchmarks.generation.pixel_models import SYSTEMS, generator
from benchmarks.harness.language_models import build_transformer, build_transnormer

SIZE = dict(width=32, heads=4, layers=2, vocabulary=60)
LENGTH, STEPS = 70, 3


@pytest.fixture
def tokens():
    return torch.randint(4, SIZE["vocabulary"], (1, LENGTH + STEPS))


def assert_follows(decoder, tokens, expected):
    """expected: logits (1, N, V) of one plain pass over all tokens."""
    with torch.no_grad():
        logits = [decoder.prefill(tokens[:, :LENGTH])]
        logits += [decoder.step(token) for token in tokens[:, LENGTH:].split(1, 1)]
    torch.testing.assert_close(torch.cat(logits, 1), expected[:, LENGTH - 1 :])


@pytest.mark.parametrize("decoder", [StatefulTransNormer, RecomputingTransNormer])
def test_transnormer(decoder, tokens):
    model = build_transnormer(**SIZE)
    with torch.no_grad():
        assert_follows(decoder(model), tokens, model(tokens))


# ops whose result or whose result's shape the CPU must know
WAITS = ("_local_scalar_dense", "nonzero", "equal", "masked_select", "unique")


def addresses(decoder):
    return [x.data_ptr() for state in decoder.states for x in state if x is not None]


class Recorder(TorchDispatchMode):
    """What torch computes: each op with its shapes and numbers."""

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        shapes = tree_map_only(torch.Tensor, lambda x: tuple(x.shape), (args, kwargs))
        self.ops.append((str(op), repr(shapes)))
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("variant", ["T1", "T2"])
def test_steps_can_be_captured(variant, dtype, tokens):
    """All steps are the same ops, also where a block begins; none asks for a value."""
    model = build_transnormer(**SIZE, variant=variant).to(dtype)
    decoder = GraphedTransNormer(model)
    recorded = []
    with torch.no_grad():
        StatefulTransNormer.prefill(decoder, tokens[:, :62])
        places = addresses(decoder)
        for token in tokens[:, 62:67].split(1, 1):
            with Recorder() as recorder:
                logits = decoder.step_in_place(token)
            recorded.append(recorder.ops)
        after = addresses(decoder)
        expected = model(tokens[:, :67])[:, -1:]
    assert recorded[0] and all(ops == recorded[0] for ops in recorded[1:])
    assert not [op for op, _ in recorded[0] if any(name in op for name in WAITS)]
    assert after == places
    if dtype == torch.float32:
        torch.testing.assert_close(logits, expected)


def test_transformer(tokens):
    model = build_transformer(**SIZE, max_positions=100)
    with torch.no_grad():
        expected = model(tokens)[0]
        assert_follows(CachingTransformer(model), tokens, expected)
        last = CachingTransformer(model).prefill_without_cache(tokens)
    torch.testing.assert_close(last, expected[:, -1:])


def test_kept_bytes(tokens):
    transformer = CachingTransformer(build_transformer(**SIZE, max_positions=100))
    ours = StatefulTransNormer(build_transnormer(**SIZE))
    kept = []
    with torch.no_grad():
        for length in (10, 20):
            transformer.prefill(tokens[:, :length])
            ours.prefill(tokens[:, :length])
            kept.append(ours.kept_bytes())
            # keys and values, 2 layers of width 32, float32
            assert transformer.kept_bytes() == 2 * 2 * 32 * 4 * length
            by_steps = transformer.kept_bytes()
            transformer.set_context(tokens[:, :length])
            assert transformer.kept_bytes() == by_steps
    # a block of 64 keys and values, 4 heads' 8 x 8 sums, float32; two int64 lengths
    assert kept == [2 * 64 * 32 * 4 + 4 * 8 * 8 * 4 + 2 * 8] * 2


def test_a_filled_cache_has_the_prompt(tokens):
    """The position of the next token and the length of the cache are the same."""
    filled, stepped = (
        CachingTransformer(build_transformer(**SIZE, max_positions=100))
        for _ in range(2)
    )
    with torch.no_grad():
        filled.set_context(tokens[:, :20])
        stepped.prefill(tokens[:, :20])
        for decoder in (filled, stepped):
            decoder.step(tokens[:, 20:21])
    assert filled.context.equal(stepped.context)
    assert filled.kept_bytes() == stepped.kept_bytes()


def test_models_have_the_paper_sizes_layers():
    """Specification, parameter counts: 3,150,602 and 3,152,384 in each layer."""
    vocabulary, layers = 100, 2
    ours = build_transnormer(512, 8, layers, vocabulary)
    peer = build_transformer(512, 8, layers, vocabulary, 64)
    embedding = vocabulary * 512
    assert sum(p.numel() for p in ours.parameters()) == embedding + layers * 3150602
    # and a final LayerNorm
    assert (
        sum(p.numel() for p in peer.parameters())
        == embedding + layers * 3152384 + 2 * 512
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_images_are_those_of_the_states(system, monkeypatch):
    sizes = {"width": 16, "heads": 2, "layers": 2, "levels": 6}
    options = SimpleNamespace(**sizes, device=torch.device("cpu"))
    drawn, lengths = [], []
    for keeps_states in (True, False):
        torch.manual_seed(3)
        made = generator(options, system, keeps_states)
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


OPTIONS = SimpleNamespace(
    width=32, heads=4, layers=2, vocabulary=60, contexts=[70], tokens=3,
    least_repeats=2, most_repeats=2, device=torch.device("cpu"),
)  # fmt: skip


def test_texts_go_on_as_without_a_cache():
    models = token_cost.build_models(OPTIONS)
    prompt = torch.randint(4, 60, (1, 70))
    texts = token_cost.texts(models, prompt, OPTIONS)
    for name, text in texts.items():
        for _ in range(2):
            text.write(3)
        assert text.tokens.shape == (1, 76)
        with torch.no_grad():
            logits = text.model(text.tokens, use_cache=False).logits
        # the special tokens below 4 are never written by ours
        for at in range(70, 76):
            left_out = {0, 1, 2, 3} if name == token_cost.OURS else {2}
            scores = logits[0, at - 1].clone()
            scores[list(left_out)] = -torch.inf
            assert text.tokens[0, at] == scores.argmax(), (name, at)
    kept = {name: token_cost.kept_bytes(text.cache) for name, text in texts.items()}
    # a key and a value of 32 float32 in each of 2 layers: 75 tokens, and room for 79
    assert kept[token_cost.DEFAULT] == 75 * 2 * 2 * 32 * 4
    assert kept[token_cost.STATIC] == 79 * 2 * 2 * 32 * 4
    # of a Diag layer a block, of a Norm layer 4 heads of 2 x 8 x 8, whatever the text
    longer = token_cost.texts(models, torch.cat((prompt, prompt), 1), OPTIONS)
    assert token_cost.kept_bytes(longer[token_cost.OURS].cache) == kept[token_cost.OURS]

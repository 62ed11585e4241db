"""The bidirectional models behind fairseq's encoder interface, and their heads."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_REGISTRY
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from omegaconf import OmegaConf

from tests.messages import assert_names

from .building import BASELINES, dictionary, draw_tokens, task, tiny_encoder

variants = pytest.mark.parametrize("variant", ["t1", "t2", *BASELINES])


@variants
@torch.no_grad()
def test_outputs(variant):
    model, tokens = tiny_encoder(variant), draw_tokens(2, 11)
    logits, extra = model(tokens)
    assert logits.shape == (2, 11, len(task().dictionary))
    if hasattr(model.encoder, "model"):
        assert torch.equal(logits, model.encoder.model(tokens))
    assert extra["inner_states"] is None
    features, extra = model(tokens, features_only=True, return_all_hiddens=True)
    assert features.shape == (2, 11, 32)
    assert [h.shape for h in extra["inner_states"]] == [(11, 2, 32)] * 3
    assert torch.equal(extra["inner_states"][-1].transpose(0, 1), features)
    assert model.max_positions() == 512 and model.supported_targets == {"self"}


@variants
@torch.no_grad()
def test_classification_heads(variant, caplog):
    model, tokens = tiny_encoder(variant), draw_tokens(2, 9)
    model.register_classification_head("three", num_classes=3)
    model.register_classification_head("narrow", num_classes=2, inner_dim=5)
    scores, _ = model(tokens, classification_head_name="three")
    assert scores.shape == (2, 3)
    head = model.classification_heads["three"]
    first = model(tokens, features_only=True)[0][:, 0]
    expected = head.out_proj(torch.tanh(head.dense(first)))
    torch.testing.assert_close(scores, expected)
    assert model.classification_heads["narrow"].dense.out_features == 5
    assert not caplog.records
    model.register_classification_head("three", num_classes=4)
    assert_names(caplog.text, "'three'", "replaced")
    assert model(tokens, classification_head_name="three")[0].shape == (2, 4)


def with_head(*sizes, **changes):
    model = tiny_encoder("t2", **changes)
    for name, num_classes, inner_dim in sizes:
        model.register_classification_head(name, num_classes, inner_dim)
    return model


def head_weights(model):
    return {
        key: value.clone()
        for key, value in model.state_dict().items()
        if key.startswith("classification_heads.")
    }


def test_a_head_of_the_same_name_and_size_is_loaded():
    saved, model = with_head(("a", 3, 8)), with_head(("a", 3, 8))
    model.load_state_dict(saved.state_dict(), strict=True)
    for key, value in head_weights(model).items():
        assert torch.equal(value, head_weights(saved)[key])


@pytest.mark.parametrize("sizes", [(2, 8), (3, 9)], ids=["classes", "inner width"])
def test_a_head_of_another_size_keeps_its_fresh_weights(sizes, caplog):
    saved, model = with_head(("a", 3, 8)), with_head(("a", *sizes))
    fresh = head_weights(model)
    model.load_state_dict(saved.state_dict(), strict=True)
    here, there = ((f"num_classes={n}", f"inner_dim={m}") for n, m in (sizes, (3, 8)))
    assert_names(caplog.text, "'a'", "dropped", *here, *there)
    for key, value in head_weights(model).items():
        assert torch.equal(value, fresh[key])
    tokens = draw_tokens(1, 5)
    assert torch.equal(model(tokens)[0], saved(tokens)[0])


def test_heads_that_the_model_lacks_are_dropped_or_added(caplog):
    saved = with_head(("a", 3, 8), ("b", 2, None))
    model = with_head()
    model.load_state_dict(saved.state_dict(), strict=True)
    assert not model.classification_heads
    for head, sizes in {"'a'": (3, 8), "'b'": (2, model.cfg.embed_dim)}.items():
        line = next(line for line in caplog.messages if head in line)
        of_head = [f"num_classes={sizes[0]}", f"inner_dim={sizes[1]}"]
        assert_names(line, head, "dropped", *of_head, "none")
    model = with_head(load_checkpoint_heads=True)
    model.load_state_dict(saved.state_dict(), strict=True)
    assert set(model.classification_heads) == {"a", "b"}
    for key, value in head_weights(saved).items():
        assert torch.equal(head_weights(model)[key], value)


@pytest.mark.parametrize("name", ["transnormer_t2", "vanilla_transformer", "performer"])
@torch.no_grad()
def test_from_pretrained(name, tmp_path):
    """A checkpoint as fairseq writes it, into RoBERTa's hub interface."""
    name = f"roberta_{name}_tiny"
    words = dictionary()
    words.save(str(tmp_path / "dict.txt"))
    words.add_symbol("<mask>")
    line = [str(tmp_path), "--task", "masked_lm", "--arch", name]
    args = options.parse_args_and_arch(options.get_training_parser(), line)
    cfg = convert_namespace_to_omegaconf(args)
    saved = MODEL_REGISTRY[name].build_model(
        cfg.model,
        SimpleNamespace(source_dictionary=words, target_dictionary=words),
    )
    saved.register_classification_head("a", 3, 8)
    saved.eval()
    state = {
        "cfg": OmegaConf.to_container(cfg),
        "model": saved.state_dict(),
        "optimizer_history": [{"best_loss": 1.0}],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    checkpoint_utils.torch_persistent_save(state, str(tmp_path / "model.pt"))
    hub = MODEL_REGISTRY[name].from_pretrained(
        str(tmp_path), "model.pt", str(tmp_path), bpe=None
    )
    assert isinstance(hub, RobertaHubInterface)
    tokens = draw_tokens(2, 9)
    expected = saved(tokens, features_only=True)[0]
    torch.testing.assert_close(hub.eval().extract_features(tokens), expected)
    states = hub.extract_features(tokens, return_all_hiddens=True)
    assert len(states) == 3
    torch.testing.assert_close(states[-1], expected)
    scores = hub.predict("a", tokens, return_logits=True)
    expected, _ = saved(tokens, classification_head_name="a")
    torch.testing.assert_close(scores, expected)

"""Recomputing layers in the backward pass changes memory and nothing else."""

import pytest
import torch

from .building import draw_tokens, language_model, masked_language_model


@pytest.mark.parametrize(
    ("build", "dropout", "variant"),
    [(language_model, 0.0, "t1"), (language_model, 0.3, "t2")]
    + [(masked_language_model, 0.3, "t1"), (masked_language_model, 0.0, "t2")],
)
def test_gradients_are_the_same(build, dropout, variant):
    tokens = draw_tokens(2, 20)
    tokens[1, :6] = 1
    results = []
    for recompute in (False, True):
        torch.manual_seed(3)
        model = build(
            variant,
            checkpoint_activations=recompute,
            dropout=dropout,
            attention_dropout=dropout,
        ).train()
        torch.manual_seed(4)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, saved=saved: saved.append(x) or x, lambda x: x
        ):
            logits = model(tokens)
        logits.square().sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append((logits, *gradients, len(saved)))
    *plain, kept_plain = results[0]
    *recomputed, kept_recomputed = results[1]
    for one, other in zip(plain, recomputed, strict=True):
        torch.testing.assert_close(one, other)
    assert kept_recomputed < kept_plain / 2


def test_states_pass_through():
    model = language_model("t2", checkpoint_activations=True).train()
    tokens = draw_tokens(2, 13)
    first, states = model(tokens[:, :9], return_states=True)
    second, _ = model(tokens[:, 9:], states, return_states=True)
    torch.testing.assert_close(torch.cat((first, second), 1), model(tokens))
    second.sum().backward()


@pytest.mark.parametrize("types", ["norm", "diag", "linear", "flash"])
def test_a_step_after_states_with_frozen_attentions(types):
    """A step in place, done again in the backward pass, would add its token twice."""
    tokens, found = draw_tokens(2, 6), []
    torch.manual_seed(3)
    model = language_model("t2", attention_types=types, flash_chunk_size=2).train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("out_proj" in name or "feed_forward" in name)
    for recompute in (False, True):
        model.stack.checkpoint_activations = recompute
        model.zero_grad()
        with torch.no_grad():
            _, states = model(tokens[:, :5], return_states=True)
        logits, states = model(tokens[:, 5:], states, return_states=True)
        before = [t.clone() for t in states[0] if t is not None]
        logits.square().sum().backward()
        torch.testing.assert_close([t for t in states[0] if t is not None], before)
        trained = [p.grad for p in model.parameters() if p.requires_grad]
        found.append((logits, *(each.clone() for each in trained)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("create_graph", [False, True])
def test_first_derivatives_with_a_graph(create_graph):
    """As a gradient penalty asks for them: what was saved is unpacked once."""
    tokens, found = draw_tokens(2, 20), []
    for recompute in (False, True):
        torch.manual_seed(3)
        model = language_model("t2", checkpoint_activations=recompute).train()
        parameters = [p for p in model.parameters() if p.requires_grad]
        loss = model(tokens).square().sum()
        found.append(torch.autograd.grad(loss, parameters, create_graph=create_graph))
    torch.testing.assert_close(*found)

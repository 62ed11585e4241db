"""Logits, losses and hidden states are those of the model in fairseq."""

import copy

import pytest
import torch
import torch.nn.functional as F

from tests.messages import refuses
from tests.zoo import CAUSAL, ENCODERS

from .loading import LOAD, WITH_HEADS, classifier, features_of, masked, padded, rows

LENGTHS = (9, 21, 1, 14)
# rounding; a step of bfloat16 between 4 and 8 is 0.03
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 0.04}
CLOSE = {"rtol": 0, "atol": 2e-6}


def alone(model, row):
    """fairseq's logits for a row by itself."""
    with torch.no_grad():
        return model(row[None])[0][0].float()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", LOAD)
def test_padding_changes_nothing(name, dtype, exports):
    model = LOAD[name](exports[name].folder, dtype=dtype, device_map="cpu")
    assert model.dtype == dtype and not model.training
    given, fairseqs = rows(*LENGTHS), copy.deepcopy(exports[name].model).to(dtype)
    expected = [alone(fairseqs, row) for row in given]
    largest = 0.0
    for side in ("left", "right"):
        tokens, mask = padded(given, side)
        # what stands at pads does not matter
        tokens[mask == 0] = 7
        with torch.no_grad():
            found = model(input_ids=tokens, attention_mask=mask).logits.float()
        for row, where, right in zip(found, mask.bool(), expected, strict=True):
            largest = max(largest, (row[where] - right).abs().max().item())
    print(
        f"{name}, {dtype}: {largest:.1e} of {max(e.abs().max() for e in expected):.1f}"
    )
    assert largest < TOLERANCES[dtype]


@pytest.mark.parametrize("name", ["classifier", "regression"])
def test_classifier(name, exports):
    folder, fairseqs = exports[name].folder, exports[name].model
    model = classifier(folder)
    given = rows(*LENGTHS)
    head = {"classification_head_name": "sentence_classification_head"}
    with torch.no_grad():
        expected = [
            fairseqs(row[None], features_only=True, **head)[0][0] for row in given
        ]
        for side in ("left", "right"):
            tokens, mask = padded(given, side)
            found = model(input_ids=tokens, attention_mask=mask).logits
            torch.testing.assert_close(found, torch.stack(expected), **CLOSE)
    labels = {"classifier": ["no", "yes", "maybe"], "regression": ["LABEL_0"]}[name]
    assert list(model.config.id2label.values()) == labels
    targets = torch.tensor([1, 0, 2, 1]) if name == "classifier" else torch.rand(4)
    loss = model(input_ids=tokens, attention_mask=mask, labels=targets).loss
    by_hand = (
        F.cross_entropy(found.double(), targets)
        if name == "classifier"
        else (found[:, 0].double() - targets).square().mean()
    )
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


@pytest.mark.parametrize("name", LOAD)
def test_loss(name, exports):
    """The mean over targets that count, or their sum over a given number."""
    model = LOAD[name](exports[name].folder)
    tokens, mask = padded(rows(*LENGTHS), "right")
    labels = tokens.masked_fill(mask == 0, -100)
    labels[1, 3:8] = -100
    with torch.no_grad():
        logits = exports[name].model(tokens)[0].double()
    if name in CAUSAL:
        logits, targets = logits[:, :-1], labels[:, 1:]
    else:
        targets = labels
    scores = logits.log_softmax(-1)[targets >= 0]
    each = -scores.gather(1, targets[targets >= 0][:, None])
    given = {"input_ids": tokens, "attention_mask": mask, "labels": labels}
    assert model(**given).loss.item() == pytest.approx(each.mean().item(), rel=1e-5)
    loss = model(**given, num_items_in_batch=1000).loss
    assert loss.item() == pytest.approx(each.sum().item() / 1000, rel=1e-5)
    # nothing is predicted at pads, also in front of a row
    losses = []
    for side in ("left", "right"):
        moved, mask = padded(
            [row[:n] for row, n in zip(tokens, LENGTHS, strict=True)], side
        )
        labels = moved.masked_fill(mask == 0, -100)
        losses.append(model(moved, mask, labels=labels).loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("name", LOAD)
def test_hidden_states(name, exports):
    model = LOAD[name](exports[name].folder)
    (row,) = rows(17)
    with torch.no_grad():
        found = model(row[None], output_hidden_states=True).hidden_states
        _, extra = exports[name].model(row[None], return_all_hiddens=True)
    assert len(found) == len(extra["inner_states"]) == 3
    for ours, theirs in zip(found[:-1], extra["inner_states"][:-1], strict=True):
        torch.testing.assert_close(ours, theirs.transpose(0, 1), **CLOSE)
    # the last as in Llama: after the final norm, what the output layer sees
    with torch.no_grad():
        expected = exports[name].model(row[None], features_only=True)[0]
    torch.testing.assert_close(found[-1], expected, **CLOSE)
    (logits, *_) = model(row[None], return_dict=False)
    assert logits.shape == (1, 17, model.config.vocab_size)


@pytest.mark.parametrize("name", [CAUSAL[0], ENCODERS[0], "classifier"])
def test_features(name, exports, tmp_path):
    """Those of fairseq's model, of rows by themselves; what is saved is whole."""
    model = features_of(exports[name].folder)
    given = rows(*LENGTHS)
    for side in ("left", "right"):
        tokens, mask = padded(given, side)
        with torch.no_grad():
            found = model(tokens, mask).last_hidden_state
            for row, each, where in zip(given, found, mask.bool(), strict=True):
                expected = exports[name].model(row[None], features_only=True)[0][0]
                torch.testing.assert_close(each[where], expected, **CLOSE)
    assert len(model(tokens, mask, output_hidden_states=True).hidden_states) == 3
    model.save_pretrained(tmp_path)
    whole = LOAD.get(name, masked)
    again = whole(tmp_path)
    expected = whole(exports[name].folder)(tokens, mask).logits
    assert torch.equal(again(tokens, mask).logits, expected)


def test_a_classifier_without_its_head(exports, hf):
    """The masked-LM head of a fine-tuned encoder."""
    model = hf.TransNormerForMaskedLM.from_pretrained(exports["classifier"].folder)
    (row,) = rows(17)
    with torch.no_grad():
        expected = exports["classifier"].model(row[None])[0]
        torch.testing.assert_close(model(row[None]).logits, expected, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", [CAUSAL[0], ENCODERS[1], "classifier"])
def test_embeddings_in_place_of_tokens(name, exports):
    """As PEFT gives them, beside the inputs of other models without a value."""
    for load in (WITH_HEADS[name], features_of):
        model = load(exports[name].folder)
        others = dict.fromkeys(("inputs_embeds", "position_ids", "token_type_ids"))
        for side in ("left", "right"):
            tokens, mask = padded(rows(*LENGTHS), side)
            expected = model(tokens, mask, **others)[0]
            embedded = model.get_input_embeddings()(tokens)
            embedded[mask == 0] = 7.0
            found = model(inputs_embeds=embedded, attention_mask=mask)[0]
            real = slice(None) if expected.dim() == 2 else mask.bool()
            torch.testing.assert_close(found[real], expected[real], **CLOSE)
        with refuses(ValueError, "input_ids and inputs_embeds", alone=True):
            model(tokens, inputs_embeds=embedded)
        with refuses(ValueError, "inputs_embeds", (4, 21), alone=True):
            model(inputs_embeds=embedded[..., 0])
        for other in ("position_ids", "token_type_ids"):
            with refuses(ValueError, f"{other}=tensor", "None", alone=True):
                model(tokens, mask, **{other: torch.zeros_like(tokens)})


@pytest.mark.parametrize("name", [CAUSAL[0], "classifier"])
def test_a_whole_model_is_one_graph(name, exports):
    """As the plain model is, on a CPU, too, where tokens are looked at otherwise."""
    model = WITH_HEADS[name](exports[name].folder)
    model.config.use_cache = False  # what is exported returns tensors
    tokens, mask = padded(rows(*LENGTHS), "right")
    torch._dynamo.reset()
    found = torch.compile(model, backend="eager", fullgraph=True)
    if name == "classifier":
        found = torch.export.export(model, (tokens, mask)).module()
    real = slice(None) if name == "classifier" else mask.bool()
    with torch.no_grad():
        found, expected = (x(tokens, mask)["logits"][real] for x in (found, model))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

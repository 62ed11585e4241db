"""Vanilla is fairseq's transformer: equal outputs, and its checkpoints of before."""

import copy

import fairseq.modules
import pytest
import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils
from fairseq.models import MODEL_DATACLASS_REGISTRY

from fairseq_transnormer.checkpoints.fairseq_vanilla import AVERAGES, convert, renamed
from fairseq_transnormer.checkpoints.safe_loading import read_checkpoint
from tests.checkpoints.writing import write_checkpoint
from tests.messages import refuses

from .building import build, dictionary, draw_tokens
from .fairseq_transformers import fairseq_model, layers_of

PAD = dictionary().pad()
NAMES = ("vanilla_transformer_tiny", "roberta_vanilla_transformer_tiny")
OTHERS = {
    "ffn_activation": "gelu", "norm_position": "post", "untie_output_embedding": True
}  # fmt: skip
names = pytest.mark.parametrize("name", NAMES)


def both(name, **changes):
    """fairseq's model and ours, of the same random weights in float64."""
    theirs = fairseq_model(MODEL_DATACLASS_REGISTRY[name](**changes)).double()
    with torch.no_grad():
        for parameter in theirs.parameters():  # biases and norms, too
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours = build(name, **changes).double()
    weights = renamed(theirs.state_dict(), not changes.get("untie_output_embedding"))
    assert weights.keys() == ours.state_dict().keys()
    ours.load_state_dict(weights)
    return theirs, ours


def part(model):
    return model.decoder if hasattr(model, "decoder") else model.encoder


@names
@pytest.mark.parametrize(
    "changes",
    [
        *({}, OTHERS, {"norm_position": "pre"}),
        # one block for all of a text, as in Table 4's "Vanilla with LRPE"
        {"attention_types": "diag*2", "block_size": 32},
    ],
    ids=["defaults", "others", "pre", "diag"],
)
@torch.no_grad()
def test_fairseqs_layers_equal_ours(name, changes, monkeypatch):
    """... in float64, with pads in two rows of three; and the loss is theirs, too."""
    # fairseq's goes by way of float32
    monkeypatch.setattr(fairseq.modules, "gelu", F.gelu)
    if "roberta" not in name and changes:
        changes = changes | {"no_scale_embedding": True}
    theirs, ours = both(name, **changes)
    tokens = draw_tokens(3, 17)
    tokens[1, 9:] = tokens[2, -1] = PAD
    real = tokens.ne(PAD)
    expected, found = part(theirs)(tokens)[0][real], ours(tokens)[0][real]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    targets = torch.where(real, draw_tokens(3, 17), PAD)
    total, _ = ours(tokens, targets=targets)[0]
    losses = F.cross_entropy(expected, targets[real], reduction="sum")
    torch.testing.assert_close(total, losses, rtol=1e-10, atol=1e-10)


def saved(name, steps=2, flat=False, **changes):
    """A checkpoint of before in the middle of a training, and the model one step on."""
    theirs, ours = both(name, **changes)
    (optimizer, _), tokens = adam(theirs, flat), draw_tokens(4, 11)
    for _ in range(steps):
        step(theirs, optimizer, tokens, flat)
    cfg = vars(MODEL_DATACLASS_REGISTRY[name](**changes))
    cfg = {k: v for k, v in cfg.items() if k != "attention_types"}
    state = {
        "cfg": {"model": {**cfg, "_name": name, "num_layers": 2}},
        "model": copy.deepcopy(theirs.state_dict()),
        "last_optimizer_state": copy.deepcopy(optimizer.state_dict()),
        "extra_state": dict.fromkeys(AVERAGES, copy.deepcopy(theirs.state_dict())),
    }
    weights = [p.detach().flatten().clone() for p in theirs.parameters()]
    state["last_optimizer_state"]["fp32_weights"] = (
        [torch.cat(weights)] if flat else weights
    )
    step(theirs, optimizer, tokens, flat)
    return state, theirs, ours, tokens


def adam(model, flat):
    """Adam of a model's parameters, or of one tensor of all, as fairseq has it."""
    parameters = list(model.parameters())
    if flat:
        parameters = [torch.nn.Parameter(torch.cat([p.flatten() for p in parameters]))]
    return torch.optim.Adam(parameters, lr=0.01), parameters


def step(model, optimizer, tokens, flat):
    model.zero_grad()
    part(model)(tokens)[0].square().sum().backward()
    (group,) = optimizer.param_groups
    parameters = list(model.parameters())
    if not flat:
        optimizer.step()
        return
    (whole,) = group["params"]
    whole.grad = torch.cat([p.grad.flatten() for p in parameters])
    whole.data = torch.cat([p.detach().flatten() for p in parameters])
    optimizer.step()
    parts = whole.detach().split([p.numel() for p in parameters])
    for p, new in zip(parameters, parts, strict=True):
        p.data.copy_(new.view_as(p))


@names
@pytest.mark.parametrize("flat", [False, True])
def test_a_training_of_before_goes_on(name, flat):
    """Its weights, averages and sums of gradients are each where they belong."""
    state, theirs, ours, tokens = saved(name, flat=flat)
    convert(state)
    assert state["cfg"]["model"]["attention_types"] == "softmax*2"
    assert layers_of(MODEL_DATACLASS_REGISTRY[name](attention_types="softmax*2")) == 2
    ours.load_state_dict(state["model"])
    for average in AVERAGES:
        assert state["extra_state"][average].keys() == state["model"].keys()
    saved_weights = state["last_optimizer_state"].pop("fp32_weights")
    own = [p.detach().flatten() for p in ours.parameters()]
    assert torch.equal(torch.cat(saved_weights), torch.cat(own))
    optimizer, _ = adam(ours, flat)
    optimizer.load_state_dict(state["last_optimizer_state"])
    step(ours, optimizer, tokens, flat)
    expected = renamed(theirs.state_dict(), tied=True)
    for key, x in ours.state_dict().items():
        torch.testing.assert_close(x, expected[key], rtol=1e-6, atol=1e-7)


@names
def test_an_untied_output_layer_is_kept(name):
    state, _, ours, _ = saved(name, untie_output_embedding=True)
    convert(state)
    ours.load_state_dict(state["model"])
    assert state["extra_state"]["ema"].keys() == state["model"].keys()


def test_what_cannot_be_converted_is_refused():
    state, *_ = saved(NAMES[0])
    state["last_optimizer_state"]["param_groups"] *= 2
    with refuses(ValueError, "optimizer"):
        convert(state)
    state, *_ = saved(NAMES[0], flat=True)
    sums = state["last_optimizer_state"]["state"][0]
    sums["exp_avg"] = sums["exp_avg"][1:]
    with refuses(ValueError, "optimizer"):
        convert(state)
    # RoBERTa's head has the feed-forward network's activation, and ours gelu
    state, *_ = saved(NAMES[1])
    state["cfg"]["model"]["ffn_activation"] = "relu"
    with refuses(ValueError, "ffn_activation='relu'", "gelu"):
        convert(state)


@names
@torch.no_grad()
def test_a_file_of_before_gives_the_same_logits(name, tmp_path):
    """By fairseq's loader and by ours."""
    write_checkpoint(tmp_path / "model.pt", name)
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    cfg = MODEL_DATACLASS_REGISTRY[name]()
    words = dictionary(len(next(iter(state["model"].values()))) - 4)
    theirs = fairseq_model(cfg, words)
    heads = {k: x for k, x in state["model"].items() if "classification" in k}
    state["model"] = {**theirs.state_dict(), **heads}
    del state["cfg"]["model"]["attention_types"]
    state["cfg"]["model"]["num_layers"] = 2
    history = {"num_updates": 7, "lr_scheduler_state": {}}
    state |= {"optimizer_history": [history], "last_optimizer_state": None}
    state |= {"extra_state": {"epoch": 1, "train_iterator": {}}}
    torch.save(state, tmp_path / "model.pt")
    tokens = draw_tokens(2, 9)
    expected = part(theirs)(tokens)[0]
    for read in (read_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        state = read(str(tmp_path / "model.pt"))
        assert state["cfg"]["model"]["attention_types"] == "softmax*2"
        ours = build(name)
        ours.load_state_dict(state["model"])
        found = ours(tokens)[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

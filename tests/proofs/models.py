"""Every system with weights that follow from their names: logits, gradients, counts."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from types import SimpleNamespace

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from torch import Tensor, nn

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from fairseq_transnormer.checkpoints.fairseq_vanilla import renamed
from fairseq_transnormer.modules.systems import SYSTEMS
from tests.binary_data import numbered_words
from tests.models.fairseq_transformers import fairseq_model

ARCHITECTURES = {
    system.architecture_of(kind): (system, kind)
    for system in SYSTEMS.values()
    for kind in system.kinds
}
SMALL = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 40, "block_size": 8}
SMALL |= {"linformer_length": 192, "flash_key_dim": 16, "flash_chunk_size": 8}
WORDS = 26
# an arena's texts are longer than the landmarks and samples of its systems
LENGTHS = {"alm": 20, "blm": 20, "lra": 150}
# the paper's: WikiText-103 by words, GPT-2's pieces, an arena's symbols
VOCABULARIES = {"alm": 267_744, "blm": 50_265, "lra": 260}
SPECIAL = 4  # symbols of fairseq in each dictionary
words = functools.cache(numbered_words)  # a second for the largest


def build(name: str, dictionary, **changes) -> nn.Module:
    """An architecture of fairseq's registry, as its command builds it."""
    task = SimpleNamespace(
        source_dictionary=dictionary,
        target_dictionary=dictionary,
        dictionary=dictionary,
        vocabulary_size=len(dictionary),
        num_classes=2,
        num_sequences=1,
    )
    config = MODEL_DATACLASS_REGISTRY[name](**changes)
    return MODEL_REGISTRY[name].build_model(config, task)


def small(name: str) -> nn.Module:
    """Two layers, fixed weights."""
    system, kind = ARCHITECTURES[name]
    changes = SMALL | {"attention_types": system.attention_types(2)}
    torch.manual_seed(0)
    model = build(name, numbered_words(WORDS), **changes)
    made_of_fairseqs = system.name == "vanilla" and kind != "lra"
    fill(model, names_of_fairseq(name, **changes) if made_of_fairseqs else {})
    return model


def names_of_fairseq(name: str, **changes) -> dict[str, str]:
    """Our names of vanilla's weights -> fairseq's, whose modules it was made of."""
    theirs = fairseq_model(MODEL_DATACLASS_REGISTRY[name](**changes))
    return renamed({key: key for key in theirs.state_dict()}, tied=True)


@torch.no_grad()
def fill(model: nn.Module, names: Mapping[str, str]) -> None:
    """Weights that follow from their names, whatever drew them before.

    names: of weights that had other names when the values were frozen.
    """
    for name, parameter in model.named_parameters():
        name = names.get(name, name)
        if name.endswith("theta"):
            continue  # angles as they are defined
        digest = hashlib.sha256(name.encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
        drawn = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            drawn *= parameter.shape[-1] ** -0.5
        elif name.endswith("weight"):
            drawn = 1 + 0.1 * drawn
        else:
            drawn *= 0.1
        parameter.copy_(drawn)


def inputs(length: int) -> tuple[Tensor, Tensor]:
    """Tokens of two rows, the second of them with pads, and their lengths."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, WORDS, (2, length), generator=generator)
    lengths = torch.tensor([length, length - 5])
    tokens[1, length - 5 :] = 1
    return tokens, lengths


def values_of(name: str) -> dict[str, object]:
    """Some logits in evaluation, and the norm of the gradients of a loss."""
    model, (_, kind) = small(name).eval(), ARCHITECTURES[name]
    tokens, lengths = inputs(LENGTHS[kind])
    torch.manual_seed(0)  # of those that draw: Performer's features, LSH
    if kind == "lra":
        output = model((tokens,), (lengths,))
    else:
        output = model(tokens, src_lengths=lengths)
    logits = (output[0] if isinstance(output, tuple) else output).float()
    rows = logits if kind == "lra" else logits[tokens != 1]
    rows.logsumexp(-1).square().mean().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.stack([g.norm() for g in gradients]).norm()
    some = rows.detach().flatten()[:: max(1, rows.numel() // 8)][:8]
    return {
        "logits": [round(x, 6) for x in some.tolist()],
        "norm": round(float(rows.detach().norm()), 5),
        "gradients": round(float(norm), 5),
    }


def count(name: str) -> int:
    """Parameters at the paper's size, without memory."""
    _, kind = ARCHITECTURES[name]
    with torch.device("meta"):
        model = build(name, words(VOCABULARIES[kind] - SPECIAL))
    return sum(p.numel() for p in model.parameters())

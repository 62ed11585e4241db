"""Convert checkpoints of vanilla transformers that used fairseq's own modules.

``vanilla_transformer`` was fairseq's decoder and ``roberta_vanilla_transformer`` its
RoBERTa encoder, with other names for the same weights. They are converted to the form
of this package's modules when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

# theirs -> ours, one after the other
RENAMED = {
    "encoder.": "encoder.model.",
    "decoder.": "decoder.model.",
    "model.sentence_encoder.": "model.",
    "model.layernorm_embedding.": "model.embed_norm.",
    "model.layer_norm.": "model.stack.final_norm.",
    "model.layers.": "model.stack.layers.",
    ".self_attn.": ".attention.",
    ".self_attn_layer_norm.": ".attention_norm.",
    ".final_layer_norm.": ".feed_forward_norm.",
    ".fc1.": ".feed_forward.in_proj.",
    ".fc2.": ".feed_forward.out_proj.",
}
# the length of their table of sinusoids, and a mark for readers of older files
NO_WEIGHTS = ("_float_tensor", ".version")
ARCHITECTURES = tuple(
    f"{prefix}vanilla_transformer{size}"
    for prefix in ("", "roberta_")
    for size in ("", "_tiny")
)
# of weights by name: the model's, and its moving averages
AVERAGES = ("ema", "ema_fp32_params")
FP32_WEIGHTS = "fp32_weights"


def convert(state: MutableMapping[str, Any]) -> None:
    """Convert a checkpoint, in place, to this package's modules, if needed.

    Raises:
        ValueError: our modules compute something else, or the form of the optimizer's
            state is unknown.
    """
    model = (state.get("cfg") or {}).get("model")
    if not isinstance(model, MutableMapping) or "num_layers" not in model:
        return
    if model.get("_name") not in ARCHITECTURES:
        return
    activation = str(model.get("ffn_activation", "gelu"))
    if model["_name"].startswith("roberta") and activation != "gelu":
        raise ValueError(
            f"a masked model with ffn_activation={activation!r}, also in the masked-LM "
            "head; allowed: gelu, the activation of this package's head"
        )
    model["attention_types"] = f"softmax*{model.pop('num_layers')}"
    weights, tied = state["model"], not model.get("untie_output_embedding")
    if state.get("last_optimizer_state"):
        parameters = _parameters(weights, tied)
        _reorder_optimizer(state["last_optimizer_state"], parameters)
    state["model"] = renamed(weights, tied)
    extra_state = state.get("extra_state") or {}
    for name in AVERAGES:
        if extra_state.get(name):
            extra_state[name] = renamed(extra_state[name], tied)


def renamed(weights: Mapping[str, Any], tied: bool) -> dict[str, Any]:
    """fairseq's weights under our names; classification heads keep theirs.

    tied: whether the output layer has the embedding's matrix.
    """
    found = {}
    for name, weight in weights.items():
        if name.endswith(NO_WEIGHTS) or (tied and "output_projection" in name):
            continue
        if name.startswith(("encoder.", "decoder.")):
            for theirs, ours in RENAMED.items():
                name = name.replace(theirs, ours, 1)
        found[name] = weight
    return found


def _parameters(weights: Mapping[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """The parameters of the optimizer, in its order."""
    twice = ("output_projection.weight", "lm_head.weight") if tied else ()
    return {
        name: weight
        for name, weight in weights.items()
        if not name.endswith((*NO_WEIGHTS, *twice))
    }


def _reorder_optimizer(
    optimizer: MutableMapping[str, Any], parameters: Mapping[str, Tensor]
) -> None:
    """fairseq's attention has keys, values, queries; ours queries, keys, values."""
    order = list(range(len(parameters)))
    for i, name in enumerate(parameters):
        if name.endswith("self_attn.k_proj.weight"):
            order[i : i + 6] = [i + 4, i + 5, i, i + 1, i + 2, i + 3]
    sizes = [weight.numel() for weight in parameters.values()]
    state = optimizer.get("state")
    groups = optimizer.get("param_groups") or []
    held = [len(group["params"]) for group in groups]
    if not isinstance(state, Mapping) or held not in ([len(order)], [1]):
        raise ValueError("an optimizer's state of unknown form")
    saved = optimizer.get(FP32_WEIGHTS)
    if held == [1]:  # half precision: all in one tensor
        optimizer["state"] = {
            i: {key: _reorder_parts(x, sizes, order) for key, x in each.items()}
            for i, each in state.items()
        }
        if saved:
            optimizer[FP32_WEIGHTS] = [_reorder_parts(saved[0], sizes, order)]
        return
    optimizer["state"] = {j: state[i] for j, i in enumerate(order) if i in state}
    if saved:
        optimizer[FP32_WEIGHTS] = [saved[i] for i in order]


def _reorder_parts(x: Any, sizes: Sequence[int], order: Sequence[int]) -> Any:
    """Reorder a tensor of all parameters; counters are unchanged."""
    if not isinstance(x, Tensor) or x.dim() == 0:
        return x
    if x.numel() != sum(sizes):
        raise ValueError(
            f"an optimizer's state of {x.numel()} numbers, not {sum(sizes)}"
        )
    parts = x.flatten().split(list(sizes))
    return torch.cat([parts[i] for i in order]).view_as(x)

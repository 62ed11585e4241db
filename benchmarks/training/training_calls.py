"""The calls that ``training_step`` measures, for our models and for fairseq's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_transnormer.modules import CausalLanguageModel

from ..harness.mixed_precision import MasterAdam

if TYPE_CHECKING:
    from fairseq.models.transformer_lm import TransformerLanguageModel

    LanguageModel = CausalLanguageModel | TransformerLanguageModel


def features(model: LanguageModel, tokens: Tensor) -> Tensor:
    """int64 (B, N) -> (B, N, width), the input of the output layer."""
    if isinstance(model, CausalLanguageModel):
        return model.features(tokens)
    return model.decoder.extract_features(tokens, encoder_out=None)[0]


def logits(model: LanguageModel, tokens: Tensor) -> Tensor:
    """int64 (B, N) -> (B, N, vocabulary)."""
    if isinstance(model, CausalLanguageModel):
        return model(tokens)
    return model.decoder.output_layer(features(model, tokens))


class TrainingStep:
    """Forward, loss, backward and Adam's step of one model.

    The loss with the output layer is what fairseq's criterion cross_entropy computes: a
    sum, from a log-softmax in float32. Without it, the squared error of the features.

    Args:
        model: in training mode; its weights have the dtype that is measured.
        with_output: whether the step has the output layer.
    """

    def __init__(self, model: LanguageModel, *, with_output: bool):
        self.model, self.with_output = model, with_output
        self.optimizer = MasterAdam(model.parameters())

    def __call__(self, tokens: Tensor, target: Tensor) -> Tensor:
        """target: int64 (B, N), or float32 (B, N, width) without the output layer."""
        if self.with_output:
            # no name for the logits: they are to go as soon as they are not needed
            loss = F.nll_loss(
                F.log_softmax(
                    logits(self.model, tokens), dim=-1, dtype=torch.float32
                ).flatten(0, 1),
                target.flatten(),
                reduction="sum",
            )
        else:
            x = features(self.model, tokens).float()
            loss = F.mse_loss(x, target, reduction="sum")
        loss.backward()
        self.optimizer.step()
        # nothing is held between the steps but weights and Adam's sums
        self.optimizer.zero_grad()
        return loss.detach()


def layer_step(layer: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor):
    """Forward and backward of a layer: a call that gives all gradients.

    Args:
        layer: a module.
        x: its input; needs a gradient.
        grad: of its output.
    """
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    return lambda: torch.autograd.grad(layer(x), inputs, grad)


class VanillaLayer(torch.nn.Module):
    """The first layer of fairseq's transformer_lm as a function of x (N, B, C)."""

    def __init__(self, model: TransformerLanguageModel):
        super().__init__()
        self.layer = model.decoder.layers[0]
        self.buffered_future_mask = model.decoder.buffered_future_mask

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self_attn_mask=self.buffered_future_mask(x))[0]

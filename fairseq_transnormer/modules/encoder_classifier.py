"""A fine-tuned encoder: ``MaskedLanguageModel`` with a classification head.

Letters: B batch, N length, C width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.backend import accumulation_dtype
from .masked_language_model import MaskedLanguageModel
from .options import Choice, check_fields, described, probability


class Pooling(Choice, values=("first", "mean")):
    """The part of a row that a classification head reads."""


# by the names that fairseq has for them
HEAD_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_accurate": lambda x: F.gelu(x, approximate="tanh"),
    "linear": lambda x: x,
}


class HeadActivation(Choice, values=HEAD_ACTIVATIONS):
    """Activation between the two layers of a classification head."""


@dataclass
class HeadConfig:
    """A classification head. Field types are read, so they are not strings."""

    outputs: int = described(2, "classes; 1 for a regression", at_least=1)
    inner_dim: int = described(768, "width inside", at_least=1)
    pooling: Pooling = described(
        Pooling("first"), "its input: the first token, or the mean over all tokens"
    )
    activation: HeadActivation = described(
        HeadActivation("tanh"), "activation after the first layer"
    )
    dropout: float = probability(0.0, "dropout before both layers")
    regression: bool = described(False, "the output is a number")
    target_scale: float = described(
        1.0, "regression: what the numbers were divided by", above=0
    )

    def __post_init__(self) -> None:
        check_fields(self)


class ClassificationHead(nn.Module):
    """fairseq's head of RoBERTa, on the first token or on the mean.

    Args:
        config: its sizes.
        embed_dim: width of the features.
    """

    def __init__(self, config: HeadConfig, embed_dim: int):
        super().__init__()
        self.pooling, self.dropout = config.pooling, config.dropout
        self.activation = HEAD_ACTIVATIONS[str(config.activation)]
        self.dense = nn.Linear(embed_dim, config.inner_dim)
        self.out_proj = nn.Linear(config.inner_dim, config.outputs)

    def forward(self, features: Tensor, real: Tensor) -> Tensor:
        """Logits.

        Args:
            features: (B, N, C).
            real: bool (B, N), False at pads; at least one True in each row.

        Returns:
            (B, outputs).
        """
        if self.pooling == "mean":
            x = mean_over_tokens(features, real)[:, 0]
        else:
            x = first_token(features, real)
        x = self.dense(F.dropout(x, self.dropout, self.training))
        x = F.dropout(self.activation(x), self.dropout, self.training)
        return self.out_proj(x)


class EncoderClassifier(nn.Module):
    """An encoder and its classification head.

    Args:
        model: the encoder; its masked-LM head is not used.
        head: on top of it.
    """

    def __init__(self, model: MaskedLanguageModel, head: ClassificationHead):
        super().__init__()
        self.model, self.classifier = model, head

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, outputs) for int64 (B, N), with pads at any places."""
        real = tokens.ne(self.model.padding_idx)
        return self.classifier(self.model.features(tokens), real)

    if TYPE_CHECKING:
        __call__ = forward


def first_token(features: Tensor, real: Tensor) -> Tensor:
    """The features of each row's first real token.

    Args:
        features: (B, N, C).
        real: bool (B, N); a row without real tokens gives the token at 0.

    Returns:
        (B, C).
    """
    rows = torch.arange(len(features), device=features.device)
    return features[rows, real.to(torch.uint8).argmax(1)]


def mean_over_tokens(features: Tensor, real: Tensor) -> Tensor:
    """The mean of the features of real tokens, summed in at least float32.

    Args:
        features: (B, N, C); values at other tokens do not matter.
        real: bool (B, N); at least one True in each row.

    Returns:
        (B, 1, C), which fairseq's heads read as a sentence of one token.
    """
    kept = features.masked_fill(~real.unsqueeze(-1), 0)
    # a sum over thousands of tokens: not in half precision
    total = kept.sum(1, keepdim=True, dtype=accumulation_dtype(features.dtype))
    mean = total / real.sum(1)[:, None, None]
    return mean.to(features.dtype)

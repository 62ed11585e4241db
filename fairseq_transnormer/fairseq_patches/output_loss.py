"""The loss of fairseq's own models inside their forward pass, as ours have it.

A criterion that took the output layer's weight would use it outside of the module that
DDP, FSDP and hooks know. So ``model(tokens, targets=...)`` returns, instead of logits,
the sum of the losses and that of each target.
"""

from __future__ import annotations

from fairseq.models import FairseqLanguageModel
from fairseq.models.roberta.model import RobertaEncoder, RobertaLMHead, RobertaModel
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ..modules.masked_language_model import at_targets
from ..modules.output_loss import loss_of_logits, output_loss
from ..modules.plain_modules import all_plain
from ..ops import linear_cross_entropy


def forward_language_model(
    forward,
    model: FairseqLanguageModel,
    src_tokens: Tensor,
    *arguments,
    targets: Tensor | None = None,
    padding: str | None = None,
    **keywords,
):
    """Around ``FairseqLanguageModel.forward``.

    Args:
        targets: int64 (B, N), ``padding_idx`` where none counts.
        padding: where pads stand, which these models do not ask.

    Raises:
        ValueError: ``targets`` for a model whose output layer is not one matrix.
    """
    if targets is None:
        return forward(model, src_tokens, *arguments, **keywords)
    layer = _output_projection(model)
    features, extra = forward(
        model, src_tokens, *arguments, features_only=True, **keywords
    )
    pad = model.decoder.dictionary.pad()
    return output_loss(layer, features, targets, pad), extra


def _output_projection(model: FairseqLanguageModel) -> nn.Linear:
    decoder = model.decoder
    layer = getattr(decoder, "output_projection", None)
    if (
        not isinstance(decoder, TransformerDecoderBase)
        or decoder.adaptive_softmax is not None
        or type(layer) is not nn.Linear
        or type(decoder).output_layer is not TransformerDecoderBase.output_layer
    ):
        raise ValueError(
            f"{type(model).__name__}, {type(decoder).__name__}: its output layer is "
            "not one matrix; allowed with chunked criterions: this package's models, "
            "fairseq's transformer_lm without an adaptive softmax (with it: criterion "
            "adaptive_loss; others: cross_entropy)"
        )
    return layer


def adaptive_loss(forward, criterion, model: FairseqLanguageModel, *others, **keywords):
    """Around ``AdaptiveLoss.forward``, which asserts that the model has what it needs.

    Raises:
        ValueError: the model has no adaptive softmax.
    """
    decoder = getattr(model, "decoder", model)
    if getattr(decoder, "adaptive_softmax", None) is None:
        raise ValueError(
            f"criterion._name=adaptive_loss: {type(decoder).__name__} has no "
            "adaptive softmax; allowed: chunked_cross_entropy, cross_entropy, "
            "label_smoothed_cross_entropy"
        )
    return forward(criterion, model, *others, **keywords)


def forward_roberta(
    forward,
    model: RobertaModel,
    src_tokens: Tensor,
    *arguments,
    targets: Tensor | None = None,
    target_positions: Tensor | None = None,
    **keywords,
):
    """Around ``RobertaModel.forward``; see ``MaskedLanguageModel.output_loss``."""
    if targets is None:
        return forward(model, src_tokens, *arguments, **keywords)
    features, extra = forward(
        model, src_tokens, *arguments, features_only=True, **keywords
    )
    return _encoder_loss(model.encoder, features, targets, target_positions), extra


def _encoder_loss(
    encoder: RobertaEncoder, features: Tensor, targets: Tensor, positions: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Raises ValueError where another package's RoBERTa has a head of its own."""
    pad, head = encoder.dictionary.pad(), encoder.lm_head
    own_layer = type(encoder).output_layer is not RobertaEncoder.output_layer
    if type(head) is not RobertaLMHead or own_layer:
        raise ValueError(
            f"{type(encoder).__name__}: its output layer is not RoBERTa's; allowed "
            "with chunked criterions: this package's encoders and fairseq's roberta "
            "(others: masked_lm)"
        )
    x, targets = at_targets(features, targets, positions, pad)
    if not all_plain(RobertaLMHead, head):
        return loss_of_logits(head, x, targets, pad)
    x = head.layer_norm(head.activation_fn(head.dense(x)))
    return linear_cross_entropy(x, head.weight, targets, head.bias, ignore_index=pad)

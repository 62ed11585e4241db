"""The bidirectional encoder (the paper's BLM), its classifier, and ``AutoModel``.

Letters: B batch, N length, C width, V vocabulary, L labels.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
)
from transformers.utils import can_return_tuple

from ..checkpoints.manifest import BIDIRECTIONAL, CAUSAL, CLASSIFIER
from ..checkpoints.safe_loading import CheckpointError
from ..modules.encoder_classifier import ClassificationHead, HeadConfig
from .configuration import TransNormerConfig
from .pretrained import TransNormerPreTrainedModel


class TransNormerForMaskedLM(TransNormerPreTrainedModel):
    """``MaskedLanguageModel`` with a loss.

    Args:
        config: of a bidirectional model, or of a classifier, whose head is dropped.
    """

    kinds = (BIDIRECTIONAL, CLASSIFIER)
    # the loss counts the targets of all accumulated batches
    accepts_loss_kwargs = True

    def __init__(self, config: TransNormerConfig):
        # saves have no head either; the caller's configuration keeps it
        super().__init__(config.without_head())
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: Tensor | None = None,
        **others,
    ) -> MaskedLMOutput | tuple:
        """Logits (B, N, V) of the tokens, and a loss; else as ``TransNormerModel``.

        Args:
            labels: int64 (B, N), -100 for those that do not count.
            num_items_in_batch: divisor of the sum of the losses.
        """
        _, x, hidden_states = self._encode(
            input_ids, attention_mask, inputs_embeds, output_hidden_states, others
        )
        logits, loss = self.model.lm_head(x), None
        if labels is not None:
            loss = self.loss_function(
                logits,
                labels,
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=hidden_states)


class TransNormerForSequenceClassification(TransNormerPreTrainedModel):
    """``EncoderClassifier`` with a loss.

    Args:
        config: of a classifier, or of a bidirectional model, which gets a new head for
            ``num_labels``. The output of a regression is the label divided by the
            head's ``target_scale``.
    """

    kinds = (CLASSIFIER, BIDIRECTIONAL)
    has_output = False
    accepts_loss_kwargs = False

    def __init__(self, config: TransNormerConfig):
        super().__init__(config)
        fresh = config.default_head()
        head = config.manifest.head or fresh
        if head.outputs != fresh.outputs:
            # of another problem
            head = replace(
                head,
                outputs=fresh.outputs,
                regression=fresh.regression,
                target_scale=fresh.target_scale,
            )
        self._set_labels(head)
        self.classifier = ClassificationHead(head, config.hidden_size)
        self.post_init()

    def _set_labels(self, head: HeadConfig) -> None:
        """Use the labels of ``id2label``, which a caller may have changed."""
        config = self.config
        labels = [config.id2label.get(i) for i in range(config.num_labels)]
        if None in labels or len({*labels}) < len(labels):
            raise CheckpointError(
                f"id2label={repr(config.id2label)[:80]}; allowed: the numbers 0 to "
                f"{config.num_labels - 1}, each with a label of its own"
            )
        config.set_head(head, list(map(str, labels)))

    def _before_saving(self) -> None:
        head = self.config.manifest.head
        if head is not None:
            self._set_labels(head)

    def _init_weights(self, module) -> None:
        # a checkpoint may lack only these parts
        if module in (self.classifier.dense, self.classifier.out_proj):
            module.reset_parameters()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        inputs_embeds: Tensor | None = None,
        **others,
    ) -> SequenceClassifierOutput | tuple:
        """Logits (B, L) of a text's labels, and a loss; else as ``TransNormerModel``.

        Args:
            labels: of the texts: int64 (B,), or floats for ``problem_type``
                "regression" and "multi_label_classification".
        """
        tokens, x, hidden_states = self._encode(
            input_ids, attention_mask, inputs_embeds, output_hidden_states, others
        )
        real = tokens.ne(self.config.pad_token_id)
        logits, loss = self.classifier(x, real), None
        if labels is not None:
            loss = self.loss_function(
                labels=labels, pooled_logits=logits, config=self.config
            )
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=hidden_states
        )


class TransNormerModel(TransNormerPreTrainedModel):
    """The output of the last layer, before the output layer or a head.

    The output layer stays in the model, so that a save is a complete export. A
    classifier's head is dropped.

    Args:
        config: of any kind.
    """

    kinds = (BIDIRECTIONAL, CAUSAL, CLASSIFIER)
    has_output = False

    def __init__(self, config: TransNormerConfig):
        super().__init__(config.without_head())
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        inputs_embeds: Tensor | None = None,
        **others,
    ) -> BaseModelOutput | tuple:
        """Features of the token at each position.

        Args:
            input_ids: int64 (B, N).
            attention_mask: (B, N), 0 at pads, at any places.
            output_hidden_states: return the embedding and each layer's output, the last
                after the final norm.
            inputs_embeds: (B, N, C), in place of input_ids.
            others: inputs of other models, each without a value.

        Returns:
            last_hidden_state (B, N, C), undefined at pads; hidden_states on request.

        Raises:
            ValueError: an input differs from this description, or is longer than
                max_positions.
        """
        _, x, hidden_states = self._encode(
            input_ids, attention_mask, inputs_embeds, output_hidden_states, others
        )
        return BaseModelOutput(last_hidden_state=x, hidden_states=hidden_states)

"""Features of texts, for transformers' ``AutoModel``.

Letters: B batch, N length, C width.
"""

from __future__ import annotations

from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import can_return_tuple

from ..checkpoints.manifest import BIDIRECTIONAL, CAUSAL, CLASSIFIER
from .configuration import TransNormerConfig
from .pretrained import TransNormerPreTrainedModel


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
